"""What each batch of a seat's query holds, and its way into the sink."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it

from echelon.errors import EchelonError, Unreachable
from echelon.group.own import Own
from echelon.group.world import World
from echelon.members.announcements import Announcements
from echelon.members.clock import now
from echelon.members.handlers import check_plain
from echelon.members.readers import Readers
from echelon.members.sinks.base import Place
from echelon.spark.batch import Offset, Stretch
from echelon.spark.control import Answer
from echelon.spark.in_range import stay_in_range
from echelon.spark.ledger import Ledger
from echelon.spark.limits import choose_ends, spread
from echelon.spark.pipeline import Pipeline
from echelon.spark.process import Where
from echelon.spark.share import Share
from echelon.spark.sinks.base import Part

logger = logging.getLogger(__name__)

_PATIENCE: Final = 1.0
"""Seconds after which the query is told that there is nothing new: it may have something else to do."""
_LOOK: Final = 0.05
"""Seconds between two looks at the ends of the streams."""


class Interrupted(EchelonError):
    """The batch may not be written: this instance is fenced, or the sink holds a later epoch."""


class Batching:
    """Answers what a query asks, and writes what it makes. Used in the event loop's thread, but for `write`.

    `on_change` is called when a batch begins and, with True, when one has ended; `wake` when one was written.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        own: Own,
        readers: Readers,
        shares: Mapping[str, Share],
        *,
        stateful: bool,
        tasks: int,
        on_change: Callable[[bool], None],
        wake: Callable[[], None],
    ) -> None:
        self.world = World()
        self.ledger = Ledger(shares, pipeline.delivery, stateful=stateful)
        self.is_open = True
        """Whether batches may begin: not once the query is to be stopped."""
        self.refusal: Exception | None = None
        """Why the last batch was not written."""
        self.failure: Exception | None = None
        """Why no further batch can be made."""
        self._pipeline = pipeline
        self._tasks = tasks
        self._own = own
        self._readers = readers
        self._shares = shares
        self._announcements = Announcements(own, wake)
        self._on_change = on_change
        self._wake = wake
        self._last_batch = 0.0
        self._loop = asyncio.get_running_loop()

    def heard(self, world: World) -> None:
        """Something was read: what was announced may begin."""
        self.world = world
        self._announcements.heard(world, self._shares)

    async def next_batch(self, start: Offset) -> Answer:
        """What the next batch is, now that Spark has committed `start`; `start` itself if there is none for a while."""
        ended = self.ledger.settle(start, self.world)
        self._on_change(ended)
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            try:
                chosen = await self._choose()
            except Unreachable as error:
                logger.warning("%s; trying again", error)
                chosen = {}
            except EchelonError as error:
                self.failure = error
                self._wake()
                chosen = {}
            if chosen:
                self._last_batch = time.monotonic()
                return Answer(self.ledger.offer(chosen))
            await asyncio.sleep(_LOOK)
        return Answer(start)

    def _ready(self) -> dict[str, Share]:
        """The partitions that may take part in a batch that begins now."""
        if not self.is_open or self.world.cut is not None or self._own.fenced(self.world.interval, now()):
            return {}
        found: dict[str, Share] = {}
        for name, share in self._shares.items():
            partition, run = self.world.partitions.get(name), share.run
            mine = partition is not None and (partition.owner, partition.epoch) == (self._own.id, run.epoch)
            if mine and run.state == "running" and run.ready and not run.refused and share.resolved:
                found[name] = share
        return found

    async def _choose(self) -> dict[str, Stretch]:
        """The stretches of the next batch: what is there, within the limits, when the next is due."""
        if time.monotonic() < self._last_batch + self._pipeline.trigger:
            return {}
        config = self.world.config
        assert config is not None
        held = {stream.name: await self._readers.info(config, stream) for stream in config.streams}
        # Nothing waits from here on, so that nobody drains meanwhile.
        positions: dict[str, int] = {}
        ends: dict[str, int] = {}
        spreads: dict[str, int] = {}
        for name, share in self._ready().items():
            stream, number = config.locate(name)
            if number in held[stream.name].bounds:
                stay_in_range(config, name, held[stream.name], share.run)
                positions[name], ends[name] = share.run.position, held[stream.name].bounds[number].end
                spreads[name] = spread(stream)
        chosen = choose_ends(positions, ends, spreads, self._pipeline.max_messages)
        found = {
            name: Stretch(positions[name], end, self._shares[name].run.epoch)
            for name, end in chosen.items()
            if end > positions[name]
        }
        if found and config.delivery == "at_most_once":
            return await self._announced(found)
        return found

    async def _announced(self, found: Mapping[str, Stretch]) -> dict[str, Stretch]:
        """At most once: the stretches that the group knows to be about to be processed."""
        shares = {name: self._shares[name] for name in found}
        for share in shares.values():
            share.announcing = True
        try:
            accepted = await asyncio.gather(
                *(self._announcements.make(name, shares[name].run, found[name].end, self.world) for name in found)
            )
        finally:
            for share in shares.values():
                share.announcing = False
        return {name: found[name] for name, done in zip(found, accepted, strict=True) if done}

    async def plan(self, end: Offset) -> Answer:
        """What is to be read of a batch, and where."""
        config = self.world.config
        assert config is not None
        parts = self.ledger.plan(end, self.world)
        self._on_change(False)  # noqa: FBT003 - no batch has ended
        alone = len(config.streams) == 1
        places = {
            stream.name: Where(self._pipeline.access, self._pipeline.group, stream, alone) for stream in config.streams
        }
        return Answer(parts, places, self._tasks)

    def write(self, frame: DataFrame, _batch: int) -> None:
        """Write a batch into the sink, in the thread in which Spark calls back. Raises what ends the query."""
        sink = self._pipeline.batch_sink
        assert sink is not None
        stretches = dict(self.ledger.parts)
        try:
            parts = self._parts(stretches)
            if not parts:
                frame.write.format("noop").mode("overwrite").save()  # A state that the query keeps must still be made.
                return
            if len(parts) < len(stretches):
                frame = frame.where(F.col("partition").isin([part.place.partition for part in parts]))
            self._check_written(sink.write(frame, parts))
        except (Interrupted, Unreachable) as error:
            self.refusal = error
            raise
        self._loop.call_soon_threadsafe(self._written, stretches)

    def guarded(self, function: Callable[[DataFrame, int], object]) -> Callable[[DataFrame, int], None]:
        """The user's function of a batch; it is not called once this instance is fenced."""

        def call(frame: DataFrame, batch: int) -> None:
            try:
                self._parts(dict(self.ledger.parts))
            except Interrupted as error:
                self.refusal = error
                raise
            check_plain("the function of a batch", function(frame, batch))

        return call

    def _parts(self, stretches: Offset) -> list[Part]:
        """What is to be written: not what the sink has already. Raises Interrupted if it is not this instance's."""
        world = self.world
        if self._own.fenced(world.interval, now()):
            raise Interrupted("this instance cannot see its own records in the group's log")
        parts: list[Part] = []
        for name, stretch in stretches.items():
            share = self._shares.get(name)
            if share is None or share.run.epoch != stretch.epoch:
                raise Interrupted(f"partition {name} is not this seat's any more")
            place = Place(self._pipeline.group, world.identity, world.made, name)
            if not self._pipeline.exact or share.run.position == stretch.begin:
                parts.append(Part(place, stretch.epoch, stretch.begin, stretch.end))
            elif share.run.position != stretch.end:
                raise Interrupted(f"the sink stands at {share.run.position} in partition {name}")
        return parts

    def _check_written(self, done: bool) -> None:  # noqa: FBT001 - there is nothing else to check
        if not done:
            raise Interrupted("the sink holds a later epoch, or stands elsewhere")

    def _written(self, stretches: Offset) -> None:
        for name, stretch in stretches.items():
            share = self._shares.get(name)
            if share is not None and share.run.epoch == stretch.epoch:
                share.run.position = max(share.run.position, stretch.end)
        self._wake()

"""A seat's streaming query as what its instance works with: partitions come to it and leave it between batches."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from echelon.brokers.base import Broker, StreamInfo
from echelon.errors import EchelonError, Unreachable
from echelon.group.config import Config, Stream
from echelon.group.own import Own
from echelon.group.world import World
from echelon.members.announcements import Announcements
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.readers import Readers
from echelon.members.sinks.base import Place
from echelon.spark.batch import Offset, Stretch
from echelon.spark.checkpoint import Checkpoint
from echelon.spark.control import Answer, Control
from echelon.spark.ledger import Ledger
from echelon.spark.limits import choose_ends, spread
from echelon.spark.output import EachBatch
from echelon.spark.pipeline import Pipeline, check_pipeline
from echelon.spark.process import Where
from echelon.spark.query import Batch, Query
from echelon.spark.share import Share, open_sink
from echelon.spark.sinks.base import Part

logger = logging.getLogger(__name__)

_PATIENCE: Final = 1.0
"""Seconds after which the query is told that there is nothing new: it may have something else to do."""
_LOOK: Final = 0.05
"""Seconds between two looks at the ends of the streams."""
_AGAIN: Final = 0.2
"""Seconds after which a sink that did not answer is asked again."""


class Interrupted(EchelonError):
    """The batch may not be written: this instance is fenced, or the sink holds a later epoch."""


class QueryBench:
    """Runs the query while at least one partition runs, and stops it otherwise. Used in the event loop's thread only.

    The query is run again when it failed, as often as the group retries. `on_batch` is called after each batch.
    """

    def __init__(
        self,
        broker: Broker,
        pipeline: Pipeline,
        spark: SparkSession,
        own: Own,
        wake: Callable[[], None],
        on_batch: Callable[[Batch], None],
    ) -> None:
        self.counters = Counters()
        self.workers: dict[str, Share] = {}
        self._pipeline = pipeline
        self._spark = spark
        self._own = own
        self._wake = wake
        self._on_batch = on_batch
        self._world = World()
        self._readers = Readers(broker, pipeline.group)
        self._announcements = Announcements(own, wake)
        self._failure: Exception | None = None
        self._refusal: Exception | None = None
        self._attempts = 0
        self._query: Query | None = None
        self._driving: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._last_batch = 0.0

    @asynccontextmanager
    async def opened(self, config: Config) -> AsyncGenerator[None]:
        """Check the pipeline against the group, and open its sink. Leaving it stops the query."""
        self._loop = asyncio.get_running_loop()
        stateful = await asyncio.to_thread(check_pipeline, self._pipeline, config, self._spark)
        self._ledger = Ledger(self.workers, exact=self._pipeline.exact, stateful=stateful)
        self._checkpoint = Checkpoint(self._spark, self._pipeline, stateful=stateful)
        async with self._pipeline.batch_sink or nullcontext():
            try:
                yield
            finally:
                self.workers.clear()
                self._stop_query()
                if self._driving is not None:
                    self._driving.cancel()
                    await asyncio.gather(self._driving, return_exceptions=True)
                if self._stopping is not None:
                    await asyncio.gather(self._stopping, return_exceptions=True)

    async def start(self, world: World, name: str, *, idle: bool) -> Share:
        """Start a partition where the world has it."""
        self._world = world
        partition = world.partitions[name]
        run = self._own.start(partition, now(), idle=idle, ready=not self._pipeline.exact)
        self._checkpoint.arrives(world, partition)
        share = Share(
            run,
            partition,
            begin=self._begin,
            interrupt=self._interrupt,
            look=self._look,
            failure=lambda: self._failure,
        )
        self.workers[name] = share
        share.start(idle=idle)
        return share

    def forget(self, name: str) -> bool:
        """Nothing of the partition runs any more."""
        return self.workers.pop(name, None) is not None

    def heard(self, world: World) -> None:
        """Something was read: what was announced may begin."""
        self._world = world
        self._announcements.heard(world, self.workers.keys())

    def save(self, name: str) -> bytes | None:
        """Where the seat's checkpoint is kept, if it has a state: it has drained for a cut."""
        return self._checkpoint.kept_for(self._world)

    async def info(self, stream: Stream) -> StreamInfo:
        """What a stream holds now."""
        assert self._world.config is not None
        return await self._readers.info(self._world.config, stream)

    async def look_at_backlog(self) -> None:
        """Ask how much waits in each partition that is worked on."""
        assert self._world.config is not None
        for name, share in list(self.workers.items()):
            reader, number = await self._readers.of_partition(self._world.config, name)
            share.run.pending = await reader.lag(number, share.run.position)
        self.counters.lag = {name: share.run.pending for name, share in self.workers.items()}

    def _begin(self, share: Share) -> None:
        share.resolved = share.passed_over = False
        share.opening = self._pipeline.exact
        if self._driving is None or self._driving.done():
            self._driving = asyncio.ensure_future(self._drive())
            self._driving.add_done_callback(self._note_end)
        self._look(share)

    def _note_end(self, driving: asyncio.Task[None]) -> None:
        error = None if driving.cancelled() else driving.exception()
        if isinstance(error, Exception):
            self._failure = error
        self._wake()

    def _interrupt(self, share: Share) -> None:
        if share.name in self._ledger.parts or not self._is_running:
            self._stop_query()

    @property
    def _is_running(self) -> bool:
        return any(share.run.state == "running" for share in self.workers.values())

    def _look(self, share: Share) -> None:
        """Whether the share is busy: it takes part in the batch under way, or it is the query's last."""
        last = not self._is_running
        if last and not self._ledger.parts:
            self._stop_query()
        ends = last and (self._query is not None or self._checkpoint.must_keep(self._world))
        share.run.busy = share.opening or share.announcing or share.name in self._ledger.parts or ends

    def _stop_query(self) -> None:
        """Have the query stopped, which takes a moment: `_drive` sees it end."""
        query = self._query
        if query is not None and (self._stopping is None or self._stopping.done()):
            self._stopping = asyncio.ensure_future(asyncio.to_thread(query.stop))

    async def _drive(self) -> None:
        """Open the sink for whoever came, and run the query while there is somebody to run it for."""
        while any(share.opening for share in self.workers.values()) or self._is_running:
            await self._open_shares()
            if self._is_running:
                await self._run_query()
            self._wake()
        cut = self._world.cut
        if cut is not None and self._checkpoint.must_keep(self._world):
            await asyncio.to_thread(self._checkpoint.keep, cut.sequence)
            self._wake()

    async def _open_shares(self) -> None:
        while shares := [share for share in self.workers.values() if share.opening]:
            for share in shares:
                await self._open(share)
                self._wake()

    async def _open(self, share: Share) -> None:
        sink = self._pipeline.batch_sink
        assert sink is not None
        try:
            await open_sink(sink, self._pipeline.group, self._world, share)
        except Unreachable as error:
            logger.warning("%s; trying again", error)
            await asyncio.sleep(_AGAIN)
        else:
            share.opening = False

    async def _run_query(self) -> None:
        """Run the query until it ends, for whatever reason."""
        async with Control(self._next_batch, self._plan) as control:
            where = await asyncio.to_thread(self._checkpoint.prepare)
            output = EachBatch(self._write) if self._pipeline.batch_sink is not None else self._pipeline.output
            self._query = Query(
                self._spark,
                {"seat": control.path},
                self._pipeline.build,
                output,
                where,
                f"{self._pipeline.group}",
            )
            if not self._is_running:
                self._query.stop()
            error = await asyncio.to_thread(self._query.run)
        self._query = None
        self._ledger.drop(self._world)
        refusal, self._refusal = self._refusal, None
        for share in self.workers.values():
            share.resolved = False
            share.opening = self._pipeline.exact and share.run.state == "running"
            self._look(share)
        self._wake()
        if error is not None:
            await self._consider(refusal or error)

    async def _consider(self, error: Exception) -> None:
        """What becomes of the seat now that the query failed. Raises the error when it was tried often enough."""
        config = self._world.config
        assert config is not None
        if isinstance(error, Interrupted | Unreachable):
            logger.warning("the query is run again: %s", error)
            await asyncio.sleep(_AGAIN)
            return
        self._attempts += 1
        if self._attempts > config.retries:
            raise error
        least, most = config.backoff
        pause = min(most, least * 2 ** (self._attempts - 1))
        logger.warning("the query is run again in %g s (%d of %d): %s", pause, self._attempts, config.retries, error)
        self.counters.retries += 1
        await asyncio.sleep(pause)

    async def _next_batch(self, start: Offset) -> Answer:
        """What the next batch is, now that Spark has committed `start`; `start` itself if there is none for a while."""
        ended = self._ledger.settle(start, self._world)
        if ended:
            self._attempts = 0
            self._count()
        for share in self.workers.values():
            self._look(share)
        self._wake()
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            try:
                chosen = await self._choose()
            except EchelonError as error:
                logger.warning("%s; trying again", error)
                chosen = {}
            if chosen:
                self._last_batch = time.monotonic()
                return Answer(self._ledger.offer(chosen))
            await asyncio.sleep(_LOOK)
        return Answer(start)

    def _count(self) -> None:
        async def ask(query: Query) -> None:
            batch = await asyncio.to_thread(query.last_batch)
            if batch is not None:
                self.counters.messages += batch.rows
                self._on_batch(batch)

        if self._query is not None:
            self._asking = asyncio.ensure_future(ask(self._query))

    def _ready(self) -> dict[str, Share]:
        """The partitions that may take part in a batch that begins now."""
        if self._own.fenced(self._world.interval, now()) or self._world.cut is not None:
            return {}
        found: dict[str, Share] = {}
        for name, share in self.workers.items():
            partition, run = self._world.partitions.get(name), share.run
            mine = partition is not None and (partition.owner, partition.epoch) == (self._own.id, run.epoch)
            if mine and run.state == "running" and run.ready and not run.refused and share.resolved:
                found[name] = share
        return found

    async def _choose(self) -> dict[str, Stretch]:
        """The stretches of the next batch: what is there, within the limits, when the next is due."""
        if time.monotonic() < self._last_batch + self._pipeline.trigger:
            return {}
        config = self._world.config
        assert config is not None
        ends: dict[str, int] = {}
        spreads: dict[str, int] = {}
        bounds = {stream.name: (await self._readers.info(config, stream)).bounds for stream in config.streams}
        for name in config.partitions():
            stream, number = config.locate(name)
            if number in bounds[stream.name]:
                ends[name] = bounds[stream.name][number].end
                spreads[name] = spread(stream)
        # Nothing waits from here on, so that nobody drains meanwhile.
        positions = {name: share.run.position for name, share in self._ready().items() if name in ends}
        chosen = choose_ends(positions, ends, spreads, self._pipeline.max_messages)
        found = {
            name: Stretch(positions[name], end, self.workers[name].run.epoch)
            for name, end in chosen.items()
            if end > positions[name]
        }
        if found and config.delivery == "at_most_once":
            return await self._announced(found)
        return found

    async def _announced(self, found: Mapping[str, Stretch]) -> dict[str, Stretch]:
        """At most once: the stretches that the group knows to be about to be processed."""
        shares = {name: self.workers[name] for name in found}
        for share in shares.values():
            share.announcing = True
        try:
            accepted = await asyncio.gather(
                *(self._announcements.make(name, shares[name].run, found[name].end, self._world) for name in found)
            )
        finally:
            for share in shares.values():
                share.announcing = False
        return {name: found[name] for name, done in zip(found, accepted, strict=True) if done}

    async def _plan(self, end: Offset) -> Answer:
        """What is to be read of a batch, and where."""
        config = self._world.config
        assert config is not None
        parts = self._ledger.plan(end, self._world)
        for share in self.workers.values():
            self._look(share)
        alone = len(config.streams) == 1
        places = {
            stream.name: Where(self._pipeline.access, self._pipeline.group, stream, alone) for stream in config.streams
        }
        return Answer(parts, places, self._spark.sparkContext.defaultParallelism)

    def _write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch into the sink, in the thread in which Spark calls back. Raises what ends the query."""
        sink, world = self._pipeline.batch_sink, self._world
        assert sink is not None
        stretches = dict(self._ledger.parts)
        parts = [
            Part(
                Place(self._pipeline.group, world.identity, world.made, name), stretch.epoch, stretch.begin, stretch.end
            )
            for name, stretch in stretches.items()
            if (share := self.workers.get(name)) is not None and share.run.position == stretch.begin
        ]
        if not parts:
            frame.write.format("noop").mode("overwrite").save()  # A state that the query keeps must still be made.
            return
        try:
            self._check_written(not self._own.fenced(world.interval, now()) and sink.write(frame, parts))
        except (Interrupted, Unreachable) as error:
            self._refusal = error
            raise
        self._loop.call_soon_threadsafe(self._written, stretches)

    def _check_written(self, done: bool) -> None:  # noqa: FBT001 - there is nothing else to check
        if not done:
            raise Interrupted("this instance is fenced, or the sink holds a later epoch or stands elsewhere")

    def _written(self, stretches: Offset) -> None:
        for name, stretch in stretches.items():
            share = self.workers.get(name)
            if share is not None and share.run.epoch == stretch.epoch:
                share.run.position = max(share.run.position, stretch.end)
        self._wake()

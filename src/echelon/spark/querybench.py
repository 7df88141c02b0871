"""A seat's streaming query as what its instance works with: partitions come to it and leave it between batches."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from echelon.brokers.base import Broker, StreamInfo
from echelon.errors import Unreachable
from echelon.group.config import Config, Stream
from echelon.group.own import Own
from echelon.group.world import World
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.members.machine import any_gone
from echelon.members.readers import Readers
from echelon.pauses import pause
from echelon.spark.batching import Batching, Interrupted
from echelon.spark.checkpoint import Checkpoint
from echelon.spark.control import Control
from echelon.spark.openings import Openings
from echelon.spark.output import EachBatch, SparkOutput
from echelon.spark.pipeline import Pipeline, check_pipeline
from echelon.spark.query import Batch, JvmGone, Query
from echelon.spark.share import Share

logger = logging.getLogger(__name__)

_AGAIN: Final = 0.2
"""Seconds after which a sink that did not answer is asked again, and the JVM is looked for."""


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
        self._failure: Exception | None = None
        self._attempts = 0
        self._query: Query | None = None
        self._driving: asyncio.Task[None] | None = None
        self._openings = Openings(pipeline.batch_sink, pipeline.group, wake)
        self._stopping: dict[Query, asyncio.Task[None]] = {}
        self._starting = False

    @property
    def failure(self) -> Exception | None:
        """Why this instance cannot go on: the query failed for good, or the JVM is gone."""
        return self._failure or self._openings.failure or self._batching.failure

    @asynccontextmanager
    async def opened(self, config: Config) -> AsyncGenerator[None]:
        """Check the pipeline against the group, and open its sink. Leaving it stops the query."""
        stateful = await asyncio.to_thread(check_pipeline, self._pipeline, config, self._spark)
        self._batching = Batching(
            self._pipeline,
            self._own,
            self._readers,
            self.workers,
            stateful=stateful,
            tasks=self._spark.sparkContext.defaultParallelism,
            on_change=self._note_change,
            wake=self._wake,
        )
        self._checkpoint = Checkpoint(self._spark, self._pipeline, stateful=stateful)
        async with self._pipeline.batch_sink or nullcontext():
            watching = asyncio.ensure_future(self._watch_jvm())
            try:
                yield
            finally:
                watching.cancel()
                self._stop_query()
                await self._end()
                self.workers.clear()

    async def _end(self) -> None:
        """Wait until nothing runs any more."""
        tasks = {*self._openings.tasks, *([self._driving] if self._driving is not None else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._stopping.values(), return_exceptions=True)

    async def _watch_jvm(self) -> None:
        """Who stands by without a JVM must not wait for the seat."""
        machine = self._own.profile.machine
        while machine is None or not any_gone(machine):  # noqa: ASYNC110 - nothing tells when a process ends
            await asyncio.sleep(_AGAIN)
        self._failure = JvmGone("Spark's JVM has ended", remedy="See what it wrote to standard error")
        self._wake()

    async def start(self, world: World, name: str, *, idle: bool) -> Share:
        """Start a partition where the world has it."""
        self._world = world
        partition = world.partitions[name]
        run = self._own.start(partition, now(), idle=idle, ready=not self._pipeline.exact)
        if self._checkpoint.arrives(world, partition):
            self._stop_query()
        share = Share(
            run,
            partition,
            begin=self._begin,
            end=self._end_share,
            look=self._look,
        )
        self.workers[name] = share
        share.start(idle=idle)
        return share

    def forget(self, name: str) -> bool:
        """Nothing of the partition runs any more."""
        self._checkpoint.leaves(name)
        return self.workers.pop(name, None) is not None

    def heard(self, world: World) -> None:
        """Something was read: what was announced may begin."""
        self._world = world
        self._batching.heard(world)
        if self.workers and not self._is_running and self._checkpoint.must_keep(world):
            self._drive_on()

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
        self._openings.begin(share, self._world)
        self._drive_on()
        self._look(share)

    def _drive_on(self) -> None:
        if self._driving is None or self._driving.done():
            self._driving = asyncio.ensure_future(self._drive())
            self._driving.add_done_callback(self._note_end)

    def _note_end(self, driving: asyncio.Task[None]) -> None:
        error = None if driving.cancelled() else driving.exception()
        if isinstance(error, Exception):
            self._failure = error
        elif not driving.cancelled() and self._is_needed:
            self._drive_on()  # Somebody came after it had found nobody, and before it ended.
        self._wake()

    def _end_share(self, share: Share, cancel: bool) -> None:  # noqa: FBT001 - a callback
        if cancel and (share.name in self._batching.ledger.parts or not self._is_running):
            self._stop_query()
        # What is the last one's to wait for becomes everybody's.
        for each in self.workers.values():
            self._look(each)

    @property
    def _is_needed(self) -> bool:
        return self._is_running or bool(self._openings.tasks)

    @property
    def _is_complete(self) -> bool:
        """Whether all partitions that the seat has take part, as they are now: a state is for all of them."""
        owned = self._world.owned(self._own.id)
        return not self._checkpoint.stateful or all(
            partition.name in self.workers and self.workers[partition.name].run.epoch == partition.epoch
            for partition in owned
        )

    @property
    def _is_running(self) -> bool:
        return any(share.run.state == "running" for share in self.workers.values())

    def _look(self, share: Share) -> None:
        """Whether the share is busy: it takes part in the batch under way, or it is the query's last."""
        last = not self._is_running
        announcing = any(each.announcing for each in self.workers.values())
        if last and not self._batching.ledger.parts and not announcing:
            self._stop_query()
        ends = last and (self._query is not None or self._starting or self._checkpoint.must_keep(self._world))
        share.run.busy = share.opening or share.announcing or share.name in self._batching.ledger.parts or ends

    def _stop_query(self) -> None:
        """Have the query stopped, which takes a moment: `_drive` sees it end."""
        query = self._query
        self._batching.is_open = False
        if query is not None and query not in self._stopping:
            self._stopping[query] = asyncio.ensure_future(asyncio.to_thread(query.stop))

    async def _drive(self) -> None:
        """Open the sink for whoever came, and run the query while there is somebody to run it for."""
        while self._is_needed:
            if self._openings.tasks:
                await asyncio.wait(self._openings.tasks)
            elif self._is_complete:
                await self._run_query()
            else:
                await asyncio.sleep(_AGAIN / 4)
            self._wake()
        while (cut := self._world.cut) is not None and self._checkpoint.must_keep(self._world):
            await asyncio.to_thread(self._checkpoint.keep, cut.sequence, self._world)
            self._wake()

    async def _run_query(self) -> None:
        """Run the query until it ends, for whatever reason."""
        self._batching.is_open = True
        async with Control(self._batching.next_batch, self._batching.plan) as control:
            self._starting = True
            try:
                where = await asyncio.to_thread(self._checkpoint.prepare, self._world)
            finally:
                self._starting = False
            if not (self._is_running and self._batching.is_open):
                return
            source = {"seat": control.path}
            group, mode = self._pipeline.group, self._pipeline.mode
            self._query = Query(self._spark, source, self._build, self._output(), where, mode=mode, name=group)
            error = await asyncio.to_thread(self._query.run)
            self._stopping.pop(self._query, None)
        self._query = None
        self._batching.ledger.drop(self._world)
        refusal, self._batching.refusal = self._batching.refusal, None
        for share in self.workers.values():
            share.resolved = False
            if share.run.state == "running":
                self._openings.begin(share, self._world)
            self._look(share)
        self._wake()
        if error is not None:
            await self._consider(refusal or error)

    def _build(self, frame: DataFrame) -> DataFrame:
        assert self._world.config is not None
        return self._pipeline.build(frame, self._world.config)

    def _output(self) -> SparkOutput | EachBatch:
        if self._pipeline.batch_sink is not None:
            return EachBatch(self._batching.write)
        output = self._pipeline.output
        return EachBatch(self._batching.guarded(output.function)) if isinstance(output, EachBatch) else output

    async def _consider(self, error: Exception) -> None:
        """What becomes of the seat now that the query failed. Raises the error when it was tried often enough."""
        config = self._world.config
        assert config is not None
        if isinstance(error, Interrupted | Unreachable):
            logger.warning("the query is run again: %s", error)
            await asyncio.sleep(_AGAIN)
            return
        self._attempts += 1
        if self._attempts > config.retries or isinstance(error, JvmGone):
            raise error
        seconds = pause(*config.backoff, self._attempts - 1)
        logger.warning("the query is run again in %g s (%d of %d): %s", seconds, self._attempts, config.retries, error)
        self.counters.retries += 1
        await asyncio.sleep(seconds)

    def _note_change(self, ended: bool) -> None:  # noqa: FBT001 - a callback
        """A batch begins or has ended."""
        if ended:
            self._attempts = 0
            self._count()
        for share in self.workers.values():
            self._look(share)
        self._wake()

    def _count(self) -> None:
        async def ask(query: Query) -> None:
            batch = await asyncio.to_thread(query.last_batch)
            if batch is not None:
                self.counters.messages += batch.rows
                self._on_batch(batch)

        if self._query is not None:
            self._asking = asyncio.ensure_future(ask(self._query))

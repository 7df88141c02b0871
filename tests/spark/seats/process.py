"""A real Spark application that is a member. Run as `python -m tests.spark.seats.process <json>`; the JSON is a `Cast`.

Depending on its sink it appends a line for each message to a file, as the Python members of the tests do, or writes
to a table or a stream exactly once. It can be told to die at a certain moment of a batch.
"""

import asyncio
import inspect
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from echelon.errors import EchelonError
from echelon.group.config import Delivery, Stream
from echelon.group.records import Profile
from echelon.members.events import Event
from echelon.members.sinks import kafka
from echelon.members.sinks.nats import NatsSink
from echelon.spark.batch import Offset
from echelon.spark.batching import Batching
from echelon.spark.control import Answer
from echelon.spark.output import EachBatch, SparkOutput
from echelon.spark.pipeline import Pipeline, Sink
from echelon.spark.run import Watcher, run_pipeline
from echelon.spark.sinks.base import BatchSink, Part
from echelon.spark.sinks.delta import DeltaSink
from echelon.spark.sinks.kafka import KafkaBatchSink
from echelon.spark.sinks.nats import NatsBatchSink
from echelon.spark.sinks.postgres import PostgresBatchSink
from tests.members.process import Line, Told

Moment = Literal["planned", "reading", "before_write", "writing", "after_write", "committed"]
"""`writing`: the results are there, and the position is not committed yet."""


class Cast(msgspec.Struct, frozen=True):
    """What a process is to be."""

    url: str
    group: str
    name: str
    stream: Stream
    output: str
    folder: str
    member: str | None = None
    priority: int = 0
    delivery: Delivery = "at_least_once"
    sink: Literal["lines", "parquet", "delta", "postgres", "kafka", "nats-ids"] = "lines"
    address: str = ""
    """Of the sink, if it is a server."""
    target: str = ""
    """The schema, topic or stream there."""
    dies: Moment | None = None
    """Kill this process at that moment of its second batch."""
    spared: bool = False
    """Not in its second batch, but once `SparkStage.doom` says so."""
    fails: tuple[Moment, ...] = ()
    """Fail once at each of these moments, one batch after the other."""
    slow: float = 0.0
    """Seconds that a batch takes longer."""
    stateful: Literal["", "window", "processor"] = ""
    """Number the messages of each key, with a state of Spark's: the last of an hour and a batch, or every one."""
    max_messages: int = 200
    master: str = "local[2]"
    shared: bool = False
    options: dict[str, object] = {}


class Numbering(StatefulProcessor):
    """Numbers the messages of a key, in order."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "number long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ANN401, N802, N803 - as Spark has it
        partition, name = key
        [number] = self._last.get() or (0,)
        for row in sorted(rows, key=lambda row: int(row.sequence)):
            number += 1
            yield Row(partition=partition, key=name, sequence=row.sequence, number=number)
        self._last.update((number,))

    def close(self) -> None:
        pass


class Play:
    """The parts of the pipeline, as they are cast."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self._batches = 0
        self._fails = [moment for moment in cast.fails if moment != "reading"]
        self._doom = doom_of(cast.folder, cast.name)
        self._lines = os.open(cast.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._told = os.open(f"{cast.output}.told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def reach(self, moment: Moment) -> None:
        """Die or fail, if that was told for this moment."""
        if moment == "planned":
            self._batches += 1
            if self.cast.dies and self._batches > 1 and not self.cast.spared:
                self._doom.touch()
        if moment == self.cast.dies and self._doom.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fails and self._fails[0] == moment and self._batches > 1:
            del self._fails[0]
            raise EchelonError(f"told to fail: {moment}")

    def pipeline(self) -> Pipeline:
        cast = self.cast
        return Pipeline(
            function=self.function(),
            group=cast.group,
            stream=cast.stream.name,
            sink=self.sink(),
            broker=cast.url,
            partitions=cast.stream.partitions,
            partitioning=cast.stream.partitioning,
            delivery=cast.delivery,
            mode="update" if cast.stateful else "append",
            max_messages=cast.max_messages,
            checkpoint=f"{cast.folder}/checkpoints",
            shared=cast.shared,
            options=cast.options,
        )

    def function(self) -> Callable[[DataFrame], DataFrame]:
        slow, driver, doom = self.cast.slow, os.getpid() if self.cast.dies == "reading" else 0, self._doom
        failed = Path(self.cast.folder, "failed") if "reading" in self.cast.fails else None
        last = str(self.cast.stream.partitions - 1)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                time.sleep(slow)
                yield batch
                # The tasks of the other partitions were begun before, and most of them have ended.
                if driver and batch["partition"][0].as_py() == last and doom.exists():
                    os.kill(driver, signal.SIGKILL)
                    time.sleep(60)  # The JVM ends a moment later, and the batch must not end before.
                if failed is not None and not failed.exists():
                    failed.touch()
                    raise ValueError("told to fail: reading")

        columns: dict[str, tuple[str, ...]] = {
            "postgres": (),
            "kafka": ("concat(partition, ':', sequence) AS data",),
            "nats-ids": ("concat(partition, ':', sequence) AS data",),
        }

        def numbered(frame: DataFrame) -> DataFrame:
            counted = frame.groupBy("partition", "key", F.window("timestamp", "1 hour")).agg(
                F.max("sequence").alias("sequence"), F.count("*").alias("number")
            )
            return counted.drop("window")

        def plain(frame: DataFrame) -> DataFrame:
            some = frame.selectExpr("partition", "sequence", *columns.get(self.cast.sink, ("key", "data")))
            return some.mapInArrow(work, some.schema) if slow or driver or failed else some

        def each_numbered(frame: DataFrame) -> DataFrame:
            grouped = frame.select("partition", "key", "sequence").groupBy("partition", "key")
            columns = "partition string, key binary, sequence long, number long"
            return grouped.transformWithState(Numbering(), columns, "Update", "None")

        return {"": plain, "window": numbered, "processor": each_numbered}[self.cast.stateful]

    def sink(self) -> Sink:
        if self.cast.sink == "lines":
            return EachBatch(self.write_lines)
        if self.cast.sink == "parquet":
            return SparkOutput("parquet", {"path": f"{self.cast.folder}/files"})
        return Watched(self.batch_sink(), self)

    def batch_sink(self) -> BatchSink:
        address, target = self.cast.address, self.cast.target
        if self.cast.sink == "delta":
            watch_calls(DeltaSink, "_check_files", self)
            return DeltaSink(f"{self.cast.folder}/table")
        if self.cast.sink == "kafka":
            flush_results()
            watch_calls(kafka, "_produce", self)
            return KafkaBatchSink(address, target)
        if self.cast.sink == "nats-ids":
            watch_calls(NatsSink, "_publish_with_ids", self)
            return NatsBatchSink(address, target, f"{target}.result", atomic=False)
        return PostgresBatchSink(address, f"{target}.results", positions=f"{target}.positions")

    def write_lines(self, frame: DataFrame, batch: int) -> None:
        """Append a line for each message, in order."""
        called = time.monotonic()
        for row in frame.toLocalIterator():
            key, data = (bytes(value or b"").decode() for value in (row.key, row.data))
            now = time.monotonic()
            line = Line(self.cast.name, row.partition, row.sequence, key, data, 0, called, now, now)
            os.write(self._lines, msgspec.json.encode(line) + b"\n")

    def tell(self, event: Event) -> None:
        told = Told(time.monotonic(), self.cast.name, type(event).__name__, msgspec.structs.asdict(event))
        os.write(self._told, msgspec.json.encode(told) + b"\n")


def doom_of(folder: str | Path, name: str) -> Path:
    """The file that is there once a process is to die at its moment: its tasks, which are other processes, see it."""
    return Path(folder, f"{name}.doom")


class Watched:
    """A sink at whose sides the process may die."""

    def __init__(self, sink: BatchSink, play: Play) -> None:
        self._sink = sink
        self._play = play
        self.open = sink.open

    async def __aenter__(self) -> Self:
        await self._sink.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._sink.__aexit__(*exception)

    def write(self, frame: DataFrame, parts: Sequence[Part]) -> bool:
        self._play.reach("before_write")
        done = self._sink.write(frame, parts)
        self._play.reach("after_write")
        return done


def watch_batches(play: Play) -> None:
    """Let the play know when a batch is planned and when Spark has committed one."""
    plan, next_batch = Batching.plan, Batching.next_batch

    async def watched_plan(self: Batching, end: Offset) -> Answer:
        play.reach("planned")
        return await plan(self, end)

    async def watched_next(self: Batching, start: Offset) -> Answer:
        if self.ledger.parts:
            play.reach("committed")
        return await next_batch(self, start)

    Batching.plan = watched_plan  # type: ignore[method-assign]  # nothing else tells these moments
    Batching.next_batch = watched_next  # type: ignore[method-assign]  # the same


def flush_results() -> None:
    """Have results on Kafka before their transaction is committed: the sink itself leaves the order to the producer."""
    produce = kafka._produce

    def flushed(producer: Producer, records: Sequence[kafka.Record], failures: list[EchelonError]) -> None:
        produce(producer, records, failures)
        producer.flush(10)

    kafka._produce = flushed


def watch_calls(owner: object, name: str, play: Play) -> None:
    """Let the play know when a sink has made the call after which it has only to commit."""
    call = getattr(owner, name)

    def watched(*arguments: object) -> object:
        done = call(*arguments)
        if not inspect.isawaitable(done):
            play.reach("writing")
            return done

        async def waited() -> None:
            await done
            play.reach("writing")

        return waited()

    setattr(owner, name, watched)


def main() -> None:
    cast = msgspec.json.decode(sys.argv[1], type=Cast)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    play = Play(cast)
    watch_batches(play)
    profile = Profile(name=cast.name, member=cast.member, priority=cast.priority)
    try:
        watcher = Watcher(on_event=play.tell)
        asyncio.run(run_pipeline(play.pipeline(), profile, master=cast.master, watcher=watcher))
    except EchelonError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()

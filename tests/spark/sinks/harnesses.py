"""The real places that batches go to in these tests, each with its sink and a reader of its own.

A result is a partition and the sequence of the message that it was made from.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import psycopg
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from echelon.members.sinks.base import Place
from echelon.spark.sinks.base import BatchSink, Part
from echelon.spark.sinks.delta import DeltaSink
from echelon.spark.sinks.kafka import KafkaBatchSink
from echelon.spark.sinks.nats import NatsBatchSink
from echelon.spark.sinks.postgres import PostgresBatchSink
from tests.members.sinks import harnesses as members
from tests.members.sinks.harnesses import Results, by_partition


class BatchHarness(ABC):
    """One place for results."""

    kind: ClassVar[str]
    takes_back: ClassVar[bool]

    def __init__(self, spark: SparkSession, address: str, name: str) -> None:
        self.spark = spark
        self.address = address
        self.name = name

    def place(self, partition: str = "0", *, identity: str = "i1", made: int = 1) -> Place:
        """A partition of a group that writes here."""
        return Place(self.name, identity, made, partition)

    def frame(self, rows: Mapping[str, Iterable[int]]) -> DataFrame:
        """A batch's results: each partition's sequences, which have no gaps, in order over two tasks."""
        frames = [self._frame(partition, list(sequences)) for partition, sequences in rows.items()]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.union(frame)
        return whole

    def _frame(self, partition: str, sequences: list[int]) -> DataFrame:
        begin, end = (sequences[0], sequences[-1] + 1) if sequences else (0, 0)
        columns = (f"'{partition}' partition", "id sequence", f"concat('{partition}:', id) data")
        return self.spark.range(begin, end, 1, 2).selectExpr(*columns)

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Make room for results."""

    @abstractmethod
    def sink(self) -> BatchSink:
        """A sink with connections of its own."""

    @abstractmethod
    async def results(self) -> Results:
        """What any reader sees: the sequences of each partition, in order; of a table, sorted."""


class DeltaHarness(BatchHarness):
    """The address is a folder."""

    kind = "delta"
    takes_back = True

    def sink(self) -> DeltaSink:
        return DeltaSink(self.address)

    async def results(self) -> Results:
        try:
            rows = DeltaTable(self.address).to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return {}
        return by_partition(sorted((row["partition"], row["sequence"]) for row in rows))


class PostgresHarness(BatchHarness):
    """The address is a connection string; the name is that of a schema."""

    kind = "postgres"
    takes_back = True

    async def prepare(self) -> None:
        with psycopg.connect(self.address) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.name)))

    def sink(self) -> PostgresBatchSink:
        return PostgresBatchSink(self.address, f"{self.name}.results", positions=f"{self.name}.positions", timeout=5)

    async def results(self) -> Results:
        table = sql.Identifier(self.name, "results")
        with psycopg.connect(self.address) as connection:
            [[there]] = connection.execute("SELECT to_regclass(%s)", (table.as_string(connection),))
            if there is None:
                return {}
            query = sql.SQL("SELECT partition, sequence FROM {} ORDER BY 1, 2").format(table)
            return by_partition(connection.execute(query))


class KafkaHarness(BatchHarness):
    """The address is a URL; the name is that of a topic of one partition."""

    kind = "kafka"
    takes_back = False

    async def prepare(self) -> None:
        await members.KafkaHarness(self.address, self.name).prepare()

    def sink(self) -> KafkaBatchSink:
        return KafkaBatchSink(self.address, self.name, timeout=5)

    async def results(self) -> Results:
        return await members.KafkaHarness(self.address, self.name).results()


class NatsHarness(BatchHarness):
    """The address is a URL; the name is that of a stream."""

    kind = "nats"
    takes_back = False

    async def prepare(self) -> None:
        await members.NatsHarness(self.address, self.name).prepare()

    def sink(self) -> NatsBatchSink:
        return NatsBatchSink(self.address, self.name, f"{self.name}.result", timeout=5)

    async def results(self) -> Results:
        return await members.NatsHarness(self.address, self.name).results()


KINDS = {each.kind: each for each in (DeltaHarness, PostgresHarness, KafkaHarness, NatsHarness)}


class Seat:
    """Owns partitions under one epoch, and writes batches of them as a seat does."""

    def __init__(
        self,
        harness: BatchHarness,
        sink: BatchSink,
        epoch: int,
        partitions: str = "0",
        *,
        reset: int = 0,
        identity: str = "i1",
        made: int = 1,
    ) -> None:
        self.harness = harness
        self.sink = sink
        self.epoch = epoch
        self.reset = reset
        self.places = {name: harness.place(name, identity=identity, made=made) for name in partitions}
        self.positions = dict.fromkeys(partitions, 0)

    async def open(self, position: int = 0, *, keep: bool = False) -> list[int | None]:
        """Open the epoch for all partitions; `position` is the log's."""
        found = []
        for name, place in self.places.items():
            at = await self.sink.open(place, epoch=self.epoch, reset=self.reset, position=position, keep=keep)
            found.append(at)
            if at is not None:
                self.positions[name] = at
        return found

    async def write(self, end: int, *, begin: int | None = None, frame: DataFrame | None = None) -> bool:
        """A batch of all partitions up to `end`, in a thread as Spark does it."""
        ranges = {name: (at if begin is None else begin, end) for name, at in self.positions.items()}
        parts = [Part(self.places[name], self.epoch, *stretch) for name, stretch in ranges.items()]
        if frame is None:
            frame = self.harness.frame({name: range(*stretch) for name, stretch in ranges.items()})
        done = await asyncio.to_thread(self.sink.write, frame, parts)
        if done:
            self.positions = dict.fromkeys(self.positions, end)
        return done

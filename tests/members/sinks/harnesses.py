"""The real places that results go to in these tests, each with its sink, a handler, and a reader of its own.

A harness can be made again from its kind, address and name, so that other processes can write to the same place.
A result is a partition and the sequence of the message that it was made from.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from typing import Any, ClassVar

import nats
import psycopg
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from psycopg import sql

from echelon.members.sinks import kafka
from echelon.members.sinks import nats as nats_sink
from echelon.members.sinks.base import Place, Sink
from echelon.members.sinks.kafka import KafkaSink
from echelon.members.sinks.nats import NatsSink
from echelon.members.sinks.postgres import PostgresSink
from echelon.members.sinks.sqlite import SqliteSink
from tests.brokers.nats.harness import call, make_stream

Results = dict[str, list[int]]


class SinkHarness(ABC):
    """One place for results."""

    kind: ClassVar[str]

    def __init__(self, address: str, name: str) -> None:
        self.address = address
        self.name = name

    def place(self, partition: str = "0", *, identity: str = "i1", made: int = 1) -> Place:
        """A partition of a group that writes here."""
        return Place(self.name, identity, made, partition)

    @abstractmethod
    async def prepare(self) -> None:
        """Make room for results."""

    @abstractmethod
    def sink(self, *, take_back: bool = False, timeout: float = 5.0) -> Sink:
        """A sink with connections of its own, which can take back results or not."""

    @abstractmethod
    def write(self, target: Any, partition: str, sequence: int) -> None:  # noqa: ANN401 - each sink has its own
        """What a handler does."""

    @abstractmethod
    async def results(self) -> Results:
        """What any reader sees: the sequences of each partition, in the order in which they are stored."""


class SqliteHarness(SinkHarness):
    """The address is the path of a file."""

    kind = "sqlite"

    async def prepare(self) -> None:
        with closing(sqlite3.connect(self.address)) as connection:
            connection.execute("CREATE TABLE results (id INTEGER PRIMARY KEY, partition TEXT, sequence INTEGER)")

    def sink(self, *, take_back: bool = False, timeout: float = 5.0) -> SqliteSink:
        return SqliteSink(self.address, self._take_back if take_back else None, timeout=timeout)

    def write(self, target: sqlite3.Cursor, partition: str, sequence: int) -> None:
        target.execute("INSERT INTO results (partition, sequence) VALUES (?, ?)", (partition, sequence))

    async def results(self) -> Results:
        with closing(sqlite3.connect(self.address)) as connection:
            return by_partition(connection.execute("SELECT partition, sequence FROM results ORDER BY id"))

    @staticmethod
    def _take_back(cursor: sqlite3.Cursor, partition: str, position: int) -> None:
        cursor.execute("DELETE FROM results WHERE partition = ? AND sequence >= ?", (partition, position))


class PostgresHarness(SinkHarness):
    """The address is a connection string; the name is that of a schema."""

    kind = "postgres"

    async def prepare(self) -> None:
        with psycopg.connect(self.address) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.name)))
            connection.execute(
                sql.SQL("CREATE TABLE {} (id bigserial, partition text, sequence bigint)").format(self._table)
            )

    def sink(self, *, take_back: bool = False, timeout: float = 5.0) -> PostgresSink:
        function = self._take_back if take_back else None
        return PostgresSink(self.address, function, table=f"{self.name}.positions", timeout=timeout)

    def write(self, target: psycopg.Cursor[Any], partition: str, sequence: int) -> None:
        query = sql.SQL("INSERT INTO {} (partition, sequence) VALUES (%s, %s)").format(self._table)
        target.execute(query, (partition, sequence))

    async def results(self) -> Results:
        with psycopg.connect(self.address) as connection:
            query = sql.SQL("SELECT partition, sequence FROM {} ORDER BY id").format(self._table)
            return by_partition(connection.execute(query))

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self.name, "results")

    def _take_back(self, cursor: psycopg.Cursor[Any], partition: str, position: int) -> None:
        query = sql.SQL("DELETE FROM {} WHERE partition = %s AND sequence >= %s").format(self._table)
        cursor.execute(query, (partition, position))


class KafkaHarness(SinkHarness):
    """The address is a URL; the name is that of a topic of one partition, so that all results are in one order."""

    kind = "kafka"

    def __init__(self, address: str, name: str) -> None:
        super().__init__(address, name)
        self.servers = address.removeprefix("kafka://")
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    async def prepare(self) -> None:
        making = self.admin.create_topics([NewTopic(self.name, 1, 1)], operation_timeout=10)[self.name]
        await asyncio.wrap_future(making)

    def sink(self, *, take_back: bool = False, timeout: float = 5.0) -> KafkaSink:
        return KafkaSink(self.address, timeout=timeout)

    def write(self, target: kafka.Outbox, partition: str, sequence: int) -> None:
        target.send(self.name, f"{partition}:{sequence}".encode(), partition.encode())

    async def results(self) -> Results:
        messages = await asyncio.to_thread(self.read, self.name, 1)
        return by_partition(split(message.value() or b"") for message in messages)

    def read(self, topic: str, partitions: int) -> list[Message]:
        """Everything that is committed to a topic. Blocks."""
        properties: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "group.id": self.name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
        consumer = Consumer(properties)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        found: list[Message] = []
        ends: set[int | None] = set()
        while len(ends) < partitions:
            for message in consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.name() == "_PARTITION_EOF":
                    ends.add(message.partition())
        consumer.close()
        return found


class NatsHarness(SinkHarness):
    """The address is a URL; the name is that of a stream."""

    kind = "nats"
    atomic = True

    async def prepare(self) -> None:
        subjects = [f"{self.name}.*", f"echelon.position.{self.name}.>"]
        await make_stream(self.address, self.name, subjects, allow_rollup_hdrs=True, allow_atomic=self.atomic)

    def sink(self, *, take_back: bool = False, timeout: float = 5.0) -> NatsSink:
        return NatsSink(self.address, self.name, atomic=self.atomic, timeout=timeout)

    def write(self, target: nats_sink.Outbox, partition: str, sequence: int) -> None:
        target.send(f"{self.name}.result", f"{partition}:{sequence}".encode())

    async def results(self) -> Results:
        details = await call(self.address, f"STREAM.INFO.{self.name}", {"subjects_filter": f"{self.name}.*"})
        count = sum((details["state"].get("subjects") or {}).values())
        client = await nats.connect(self.address)
        try:
            subscription = await client.jetstream().subscribe(f"{self.name}.*", ordered_consumer=True)
            return by_partition([split((await subscription.next_msg(5)).data) for _ in range(count)])
        finally:
            await client.close()


class NatsIdsHarness(NatsHarness):
    """The same without atomic batches."""

    kind = "nats-ids"
    atomic = False


def split(data: bytes) -> tuple[str, int]:
    """A result from its bytes."""
    partition, _, sequence = data.decode().rpartition(":")
    return partition, int(sequence)


def by_partition(rows: Iterable[tuple[Any, ...]]) -> Results:
    """The sequences of each partition, in order."""
    results: Results = defaultdict(list)
    for partition, sequence in rows:
        results[partition].append(sequence)
    return dict(results)


KINDS = {each.kind: each for each in (SqliteHarness, PostgresHarness, KafkaHarness, NatsHarness, NatsIdsHarness)}


def make_harness(kind: str, address: str, name: str) -> SinkHarness:
    """The harness of that kind."""
    return KINDS[kind](address, name)

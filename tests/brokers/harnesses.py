"""Harnesses of the contract suite: the server in memory, and the real Kafka."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.memory import MemoryBroker, MemoryServer
from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.local import KafkaServer
from echelon.testing.contract import Sent
from tests.kafka_security import KafkaSecurity

T = TypeVar("T")


class MemoryHarness:
    """The broker in memory, whose outages are imitated."""

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self.server = MemoryServer.named(name)

    def connect(self, *, timeout: float = 5.0) -> MemoryBroker:
        return MemoryBroker(self.url)

    async def create_stream(self, name: str, partitions: int) -> Stream:
        self.server.create_stream(name)
        return Stream(name, partitions)

    async def delete_stream(self, stream: Stream) -> None:
        self.server.delete_stream(stream.name)

    async def publish(self, stream: Stream, messages: Sequence[Sent]) -> None:
        async with self.connect() as broker:
            writer = await broker.writer()
            for sent in messages:
                await writer.write(self.subject(stream, sent.key), sent.data, headers=sent.headers)

    async def truncate(self, group: str, stream: Stream, partition: int, before: int) -> None:
        self.server.streams[stream.name].trim(before)

    def subject(self, stream: Stream, key: str) -> str:
        return f"{stream.name}.{key}"

    async def stop(self) -> None:
        self.server.stop()

    async def start(self) -> None:
        self.server.start()


class KafkaHarness:
    """A real Kafka, filled by a plain producer. `security` is what it wants of clients, if it wants anything."""

    def __init__(self, server: KafkaServer, security: KafkaSecurity | None = None) -> None:
        self.server = server
        self.options = {f"kafka.{name}": value for name, value in security.client().items()} if security else {}
        self.servers = server.url.removeprefix("kafka://")
        properties: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "reconnect.backoff.max.ms": 500,
            "allow.auto.create.topics": False,
            "log_level": 0,
            **(security.client() if security else {}),
        }
        self.admin = AdminClient(properties)
        self.producer = Producer({**properties, "partitioner": "murmur2_random", "enable.idempotence": True})

    def connect(self, *, timeout: float = 5.0) -> KafkaBroker:
        return KafkaBroker(self.server.url, timeout=timeout, **self.options)

    async def create_stream(self, name: str, partitions: int) -> Stream:
        await result(self.admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=10)[name])
        await self.settle(name, partitions)
        return Stream(name, partitions, RecordKey(), "native")

    async def delete_stream(self, stream: Stream) -> None:
        await result(self.admin.delete_topics([stream.name], operation_timeout=10)[stream.name])
        await self.settle(stream.name, 0)

    async def publish(self, stream: Stream, messages: Sequence[Sent]) -> None:
        await asyncio.to_thread(self._publish, stream.name, messages)

    async def truncate(self, group: str, stream: Stream, partition: int, before: int) -> None:
        place = TopicPartition(stream.name, partition, before)
        await result(self.admin.delete_records([place])[place])

    def subject(self, stream: Stream, key: str) -> str:
        return stream.name

    async def stop(self) -> None:
        await asyncio.to_thread(self.server.stop)

    async def start(self) -> None:
        await asyncio.to_thread(self.server.start)

    async def settle(self, topic: str, partitions: int) -> None:
        """Wait until the broker knows that a topic has so many partitions."""
        await asyncio.to_thread(self._settle, topic, partitions)

    def _settle(self, topic: str, partitions: int) -> None:
        """Wait until the broker knows of a topic's making or deletion, which is a moment after the controller."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            known = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
            if sum(partition.leader >= 0 for partition in known.values()) == partitions:
                return
            time.sleep(0.02)
        raise AssertionError(f"the broker does not know of {topic} yet")

    def _publish(self, topic: str, messages: Sequence[Sent]) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(error)

        for sent in messages:
            headers: dict[str, str | bytes | None] = {**sent.headers}
            self.producer.produce(topic, sent.data, sent.key.encode(), headers=headers, on_delivery=delivered)
        assert self.producer.flush(60) == 0
        assert not failures


async def result(answer: "Future[T]") -> T:
    """What Kafka's administrative client answers."""
    return await asyncio.wrap_future(answer)

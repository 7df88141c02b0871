"""What only Kafka's data has: its partitioner, transactions, compaction, and topics that gain partitions."""

import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions, NewTopic

from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.kafka.reader import KafkaReader
from echelon.errors import NotPartitionable, OutOfRange, StreamNotFound
from echelon.group.config import Partitioning, Stream
from echelon.keys import Key, RecordKey, SubjectKey, kafka_partition
from echelon.model import Message
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name, read_all, take, whole
from tests.brokers.harnesses import KafkaHarness, result
from tests.servers import KafkaServers

PARTITIONS = 12


def test_the_partition_of_10000_random_keys_is_that_of_a_real_producer(kafka_harness: KafkaHarness) -> None:
    chance = random.Random(4)
    keys = {chance.randbytes(chance.randrange(40)) for _ in range(10_000)}

    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("keys"), PARTITIONS)
        for key in keys:
            kafka_harness.producer.produce(stream.name, key, key)
        assert kafka_harness.producer.flush(60) == 0
        async with kafka_harness.connect() as broker:
            writer = await broker.writer()
            await asyncio.gather(*(writer.write(stream.name, key, key=key) for key in keys))
            content = await whole(await broker.reader("group", stream), 2 * len(keys))
        for number, messages in content.items():
            assert {kafka_partition(message.data, PARTITIONS) for message in messages} == {number}
        assert sum(map(len, content.values())) == 2 * len(keys)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "partitioning"), [(RecordKey(), "computed"), (SubjectKey(), "native"), (RecordKey(), "derived")]
)
def test_a_topic_cannot_be_partitioned_anew(kafka_harness: KafkaHarness, key: Key, partitioning: Partitioning) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 3)
        async with kafka_harness.connect() as broker:
            with pytest.raises(NotPartitionable, match="native"):
                await broker.prepare("group", Stream(stream.name, 3, key, partitioning))

    asyncio.run(scenario())


def test_partitions_that_a_topic_gains_are_seen_and_read(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        described = await kafka_harness.create_stream(name("growing"), 2)
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", await broker.prepare("group", described))
            assert sorted((await reader.info()).bounds) == [0, 1]
            grown = NewPartitions(described.name, 5)
            await result(kafka_harness.admin.create_partitions([grown])[described.name])
            async with asyncio.timeout(10):
                while len((await reader.info()).bounds) < 5:
                    await asyncio.sleep(0.05)
            assert (await broker.prepare("group", described)).partitions == 5
            for number in range(5):
                kafka_harness.producer.produce(described.name, f"{number}", partition=number)
            kafka_harness.producer.flush(30)
            content = await whole(reader, 5)
            assert {number: [m.data for m in messages] for number, messages in content.items()} == {
                number: [f"{number}".encode()] for number in range(5)
            }
            assert await take(reader.tail(4, 0), 1) == content[4]

    asyncio.run(scenario())


def test_a_partition_that_is_not_there_is_not_found(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("small"), 2)
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            with pytest.raises(StreamNotFound, match="no partition 7"):
                await read_all(reader, 7, 0, 1)

    asyncio.run(scenario())


@contextmanager
def transactions(harness: KafkaHarness) -> Iterator[Producer]:
    properties = {"bootstrap.servers": harness.servers, "transactional.id": name("transactions"), "log_level": 0}
    producer = Producer(properties)
    producer.init_transactions(30)
    yield producer
    producer.flush(30)


def write_transaction(producer: Producer, topic: str, data: list[str], *, commit: bool) -> None:
    producer.begin_transaction()
    for each in data:
        producer.produce(topic, each, "key")
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


async def open_reader(broker: KafkaBroker, topic: str) -> KafkaReader:
    stream = await broker.prepare("group", Stream(topic, 1, RecordKey(), "native"))
    return await broker.reader("group", stream)


async def wait_for_end(reader: KafkaReader, end: int) -> None:
    """A transaction has ended only when its marker is in the partition, a little after its commit returns."""
    async with asyncio.timeout(30):
        while (await reader.info()).bounds[0].end != end:
            await asyncio.sleep(0.02)


async def read_data(reader: KafkaReader, start: int, end: int) -> list[str]:
    return [message.data.decode() for message in await read_all(reader, 0, start, end)]


def test_aborted_messages_and_the_markers_of_transactions_are_no_loss(kafka_harness: KafkaHarness) -> None:
    topic = name("transactions")

    async def scenario() -> None:
        await kafka_harness.create_stream(topic, 1)
        with transactions(kafka_harness) as producer:
            write_transaction(producer, topic, ["a", "b"], commit=True)  # 0 1, marker 2
            write_transaction(producer, topic, ["c", "d"], commit=False)  # 3 4, marker 5
            write_transaction(producer, topic, ["e"], commit=True)  # 6, marker 7
            async with kafka_harness.connect() as broker:
                reader = await open_reader(broker, topic)
                await wait_for_end(reader, 8)
                everything = {0: "a", 1: "b", 6: "e"}
                for start in range(9):
                    for end in range(start, 9):
                        expected = [data for offset, data in everything.items() if start <= offset < end]
                        assert await read_data(reader, start, end) == expected, (start, end)
                tail = reader.tail(0, 1)
                assert [message.data for message in await take(tail, 2)] == [b"b", b"e"]
                await asyncio.to_thread(write_transaction, producer, topic, ["f"], commit=True)
                assert [message.data for message in await take(tail, 1)] == [b"f"]
                await tail.aclose()

    asyncio.run(scenario())


def test_the_end_is_before_a_transaction_that_is_still_open(kafka_harness: KafkaHarness) -> None:
    topic = name("open")

    async def scenario() -> None:
        await kafka_harness.create_stream(topic, 1)
        with transactions(kafka_harness) as producer:
            write_transaction(producer, topic, ["a", "b"], commit=True)
            producer.begin_transaction()
            producer.produce(topic, "open", "key")
            producer.flush(30)
            async with kafka_harness.connect() as broker:
                reader = await open_reader(broker, topic)
                await wait_for_end(reader, 3)
                assert await read_data(reader, 0, 3) == ["a", "b"]
                assert await reader.lag(0, 2) == 1
                with pytest.raises(OutOfRange):
                    await read_data(reader, 0, 4)
                producer.commit_transaction(30)
                await wait_for_end(reader, 5)
                assert await read_data(reader, 0, 5) == ["a", "b", "open"]
            async with KafkaBroker(kafka_harness.server.url, **{"kafka.isolation.level": "read_uncommitted"}) as broker:
                producer.begin_transaction()
                producer.produce(topic, "seen", "key")
                producer.flush(30)
                reader = await open_reader(broker, topic)
                assert await read_data(reader, 3, 6) == ["open", "seen"]
                producer.abort_transaction(30)

    asyncio.run(scenario())


def test_the_gaps_of_a_compacted_topic_are_no_loss(kafka_servers: KafkaServers) -> None:
    harness = KafkaHarness(kafka_servers(properties={"log.cleaner.backoff.ms": "200"}))
    topic = name("compacted")
    config = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "500",
    }

    async def scenario() -> None:
        await result(harness.admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic])
        stream = Stream(topic, 1, RecordKey(), "native")
        for n in range(100):
            await harness.publish(stream, [Sent("same", f"{n}".encode()), Sent(f"{n}", b"kept")])
        async with harness.connect() as broker:
            reader = await open_reader(broker, topic)

            async def read(start: int, end: int) -> list[Message]:
                # The records that roll the segments are still being compacted.
                return [message for message in await read_all(reader, 0, start, end) if message.key != b"roll"]

            messages: list[Message] = []
            async with asyncio.timeout(60):
                while len(messages) != 101:
                    await asyncio.sleep(0.2)
                    await harness.publish(stream, [Sent("roll", b"")])
                    end = (await reader.info()).bounds[0].end
                    messages = await read(0, end)
            assert [m.key for m in messages if m.data == b"kept"] == [f"{n}".encode() for n in range(100)]
            assert [m.data for m in messages if m.key == b"same"] == [b"99"]
            assert await read(0, messages[0].sequence) == []
            for start in range(0, end, 17):
                expected = [message for message in messages if start <= message.sequence < start + 17]
                assert await read(start, min(start + 17, end)) == expected

    asyncio.run(scenario())


def test_a_missing_key_or_value_or_header_value_is_read(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("missing"), 1)
        kafka_harness.producer.produce(stream.name, None, "deleted", headers={"empty": None, "full": "x"})
        kafka_harness.producer.produce(stream.name, "no key")
        kafka_harness.producer.flush(30)
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            messages = (await whole(reader, 2))[0]
            rows = [row async for batch in reader.read_arrow(0, 0, 2) for row in batch.to_pylist()]
        assert [(message.key, message.data) for message in messages] == [(b"deleted", b""), (None, b"no key")]
        assert messages[0].headers == (("empty", b""), ("full", b"x"))
        assert [(row["key"], row["data"]) for row in rows] == [(b"deleted", b""), (None, b"no key")]
        assert rows[0]["headers"] == [{"name": "empty", "value": b""}, {"name": "full", "value": b"x"}]

    asyncio.run(scenario())


def test_the_first_record_of_a_connection_does_not_wait_half_a_second(kafka_harness: KafkaHarness) -> None:
    """As it does when the producer gets it before it is connected: then each administrative command would."""

    async def first_write(topic: str) -> float:
        async with kafka_harness.connect() as broker:
            writer = await broker.writer()
            begun = time.monotonic()
            await writer.write(topic, b"", key=b"")
            return time.monotonic() - begun

    async def scenario() -> list[float]:
        stream = await kafka_harness.create_stream(name("first"), 1)
        return [await first_write(stream.name) for _ in range(5)]

    # A busy machine may hold up some of them, but not each time most of them.
    assert any(statistics.median(asyncio.run(scenario())) < 0.4 for _ in range(4))

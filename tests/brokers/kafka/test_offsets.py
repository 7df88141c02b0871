"""Positions in Kafka's own offsets, where the tools that people have look for them."""

import asyncio

import pytest
from confluent_kafka import Consumer, TopicPartition

from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.kafka.committed import CommittedOffsets
from echelon.brokers.kafka.settings import Settings
from echelon.errors import BrokerError, EchelonError, GroupNotFound
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name
from tests.brokers.harnesses import KafkaHarness


def consumer(harness: KafkaHarness, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": harness.servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def patient(harness: KafkaHarness) -> KafkaBroker:
    """The first commit of all waits until a new Kafka has made its topic for offsets."""
    return KafkaBroker(harness.server.url, timeout=30)


def test_positions_are_committed_under_the_name_of_the_group(kafka_harness: KafkaHarness) -> None:
    group = name("group")

    async def scenario() -> None:
        described = await kafka_harness.create_stream(name("topic"), 3)
        await kafka_harness.publish(described, [Sent(f"{n}", b"") for n in range(60)])
        async with patient(kafka_harness) as broker:
            stream = await broker.prepare(group, described)
            await broker.commit(group, stream, {0: 5, 1: 7})
            await broker.commit(group, stream, {1: 6, 2: 0})
            assert await broker.committed(group, stream) == {0: 5, 1: 6, 2: 0}
        other = consumer(kafka_harness, group)
        places = [TopicPartition(stream.name, number) for number in range(3)]
        found = await asyncio.to_thread(other.committed, places, 10)
        assert [place.offset for place in found] == [5, 6, 0]
        other.close()

    asyncio.run(scenario())


def test_positions_of_a_kafka_consumer_group_are_found_by_its_name(kafka_harness: KafkaHarness) -> None:
    group = name("legacy")

    async def scenario() -> None:
        described = await kafka_harness.create_stream(name("topic"), 2)
        other = consumer(kafka_harness, group)
        offsets = [TopicPartition(described.name, 0, 11), TopicPartition(described.name, 1, 22)]
        await asyncio.to_thread(other.commit, offsets=offsets, asynchronous=False)
        other.close()
        async with patient(kafka_harness) as broker:
            stream = await broker.prepare(group, described)
            assert await broker.committed(group, stream) == {0: 11, 1: 22}
            elsewhere = await kafka_harness.create_stream(name("topic"), 2)
            with pytest.raises(GroupNotFound, match=group):
                await broker.committed(group, elsewhere)

    asyncio.run(scenario())


def test_a_live_consumer_group_of_the_same_name_is_not_disturbed(kafka_harness: KafkaHarness) -> None:
    group = name("live")

    async def scenario() -> None:
        described = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(described, [Sent("a", f"{n}".encode()) for n in range(10)])
        live = consumer(kafka_harness, group)
        live.subscribe([described.name])
        first = await asyncio.to_thread(live.poll, 30)
        assert first is not None
        assert first.value() == b"0"
        async with patient(kafka_harness) as broker:
            stream = await broker.prepare(group, described)
            with pytest.raises(BrokerError, match="live members"):
                await broker.commit(group, stream, {0: 9})
            await broker.create_log(group)
            await broker.delete_log(group)
        rest = await asyncio.to_thread(live.consume, 9, 30)
        assert [message.value() for message in rest] == [f"{n}".encode() for n in range(1, 10)]
        assert [place.partition for place in live.assignment()] == [0]
        live.close()

    asyncio.run(scenario())


def test_deleting_the_group_deletes_its_positions(kafka_harness: KafkaHarness) -> None:
    group = name("group")

    async def scenario() -> None:
        described = await kafka_harness.create_stream(name("topic"), 1)
        async with patient(kafka_harness) as broker:
            stream = await broker.prepare(group, described)
            await broker.create_log(group, (stream,))
            await broker.commit(group, stream, {0: 0})
            await broker.delete_log(group)
            with pytest.raises(GroupNotFound):
                await broker.committed(group, stream)

    asyncio.run(scenario())


def test_a_certificate_that_is_just_not_there_when_positions_are_committed_is_no_defect() -> None:
    async def scenario() -> None:
        settings = Settings("kafka://127.0.0.1:1", {"ca": "nowhere.pem"})
        with pytest.raises(EchelonError, match="could not commit the positions of topic"):
            await CommittedOffsets(settings).commit("group", "topic", {0: 1})

    asyncio.run(scenario())

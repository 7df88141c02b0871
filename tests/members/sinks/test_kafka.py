"""What is particular to Kafka: topics that do not take a result, and offsets that others change."""

import asyncio
import random

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic

from echelon.errors import BrokerError, StreamNotFound, TooLarge, Unreachable
from echelon.local import KafkaServer
from echelon.members.sinks.kafka import POSITIONS, KafkaSink
from tests.members.sinks.harnesses import KafkaHarness
from tests.members.sinks.owner import Owner


@pytest.fixture
def harness(kafka_server: KafkaServer) -> KafkaHarness:
    made = KafkaHarness(kafka_server.url, f"r{random.getrandbits(48):x}")
    asyncio.run(made.prepare())
    return made


def test_results_that_kafka_does_not_take_leave_nothing_of_their_batch(harness: KafkaHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            with pytest.raises(StreamNotFound, match="nowhere"):
                await send_too(harness, sink, "nowhere", b"")
            assert not await owner.commit(1)  # The epoch has to be opened again.
            assert await owner.open() == 0
            with pytest.raises(TooLarge):
                await send_too(harness, sink, harness.name, b"x" * 2_000_000)
            assert await owner.open() == 0
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


async def send_too(harness: KafkaHarness, sink: KafkaSink, topic: str, data: bytes) -> None:
    async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
        harness.write(transaction.target, "0", 0)
        transaction.target.send(topic, data)
        await transaction.commit(1)


def test_results_go_to_several_topics_together_with_keys_and_headers(harness: KafkaHarness) -> None:
    async def scenario() -> None:
        other = f"{harness.name}-more"
        await asyncio.wrap_future(harness.admin.create_topics([NewTopic(other, 3, 1)], operation_timeout=10)[other])
        async with harness.sink() as sink:
            await Owner(harness, sink, epoch=5).open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                for number in range(20):
                    transaction.target.send(other, b"%d" % number, b"key", {"name": "värde"})
                assert await transaction.commit(1)
        messages = await asyncio.to_thread(harness.read, other, 3)
        assert [message.value() for message in messages] == [b"%d" % number for number in range(20)]
        assert {message.key() for message in messages} == {b"key"}
        assert [message.headers() for message in messages] == [[("name", "värde".encode())]] * 20
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_an_offset_that_was_changed_by_hand_is_not_believed(harness: KafkaHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(5)
            group = f"echelon.{harness.name}.0"
            consumer = Consumer({"bootstrap.servers": harness.servers, "group.id": group, "log_level": 0})
            consumer.commit(offsets=[TopicPartition(POSITIONS, 0, 3)], asynchronous=False)
            consumer.close()
            with pytest.raises(BrokerError, match=f"{group} was changed by hand"):
                await owner.open()

    asyncio.run(scenario())


def test_credentials_are_in_no_error() -> None:
    async def scenario() -> None:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1") as caught:
            await KafkaSink("kafka://alice:wonderland@127.0.0.1:1", timeout=1).__aenter__()
        assert "wonderland" not in f"{caught.value!r} {caught.value.__cause__!r}"

    asyncio.run(scenario())

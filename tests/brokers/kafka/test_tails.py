"""How tails share a consumer: nothing crosses between them, and what is held is bounded."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from echelon.brokers.kafka import feed
from echelon.errors import OutOfRange, StreamNotFound
from echelon.model import Message
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import closing, name, take, whole
from tests.brokers.harnesses import KafkaHarness


def feeds() -> int:
    return sum(thread.name == "kafka-feed" for thread in threading.enumerate())


async def drain(tail: AsyncIterator[list[Message]], got: list[Message]) -> None:
    async for messages in tail:
        got += messages


def test_the_tails_of_a_reader_share_one_consumer_until_the_last_is_closed(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 3)
        await kafka_harness.publish(stream, [Sent(f"{n}", b"") for n in range(90)])
        before = feeds()
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            content = await whole(reader, 90)
            tails = [reader.tail(number, 0) for number in range(3)]
            for number, tail in enumerate(tails):
                assert await take(tail, len(content[number])) == content[number]
            assert feeds() == before + 1
            await tails[0].aclose()
            await tails[1].aclose()
            assert feeds() == before + 1
            await tails[2].aclose()
            async with asyncio.timeout(5):
                while feeds() > before:
                    await asyncio.sleep(0.01)

    asyncio.run(scenario())


def test_a_tail_that_is_opened_again_elsewhere_starts_there(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 2)
        await kafka_harness.publish(stream, [Sent(f"{n}", f"{n}".encode()) for n in range(4000)])
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            content = await whole(reader, 4000)
            async with closing(reader.tail(1, 0)) as other:
                got = await take(other, 1)
                for start in (0, 700, 3, 1500, 1499, 0):
                    async with closing(reader.tail(0, start)) as tail:
                        some = await take(tail, 1)
                        assert some == content[0][start : start + len(some)]
                got += await take(other, len(content[1]) - len(got))
                assert got == content[1]

    asyncio.run(scenario())


def test_two_tails_of_one_partition_both_get_everything(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(stream, [Sent("a", f"{n}".encode()) for n in range(100)])
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            content = (await whole(reader, 100))[0]
            async with closing(reader.tail(0, 0)) as one, closing(reader.tail(0, 50)) as two:
                assert await take(one, 100) == content
                assert await take(two, 50) == content[50:]

    asyncio.run(scenario())


def test_a_tail_that_is_not_taken_holds_little(kafka_harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    put = feed._Lane.put

    def watched(lane: feed._Lane[object], items: list[object], size: int) -> bool:
        nonlocal most
        enough = put(lane, items, size)
        most = max(most, len(lane._items))
        return enough

    monkeypatch.setattr(feed._Lane, "put", watched)

    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(stream, [Sent("a", f"{n}".encode() * 20) for n in range(40_000)])
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            content = (await whole(reader, 40_000))[0]
            async with closing(reader.tail(0, 0)) as tail:
                got = await take(tail, 1)
                while len(got) < len(content):
                    await asyncio.sleep(0.1)
                    got += await take(tail, 1)
            assert got == content

    asyncio.run(scenario())
    assert feed._MESSAGES <= most < feed._MESSAGES + 2 * feed._BATCH


def test_a_tail_whose_next_message_was_deleted_is_told(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(stream, [Sent("a", b"x" * 1000) for _ in range(30_000)])
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", stream)
            async with closing(reader.tail(0, 0)) as tail:
                got = await take(tail, 1)
                await asyncio.sleep(0.5)  # The buffer is full, and the partition is paused.
                await kafka_harness.truncate("group", stream, 0, 29_000)
                with pytest.raises(OutOfRange) as caught:
                    await drain(tail, got)
            assert [message.sequence for message in got] == list(range(len(got)))
            assert caught.value.position == len(got)
            assert caught.value.first == 29_000

    asyncio.run(scenario())


def test_a_tail_ends_when_its_topic_is_made_anew(kafka_harness: KafkaHarness) -> None:
    """Also if the new topic holds the tail's position already: then it may give some of it before it notices."""

    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(stream, [Sent("a", f"old {n}".encode()) for n in range(10)])
        async with kafka_harness.connect() as broker:
            reader = await broker.reader("group", await broker.prepare("group", stream))
            async with closing(reader.tail(0, 0)) as tail:
                got = await take(tail, 10)
                waiting = asyncio.create_task(drain(tail, got))
                await kafka_harness.delete_stream(stream)
                await kafka_harness.create_stream(stream.name, 1)
                await kafka_harness.publish(stream, [Sent("a", f"new {n}".encode()) for n in range(100)])
                with pytest.raises((OutOfRange, StreamNotFound)):
                    await waiting
            assert [message.data for message in got[:10]] == [f"old {n}".encode() for n in range(10)]

    asyncio.run(scenario())


def test_leaving_the_broker_leaves_no_threads(kafka_harness: KafkaHarness) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("kafka-")}

    async def scenario() -> None:
        stream = await kafka_harness.create_stream(name("topic"), 1)
        await kafka_harness.publish(stream, [Sent("a", b"") for _ in range(10)])
        async with kafka_harness.connect() as broker:
            log = await broker.create_log(name("group"))
            await log.append(b"")
            await (await broker.writer()).write(stream.name, b"")
            reader = await broker.reader("group", stream)
            entries, messages = log.follow(0), reader.tail(0, 0)
            await take(entries, 1)
            await take(messages, 11)
            await whole(reader, 11)

    before = threads()
    asyncio.run(scenario())
    for thread in threads() - before:
        thread.join(5)
    assert threads() <= before

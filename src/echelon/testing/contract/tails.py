"""Tails: messages as they come, every one once, with a bounded number held."""

import asyncio

import pytest

from echelon.errors import EchelonError, OutOfRange, StreamNotFound
from echelon.model import Message
from echelon.testing.contract.harness import Harness, Sent, again, closing, name, read_all, scenario, take, whole


class TailContract:
    """`Reader.tail`."""

    @scenario
    async def test_a_tail_gives_what_is_there_and_then_what_comes(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        await harness.publish(described, [Sent(f"{n % 9}", f"old {n}".encode()) for n in range(100)])
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            start = (await reader.info()).bounds[0].first
            async with closing(reader.tail(0, start)) as lists:
                got = await take(lists, 100)
                for n in range(20):
                    await harness.publish(described, [Sent(f"{n % 9}", f"new {n}".encode())])
                    got += await take(lists, 1)
            assert got == (await whole(reader, 120))[0]
        assert [message.data for message in got] == [
            *(f"old {n}".encode() for n in range(100)),
            *(f"new {n}".encode() for n in range(20)),
        ]

    @scenario
    async def test_a_tail_starts_where_it_is_told_and_can_be_taken_up_again(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        await harness.publish(described, [Sent("a", f"{n}".encode()) for n in range(50)])
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            content = (await whole(reader, 50))[0]
            for start in (40, 10, 49):
                async with closing(reader.tail(0, content[start].sequence)) as lists:
                    assert await take(lists, 50 - start) == content[start:]
            end = (await reader.info()).bounds[0].end
            async with closing(reader.tail(0, end)) as lists:
                waiting = asyncio.create_task(take(lists, 1))
                await asyncio.sleep(0.3)
                assert not waiting.done()
                await harness.publish(described, [Sent("a", b"50")])
                assert [message.data for message in await waiting] == [b"50"]

    @scenario
    async def test_a_tail_that_is_not_taken_does_not_hold_up_another(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        count = 30_000
        await harness.publish(described, [Sent(f"{n % 50}", f"{n}".encode() + b" " * 200) for n in range(count)])
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            content = await whole(reader, count)
            bounds = (await reader.info()).bounds
            async with (
                closing(reader.tail(0, bounds[0].first)) as slow,
                closing(reader.tail(1, bounds[1].first)) as fast,
            ):
                got = await take(slow, 1)
                assert await take(fast, len(content[1])) == content[1]
                got += await take(slow, len(content[0]) - len(got))
                assert got == content[0]

    @scenario
    async def test_tails_go_on_after_a_restart_of_the_server(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        keys = [f"{n}" for n in range(10)]
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            bounds = (await reader.info()).bounds
            async with (
                closing(reader.tail(0, bounds[0].first)) as zero,
                closing(reader.tail(1, bounds[1].first)) as one,
            ):
                tails = [zero, one]
                await harness.publish(described, [Sent(key, b"before") for key in keys])
                before = await whole(reader, len(keys))
                got = [await take(tail, len(before[number])) for number, tail in enumerate(tails)]
                waiting = [asyncio.create_task(take(tail, 1)) for tail in tails]
                await harness.stop()
                await asyncio.sleep(0.5)
                await harness.start()
                await harness.publish(described, [Sent(key, b"after") for key in keys])
                after = await again(lambda: whole(reader, 2 * len(keys)))
                for number, tail in enumerate(tails):
                    got[number] += await waiting[number]
                    got[number] += await take(tail, len(after[number]) - len(got[number]))
                assert got == [after[0], after[1]]

    @scenario
    async def test_a_tail_cannot_start_at_what_was_deleted_or_is_not_there_yet(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        await harness.publish(described, [Sent("a", f"{n}".encode()) for n in range(30)])
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            reader = await broker.reader(group, stream)
            content = (await whole(reader, 30))[0]
            cut = content[10].sequence
            await harness.truncate(group, stream, 0, cut)
            held = (await reader.info()).bounds[0]
            for position in (cut - 1, held.end + 1):
                with pytest.raises(OutOfRange) as caught:
                    await take(reader.tail(0, position), 1)
                assert (caught.value.partition, caught.value.position) == ("0", position)
                assert (caught.value.first, caught.value.end) == (held.first, held.end)
            async with closing(reader.tail(0, cut)) as lists:
                assert await take(lists, 20) == content[10:]

    @scenario
    async def test_a_tail_of_a_stream_made_anew_is_told(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        await harness.publish(described, [Sent("a", f"{n}".encode()) for n in range(10)])
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            if stream.partitioning == "derived":
                return  # What was derived stays whole when its origin goes.
            reader = await broker.reader(group, stream)
            await whole(reader, 10)
            async with closing(reader.tail(0, (await reader.info()).bounds[0].first)) as lists:
                await take(lists, 10)
                await harness.delete_stream(described)
                await harness.create_stream(described.name, 1)
                await harness.publish(described, [Sent("a", f"new {n}".encode()) for n in range(20)])
                with pytest.raises((OutOfRange, StreamNotFound)):
                    await take(lists, 1_000)

    @scenario
    async def test_leaving_the_broker_ends_its_tails(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            waiting = asyncio.create_task(take(reader.tail(0, (await reader.info()).bounds[0].end), 1))
            await asyncio.sleep(0.2)
        with pytest.raises((EchelonError, StopAsyncIteration)):
            await waiting

    @scenario
    async def test_tails_of_several_connections_see_the_same(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        async with harness.connect() as one, harness.connect() as two:
            stream = await one.prepare(group, described)
            readers = [await one.reader(group, stream), await two.reader(group, stream)]
            start = (await readers[0].info()).bounds[0].first
            async with closing(readers[0].tail(0, start)) as first, closing(readers[1].tail(0, start)) as second:
                taking = [asyncio.create_task(take(tail, 200)) for tail in (first, second)]
                for n in range(20):
                    await harness.publish(described, [Sent(f"{k}", f"{n} {k}".encode()) for k in range(10)])
                got: list[list[Message]] = await asyncio.gather(*taking)
            held = (await readers[0].info()).bounds[0]
            stored = await read_all(readers[0], 0, held.first, held.end)
        assert got == [stored, stored]

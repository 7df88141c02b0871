"""Reading ranges: the same messages each time, as structs and as Arrow, and never silently fewer."""

import asyncio
import random

import pytest

from echelon.brokers.base import Broker, Reader
from echelon.errors import OutOfRange
from echelon.group.config import Stream
from echelon.model import Message
from echelon.testing.contract.harness import Harness, Sent, closing, name, read_all, scenario, whole


class RangeContract:
    """`Reader.read`, `read_arrow`, `lag`, `position_at`."""

    @scenario
    async def test_a_range_gives_the_same_messages_each_time(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, _, content = await _filled(harness, broker, 2, 500)
            for number, messages in content.items():
                held = (await reader.info()).bounds[number]
                assert await read_all(reader, number, held.first, held.end) == messages

    @scenario
    async def test_ranges_that_meet_give_together_what_the_whole_gives(self, harness: Harness) -> None:
        chance = random.Random(7)
        async with harness.connect() as broker:
            reader, _, content = await _filled(harness, broker, 2, 300)
            for number, messages in content.items():
                held = (await reader.info()).bounds[number]
                cuts = sorted(chance.sample(range(held.first, held.end + 1), 8))
                parts: list[Message] = []
                for start, end in zip([held.first, *cuts], [*cuts, held.end], strict=True):
                    part = await read_all(reader, number, start, end)
                    assert all(start <= message.sequence < end for message in part)
                    parts += part
                assert parts == messages

    @scenario
    async def test_ranges_are_read_side_by_side(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, _, content = await _filled(harness, broker, 4, 2000)
            bounds = (await reader.info()).bounds
            read = await asyncio.gather(
                *(read_all(reader, number, held.first, held.end) for number, held in bounds.items())
            )
        assert dict(zip(bounds, read, strict=True)) == content

    @scenario
    async def test_a_range_that_is_left_early_does_no_harm(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, _, content = await _filled(harness, broker, 1, 3000)
            held = (await reader.info()).bounds[0]
            async with closing(reader.read(0, held.first, held.end)) as lists:
                some = await anext(lists)
            assert some == content[0][: len(some)]
            assert await read_all(reader, 0, held.first, held.end) == content[0]

    @scenario
    async def test_arrow_batches_hold_the_same_as_the_messages(self, harness: Harness) -> None:
        from echelon.brokers.arrow import SCHEMA, from_messages

        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        headers = [{}, {"Colour": "red"}, {"Colour": "blue", "Size": "12"}]
        sent = [Sent(f"{n % 20}", f"{n}".encode() * (n % 30), headers[n % 3]) for n in range(300)]
        await harness.publish(described, sent)
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            content = await whole(reader, len(sent))
            for number, messages in content.items():
                held = (await reader.info()).bounds[number]
                batches = [batch async for batch in reader.read_arrow(number, held.first, held.end)]
                assert all(batch.schema == SCHEMA and batch.num_rows for batch in batches)
                rows = [row for batch in batches for row in batch.to_pylist()]
                assert rows == from_messages(messages).to_pylist()
                nothing = [batch async for batch in reader.read_arrow(number, held.end, held.end)]
                assert sum(batch.num_rows for batch in nothing) == 0

    @scenario
    async def test_what_was_deleted_is_out_of_range(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, (group, stream), content = await _filled(harness, broker, 1, 50)
            old = (await reader.info()).bounds[0]
            cut = content[0][20].sequence
            await harness.truncate(group, stream, 0, cut)
            new = (await reader.info()).bounds[0]
            assert (new.first, new.end) == (cut, old.end)
            with pytest.raises(OutOfRange) as caught:
                await read_all(reader, 0, cut - 1, new.end)
            assert (caught.value.partition, caught.value.position) == ("0", cut - 1)
            assert (caught.value.first, caught.value.end) == (new.first, new.end)
            with pytest.raises(OutOfRange):
                await read_all(reader, 0, old.first, cut)
            assert await read_all(reader, 0, cut, new.end) == content[0][20:]

    @scenario
    async def test_what_is_not_there_yet_is_out_of_range(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, _, _ = await _filled(harness, broker, 1, 10)
            held = (await reader.info()).bounds[0]
            with pytest.raises(OutOfRange) as caught:
                await read_all(reader, 0, held.first, held.end + 1)
            assert caught.value.end == held.end
            with pytest.raises(OutOfRange):
                await read_all(reader, 0, held.end + 5, held.end + 6)

    @scenario
    async def test_a_position_from_before_the_stream_was_made_anew_is_out_of_range(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, (group, stream), _ = await _filled(harness, broker, 1, 30)
            held = (await reader.info()).bounds[0]
            if stream.partitioning == "derived":
                return  # What was derived stays whole when its origin goes.
            await harness.delete_stream(stream)
            described = await harness.create_stream(stream.name, 1)
            await harness.publish(described, [Sent("new", b"new")])
            again = await broker.reader(group, await broker.prepare(group, described))
            with pytest.raises(OutOfRange):
                await read_all(again, 0, held.end - 1, held.end)

    @scenario
    async def test_lag_counts_what_lies_ahead(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            reader, _, content = await _filled(harness, broker, 3, 200)
            bounds = (await reader.info()).bounds
            for number, messages in content.items():
                assert 200 >= await reader.lag(number, bounds[number].first) >= len(messages)
                assert await reader.lag(number, bounds[number].end) == 0
                if messages:
                    middle = len(messages) // 2
                    assert 200 >= await reader.lag(number, messages[middle].sequence) >= len(messages) - middle

    @scenario
    async def test_the_position_at_a_time(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        keys = [f"{n}" for n in range(20)]
        await harness.publish(described, [Sent(key, b"early") for key in keys])
        await asyncio.sleep(0.05)
        await harness.publish(described, [Sent(key, b"late") for key in keys])
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            content = await whole(reader, 2 * len(keys))
            bounds = (await reader.info()).bounds
            for number, messages in content.items():
                late = next(message for message in messages if message.data == b"late")
                first = next(message for message in messages if message.time >= late.time)
                assert await reader.position_at(number, late.time) == first.sequence
                assert await _next_message(reader, number, 0) == messages[0]
                assert await reader.position_at(number, late.time + 3_600_000) == bounds[number].end


async def _filled(
    harness: Harness, broker: Broker, partitions: int, count: int
) -> tuple[Reader, tuple[str, Stream], dict[int, list[Message]]]:
    """A reader of a new stream with `count` messages, the group and stream it is for, and all that it holds."""
    group = name("group")
    described = await harness.create_stream(name("stream"), partitions)
    await harness.publish(described, [Sent(f"{n % 50}", f"{n}".encode()) for n in range(count)])
    stream = await broker.prepare(group, described)
    reader = await broker.reader(group, stream)
    return reader, (group, stream), await whole(reader, count)


async def _next_message(reader: Reader, partition: int, time: int) -> Message:
    """The first message from the position at a time on."""
    position = await reader.position_at(partition, time)
    return (await read_all(reader, partition, position, (await reader.info()).bounds[partition].end))[0]

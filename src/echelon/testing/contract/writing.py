"""Writing messages: results, dead letters, advisories."""

import asyncio

import pytest

from echelon.errors import StreamNotFound, TooLarge
from echelon.testing.contract.harness import Harness, name, scenario, whole


class WriterContract:
    """`Writer.write`."""

    @scenario
    async def test_what_is_written_is_read_with_its_headers(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        subject = harness.subject(described, "a")
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            writer = await broker.writer()
            await writer.write(subject, b"first", key=b"a")
            await writer.write(subject, b"", key=b"a", headers={"Why": "naïve ✓", "Count": "3"})
            await writer.write(subject, bytes(range(256)), key=b"a")
            messages = (await whole(reader, 3))[0]
        assert [message.data for message in messages] == [b"first", b"", bytes(range(256))]
        headers = {header: value.decode() for header, value in messages[1].headers}
        assert (headers["Why"], headers["Count"]) == ("naïve ✓", "3")

    @scenario
    async def test_writes_are_answered_with_growing_sequences(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        subject = harness.subject(described, "a")
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            writer = await broker.writer()
            data = [f"{n}".encode() for n in range(500)]
            sequences = await asyncio.gather(*(writer.write(subject, each, key=b"a") for each in data))
            messages = (await whole(reader, len(data)))[0]
        assert sequences == sorted(set(sequences))
        assert [message.data for message in messages] == data

    @scenario
    async def test_a_second_copy_can_be_recognised_by_its_id(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 1)
        subject = harness.subject(described, "a")
        async with harness.connect() as broker:
            reader = await broker.reader(group, await broker.prepare(group, described))
            writer = await broker.writer()
            await writer.write(subject, b"result", key=b"a", id="orders/3/17")
            await writer.write(subject, b"result", key=b"a", id="orders/3/17")
            await writer.write(subject, b"other", key=b"a", id="orders/3/18")
            messages = (await whole(reader, 2))[0]
        copies = [message for message in messages if message.data == b"result"]
        assert copies
        assert messages[-1].data == b"other"
        if len(copies) > 1:
            assert all(b"orders/3/17" in dict(message.headers).values() for message in copies)

    @scenario
    async def test_what_nobody_can_take_is_refused(self, harness: Harness) -> None:
        described = await harness.create_stream(name("stream"), 1)
        async with harness.connect() as broker:
            writer = await broker.writer()
            with pytest.raises(TooLarge):
                await writer.write(harness.subject(described, "a"), b"x" * 9_000_000, key=b"a")
            with pytest.raises(StreamNotFound):
                await writer.write(name("nowhere"), b"lost", key=b"a")

    @scenario
    async def test_dead_letters_and_advisories_have_a_place(self, harness: Harness) -> None:
        groups = [name("group"), name("group")]
        async with harness.connect() as broker:
            writer = await broker.writer()
            for group in groups:
                await broker.prepare_outlets(group)
                await broker.prepare_outlets(group)
                for place in (broker.dead_letters(group), broker.advisories(group, "claimed")):
                    first = await writer.write(place, b"one", key=b"key", headers={"Why": "tired"})
                    assert await writer.write(place, b"two", key=b"key") > first
            assert len({broker.dead_letters(group) for group in groups}) == 2
            assert len({broker.advisories(group, "claimed") for group in groups}) == 2

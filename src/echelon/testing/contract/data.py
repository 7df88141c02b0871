"""The messages of a stream, by partition: every one once, the messages of one key in order."""

from collections import defaultdict

import pytest

from echelon.errors import StreamNotFound
from echelon.group.config import Stream
from echelon.model import Message
from echelon.testing.contract.harness import Harness, Sent, name, scenario, whole


class DataContract:
    """`Broker.prepare`, `Broker.reader`, and what a partition holds."""

    @scenario
    async def test_each_message_is_in_one_partition_and_the_messages_of_a_key_are_in_order(
        self, harness: Harness
    ) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 4)
        sent = [Sent(f"key{n * n % 41}", f"key{n * n % 41} {n}".encode()) for n in range(600)]
        await harness.publish(described, sent)
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            content = await whole(await broker.reader(group, stream), len(sent))
        assert sorted(content) == [0, 1, 2, 3]
        assert sum(bool(messages) for messages in content.values()) > 1
        messages = [message for part in content.values() for message in part]
        assert sorted(message.data for message in messages) == sorted(each.data for each in sent)
        _check_places(content)
        _check_keys(messages, sent)

    @scenario
    async def test_prepare_fills_in_what_the_broker_knows(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 3)
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            assert (stream.name, stream.partitions) == (described.name, 3)
            assert stream.identity
            assert await broker.prepare(group, described) == stream
            info = await (await broker.reader(group, stream)).info()
            assert info.identity == stream.identity
            assert sorted(info.bounds) == [0, 1, 2]

    @scenario
    async def test_a_stream_that_is_not_there_is_not_found(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            reader = await broker.reader(group, stream)
            await harness.delete_stream(described)
            with pytest.raises(StreamNotFound, match=described.name):
                await broker.prepare(name("group"), described)
            if stream.partitioning != "derived":
                with pytest.raises(StreamNotFound, match=described.name):
                    await reader.info()

    @scenario
    async def test_a_stream_made_anew_has_another_identity(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        async with harness.connect() as broker:
            old = await broker.prepare(group, described)
            await harness.delete_stream(described)
            new = await broker.prepare(name("group"), await harness.create_stream(described.name, 2))
        assert new.identity != old.identity

    @scenario
    async def test_keys_headers_and_data_come_back_as_they_were_sent(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 2)
        sent = [
            Sent("a", b"plain"),
            Sent("a", b"one", {"Colour": "red"}),
            Sent("a", b"more", {"Colour": "blue", "Size": "12", "Word": "naïve ✓"}),
            Sent("a", b""),
            Sent("a", bytes(range(256)) * 10),
            Sent("a", b"x" * 500_000),
            Sent("a", b"no value", {"Empty": ""}),
        ]
        await harness.publish(described, sent)
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            content = await whole(await broker.reader(group, stream), len(sent))
        messages = [message for part in content.values() for message in part]
        assert [message.data for message in messages] == [each.data for each in sent]
        for message, each in zip(messages, sent, strict=True):
            given = {header: value.decode() for header, value in message.headers}
            assert {header: given.get(header) for header in each.headers} == each.headers
        assert {message.subject for message in messages} == {harness.subject(described, "a")}

    @scenario
    async def test_partitions_without_messages_are_empty(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 5)
        async with harness.connect() as broker:
            stream = await broker.prepare(group, described)
            reader = await broker.reader(group, stream)
            assert await whole(reader, 0) == {number: [] for number in range(5)}
            await harness.publish(described, [Sent("same", f"{n}".encode()) for n in range(20)])
            content = await whole(reader, 20)
        filled = [number for number, messages in content.items() if messages]
        assert len(filled) == 1
        assert [message.data for message in content[filled[0]]] == [f"{n}".encode() for n in range(20)]

    @scenario
    async def test_a_group_over_several_streams_reads_each_of_them(self, harness: Harness) -> None:
        group = name("group")
        described = [await harness.create_stream(name("stream"), count) for count in (2, 3)]
        async with harness.connect() as broker:
            streams: list[Stream] = []
            for each in described:
                await harness.publish(each, [Sent(f"{n % 7}", f"{each.name} {n}".encode()) for n in range(50)])
                streams.append(await broker.prepare(group, each))
            await broker.create_log(group, tuple(streams))
            for stream in streams:
                content = await whole(await broker.reader(group, stream), 50)
                assert len(content) == stream.partitions
                data = {message.data for part in content.values() for message in part}
                assert data == {f"{stream.name} {n}".encode() for n in range(50)}

    @scenario
    async def test_two_groups_read_one_stream_without_disturbing_each_other(self, harness: Harness) -> None:
        described = await harness.create_stream(name("stream"), 2)
        await harness.publish(described, [Sent(f"{n % 5}", f"{n}".encode()) for n in range(40)])
        async with harness.connect() as broker:
            contents = []
            for group in (name("group"), name("group")):
                stream = await broker.prepare(group, described)
                contents.append(await whole(await broker.reader(group, stream), 40))
        data = [[[message.data for message in part] for part in content.values()] for content in contents]
        assert data[0] == data[1]
        assert sum(map(len, data[0])) == 40


def _check_places(content: dict[int, list[Message]]) -> None:
    """Each message says where it stands: in the partition it was read from, after the one before it."""
    for number, messages in content.items():
        assert {message.partition for message in messages} <= {str(number)}
        sequences = [message.sequence for message in messages]
        assert sequences == sorted(set(sequences))
        times = [message.time for message in messages]
        assert all(time > 1_600_000_000_000 for time in times)


def _check_keys(messages: list[Message], sent: list[Sent]) -> None:
    """One key sent is one key received, in one partition, in the order of sending."""
    by_key: dict[bytes | None, list[Message]] = defaultdict(list)
    for message in messages:
        by_key[message.key].append(message)
    assert len(by_key) == len({each.key for each in sent})
    for same in by_key.values():
        assert len({message.partition for message in same}) == 1
        key = same[0].data.decode().partition(" ")[0]
        assert [message.data for message in same] == [each.data for each in sent if each.key == key]

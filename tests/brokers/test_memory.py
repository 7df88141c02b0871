"""The broker in memory, where it differs from the others; the rest is in the contract suite."""

import asyncio
import threading

import pytest

from echelon.brokers.memory import MemoryBroker, MemoryServer
from echelon.errors import InvalidConfig, NotPartitionable
from echelon.group.config import Partitioning, Stream
from echelon.keys import HeaderKey, RecordKey, SubjectKey, TokensKey, nats_partition
from echelon.testing.contract.harness import name, read_all


def test_names_are_servers_and_connections_share_them() -> None:
    async def scenario() -> None:
        one, other = name("server"), name("server")
        async with MemoryBroker(f"memory://{one}") as first, MemoryBroker(f"memory://{one}") as second:
            await first.create_log("group")
            assert await second.groups() == ["group"]
        async with MemoryBroker(f"memory://{other}") as third:
            assert await third.groups() == []
        assert MemoryServer.named(one) is not MemoryServer.named(other)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (SubjectKey(), {"s.eu.1": b"s.eu.1", "s.us.2": b"s.us.2", "s": b"s"}),
        (SubjectKey("s.eu.*"), {"s.eu.1": b"s.eu.1"}),
        (TokensKey("s.*.*", (2,)), {"s.eu.1": b"1", "s.us.2": b"2"}),
        (HeaderKey("Who"), {"s.eu.1": b"ann", "s.us.2": b"", "s": b""}),
        (RecordKey(), {"s.eu.1": b"k", "s.us.2": None, "s": None}),
    ],
)
def test_the_partition_is_that_of_the_key(
    key: SubjectKey | TokensKey | HeaderKey | RecordKey, expected: dict[str, bytes | None]
) -> None:
    async def scenario() -> None:
        async with MemoryBroker(f"memory://{name('server')}") as broker:
            broker.server.create_stream("s")
            writer = await broker.writer()
            await writer.write("s.eu.1", b"", key=b"k", headers={"Who": "ann"})
            await writer.write("s.us.2", b"")
            await writer.write("s", b"")
            stream = await broker.prepare("group", Stream("s", 3, key))
            reader = await broker.reader("group", stream)
            held = (await reader.info()).bounds
            found = {
                message.subject: (message.key, number)
                for number in range(3)
                for message in await read_all(reader, number, held[number].first, held[number].end)
            }
            assert found == {subject: (each, nats_partition(each or b"", 3)) for subject, each in expected.items()}

    asyncio.run(scenario())


@pytest.mark.parametrize("partitioning", ["token", "derived", "native"])
def test_partitionings_that_it_does_not_have_are_refused(partitioning: Partitioning) -> None:
    async def scenario() -> None:
        async with MemoryBroker(f"memory://{name('server')}") as broker:
            broker.server.create_stream("s")
            with pytest.raises(NotPartitionable, match="computed"):
                await broker.prepare("group", Stream("s", 3, partitioning=partitioning))
            with pytest.raises(InvalidConfig):
                await broker.prepare("group", Stream("s", 0))

    asyncio.run(scenario())


def test_a_partition_of_a_group_over_several_streams_is_named_with_its_stream() -> None:
    async def scenario() -> None:
        async with MemoryBroker(f"memory://{name('server')}") as broker:
            broker.server.create_stream("s")
            await (await broker.writer()).write("s", b"data")
            reader = await broker.reader("group", Stream("s", 1), alone=False)
            assert [message.partition for message in await read_all(reader, 0, 1, 2)] == ["s/0"]

    asyncio.run(scenario())


def test_a_follower_is_woken_from_another_thread() -> None:
    server = name("server")

    async def append() -> None:
        async with MemoryBroker(f"memory://{server}") as broker:
            await (await broker.log("group")).append(b"from afar")

    async def follow() -> list[bytes]:
        async with MemoryBroker(f"memory://{server}") as broker:
            log = await broker.create_log("group")
            asyncio.get_running_loop().call_later(0.1, threading.Thread(target=asyncio.run, args=(append(),)).start)
            async with asyncio.timeout(10):
                async for entries in log.follow(1):
                    return [entry.data for entry in entries]
            return []

    assert asyncio.run(follow()) == [b"from afar"]

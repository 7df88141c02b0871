"""Tails of real streams: what the contract suite does not ask of every broker."""

import asyncio
import time
from contextlib import aclosing
from unittest.mock import patch

import pytest

from echelon.brokers.nats import windows
from echelon.errors import BrokerError
from echelon.group.config import Partitioning
from echelon.local import NatsServer
from echelon.model import Message
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name, take, whole
from tests.brokers.nats.filled import WAYS, filled, numbers, opened
from tests.brokers.nats.harness import NatsHarness, call
from tests.servers import NatsServers


@pytest.mark.parametrize("way", WAYS)
def test_tails_of_many_partitions_in_one_process_miss_nothing(nats_server: NatsServer, way: Partitioning) -> None:
    """They begin at different places, some are far behind, and messages keep coming."""
    harness = NatsHarness(nats_server, way)

    async def run() -> None:
        with patch.object(windows, "MESSAGES", 64):
            async with harness.connect() as broker:
                described = await harness.create_stream(name("stream"), 12)
                group = name("group")
                reader = await broker.reader(group, await broker.prepare(group, described))
                got: dict[int, list[Message]] = {partition: [] for partition in range(12)}

                async def follow(partition: int) -> None:
                    async with aclosing(reader.tail(partition, 1)) as lists:
                        async for messages in lists:
                            got[partition] += messages
                            await asyncio.sleep(0.001 * (partition % 4))

                async with asyncio.TaskGroup() as tasks:
                    following = [tasks.create_task(follow(partition)) for partition in range(6)]
                    for start in range(0, 3000, 250):
                        await harness.publish(
                            described, [Sent(f"{n % 100}", b"%d" % n) for n in range(start, start + 250)]
                        )
                        if start == 1000:
                            following += [tasks.create_task(follow(partition)) for partition in range(6, 12)]
                    async with asyncio.timeout(30):
                        while sum(map(len, got.values())) < 3000:
                            await asyncio.sleep(0.02)
                    for task in following:
                        task.cancel()
                assert got == await whole(reader, 3000)

    asyncio.run(run())


def test_tails_share_a_consumer_if_they_are_many_and_have_none_while_they_are_busy(nats_servers: NatsServers) -> None:
    server = nats_servers()
    harness = NatsHarness(server, "token")

    async def count(stream: str) -> int:
        return int((await call(server.url, f"STREAM.INFO.{stream}"))["state"]["consumer_count"])

    async def run() -> None:
        async with harness.connect() as broker:
            described = await harness.create_stream("S", 12)
            reader = await broker.reader("group", await broker.prepare("group", described))
            tails = [reader.tail(partition, 1) for partition in range(12)]
            waiting = [asyncio.create_task(take(tail, 1)) for tail in tails]
            await asyncio.sleep(0.5)
            assert await count("S") == 1
            await harness.publish(described, [Sent(f"{n}", b"") for n in range(200)])
            await asyncio.gather(*waiting)
            for tail in tails:
                await tail.aclose()
            assert await count("S") == 1

    asyncio.run(run())


def test_what_is_deleted_behind_a_waiting_tail_is_no_loss_to_it(nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "token")

    async def run() -> None:
        async with harness.connect() as broker:
            described = await harness.create_stream(name("stream"), 1)
            await harness.publish(described, [Sent("a", b"%d" % n) for n in range(10)])
            group = name("group")
            reader = await broker.reader(group, await broker.prepare(group, described))
            async with aclosing(reader.tail(0, 1)) as lists:
                await take(lists, 10)
                await call(nats_server.url, f"STREAM.PURGE.{described.name}")
                waiting = asyncio.create_task(take(lists, 1))
                await asyncio.sleep(2.5)
                await harness.publish(described, [Sent("a", b"10")])
                assert numbers(await waiting) == [10]

    asyncio.run(run())


@pytest.mark.parametrize("count", [5, 2000])
def test_a_stream_made_anew_under_a_tail_is_told_however_much_is_in_it(nats_server: NatsServer, count: int) -> None:
    """Also if the new stream holds the tail's position already, and nothing seems to be missing."""
    harness = NatsHarness(nats_server, "computed")

    async def run() -> None:
        async with harness.connect() as broker:
            reader, stream, _ = await filled(harness, broker, 1, 100)
            async with aclosing(reader.tail(0, 1)) as lists:
                await take(lists, 100)
                waiting = asyncio.create_task(take(lists, 1))
                await asyncio.sleep(0.2)
                await call(nats_server.url, f"STREAM.DELETE.{stream.name}")
                await harness.create_stream(stream.name, 1)
                await harness.publish(stream, [Sent("a", b"new") for _ in range(count)])
                with pytest.raises(BrokerError, match=r"made anew|no stream"):
                    await waiting

    asyncio.run(run())


def test_a_tail_is_woken_within_milliseconds(nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "derived")

    async def run() -> None:
        async with harness.connect() as broker:
            reader = await opened(harness, broker, 4, 10)
            writer = await broker.writer()
            messages = [message for part in (await whole(reader, 10)).values() for message in part]
            seconds = []
            for partition, key in {message.partition: message.subject for message in messages}.items():
                async with aclosing(reader.tail(int(partition), (await reader.info()).bounds[0].end)) as lists:
                    for _ in range(20):
                        waiting = asyncio.create_task(anext(lists))
                        await asyncio.sleep(0.02)
                        began = time.monotonic()
                        await writer.write(key, b"now")
                        await waiting
                        seconds.append(time.monotonic() - began)
            assert sorted(seconds)[len(seconds) // 2] < 0.05

    asyncio.run(run())

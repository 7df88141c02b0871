"""Three servers with replicated streams: a leader that dies takes nothing with it, and is not missed for long."""

import asyncio
from contextlib import aclosing

import pytest

from echelon.brokers.nats import NatsBroker
from echelon.errors import Unreachable
from echelon.group.config import Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.local.server import free_port
from echelon.model import Entry, Message
from echelon.testing.contract.harness import append_again, read_all
from tests.brokers.nats.harness import call, make_stream
from tests.servers import NatsServers


@pytest.fixture
def cluster(nats_servers: NatsServers) -> dict[str, NatsServer]:
    """By the name that each has in the cluster."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
    return {
        f"n{number}": nats_servers(
            config=f"server_name: n{number}\ncluster {{ name: c, listen: '127.0.0.1:{port}', routes: [{routes}] }}"
        )
        for number, port in enumerate(ports)
    }


async def leader(url: str, stream: str) -> str:
    while True:
        try:
            found = (await call(url, f"STREAM.INFO.{stream}"))["cluster"].get("leader")
        except AssertionError:
            found = None
        if found:
            return str(found)
        await asyncio.sleep(0.1)


async def made(url: str) -> None:
    """Make the data stream as soon as the servers have found each other."""
    async with asyncio.timeout(60):
        while True:
            try:
                await make_stream(url, "S", ["s.*"], num_replicas=3)
            except Exception:  # noqa: BLE001 - nats-py has many
                await asyncio.sleep(0.2)
            else:
                return


def test_logs_and_tails_go_on_when_leaders_die(cluster: dict[str, NatsServer]) -> None:
    url = ",".join(server.url for server in cluster.values())

    async def run() -> None:
        first = next(iter(cluster.values())).url
        await made(first)
        described = Stream("S", 2, TokensKey("s.*", (1,)), "computed")
        async with NatsBroker(url, timeout=3) as one, NatsBroker(url, timeout=3) as two:
            stream = await one.prepare("group", described)
            log = await one.create_log("group", (stream,))
            config = (await call(first, "STREAM.INFO.ECHELON"))["config"]
            assert config["num_replicas"] == 3
            reader = await one.reader("group", stream)
            writer = await two.writer()
            writing = await two.log("group")
            entries: list[Entry] = []
            messages: dict[int, list[Message]] = {0: [], 1: []}

            async def follow() -> None:
                async with aclosing(log.follow(0)) as lists:
                    async for more in lists:
                        entries.extend(more)

            async def tail(partition: int) -> None:
                async with aclosing(reader.tail(partition, 1)) as lists:
                    async for more in lists:
                        messages[partition] += more

            async def write_again(number: int) -> None:
                while True:
                    try:
                        await writer.write(f"s.{number % 7}", b"%d" % number, id=f"{number}")
                    except Unreachable:
                        await asyncio.sleep(0.05)
                    else:
                        return

            async with asyncio.timeout(100), asyncio.TaskGroup() as tasks:
                following = [tasks.create_task(each) for each in (follow(), tail(0), tail(1))]
                for number in range(300):
                    await append_again(writing, b"%d" % number)
                    await write_again(number)
                    if number in {100, 200}:
                        lost = cluster[await leader(first, "ECHELON" if number == 100 else "S")]
                        await asyncio.to_thread(lost.kill)
                    if number in {150, 250}:
                        await asyncio.to_thread(lost.start)
                last = await append_again(writing, b"last")
                while not entries or entries[-1].sequence < last:
                    await asyncio.sleep(0.05)
                while sum(map(len, messages.values())) < 300:
                    await asyncio.sleep(0.05)
                for task in following:
                    task.cancel()
            assert entries == await log.read(0, last + 1)
            assert await log.read(last, last + 1) == entries[-1:]
        data = [int(entry.data) for entry in entries[:-1]]
        assert sorted(set(data)) == list(range(300))
        assert [n for place, n in enumerate(data) if n not in data[:place]] == list(range(300))
        assert sorted(int(message.data) for part in messages.values() for message in part) == list(range(300))
        for part in messages.values():
            assert [int(message.data) for message in part] == sorted(int(message.data) for message in part)

    asyncio.run(run())


def test_a_replica_that_sleeps_holds_up_no_append_and_hides_nothing_afterwards(cluster: dict[str, NatsServer]) -> None:
    """One server sleeps while the others go on. What it was asked meanwhile it may answer before it has caught up."""

    async def run() -> None:
        url = next(iter(cluster.values())).url
        await made(url)
        async with NatsBroker(url) as broker:
            stream = await broker.prepare("group", Stream("S", 1, TokensKey("s.*", (1,)), "computed"))
            await broker.create_log("group", (stream,))
        leaders = {await leader(url, "ECHELON"), await leader(url, "S")}
        sleepy = next(server for name, server in cluster.items() if name not in leaders)
        awake = cluster[leaders.pop()]
        async with NatsBroker(awake.url, timeout=20) as writing, NatsBroker(sleepy.url, timeout=20) as reading:
            log, writer = await writing.log("group"), await writing.writer()
            behind, reader = await reading.log("group"), await reading.reader("group", stream)
            for turn in range(5):
                sleepy.pause()
                try:
                    sequences = [await log.append(b"%d" % n) for n in range(100)]
                    positions = [await writer.write("s.a", b"%d" % n) for n in range(100)]
                    asking = asyncio.gather(
                        behind.read(sequences[0], sequences[-1] + 1),
                        read_all(reader, 0, positions[0], positions[-1] + 1),
                    )
                    await asyncio.sleep(0.1)
                finally:
                    sleepy.resume()
                entries, messages = await asking
                assert [entry.sequence for entry in entries] == sequences, turn
                assert await behind.read(sequences[-1], sequences[-1] + 1) == entries[-1:]
                assert [message.sequence for message in messages] == positions, turn

    asyncio.run(run())

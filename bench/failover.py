"""How long messages wait when a process is killed, when members come and go, and when the broker is restarted.

Real processes on a real nats-server. `apart`: as if they were on two machines, where nobody can see that a process
is gone; otherwise the stand-by sees it.
"""

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import nats
from nats.aio.client import Client

from echelon.brokers.base import Broker
from echelon.brokers.connect import open_broker
from echelon.group.config import Stream
from echelon.group.records import Profile
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.members.admin import Admin, create_group
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message
from report import Row, main, row

ROUNDS = 5
RATE = 1000
PARTITIONS = 12
GO_REFERENCE = 750.0  # ms: the Go reference's best at its fastest setting (ack wait 1 s)
GO_MOVE = 430.0  # ms that a moving partition is idle with the Go reference, at best


class Cast(msgspec.Struct):
    """What a member process is to be."""

    url: str
    group: str
    name: str
    member: str
    output: str
    apart: bool


def be_member(cast: Cast) -> None:
    """Be a member process: write a line for each message, with the time."""
    output = os.open(cast.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(message: Message) -> None:
        os.write(output, f"{time.monotonic()} {cast.name} {message.partition} {message.sequence}\n".encode())

    async def sit() -> None:
        async with open_broker(cast.url) as broker:
            options = Options(neighbours=not cast.apart)
            await Member(broker, cast.group, handle, Profile(cast.name, cast.member), options=options).run(signals=True)

    asyncio.run(sit())


class Scene:
    """A group, its processes, and what they handled."""

    def __init__(self, url: str, broker: Broker, folder: Path, *, apart: bool) -> None:
        self.url = url
        self.broker = broker
        self.apart = apart
        self.group = f"g{uuid.uuid4().hex[:8]}"
        self.output = folder / self.group
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def launch(self, name: str, member: str) -> None:
        """Start a member process."""
        cast = Cast(self.url, self.group, name, member, str(self.output), self.apart)
        command = [sys.executable, __file__, "member", msgspec.json.encode(cast).decode()]
        self.processes[name] = subprocess.Popen(command)

    def lines(self) -> list[tuple[float, str, str]]:
        """Time, process and partition of every message handled so far."""
        text = self.output.read_text() if self.output.exists() else ""
        return [(float(at), name, partition) for at, name, partition, _ in map(str.split, text.splitlines())]

    async def until(self, name: str, after: float = 0.0) -> float:
        """When a process first handled a message after a moment."""
        while True:
            found = [at for at, who, _ in self.lines() if who == name and at > after]
            if found:
                return found[0]
            await asyncio.sleep(0.01)

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()


@asynccontextmanager
async def scene(
    server: NatsServer, folder: Path, interval: float, members: tuple[str, ...], *, apart: bool
) -> AsyncIterator[Scene]:
    """A group with messages coming at a steady rate."""
    client = await nats.connect(server.url)
    name = f"S{uuid.uuid4().hex[:8]}"
    config = {"name": name, "subjects": [f"{name}.*"], "allow_direct": True, "storage": "file"}
    await client.request(f"$JS.API.STREAM.CREATE.{name}", msgspec.json.encode(config))
    async with open_broker(server.url) as broker:
        made = Scene(server.url, broker, folder, apart=apart)
        stream = Stream(name, PARTITIONS, TokensKey(f"{name}.*", (1,)), "derived")
        await create_group(broker, made.group, [stream], start="earliest", members=members, interval=interval)
        publishing = asyncio.ensure_future(publish(client, name))
        try:
            yield made
        finally:
            publishing.cancel()
            made.close()
            await client.close()


async def publish(client: Client, name: str) -> None:
    """Publish at a steady rate until cancelled."""
    began, sent = time.monotonic(), 0
    while True:
        while sent < (time.monotonic() - began) * RATE:
            await client.publish(f"{name}.k{sent % 240}", b"x" * 150)
            sent += 1
        await asyncio.sleep(0.002)


async def kill_once(server: NatsServer, folder: Path, interval: float, *, apart: bool) -> float:
    """Milliseconds from SIGKILL of the active process to the first message that the stand-by handles."""
    async with scene(server, folder, interval, ("m",), apart=apart) as group:
        group.launch("first", "m")
        await group.until("first")
        group.launch("second", "m")
        async with Admin(await group.broker.log(group.group), group.group) as admin:
            await admin.until(lambda world: len(world.instances) == 2)
            await asyncio.sleep(3 * interval)
        group.processes["first"].send_signal(signal.SIGKILL)
        killed = time.monotonic()
        return (await group.until("second", killed) - killed) * 1000


def gaps(lines: list[tuple[float, str, str]], begin: float, end: float, partitions: set[str]) -> list[float]:
    """Milliseconds between messages of one partition that were handled one after the other."""
    times: dict[str, list[float]] = defaultdict(list)
    for at, _, partition in lines:
        if begin <= at <= end and partition in partitions:
            times[partition].append(at)
    return [1000 * (b - a) for found in times.values() for a, b in pairwise(found)]


async def scale(server: NatsServer, folder: Path) -> tuple[float, float, float]:
    """Add and remove members under load.

    The 99th percentile gap of partitions that stay, before and during, and the median time that a moving one is idle.
    """
    async with scene(server, folder, 1.0, ("a", "b"), apart=True) as group:
        for name in ("a", "b", "c"):
            group.launch(name, name)
        await group.until("a")
        await group.until("b")
        await asyncio.sleep(2)
        async with Admin(await group.broker.log(group.group), group.group) as admin:
            await admin.until(lambda world: len(world.instances) == 3)
            began = time.monotonic()
            await asyncio.sleep(10)
            idle: list[float] = []
            kept: list[float] = []
            for members in (("a", "b", "c"), ("a", "b"), ("a", "b", "c"), ("a", "b")):
                before = {name: partition.owner for name, partition in admin.world.partitions.items()}
                changed = time.monotonic()
                await admin.set_members(members)
                await asyncio.sleep(2.5)
                moved = {name for name, owner in before.items() if admin.world.partitions[name].owner != owner}
                lines = group.lines()
                stay = set(before) - moved
                kept += gaps(lines, changed, changed + 2.5, stay)
                idle += [max(gaps(lines, changed, changed + 2.5, {name})) for name in moved]
            calm = gaps(group.lines(), began, began + 10, set(before))
        return statistics.quantiles(calm, n=100)[98], statistics.quantiles(kept, n=100)[98], statistics.median(idle)


async def restart(folder: Path) -> int:
    """Seats that change hands when the broker is restarted under load."""
    with NatsServer(folder / "restarted") as server:
        async with scene(server, folder, 0.5, ("a", "b"), apart=True) as group:
            for name in ("a", "b"):
                group.launch(name, name)
            await group.until("a")
            await group.until("b")
            for name in ("a2", "b2"):
                group.launch(name, name[0])
            async with Admin(await group.broker.log(group.group), group.group) as admin:
                await admin.until(lambda world: len(world.instances) == 4)
                before = {seat.member: seat.epoch for seat in admin.world.seats.values()}
                await asyncio.to_thread(server.restart)
                await asyncio.sleep(5)
                return sum(before[seat.member] != seat.epoch for seat in admin.world.seats.values())


async def measure(server: NatsServer, folder: Path) -> list[Row]:
    """All rows."""
    rows: list[Row] = []
    for interval in (0.5, 0.25):
        times = [await kill_once(server, folder, interval, apart=True) for _ in range(ROUNDS)]
        middle = statistics.median(times)
        name = f"SIGKILL to the next message, interval {interval} s"
        rows.append(row(name, middle, "ms", peer_name="3 intervals", peer=3000 * interval, less_is_better=True))
    rows.append(row(name, middle, "ms", peer_name="Go reference at its best", peer=GO_REFERENCE, less_is_better=True))
    times = [await kill_once(server, folder, 1.0, apart=False) for _ in range(ROUNDS)]
    rows.append(
        row("SIGKILL, same machine", statistics.median(times), "ms", peer_name="bound", peer=100, less_is_better=True)
    )
    calm, kept, idle = await scale(server, folder)
    rows.append(
        row(
            "gap of partitions that stay, p99", kept, "ms", peer_name="twice before", peer=2 * calm, less_is_better=True
        )
    )
    rows.append(row("a moving partition is idle", idle, "ms", peer_name="bound", peer=100, less_is_better=True))
    rows.append(
        row("a moving partition is idle", idle, "ms", peer_name="Go reference", peer=GO_MOVE, less_is_better=True)
    )
    changed = await restart(folder)
    rows.append(row("seats kept over a restart", 2 - changed, "seats", peer_name="all", peer=2))
    return rows


def run() -> list[Row]:
    """All rows, on a server of its own."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        return asyncio.run(measure(server, Path(folder)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        be_member(msgspec.json.decode(sys.argv[2], type=Cast))
    else:
        main(run)

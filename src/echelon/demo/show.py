"""The demo itself: a server, two Spark applications for one seat, a crash, and an audit."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from deltalake import DeltaTable
from msgspec import Struct, structs

from echelon.brokers.connect import open_broker
from echelon.demo import readings, sensors
from echelon.errors import EchelonError
from echelon.group.world import World
from echelon.local import NatsServer
from echelon.members.admin import Admin, create_group
from echelon.spark.audit import audit
from echelon.spark.results import delta_results
from echelon.spark.session import build_session, stop_session

_PATIENCE = 120.0


class Result(Struct, frozen=True):
    """What the demo ends with."""

    messages: int
    processed: int
    lost: int
    duplicated: int
    out_of_order: int
    failover_seconds: float
    seconds: float


class DemoFailed(EchelonError):
    """The demo did not come to its end."""


async def show(say: Callable[[str], None], *, messages: int = 20_000, a_second: int = 1_000) -> Result:
    """Run the demo in a folder of its own, which is gone afterwards, and tell what happens.

    Raises DemoFailed, and MissingComponent if there is no Java or nats-server to be had.
    """
    began = time.monotonic()
    task = asyncio.current_task()
    assert task is not None
    # Whoever ends the demo early wants what it started to end, too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)

    def tell(words: str) -> None:
        say(f"{time.monotonic() - began:6.1f} s  {words}")

    with tempfile.TemporaryDirectory(prefix="echelon-demo-") as folder:
        server = NatsServer(Path(folder) / "nats")
        starting = asyncio.ensure_future(asyncio.to_thread(server.start))
        try:
            await asyncio.shield(starting)
            tell(f"nats-server is up at {server.url}")
            stage = _Stage(server.url, Path(folder), tell)
            failover = await stage.play(messages, a_second)
            tell("auditing: every message of the stream against every row of the table")
            result = await asyncio.to_thread(_audit, server.url, Path(folder) / "summaries", tell)
        finally:
            await asyncio.wait((starting,))  # Its thread cannot be cancelled, and starts a process.
            await asyncio.to_thread(server.stop)
    return structs.replace(result, failover_seconds=round(failover, 2), seconds=round(time.monotonic() - began, 1))


class _Stage:
    """The group of the demo, and the two applications."""

    def __init__(self, url: str, folder: Path, tell: Callable[[str], None]) -> None:
        self._url = url
        self._folder = folder
        self._tell = tell
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    async def play(self, messages: int, a_second: int) -> float:
        """Play it up to the orderly end of the application that is left; how long nobody processed anything."""
        await sensors.make_stream(self._url)
        summarise = readings.summarise
        async with open_broker(self._url) as broker, self._killed():
            options = {"delivery": summarise.delivery, **summarise.options}
            await create_group(broker, summarise.group, summarise.streams(), start=summarise.start, **options)
            async with Admin(await broker.log(summarise.group), summarise.group) as admin:
                await self._start(admin)
                self._tell(f"writing {messages:,} readings of 200 sensors, {a_second:,} a second")
                writing = asyncio.ensure_future(sensors.write_readings(self._url, messages, a_second))
                await self._until(admin, lambda world: _processed(world) >= messages // 2)
                failover = await self._crash(admin)
                await writing
                await self._until(admin, lambda world: all(p.position > messages for p in world.partitions.values()))
                self._tell(f"everything is processed; the {self._other} is asked to drain")
                await self._end(self._other)
        return failover

    async def _start(self, admin: Admin) -> None:
        """Start both applications, and wait until both have joined: their sessions are warm then."""
        for name in ("first", "second"):
            self._processes[name] = self._launch(name)
        self._tell("starting two Spark applications for the seat of m1; that takes a while")
        await self._until(admin, lambda world: len(world.instances) == 2 and bool(_holder(world)))
        self._active = _holder(admin.world)
        self._other = "second" if self._active == "first" else "first"
        self._tell(f"the {self._active} has the seat; the {self._other} stands by for it, with a warm session")

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "echelon.cli", "run", readings.__file__, "--member", "m1", "--name", name]
        environment = {**os.environ, "ECHELON_DEMO": str(self._folder)}
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, "--broker", self._url], env=environment, stdout=log, stderr=log)

    async def _crash(self, admin: Admin) -> float:
        """Kill the active application, and wait until the other goes on; how long that took."""
        killed = time.monotonic()
        active = self._processes.pop(self._active)
        active.kill()
        await asyncio.to_thread(active.wait)
        before = self._rows()
        self._tell(f"kill -9 of the {self._active}, after {_processed(admin.world):,} readings")
        await self._until(admin, lambda world: _holder(world) == self._other)
        self._tell(f"the {self._other} has the seat, and goes on from its checkpoint")
        await self._until(admin, lambda _: self._rows() > before)
        failover = time.monotonic() - killed
        self._tell(f"the next batch is in the table, {failover:.1f} s after the crash")
        return failover

    def _rows(self) -> int:
        """How many rows the table has now."""
        return DeltaTable(self._folder / "summaries").count()

    async def _end(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        if await asyncio.to_thread(process.wait, 60):
            raise self._failed(name)

    async def _until(self, admin: Admin, holds: Callable[[World], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        task = asyncio.current_task()
        while not holds(admin.world):
            if task is not None and task.cancelling():
                raise asyncio.CancelledError  # One that came while nats-py was sending is swallowed there.
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise self._failed(ended[0] if ended else next(iter(self._processes)))
            await asyncio.sleep(0.02)

    def _failed(self, name: str) -> DemoFailed:
        log = (self._folder / f"{name}.log").read_text(errors="replace").strip().splitlines()[-20:]
        return DemoFailed(f"the {name} application did not do its part", remedy="It said:\n" + "\n".join(log))

    @asynccontextmanager
    async def _killed(self) -> AsyncGenerator[None]:
        """Leave no process behind, whatever happens."""
        try:
            yield
        finally:
            for process in self._processes.values():
                process.kill()
                process.wait()


def _positions(world: World) -> dict[str, int]:
    return {partition.name: partition.position for partition in world.partitions.values()}


def _processed(world: World) -> int:
    """About how many messages are processed: the partitions share the sequences of one stream."""
    return min(_positions(world).values()) - 1


def _holder(world: World) -> str:
    holder = world.holder("m1")
    return holder.profile.name if holder is not None else ""


def _audit(url: str, table: Path, tell: Callable[[str], None]) -> Result:
    spark = build_session("echelon demo")
    try:
        messages = spark.read.format("echelon").option("broker", url).option("group", "summaries").load()
        found = audit(messages, delta_results(spark, str(table)))
    finally:
        stop_session(spark)
    for offender in found.offenders[:5]:
        tell(f"{offender.problem}: message {offender.sequence} of partition {offender.partition}")
    rows = DeltaTable(table).to_pyarrow_table().sort_by([("sequence", "descending")]).slice(0, 3).to_pylist()
    for row in rows:
        mean = row["total"] / row["readings"]
        tell(f"{row['subject']}: {row['readings']} readings, mean {mean:.1f}, {row['least']} to {row['most']}")
    return Result(found.messages, found.processed, found.lost, found.duplicated, found.out_of_order, 0.0, 0.0)

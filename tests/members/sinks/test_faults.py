"""Owners, connections and servers that fail in the middle of transactions: results are there once, and in order."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import psycopg
import pytest

from echelon.errors import Unreachable
from echelon.local import Server
from tests.members.sinks.conftest import new_harness
from tests.members.sinks.harnesses import SinkHarness, make_harness
from tests.members.sinks.owner import Owner
from tests.members.sinks.process import Task
from tests.postgres_server import PostgresServer
from tests.proxy import Proxy


@contextmanager
def launched(harness: SinkHarness, epoch: int, end: int) -> "Iterator[subprocess.Popen[bytes]]":
    """A process that owns partition 0 and has opened its epoch. It is gone afterwards."""
    task = Task(harness.kind, harness.address, harness.name, epoch, end)
    command = [sys.executable, "-m", "tests.members.sinks.process", msgspec.json.encode(task).decode()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
            yield process
        finally:
            process.kill()


def test_processes_that_are_killed_in_the_middle_of_transactions(harness: SinkHarness) -> None:
    for epoch in range(1, 4):
        with launched(harness, epoch, end=1_000_000):
            time.sleep(random.uniform(0.02, 0.2))

    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=10)
            assert await owner.open_again()
            assert await owner.work(owner.position + 10)
        assert owner.position > 10
        assert await harness.results() == {"0": list(range(owner.position))}

    asyncio.run(scenario())


def test_a_process_that_is_stopped_in_a_transaction_and_wakes_after_its_successor_began(harness: SinkHarness) -> None:
    async def scenario() -> None:
        with launched(harness, epoch=1, end=1_000_000) as process:
            await asyncio.sleep(random.uniform(0.02, 0.2))
            process.send_signal(signal.SIGSTOP)
            async with harness.sink(timeout=1) as sink:
                owner = Owner(harness, sink, epoch=2)
                opening = asyncio.create_task(owner.open_again())
                await asyncio.wait({opening}, timeout=1.5)
                process.send_signal(signal.SIGCONT)  # With SQLite the successor has to wait for this.
                assert await opening
                assert await owner.work(owner.position + 50)
            assert await asyncio.to_thread(process.wait, 30) == 0  # It noticed.
        assert await harness.results() == {"0": list(range(owner.position))}

    asyncio.run(scenario())


@pytest.mark.parametrize("arrives", [True, False], ids=["arrives", "is lost"])
@pytest.mark.parametrize("kind", ["postgres", "nats"])
def test_a_commit_that_is_not_answered(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, *, arrives: bool
) -> None:
    harness = new_harness(request, kind, tmp_path)

    async def scenario() -> None:
        async with through_proxy(harness, tmp_path) as (proxy, near), near.sink() as sink:
            owner = Owner(near, sink, epoch=5)
            await owner.open()
            for failures in range(1, 6):
                proxy.fail(b"COMMIT" if kind == "postgres" else b"Nats-Batch-Commit", arrives=arrives)
                with pytest.raises(Unreachable):
                    await owner.commit(owner.position + 3)
                assert proxy.failures == failures
                before = owner.position
                assert await owner.open_again()
                assert owner.position == before + (3 if arrives else 0)
                assert await owner.commit(owner.position + 2)
        assert await harness.results() == {"0": list(range(owner.position))}

    asyncio.run(scenario())


@asynccontextmanager
async def through_proxy(harness: SinkHarness, folder: Path) -> AsyncIterator[tuple[Proxy, SinkHarness]]:
    """The same place, reached through a proxy."""
    if harness.kind == "postgres":
        socket = f"{psycopg.conninfo.conninfo_to_dict(harness.address)['host']}/.s.PGSQL.5432"
        proxy = Proxy(lambda: asyncio.open_unix_connection(socket))
        async with proxy.on_path(f"{folder}/.s.PGSQL.5432"):
            address = psycopg.conninfo.make_conninfo(harness.address, host=str(folder))
            yield proxy, make_harness(harness.kind, address, harness.name)
    else:
        host, _, port = harness.address.removeprefix("nats://").rpartition(":")
        proxy = Proxy(lambda: asyncio.open_connection(host, int(port)))
        async with proxy.on_port() as own:
            yield proxy, make_harness(harness.kind, f"nats://{host}:{own}", harness.name)


@pytest.mark.parametrize("kind", ["postgres", "kafka", "nats"])
def test_servers_that_are_killed_in_the_middle_of_transactions(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    harness = new_harness(request, kind, tmp_path)
    server: Server | PostgresServer = request.getfixturevalue(f"{kind}_server")
    stop = asyncio.Event()

    async def scenario() -> None:
        async with harness.sink(timeout=2) as sink:
            owners = [Owner(harness, sink, epoch=5, where=harness.place(partition)) for partition in "012"]
            working = [asyncio.create_task(work_until(stop, owner)) for owner in owners]
            for _ in range(1 if kind == "kafka" else 3):  # Kafka takes seconds to come back.
                await asyncio.sleep(random.uniform(0.2, 0.5))
                before = [owner.position for owner in owners]
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await asyncio.gather(*(reach(owner, past) for owner, past in zip(owners, before, strict=True)))
            stop.set()
            await asyncio.gather(*working)
        results = await harness.results()
        assert results == {owner.place.partition: list(range(owner.position)) for owner in owners}

    asyncio.run(scenario())


async def work_until(stop: asyncio.Event, owner: Owner) -> None:
    assert await owner.open_again()
    while not stop.is_set():
        assert await owner.work(owner.position + 1)


async def reach(owner: Owner, past: int) -> None:
    while owner.position <= past:
        await asyncio.sleep(0.01)


def test_a_kafka_that_hangs_during_commits(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    harness = new_harness(request, "kafka", tmp_path)
    server: Server = request.getfixturevalue("kafka_server")

    async def scenario() -> None:
        async with harness.sink(timeout=1) as sink:
            owner = Owner(harness, sink, epoch=5)
            assert await owner.open_again()
            for _ in range(2):
                committing = asyncio.create_task(owner.commit(owner.position + 3))
                await asyncio.sleep(random.uniform(0, 0.01))
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    await asyncio.wait({committing})
                finally:
                    server.resume()
                if committing.exception() is not None:
                    with pytest.raises(Unreachable):
                        committing.result()
                    assert await owner.open_again()
                assert await owner.work(owner.position + 2)
        assert await harness.results() == {"0": list(range(owner.position))}

    asyncio.run(scenario())

"""Exactly once into a real PostgreSQL: prepare, double ack, commit; whatever happens in between."""

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from echelon.errors import InvalidConfig, Unreachable
from echelon.local import NatsServer
from echelon.pcg.ledger import Source
from echelon.pcg.postgres import Cursor, PostgresLedger
from tests.pcg.accountant import Cast, Moment
from tests.pcg.results import check_once, prepared, results, until_all_written
from tests.pcg.stage import ROOT, Stage, create, staged
from tests.postgres_server import PostgresServer


def launch(stage: Stage, server: PostgresServer, name: str, moment: Moment = "", *, freeze: bool = False) -> None:
    cast = Cast(stage.url, stage.stream, name, "m", server.conninfo, moment, freeze=freeze)
    command = [sys.executable, "-m", "tests.pcg.accountant", msgspec.json.encode(cast).decode()]
    stage.processes[name] = subprocess.Popen(command, cwd=ROOT)


@pytest.mark.parametrize(
    ("kind", "moment"),
    [("elastic", "handling"), ("elastic", "prepared"), ("elastic", "acknowledged"), ("static", "acknowledged")],
)
def test_each_message_has_its_effect_once_when_the_process_is_killed(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer, kind: str, moment: Moment
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            await stage.publish(30, keys=5)
            launch(stage, preparing_postgres, "a", moment)
            assert await asyncio.to_thread(stage.processes["a"].wait, 20) == -signal.SIGKILL
            assert prepared(preparing_postgres) == (moment != "handling")
            launch(stage, preparing_postgres, "b")
            await until_all_written(stage, preparing_postgres)
            check_once(stage, preparing_postgres)
            assert prepared(preparing_postgres) == 0

    asyncio.run(run())


@pytest.mark.parametrize("moment", ["handling", "prepared", "acknowledged"])
def test_each_message_has_its_effect_once_when_a_superseded_process_wakes_up(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer, moment: Moment
) -> None:
    """It wakes up in the middle of a message, and its acknowledgement is accepted; its commit is not."""

    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            await stage.publish(30, keys=5)
            launch(stage, preparing_postgres, "a", moment, freeze=True)
            pid = stage.processes["a"].pid
            await stage.until(lambda: _state(pid) == "T")
            launch(stage, preparing_postgres, "b")
            await until_all_written(stage, preparing_postgres)
            stage.processes["a"].send_signal(signal.SIGCONT)
            await stage.publish(30, keys=5)
            await until_all_written(stage, preparing_postgres)
            await asyncio.sleep(0.5)
            check_once(stage, preparing_postgres)
            assert prepared(preparing_postgres) == 0
            assert stage.processes["a"].poll() is None

    asyncio.run(run())


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_each_message_has_its_effect_once_when_the_database_is_restarted(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            launch(stage, preparing_postgres, "a")
            async with stage.publishing(rate=100, keys=5):
                await stage.until(lambda: len(results(preparing_postgres, stage.stream)) == 5)
                await asyncio.to_thread(preparing_postgres.kill)
                await asyncio.to_thread(preparing_postgres.start)
                await asyncio.sleep(0.5)
            await until_all_written(stage, preparing_postgres)
            check_once(stage, preparing_postgres)

    asyncio.run(run())


def test_an_answer_that_does_not_come_is_asked_for_again_before_anything_is_taken_back(
    preparing_postgres: PostgresServer,
) -> None:
    async def run() -> None:
        source = Source("S.g", time.strftime("%s"), "S.g/m")
        calls: list[str] = []

        async def work(_cursor: Cursor) -> None:
            calls.append("work")

        async def acknowledge() -> None:
            calls.append("ack")
            if calls.count("ack") == 1:
                raise Unreachable("no answer")

        async def is_acknowledged(_sequence: int) -> bool:
            return False

        async with PostgresLedger(preparing_postgres.conninfo) as ledger:
            await ledger.take_over(source, is_acknowledged)
            with pytest.raises(Unreachable):
                await ledger.process(source, 7, work, acknowledge)
            await ledger.process(source, 7, work, acknowledge)
            assert calls == ["work", "ack", "ack"]
            await ledger.process(source, 7, work, acknowledge)  # Delivered again, though it was acknowledged.
            assert calls == ["work", "ack", "ack", "ack"]

    asyncio.run(run())


def test_a_server_that_prepares_nothing_is_refused(postgres_server: PostgresServer) -> None:
    async def run() -> None:
        with pytest.raises(InvalidConfig, match="prepares no transactions"):
            async with PostgresLedger(postgres_server.conninfo):
                pass

    asyncio.run(run())

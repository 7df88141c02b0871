"""Exactly once into a real PostgreSQL: prepare, double ack, commit; whatever happens in between."""

import asyncio
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import msgspec
import psycopg
import pytest

from echelon.errors import InvalidConfig, Unreachable
from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import Member, Options
from echelon.pcg.ledger import Source
from echelon.pcg.postgres import Cursor, PostgresLedger
from tests.pcg.accountant import Cast, Moment, write
from tests.pcg.stage import ROOT, Stage, create, staged
from tests.postgres_server import PostgresServer


def results(server: PostgresServer, stream: str) -> dict[str, list[tuple[int, str]]]:
    """The results of each key, in the order in which they were written, and who wrote them."""
    found: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    with psycopg.connect(server.conninfo) as connection:
        query = "SELECT key, number, name FROM results WHERE stream = %s ORDER BY id"
        for key, number, name in connection.execute(query, (stream,)):
            found[key].append((number, name))
    return dict(found)


def prepared(server: PostgresServer) -> int:
    with psycopg.connect(server.conninfo) as connection:
        row = connection.execute("SELECT count(*) FROM pg_prepared_xacts").fetchone()
        assert row is not None
        return int(row[0])


def launch(stage: Stage, server: PostgresServer, name: str, moment: Moment = "", *, freeze: bool = False) -> None:
    cast = Cast(stage.url, stage.stream, name, "m", server.conninfo, moment, freeze=freeze)
    command = [sys.executable, "-m", "tests.pcg.accountant", msgspec.json.encode(cast).decode()]
    stage.processes[name] = subprocess.Popen(command, cwd=ROOT)


async def until_all_written(stage: Stage, server: PostgresServer, seconds: float = 20) -> None:
    def is_so() -> bool:
        found = results(server, stage.stream)
        return all(len({n for n, _ in found.get(key, [])}) == count for key, count in stage.sent.items())

    await stage.until(is_so, seconds)


def check_once(stage: Stage, server: PostgresServer) -> None:
    found = results(server, stage.stream)
    for key, count in stage.sent.items():
        assert [number for number, _ in found[key]] == list(range(count)), (key, found[key])


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


def test_a_handler_that_fails_leaves_nothing_behind(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(3, keys=1)
            failures = 0

            def handle(message: Message, cursor: Cursor) -> None:
                nonlocal failures
                write(cursor, stage.stream, message, "a")
                if message.data == b"1" and failures < 2:
                    failures += 1
                    raise ValueError("not now")

            options = Options(ack_wait=1, backoff=(0.01, 0.01), ledger=PostgresLedger(preparing_postgres.conninfo))
            member = Member(stage.groups, stage.stream, "g", "m", handle, options=options)
            running = asyncio.ensure_future(member.run())
            await until_all_written(stage, preparing_postgres)
            await stage.until(lambda: member.counters.messages == 3)
            member.drain()
            await running
            check_once(stage, preparing_postgres)
            assert (failures, member.counters.retries, prepared(preparing_postgres)) == (2, 2, 0)

    asyncio.run(run())


def test_a_dead_letter_is_acknowledged_once_and_what_follows_it_is_processed(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(4, keys=1)
            calls: list[int] = []

            def handle(message: Message, cursor: Cursor) -> None:
                number = int(message.data)
                calls.append(number)
                write(cursor, stage.stream, message, "a")
                if number == 1:
                    raise ValueError("cannot be read")

            ledger = PostgresLedger(preparing_postgres.conninfo)
            options = Options(ack_wait=0.5, retries=1, backoff=(0.01, 0.01), on_failure="dead_letter", ledger=ledger)
            member = Member(stage.groups, stage.stream, "g", "m", handle, options=options)
            running = asyncio.ensure_future(member.run())
            await stage.until(lambda: member.counters.messages == 4)
            await asyncio.sleep(0.8)  # What is not acknowledged would be delivered again meanwhile.
            info = await stage.groups.consumers.info(f"{stage.stream}-g", "m")
            member.drain()
            await running
            assert calls == [0, 1, 1, 2, 3]
            assert [number for number, _ in results(preparing_postgres, stage.stream)["k0"]] == [0, 2, 3]
            assert (info.num_ack_pending, info.num_redelivered, info.delivered.consumer_seq) == (0, 0, 4)
            subject = f"echelon.dead.{stage.stream}-g"
            letters = await stage.groups.consumers.details("ECHELON_DEAD", subjects=subject)
            assert letters.state.subjects == {subject: 1}
            assert (member.counters.dead_letters, prepared(preparing_postgres)) == (1, 0)

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

"""Exactly once: what becomes of a message whose handler fails, or breaks the transaction that it writes to."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from echelon.errors import InvalidConfig
from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import Member, Options
from echelon.pcg.ledger import Source
from echelon.pcg.postgres import Cursor, PostgresLedger
from tests.pcg.accountant import write
from tests.pcg.results import check_once, prepared, results, until_all_written
from tests.pcg.stage import staged
from tests.postgres_server import PostgresServer


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


def swallow_an_error(cursor: Cursor) -> None:
    with suppress(psycopg.errors.UndefinedTable):
        cursor.execute("SELECT FROM nowhere")


def swallow_an_error_behind_a_savepoint(cursor: Cursor) -> None:
    with suppress(psycopg.errors.UndefinedTable), cursor.connection.transaction():
        cursor.execute("SELECT FROM nowhere")


def lose_the_connection(cursor: Cursor) -> None:
    cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def lose_the_connection_and_swallow_that(cursor: Cursor) -> None:
    with suppress(psycopg.OperationalError):
        lose_the_connection(cursor)


def lose_the_connection_and_raise_another_error(cursor: Cursor) -> None:
    try:
        lose_the_connection(cursor)
    except psycopg.OperationalError as error:
        raise RuntimeError("what libraries between the handler and psycopg do") from error


def be_idle_for_too_long(cursor: Cursor) -> None:
    cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 10")
    while True:
        time.sleep(0.1)
        cursor.execute("SELECT 1")


@pytest.mark.parametrize(
    ("mishap", "calls", "retries"),
    [
        (swallow_an_error, [0, 1, 1, 2], 1),
        (swallow_an_error_behind_a_savepoint, [0, 1, 2], 0),
        (lose_the_connection, [0, 1, 1, 2], 0),
        (lose_the_connection_and_swallow_that, [0, 1, 1, 2], 0),
        (lose_the_connection_and_raise_another_error, [0, 1, 1, 2], 0),
        (be_idle_for_too_long, [0, 1, 1, 2], 0),
    ],
)
def test_a_message_whose_transaction_broke_in_the_handler_is_not_acknowledged_without_its_effect(
    nats_server: NatsServer,
    tmp_path: Path,
    preparing_postgres: PostgresServer,
    mishap: Callable[[Cursor], None],
    calls: list[int],
    retries: int,
) -> None:
    """An error that the handler hides is its failure; that the database was away is not."""

    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(3, keys=1)
            seen: list[int] = []

            def handle(message: Message, cursor: Cursor) -> None:
                write(cursor, stage.stream, message, "a")
                seen.append(int(message.data))
                if seen == [0, 1]:
                    mishap(cursor)

            options = Options(ack_wait=1, backoff=(0.01, 0.01), ledger=PostgresLedger(preparing_postgres.conninfo))
            member = Member(stage.groups, stage.stream, "g", "m", handle, options=options)
            running = asyncio.ensure_future(member.run())
            await stage.until(lambda: member.counters.messages == 3)
            member.drain()
            await running
            check_once(stage, preparing_postgres)
            assert (seen, member.counters.retries, prepared(preparing_postgres)) == (calls, retries, 0)

    asyncio.run(run())


def roll_back(cursor: Cursor) -> None:
    cursor.connection.rollback()


def close_the_connection(cursor: Cursor) -> None:
    cursor.connection.close()


@pytest.mark.parametrize("mishap", [swallow_an_error, roll_back, close_the_connection])
def test_a_handler_that_left_nothing_to_prepare_is_told_what_to_do_and_called_again(
    preparing_postgres: PostgresServer, mishap: Callable[[Cursor], None]
) -> None:
    async def run() -> None:
        calls: list[str] = []

        async def work(cursor: Cursor) -> None:
            calls.append("work")
            if calls == ["work"]:
                mishap(cursor)

        async def acknowledge() -> None:
            calls.append("ack")

        async with PostgresLedger(preparing_postgres.conninfo) as ledger:
            source = Source("S.g", mishap.__name__, "S.g/m")
            with pytest.raises(InvalidConfig, match=r"message 7 .* savepoint"):
                await ledger.process(source, 7, work, acknowledge)
            assert calls == ["work"]
            await ledger.process(source, 7, work, acknowledge)
            assert calls == ["work", "work", "ack"]

    asyncio.run(run())


def commit(cursor: Cursor) -> None:
    cursor.connection.commit()


def commit_by_a_statement(cursor: Cursor) -> None:
    cursor.execute("COMMIT")


def commit_and_close(cursor: Cursor) -> None:
    with cursor.connection:
        pass


def commit_and_fail(cursor: Cursor) -> None:
    cursor.connection.commit()
    raise ValueError("the rest of the effect is missing")


def commit_and_wait_for_what_others_cancelled(cursor: Cursor) -> None:
    cursor.connection.commit()
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "mishap",
    [
        commit,
        commit_by_a_statement,
        commit_and_close,
        commit_and_fail,
        commit_and_wait_for_what_others_cancelled,
    ],
)
def test_a_message_whose_handler_commits_by_itself_is_refused_and_not_acknowledged_when_it_is_tried_again(
    preparing_postgres: PostgresServer, mishap: Callable[[Cursor], None]
) -> None:
    async def run() -> None:
        calls: list[str] = []

        async def work(cursor: Cursor) -> None:
            calls.append("work")
            mishap(cursor)

        async def acknowledge() -> None:
            raise AssertionError("it must not be acknowledged")

        async with PostgresLedger(preparing_postgres.conninfo) as ledger:
            for _ in range(3):
                with pytest.raises(InvalidConfig, match="the handler of message 7 has committed"):
                    await ledger.process(Source("S.g", mishap.__name__, "S.g/m"), 7, work, acknowledge)
            assert calls == ["work"]

    asyncio.run(run())


def test_a_handler_that_commits_by_itself_ends_the_member_and_its_message_stays(
    nats_server: NatsServer, tmp_path: Path, preparing_postgres: PostgresServer
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(3, keys=1)
            seen: list[int] = []

            def handle(message: Message, cursor: Cursor) -> None:
                write(cursor, stage.stream, message, "a")
                seen.append(int(message.data))
                if message.data == b"1":
                    commit_and_fail(cursor)

            ledger = PostgresLedger(preparing_postgres.conninfo)
            options = Options(on_failure="dead_letter", ack_wait=1, retries=2, backoff=(0.01, 0.01), ledger=ledger)
            member = Member(stage.groups, stage.stream, "g", "m", handle, options=options)
            with pytest.raises(InvalidConfig, match="has committed"):
                await asyncio.wait_for(member.run(), 20)
            queue = await stage.groups.consumers.details(f"{stage.stream}-g")
            assert (seen, member.counters.messages, queue.state.messages) == ([0, 1], 1, 2)
            assert [number for number, _ in results(preparing_postgres, stage.stream)["k0"]] == [0, 1]

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

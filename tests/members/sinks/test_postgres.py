"""What is particular to PostgreSQL: connections that are lost, locks that are held, and credentials."""

import asyncio
import itertools
import os
import random
import signal
import threading
import time
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from echelon.errors import Denied, InvalidConfig, Unreachable
from echelon.members.sinks.postgres import Cursor, PostgresSink
from tests.members.sinks.harnesses import PostgresHarness
from tests.members.sinks.owner import Owner
from tests.postgres_server import PostgresServer


@pytest.fixture
def harness(postgres_server: PostgresServer) -> PostgresHarness:
    made = PostgresHarness(postgres_server.conninfo, f"r{random.getrandbits(48):x}")
    asyncio.run(made.prepare())
    return made


def test_many_members_that_start_at_once_on_a_new_database(harness: PostgresHarness) -> None:
    async def start() -> None:
        async with harness.sink():
            pass

    async def scenario() -> None:
        await asyncio.gather(*(start() for _ in range(20)))

    asyncio.run(scenario())


def test_a_role_that_may_not_make_tables_can_use_one_that_is_there(harness: PostgresHarness) -> None:
    role = f"role_{harness.name}"

    async def scenario() -> None:
        with psycopg.connect(harness.address) as connection:
            connection.execute(f"CREATE ROLE {role} LOGIN")
            connection.execute(f"GRANT USAGE ON SCHEMA {harness.name} TO {role}")
        theirs = PostgresHarness(make_conninfo(harness.address, user=role), harness.name)
        with pytest.raises(Denied, match="permission denied"):
            await theirs.sink().__aenter__()
        async with harness.sink():
            pass
        with psycopg.connect(harness.address) as connection:
            connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {harness.name} TO {role}")
            connection.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {harness.name} TO {role}")
        async with theirs.sink() as sink:
            owner = Owner(theirs, sink, epoch=5)
            await owner.open()
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


def test_credentials_are_in_no_error() -> None:
    with pytest.raises(InvalidConfig) as invalid:
        PostgresSink("wonderland is no connection string")
    assert "wonderland" not in f"{invalid.value!r} {invalid.value.__cause__!r}"

    async def scenario() -> None:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1") as caught:
            await PostgresSink("postgresql://alice:wonderland@127.0.0.1:1/x").__aenter__()
        assert "wonderland" not in f"{caught.value!r} {caught.value.__cause__!r}"

    asyncio.run(scenario())


def test_a_role_that_is_not_there_is_denied(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        with pytest.raises(Denied, match="alice"):
            await PostgresSink(make_conninfo(harness.address, user="alice")).__aenter__()

    asyncio.run(scenario())


def test_a_connection_that_is_lost_while_a_handler_works(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            with pytest.raises(Unreachable, match="connection"):
                await lose_connection(harness, sink)
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


async def lose_connection(harness: PostgresHarness, sink: PostgresSink) -> None:
    async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
        harness.write(transaction.target, "0", 0)
        with psycopg.connect(harness.address) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (backend(transaction.target),))
        harness.write(transaction.target, "0", 1)


def backend(cursor: Cursor) -> int:
    """The process of the server that the cursor talks to."""
    return cursor.connection.info.backend_pid


def test_a_server_that_hangs_in_a_commit_is_unreachable_in_time(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        async with harness.sink(timeout=0.5) as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                process = backend(transaction.target)
                os.kill(process, signal.SIGSTOP)
                began = time.monotonic()
                with pytest.raises(Unreachable, match=r"did not answer within 0\.5 s"):
                    await transaction.commit(1)
                assert time.monotonic() - began < 5
            assert await owner.open() == 0
            assert await owner.commit(2)
            os.kill(process, signal.SIGCONT)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


def test_a_row_that_another_keeps_locked_is_unreachable_and_then_goes_on(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        async with harness.sink(timeout=0.5) as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            with psycopg.connect(harness.address) as other:
                other.execute(f"SELECT FROM {harness.name}.positions FOR UPDATE")
                with pytest.raises(Unreachable):
                    await owner.commit(1)
                with pytest.raises(Unreachable):
                    await owner.open()
            assert await owner.open() == 0
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_results_that_do_not_fit_the_tables_fail_at_the_commit_and_leave_nothing(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        with psycopg.connect(harness.address) as connection:
            connection.execute(
                f"ALTER TABLE {harness.name}.results ADD UNIQUE (sequence) DEFERRABLE INITIALLY DEFERRED"
            )
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                harness.write(transaction.target, "0", 0)
                with pytest.raises(psycopg.errors.UniqueViolation):
                    await transaction.commit(1)
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_an_error_that_a_handler_hides_fails_the_commit_and_leaves_nothing(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                with suppress(psycopg.errors.UndefinedTable):
                    transaction.target.execute("SELECT FROM nowhere")
                with pytest.raises(psycopg.errors.InFailedSqlTransaction):
                    await transaction.commit(1)
            assert await owner.open() == 0
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_a_lost_connection_that_a_handler_hides_is_unreachable_at_the_commit(harness: PostgresHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                with suppress(psycopg.OperationalError):
                    transaction.target.execute("SELECT pg_terminate_backend(pg_backend_pid())")
                with pytest.raises(Unreachable):
                    await transaction.commit(1)
            assert await owner.open() == 0
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_a_handler_that_goes_on_after_its_batch_was_given_up_can_write_nothing(harness: PostgresHarness) -> None:
    may_go_on, errors = threading.Event(), list[str]()

    def dawdle(cursor: Cursor) -> None:
        harness.write(cursor, "0", 0)
        may_go_on.wait()
        try:
            harness.write(cursor, "0", 77)
        except psycopg.Error as error:
            errors.append(str(error))

    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()

            async def batch() -> None:
                async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                    await asyncio.to_thread(dawdle, transaction.target)

            task = asyncio.create_task(batch())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                may_go_on.set()
                await asyncio.sleep(0.05)
                harness.write(transaction.target, "0", 0)
                assert await transaction.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())
    assert errors == ["the cursor is closed"]


def test_owners_that_race_where_transactions_are_serializable(harness: PostgresHarness) -> None:
    strict = PostgresHarness(
        make_conninfo(harness.address, options="-c default_transaction_isolation=serializable"), harness.name
    )
    epochs = itertools.count(1)

    async def own() -> None:
        async with strict.sink() as sink:
            owner = Owner(strict, sink, epoch=0)
            while owner.position < 60:
                owner.epoch = next(epochs)
                if await owner.open_again():
                    await owner.work(min(60, owner.position + 7))

    async def scenario() -> None:
        await asyncio.gather(own(), own(), own())
        assert await harness.results() == {"0": list(range(60))}

    asyncio.run(scenario())

"""What is particular to SQLite: one file, one writer, and handlers that could do as they like with the cursor."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from echelon.errors import Denied, InvalidConfig, Unreachable
from echelon.members.sinks.sqlite import SqliteSink, TakeBack
from tests.members.sinks.harnesses import SqliteHarness
from tests.members.sinks.owner import Owner


@pytest.fixture
def harness(tmp_path: Path) -> SqliteHarness:
    made = SqliteHarness(str(tmp_path / "results.db"), "group")
    asyncio.run(made.prepare())
    return made


def test_many_members_that_start_at_once_on_a_new_file(tmp_path: Path) -> None:
    async def start() -> None:
        async with SqliteSink(tmp_path / "new.db"):
            pass

    async def scenario() -> None:
        await asyncio.gather(*(start() for _ in range(20)))

    asyncio.run(scenario())


def test_a_file_that_another_process_keeps_locked_is_unreachable_and_then_goes_on(harness: SqliteHarness) -> None:
    async def scenario() -> None:
        async with harness.sink(timeout=0.2) as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            with closing(sqlite3.connect(harness.address, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(Unreachable, match="locked"):
                    await owner.commit(1)
                with pytest.raises(Unreachable, match="locked"):
                    await owner.open()
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_a_handler_that_ends_the_transaction_itself_is_told(harness: SqliteHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            await Owner(harness, sink, epoch=5).open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                transaction.target.executescript("INSERT INTO results VALUES (1, '0', 0)")
                with pytest.raises(InvalidConfig, match="ended the transaction"):
                    await transaction.commit(1)

    asyncio.run(scenario())


def test_results_that_do_not_fit_the_tables_fail_at_the_commit_and_leave_nothing(harness: SqliteHarness) -> None:
    async def scenario() -> None:
        with closing(sqlite3.connect(harness.address)) as connection:
            connection.execute(
                "CREATE TABLE details (result INTEGER REFERENCES results (id) DEFERRABLE INITIALLY DEFERRED)"
            )
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            sink._connection.execute("PRAGMA foreign_keys = ON")
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                transaction.target.execute("INSERT INTO details VALUES (77)")
                with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
                    await transaction.commit(1)
            assert await harness.results() == {}
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


def test_a_handler_that_goes_on_after_its_batch_was_given_up_can_write_nothing(harness: SqliteHarness) -> None:
    in_statement, may_go_on, errors = threading.Event(), threading.Event(), list[str]()

    def dawdle(cursor: sqlite3.Cursor) -> None:
        """In the middle of a long statement when the batch is given up, and then once more."""
        for _ in range(2):
            in_statement.set()
            try:
                cursor.execute(
                    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) "
                    "INSERT INTO results SELECT n, '0', n FROM numbers"
                )
            except sqlite3.Error as error:
                errors.append(str(error))
            may_go_on.wait()

    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()

            async def batch() -> None:
                async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                    await asyncio.to_thread(dawdle, transaction.target)

            task = asyncio.create_task(batch())
            await asyncio.to_thread(in_statement.wait)
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            assert await owner.commit(1)
            may_go_on.set()
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())
    assert errors == ["interrupted", "Cannot operate on a closed cursor."]


def _fail(cursor: sqlite3.Cursor, partition: str, position: int) -> None:
    cursor.execute("DELETE FROM results")
    raise ValueError(f"not {partition} to {position}")


async def _is_never_awaited(cursor: sqlite3.Cursor, partition: str, position: int) -> None:
    raise AssertionError(cursor, partition, position)


@pytest.mark.parametrize(
    ("take_back", "error", "told"),
    [
        (_fail, ValueError, "not 0 to 2"),
        (_is_never_awaited, InvalidConfig, "take_back returns something to be awaited"),
    ],
)
def test_a_take_back_that_fails_or_is_not_awaited_changes_nothing(
    harness: SqliteHarness, take_back: TakeBack, error: type[Exception], told: str
) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(4)
        async with SqliteSink(harness.address, take_back) as sink:
            later = Owner(harness, sink, epoch=12, reset=12)
            with pytest.raises(error, match=told):
                await later.open(2)
            again = Owner(harness, sink, epoch=5)
            assert await again.open() == 4
            assert await again.commit(5)
        assert await harness.results() == {"0": [0, 1, 2, 3, 4]}

    asyncio.run(scenario())


def test_a_path_that_cannot_be_a_database(tmp_path: Path) -> None:
    async def enter(path: Path) -> None:
        async with SqliteSink(path):
            pass

    with pytest.raises(Denied, match="missing"):
        asyncio.run(enter(tmp_path / "missing/results.db"))
    (tmp_path / "text").write_text("This is no database at all, but it is long enough to look like one." * 20)
    with pytest.raises(InvalidConfig, match="text: file is not a database"):
        asyncio.run(enter(tmp_path / "text"))

"""What is special about PostgreSQL."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

from echelon.errors import InvalidConfig, Unreachable
from echelon.spark.sinks.postgres import _Writer
from tests.spark.sinks.conftest import new_harness
from tests.spark.sinks.harnesses import BatchHarness, Seat


@pytest.fixture
def harness(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> BatchHarness:
    return new_harness(request, "postgres", spark, tmp_path)


def ask(harness: BatchHarness, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(harness.address) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(harness.name)))
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def test_all_kinds_of_columns_come_back_as_they_were(harness: BatchHarness) -> None:
    frame = harness.spark.sql(
        "SELECT 7S small, 1.5D real, double('nan') nan, 12.50BD price, true is_so, date'2026-01-02' day, "
        "timestamp'2026-01-02 03:04:05.678901' at, X'00ff' raw, array(1, null) list, map('a', 1) pairs, "
        "named_struct('x', 'y') inner, '' empty, cast(null as string) none, 'a\"b,c\\\\d\\ne' odd, '\\\\N' slash"
    )

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(1, frame=frame)

    asyncio.run(scenario())
    [row] = ask(harness, "SELECT * FROM results")
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert row[:2] == (7, 1.5)
    assert str(row[2]) == "nan"
    assert row[3:8] == (Decimal("12.50"), True, date(2026, 1, 2), at, b"\x00\xff")
    assert row[8:] == ([1, None], {"a": 1}, {"x": "y"}, "", None, 'a"b,c\\d\ne', "\\N")


def test_a_batch_of_many_rows_into_a_table_that_is_there(harness: BatchHarness) -> None:
    ask(harness, "CREATE TABLE results (at timestamptz DEFAULT now(), sequence numeric, partition text, data text)")

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5, "01")
            await seat.open()
            assert await seat.write(12_000)
        assert await harness.results() == {"0": list(range(12_000)), "1": list(range(12_000))}

    asyncio.run(scenario())


def test_rows_that_the_table_does_not_take_leave_nothing(harness: BatchHarness) -> None:
    ask(harness, "CREATE TABLE results (partition text, sequence bigint CHECK (sequence < 4), data text)")

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            with pytest.raises(psycopg.errors.CheckViolation):
                await seat.write(5)
            assert await harness.results() == {}
            with pytest.raises(psycopg.errors.UndefinedColumn, match="more"):
                await seat.write(2, frame=harness.frame({"0": [0, 1]}).selectExpr("*", "1 as more"))
            assert await seat.write(3)
        assert await harness.results() == {"0": [0, 1, 2]}

    asyncio.run(scenario())


def test_a_type_that_postgres_has_not_is_refused_by_name(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            with pytest.raises(InvalidConfig, match="no type for the column long"):
                await seat.write(1, frame=harness.spark.sql("SELECT interval 3 days long"))

    asyncio.run(scenario())


def test_a_connection_that_is_lost_between_the_rows_and_the_commit(
    harness: BatchHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_all = _Writer._commit_all

    def lose(self: _Writer, connection: psycopg.Connection[Any], parts: Any) -> bool:  # noqa: ANN401 - passed on
        ask(harness, f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        return commit_all(self, connection, parts)

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(2)
            with monkeypatch.context() as patch:
                patch.setattr(_Writer, "_commit_all", lose)
                with pytest.raises(Unreachable):
                    await seat.write(4)
            assert await seat.open() == [2]
            assert await harness.results() == {"0": [0, 1]}
            assert await seat.write(5)
        assert await harness.results() == {"0": list(range(5))}

    asyncio.run(scenario())

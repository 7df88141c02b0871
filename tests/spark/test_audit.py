"""The audit: it must find every fault that is there, and none that is not."""

import asyncio
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

from echelon.errors import Denied, InvalidConfig, UnknownName, Unreachable
from echelon.model import Bounds
from echelon.spark.audit import Audit, Offender, audit
from echelon.spark.results import (
    check_postgres,
    delta_results,
    delta_versions_of_resets,
    postgres_results,
    stream_results,
)
from tests.postgres_server import PostgresServer
from tests.spark.sinks.conftest import new_harness
from tests.spark.sinks.harnesses import BatchHarness, DeltaHarness, Seat

Row = tuple[str, int, int | None]


def messages(spark: SparkSession, sequences: Iterable[int], keys: Sequence[str] = ("a", "b")) -> DataFrame:
    rows = [("0", sequence, keys[sequence % len(keys)].encode()) for sequence in sequences]
    return spark.createDataFrame(rows, "partition string, sequence bigint, key binary")


def results(spark: SparkSession, rows: Iterable[Row]) -> DataFrame:
    return spark.createDataFrame(list(rows), "partition string, sequence bigint, order bigint")


def test_every_kind_of_fault_is_found_and_named(spark: SparkSession) -> None:
    there: list[Row] = [("0", n, n) for n in range(20) if n not in {4, 11, 12}]
    there += [("0", 7, 30), ("0", 99, 31), ("1", 3, 32), ("0", 11, 15), ("0", 12, 40)]
    found = audit(messages(spark, range(20)), results(spark, there))
    assert found == Audit(
        messages=20,
        processed=19,
        lost=1,
        duplicated=1,
        out_of_order=2,
        unexpected=2,
        unjudged=0,
        offenders=(
            Offender("duplicated", "0", 7, b"b", 2),
            Offender("lost", "0", 4, b"a", 0),
            Offender("out_of_order", "0", 11, b"b", 1),
            Offender("out_of_order", "0", 12, b"a", 1),
            Offender("unexpected", "1", 3, None, 1),
            Offender("unexpected", "0", 99, None, 1),
        ),
    )
    assert not found.is_exact


def test_what_is_right_is_not_blamed(spark: SparkSession) -> None:
    """Keys overtake each other, batches become visible at once, and messages without a key go anywhere."""
    there: list[Row] = [("0", n, n // 5 + (n % 2) * 10) for n in range(30)]
    found = audit(messages(spark, range(30)), results(spark, there))
    assert found == Audit(30, 30, 0, 0, 0, 0, 0, ())
    backwards: list[Row] = [("0", n, -n) for n in range(30)]
    keyless = messages(spark, range(30)).selectExpr("partition", "sequence", "cast(null as binary) key")
    assert audit(keyless, results(spark, backwards)) == Audit(30, 30, 0, 0, 0, 0, 0, ())
    assert audit(messages(spark, range(30)), results(spark, backwards)).out_of_order == 28


def test_results_whose_order_nobody_knows_are_told(spark: SparkSession) -> None:
    there: list[Row] = [("0", n, None if n < 10 else 50 - n) for n in range(0, 40, 2)]
    found = audit(messages(spark, range(0, 40, 2)), results(spark, there))
    assert (found.unjudged, found.out_of_order, found.lost) == (5, 14, 0)


def test_only_the_range_and_what_was_made_since_a_reset_count(spark: SparkSession) -> None:
    there: list[Row] = [("0", n, n) for n in range(20)]
    there += [("0", n, 100 + n) for n in range(5, 25)]
    looked_for = messages(spark, range(5, 20))
    found = audit(looked_for, results(spark, there), bounds={"0": Bounds(5, 20)}, since={"0": 19, "1": 4})
    assert found == Audit(15, 15, 0, 0, 0, 0, 0, ())
    assert audit(looked_for, results(spark, there), bounds={"0": Bounds(5, 20)}).duplicated == 15
    assert audit(looked_for, results(spark, there), since={"0": 19}).unexpected == 5


@pytest.mark.parametrize("kind", ["delta", "postgres", "kafka", "nats"])
def test_a_sink_that_was_written_batch_by_batch(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    harness = new_harness(request, kind, spark, tmp_path)

    async def write(ends: Iterable[int], epoch: int, *, reset: int = 0, position: int = 0) -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, epoch, reset=reset)
            await seat.open(position, keep=True)
            for end in ends:
                assert await seat.write(end)

    asyncio.run(write((4, 9), 5))
    asyncio.run(write((14, 15), 6))
    assert audit(messages(spark, range(15)), read(harness)) == Audit(15, 15, 0, 0, 0, 0, 0, ())
    found = audit(messages(spark, range(-1, 17)), read(harness))
    assert [(each.problem, each.sequence) for each in found.offenders] == [("lost", -1), ("lost", 15), ("lost", 16)]
    # A reset that keeps the output repeats what was there.
    asyncio.run(write((15,), 9, reset=9, position=2))
    found = audit(messages(spark, range(15)), read(harness))
    assert (found.processed, found.duplicated, found.lost, found.out_of_order) == (15, 13, 0, 0)


def read(harness: BatchHarness) -> DataFrame:
    spark, name = harness.spark, harness.name
    if harness.kind == "delta":
        return delta_results(spark, harness.address)
    if harness.kind == "postgres":
        return postgres_results(spark, harness.address, f"{name}.results")
    return stream_results(spark.read.format("echelon").options(broker=harness.address, stream=name).load())


def test_a_delta_table_after_resets_and_optimize(spark: SparkSession, tmp_path: Path) -> None:
    harness = DeltaHarness(spark, str(tmp_path / "table"), "g")

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(6)
            assert await seat.write(8)
            taken_back = Seat(harness, sink, 9, reset=9)
            await taken_back.open(4)
            assert await taken_back.write(10)
            # What is left of the file with 3, 4 and 5 was moved, so nobody can tell when it became visible.
            found = audit(messages(spark, range(10)), delta_results(spark, harness.address))
            assert found == Audit(10, 10, 0, 0, 0, 0, 1, ())
            kept = Seat(harness, sink, 12, reset=12)
            await kept.open(4, keep=True)
            assert await kept.write(12)

    asyncio.run(scenario())
    looked_for, bounds = messages(spark, range(4, 12)), {"0": Bounds(4, 12)}
    since = delta_versions_of_resets(harness.address, "g", {"0": 12})
    assert audit(looked_for, read(harness), bounds=bounds, since=since) == Audit(8, 8, 0, 0, 0, 0, 0, ())
    assert audit(looked_for, read(harness), bounds=bounds).duplicated == 6
    DeltaTable(harness.address).optimize.compact()
    assert audit(looked_for, read(harness), bounds=bounds).unjudged == 8


def test_a_table_that_is_not_there_or_does_not_tell_the_message_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="there is no Delta table"):
        delta_results(spark, str(tmp_path))
    harness = DeltaHarness(spark, str(tmp_path / "table"), "g")

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(1, frame=harness.frame({"0": [0]}).select("data"))

    asyncio.run(scenario())
    with pytest.raises(InvalidConfig, match="no columns partition and sequence"):
        delta_results(spark, harness.address)


def test_a_postgres_table_that_cannot_be_read_is_refused(postgres_server: PostgresServer) -> None:
    conninfo, name = postgres_server.conninfo, f"r{random.getrandbits(48):x}"
    with psycopg.connect(conninfo) as connection:
        for statement in (
            "CREATE SCHEMA {0}",
            "CREATE TABLE {0}.good (partition text, sequence bigint)",
            "CREATE TABLE {0}.colours (colour text)",
            "CREATE VIEW {0}.seen AS SELECT * FROM {0}.good",
            "CREATE ROLE {0} LOGIN",
        ):
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    check_postgres(conninfo, f"{name}.good")
    for table in (f"{name}.nothing", f"{name}x.good", name):
        with pytest.raises(UnknownName, match=f"there is no table {table}"):
            check_postgres(conninfo, table)
    for table, said in (
        (f"{name}.colours", "partition"),
        (f"{name}.seen", "xmin"),
        ("a.b.c.d", "a.b.c.d"),
        ("", "zero-length"),
    ):
        with pytest.raises(InvalidConfig, match=said):
            check_postgres(conninfo, table)
    with pytest.raises(Denied, match="permission denied"):
        check_postgres(psycopg.conninfo.make_conninfo(conninfo, user=name), f"{name}.good")
    with pytest.raises(Unreachable, match="nowhere"):
        check_postgres(psycopg.conninfo.make_conninfo(conninfo, dbname="nowhere"), f"{name}.good")

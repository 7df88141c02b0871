"""What is special about Delta tables."""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Barrier

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from echelon.errors import InvalidConfig, Unreachable
from echelon.members.sinks.base import Place
from echelon.spark.sinks.base import Part
from echelon.spark.sinks.delta import DeltaSink, _numbered
from tests.spark.sinks.harnesses import DeltaHarness, Seat


@pytest.fixture
def harness(spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(spark, str(tmp_path / "table"), "g")


def files(harness: DeltaHarness) -> set[str]:
    return {path.name for path in Path(harness.address).glob("*.parquet")}


def remove_old_commits(harness: DeltaHarness) -> None:
    """As Delta does a month after there is a checkpoint."""
    log = Path(harness.address, "_delta_log")
    last = max(int(path.name.partition(".")[0]) for path in log.glob("*.checkpoint.parquet"))
    for version in range(last + 1):
        (log / f"{version:020}.json").unlink()


class Interruption(Exception):
    """The driver ends here."""


def test_files_that_are_not_committed_are_seen_by_nobody_and_removed_by_vacuum(
    harness: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5, "01")
            await seat.open()
            assert await seat.write(2)
            committed = files(harness)
            with monkeypatch.context() as patch:
                patch.setattr(DeltaSink, "_check_files", interrupt)
                with pytest.raises(Interruption):
                    await seat.write(5)
            left = files(harness) - committed
            assert left
            assert await harness.results() == {"0": [0, 1], "1": [0, 1]}
            assert await seat.write(4)
        vacuum = DeltaTable(harness.address).vacuum
        removed = vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
        assert {Path(each).name for each in removed} == left
        assert await harness.results() == {"0": [0, 1, 2, 3], "1": [0, 1, 2, 3]}

    def interrupt(*_: object) -> None:
        raise Interruption

    asyncio.run(scenario())


def test_all_kinds_of_columns_come_back_as_they_were(harness: DeltaHarness) -> None:
    row = {
        "partition": "0",
        "sequence": 0,
        "small": 7,
        "real": 1.5,
        "price": Decimal("12.50"),
        "is_so": True,
        "day": date(2026, 1, 2),
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        "raw": b"\x00\xff",
        "list": [1, None, 3],
        "pairs": [("a", 1)],
        "inner": {"x": "y", "z": None},
        "none": None,
    }
    schema = (
        "partition string, sequence bigint, small smallint, real double, price decimal(10, 2), is_so boolean, "
        "day date, at timestamp, raw binary, list array<int>, pairs map<string, bigint>, "
        "inner struct<x: string, z: int>, none string"
    )
    frame = harness.spark.createDataFrame([{**row, "pairs": {"a": 1}}], schema)

    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(1, frame=frame)
            assert await seat.write(2, frame=frame)
        assert DeltaTable(harness.address).to_pyarrow_table().to_pylist() == [row, row]

    asyncio.run(scenario())


def test_a_partitioned_table_and_a_reset_of_it(harness: DeltaHarness) -> None:
    regions = ["eu", "us", None]

    async def scenario() -> None:
        async with DeltaSink(harness.address, partition_by=["region", "number"]) as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            rows = [("0", n, regions[n % 3], n % 2) for n in range(12)]
            frame = harness.spark.createDataFrame(rows, "partition string, sequence bigint, region string, number int")
            assert await seat.write(12, frame=frame)
            table = DeltaTable(harness.address)
            assert table.metadata().partition_columns == ["region", "number"]
            found = sorted(table.to_pyarrow_table().to_pylist(), key=lambda row: row["sequence"])
            assert [tuple(row.values()) for row in found] == rows
            assert await Seat(harness, sink, 9, reset=9).open(5) == [5]
            assert await harness.results() == {"0": [0, 1, 2, 3, 4]}
        async with DeltaSink(harness.address, partition_by=["region"]) as sink:
            seat = Seat(harness, sink, 12)
            await seat.open()
            with pytest.raises(InvalidConfig, match="is partitioned by region, number"):
                await seat.write(12, frame=frame)

    asyncio.run(scenario())


def test_results_with_other_columns_than_the_table_are_refused_by_name(harness: DeltaHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(2)
            frame = harness.frame({"0": range(2, 4)})
            other = frame.selectExpr("partition", "cast(sequence as int) sequence", "data", "1 as more")
            with pytest.raises(InvalidConfig, match="other columns than the results: more, sequence"):
                await seat.write(4, frame=other)
            assert await seat.write(4, frame=frame.select("data", "sequence", "partition"))
        assert await harness.results() == {"0": [0, 1, 2, 3]}

    asyncio.run(scenario())


def test_results_that_delta_cannot_be_partitioned_by_are_refused(harness: DeltaHarness) -> None:
    async def scenario() -> None:
        async with DeltaSink(harness.address, partition_by=["nothing"]) as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            with pytest.raises(InvalidConfig, match="cannot be partitioned by nothing"):
                await seat.write(2)

    asyncio.run(scenario())


def test_positions_outlive_the_commits_that_wrote_them(harness: DeltaHarness) -> None:
    async def scenario() -> None:
        async with DeltaSink(harness.address, properties={"delta.checkpointInterval": "4"}) as sink:
            quiet, seat = Seat(harness, sink, 5, "q"), Seat(harness, sink, 5)
            await quiet.open()
            assert await quiet.write(3)
            for epoch in range(6, 20):
                seat.epoch = epoch
                await seat.open(7)
            remove_old_commits(harness)
            assert await quiet.open() == [3]
        async with harness.sink() as late:
            assert await Seat(harness, late, 4, "q").open() == [None]
            assert await Seat(harness, late, 5, "q").open() == [3]
            assert await Seat(harness, late, 18).open() == [None]
            assert await Seat(harness, late, 19).open() == [7]

    asyncio.run(scenario())


def test_a_sink_that_slept_while_commits_were_removed_still_knows_who_may_commit(harness: DeltaHarness) -> None:
    async def scenario() -> None:
        async with DeltaSink(harness.address, properties={"delta.checkpointInterval": "4"}) as sleeper:
            seat = Seat(harness, sleeper, 5)
            await seat.open()
            assert await seat.write(3)
            assert await seat.open() == [3]
            async with harness.sink() as other:
                for epoch in range(6, 20):
                    await Seat(harness, other, epoch).open()
            remove_old_commits(harness)
            assert not await seat.write(4)
            assert await seat.open() == [None]
        assert await harness.results() == {"0": [0, 1, 2]}

    asyncio.run(scenario())


def test_owners_that_race_in_many_threads_commit_each_stretch_once(harness: DeltaHarness) -> None:
    """Without Spark: commits that add no files, so that there can be many."""
    schema, place, end = StructType([StructField("sequence", LongType())]), harness.place(), 120
    won: list[tuple[int, int]] = []

    def own(first: int) -> None:
        sink, epoch = DeltaSink(harness.address), first
        asyncio.run(sink.__aenter__())
        while True:
            epoch += 3
            position = asyncio.run(sink.open(place, epoch=epoch, reset=0, position=0, keep=False))
            while position is not None:
                if position == end:
                    return
                upto = min(end, position + random.randint(1, 5))
                part = Part(_numbered(place), epoch, position, upto)
                if not sink._write(schema, [], [part]):
                    break
                won.append((position, upto))
                position = upto

    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(own, number) for number in range(3)]:
            done.result()
    won.sort()
    assert [begin for begin, _ in won] == [0, *(upto for _, upto in won[:-1])]
    assert won[-1][1] == end


def test_of_many_that_make_the_table_at_once_exactly_one_commits(tmp_path: Path) -> None:
    schema, place = StructType([StructField("sequence", LongType())]), Place("g", "i1", 1, "0")
    together = Barrier(4)

    def make(path: Path) -> bool:
        sink = DeltaSink(path)
        asyncio.run(sink.open(place, epoch=5, reset=0, position=0, keep=False))
        together.wait()
        return sink._write(schema, [], [Part(_numbered(place), 5, 0, 1)])

    with ThreadPoolExecutor(4) as threads:
        for number in range(20):
            path = tmp_path / str(number)
            path.mkdir()
            assert sorted(threads.map(make, [path] * 4)) == [False, False, False, True]
            assert DeltaTable(path).version() == 0


def test_a_reset_of_one_seat_while_another_writes(harness: DeltaHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            seat, other = Seat(harness, mine, 5, "13"), Seat(harness, yours, 5, "2")
            for each in (seat, other):
                await each.open()
                assert await each.write(6)
            epoch = 10

            async def write() -> None:
                for end in range(7, 11):
                    assert await other.write(end)

            writing = asyncio.create_task(write())
            while not writing.done():
                epoch += 1
                seat.epoch = seat.reset = epoch
                assert await seat.open(4) == [4, 4]
                assert await seat.write(6)
            await writing
        assert await harness.results() == {"1": list(range(6)), "2": list(range(10)), "3": list(range(6))}

    asyncio.run(scenario())


def test_a_store_that_cannot_be_reached_is_told_without_secrets() -> None:
    options = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "the-key",
        "AWS_SECRET_ACCESS_KEY": "the-secret",
        "AWS_REGION": "eu",
        "max_retries": "0",
    }

    async def scenario() -> None:
        async with DeltaSink("s3://bucket/table", storage_options=options):
            pass

    with pytest.raises(Unreachable, match="s3://bucket/table") as caught:
        asyncio.run(scenario())
    assert "the-" not in str(caught.value)

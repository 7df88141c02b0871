"""What every sink of a Spark seat has to do, with real Spark. Every result is looked at, by a reader of its own."""

import asyncio

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from echelon.errors import GroupExists, NotReversible
from tests.spark.sinks.harnesses import BatchHarness, Seat


def test_batches_are_there_once_and_a_new_owner_goes_on_where_the_sink_stands(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5, "01")
            assert await seat.open(4) == [4, 4]
            assert await seat.write(7)
            assert await seat.write(9)
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 9, "01")
            assert await seat.open(7) == [9, 9]
            assert await seat.write(12)
        assert await harness.results() == {"0": list(range(4, 12)), "1": list(range(4, 12))}

    asyncio.run(scenario())


def test_a_replayed_batch_is_refused_and_changes_nothing(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(3)
            assert not await seat.write(3, begin=0)
            assert not await seat.write(5, begin=2)
            assert not await seat.write(6, begin=4)
            assert await harness.results() == {"0": [0, 1, 2]}
            assert await seat.open() == [3]
            assert await seat.write(4)
        assert await harness.results() == {"0": [0, 1, 2, 3]}

    asyncio.run(scenario())


def test_a_batch_without_results_moves_the_positions(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(3)
            assert await seat.write(8, frame=harness.frame({"0": []}))
            assert await seat.open() == [8]
        assert await harness.results() == {"0": [0, 1, 2]}

    asyncio.run(scenario())


def test_an_old_epoch_is_refused_after_a_later_one_was_opened(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            former, seat = Seat(harness, mine, 5), Seat(harness, yours, 9)
            await former.open()
            assert await former.write(2)
            assert await seat.open() == [2]
            assert not await former.write(4)
            assert await former.open() == [None]
            assert await seat.write(3)
            assert not await former.write(4)
        assert await harness.results() == {"0": [0, 1, 2]}

    asyncio.run(scenario())


def test_a_task_that_fails_in_the_middle_of_a_batch_leaves_nothing(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5, "01")
            await seat.open()
            assert await seat.write(2)
            frame = harness.frame({"0": range(2, 5), "1": range(2, 5)})
            broken = functions.when(functions.col("data") == "1:4", functions.raise_error(functions.lit("mine")))
            bad = frame.withColumn("data", broken.otherwise(functions.col("data")))
            with pytest.raises(PySparkException, match="mine"):
                await seat.write(5, frame=bad)
            assert await harness.results() == {"0": [0, 1], "1": [0, 1]}
            assert await seat.write(5)
        assert await harness.results() == {"0": list(range(5)), "1": list(range(5))}

    asyncio.run(scenario())


def test_of_two_that_race_for_a_partition_exactly_one_wins(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            seats = [Seat(harness, mine, 5), Seat(harness, yours, 5)]
            for end in (3, 5, 8):
                for seat in seats:
                    assert await seat.open() == [sum(await results_of(harness))]
                assert sorted(await asyncio.gather(*(seat.write(end) for seat in seats))) == [False, True]
                assert await harness.results() == {"0": list(range(end))}

    async def results_of(harness: BatchHarness) -> list[int]:
        return [len(sequences) for sequences in (await harness.results()).values()]

    asyncio.run(scenario())


def test_seats_with_different_partitions_write_at_the_same_time(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            seats = [Seat(harness, mine, 5, "01"), Seat(harness, yours, 6, "2")]
            for seat in seats:
                await seat.open()
            for end in (2, 5, 7):
                assert await asyncio.gather(*(seat.write(end) for seat in seats)) == [True, True]
        assert await harness.results() == {name: list(range(7)) for name in "012"}

    asyncio.run(scenario())


def test_a_reset_takes_back_and_a_later_commit_wins_over_it(table: BatchHarness) -> None:
    async def scenario() -> None:
        async with table.sink() as sink:
            seat = Seat(table, sink, 5, "01")
            await seat.open()
            assert await seat.write(5)
            assert await seat.write(9)
            seat = Seat(table, sink, 12, "1", reset=12)
            assert await seat.open(4) == [4]
            assert await table.results() == {"0": list(range(9)), "1": list(range(4))}
            assert await seat.write(6)
            assert await Seat(table, sink, 15, "1", reset=12).open(4) == [6]
        assert await table.results() == {"0": list(range(9)), "1": list(range(6))}

    asyncio.run(scenario())


def test_a_reset_of_results_that_cannot_be_taken_back_is_refused_and_changes_nothing(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            frame = harness.frame({"0": range(4)})
            if harness.takes_back:
                frame = frame.withColumnRenamed("sequence", "number")
            assert await seat.write(4, frame=frame)
            with pytest.raises(NotReversible, match="to 2"):
                await Seat(harness, sink, 12, reset=12).open(2)
            assert await Seat(harness, sink, 12).open() == [4]

    asyncio.run(scenario())


def test_a_reset_can_keep_the_output(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            seat = Seat(harness, sink, 5)
            await seat.open()
            assert await seat.write(4)
            seat = Seat(harness, sink, 12, reset=12)
            assert await seat.open(2, keep=True) == [2]
            assert await seat.write(5)
        assert sorted((await harness.results())["0"]) == [0, 1, 2, 2, 3, 3, 4]

    asyncio.run(scenario())


def test_a_group_made_anew_starts_over_and_its_forerunner_is_refused(harness: BatchHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            old = Seat(harness, mine, 7, identity="zz", made=1)
            await old.open()
            assert await old.write(3)
            new = Seat(harness, yours, 7, identity="aa", made=2)
            assert await new.open(2) == [2]
            assert not await old.write(4)
            with pytest.raises(GroupExists, match="another group named"):
                await old.open(3)
            assert await new.write(4)
        assert sorted((await harness.results())["0"]) == [0, 1, 2, 2, 3]

    asyncio.run(scenario())

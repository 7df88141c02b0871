"""What every sink has to do, on real databases and brokers. Every result is looked at, through a reader of its own."""

import asyncio
import itertools
import random

import pytest

from echelon.errors import GroupExists, NotReversible
from echelon.members.sinks.base import Sink
from tests.members.sinks.harnesses import SinkHarness
from tests.members.sinks.owner import Owner


def test_an_empty_sink_begins_at_the_position_of_the_log(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            assert await owner.open(40) == 40
            assert await owner.commit(43)
        assert await harness.results() == {"0": [40, 41, 42]}

    asyncio.run(scenario())


def test_a_new_owner_goes_on_where_the_sink_stands_and_not_the_log(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(3)
            assert await owner.commit(7)
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=9)
            assert await owner.open(3) == 7
            assert await owner.commit(8)
        assert await harness.results() == {"0": list(range(8))}

    asyncio.run(scenario())


def test_a_batch_without_results_moves_the_position(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                assert await transaction.commit(12)
            assert await owner.open() == 12
        assert await harness.results() == {}

    asyncio.run(scenario())


def test_a_later_epoch_refuses_what_an_earlier_one_opens_or_commits(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            former, owner = Owner(harness, mine, epoch=5), Owner(harness, yours, epoch=9)
            await former.open()
            assert await former.commit(2)
            assert await owner.open() == 2
            assert not await former.commit(3)
            assert await former.open() is None
            assert await owner.commit(4)
            assert not await former.commit(3)
            assert await former.open() is None
            assert await owner.commit(5)
        assert await harness.results() == {"0": [0, 1, 2, 3, 4]}

    asyncio.run(scenario())


def test_an_epoch_that_is_opened_in_the_middle_of_a_batch_decides_about_it(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            former, owner = Owner(harness, mine, epoch=5), Owner(harness, yours, epoch=9)
            await former.open()
            async with mine.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
                opening = asyncio.create_task(owner.open())
                await asyncio.wait({opening}, timeout=0.5)
                # Where there is one writer, the epoch has to wait; everywhere else it fences the batch.
                is_committed = await transaction.commit(1)
                assert is_committed == (harness.kind == "sqlite")
            assert await opening == owner.position == int(is_committed)
            assert await owner.commit(3)
        assert await harness.results() == {"0": [0, 1, 2]}

    asyncio.run(scenario())


def test_a_later_epoch_of_the_same_process_refuses_an_earlier_one(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            former, owner = Owner(harness, sink, epoch=5), Owner(harness, sink, epoch=9)
            await former.open()
            await owner.open()
            assert not await former.commit(1)
            assert await former.open() is None
            assert await owner.open() == 0
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


def test_a_commit_that_does_not_begin_where_the_sink_stands_is_refused(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(4)
            assert not await owner.commit(6, begin=3)
            assert not await owner.commit(8, begin=5)
            assert await owner.open() == 4
            assert await owner.commit(5)
        assert await harness.results() == {"0": [0, 1, 2, 3, 4]}

    asyncio.run(scenario())


def test_without_a_commit_nothing_is_left(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                harness.write(transaction.target, "0", 0)
            with pytest.raises(ValueError, match="a handler's"):
                await fail_in_the_middle(harness, sink)
            assert await harness.results() == {}
            assert await owner.commit(1)
        assert await harness.results() == {"0": [0]}

    asyncio.run(scenario())


async def fail_in_the_middle(harness: SinkHarness, sink: Sink) -> None:
    async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
        harness.write(transaction.target, "0", 0)
        raise ValueError("a handler's")


def test_a_cancelled_batch_leaves_nothing_and_the_next_goes_on(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()

            async def hang() -> None:
                async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                    harness.write(transaction.target, "0", 0)
                    await asyncio.sleep(60)

            task = asyncio.create_task(hang())
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert await owner.commit(2)
        assert await harness.results() == {"0": [0, 1]}

    asyncio.run(scenario())


def test_a_commit_that_nobody_waits_for_any_more_is_done_once_or_not_at_all(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            for _ in range(20):
                task = asyncio.create_task(owner.commit(owner.position + 2))
                await asyncio.sleep(random.uniform(0, 0.01))
                task.cancel()
                await asyncio.wait({task})
                assert await owner.open() is not None
            assert await owner.commit(owner.position + 2)
        assert await harness.results() == {"0": list(range(owner.position))}

    asyncio.run(scenario())


def test_a_reset_wins_over_an_older_commit_and_takes_back(database: SinkHarness) -> None:
    async def scenario() -> None:
        async with database.sink(take_back=True) as sink:
            other = Owner(database, sink, epoch=5, where=database.place("1"))
            await other.open()
            assert await other.commit(9)
            owner = Owner(database, sink, epoch=5)
            await owner.open()
            assert await owner.commit(9)
            owner = Owner(database, sink, epoch=12, reset=12)
            assert await owner.open(4) == 4
            assert await database.results() == {"0": [0, 1, 2, 3], "1": list(range(9))}
            assert await owner.commit(6)
        assert await database.results() == {"0": [0, 1, 2, 3, 4, 5], "1": list(range(9))}

    asyncio.run(scenario())


def test_a_commit_newer_than_the_reset_wins(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink(take_back=True) as sink:
            owner = Owner(harness, sink, epoch=5, reset=4)
            await owner.open()
            assert await owner.commit(9)
            owner = Owner(harness, sink, epoch=12, reset=4)
            assert await owner.open(3) == 9
        assert await harness.results() == {"0": list(range(9))}

    asyncio.run(scenario())


def test_opening_after_a_reset_does_not_count_as_a_commit(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            await Owner(harness, sink, epoch=5).open(2)
            assert await Owner(harness, sink, epoch=12, reset=12).open(7) == 7
            owner = Owner(harness, sink, epoch=20, reset=12)
            assert await owner.open(7) == 7
            assert await owner.commit(8)
            assert await Owner(harness, sink, epoch=30, reset=12).open(7) == 8
        assert await harness.results() == {"0": [7]}

    asyncio.run(scenario())


def test_a_reset_can_keep_the_output(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink(take_back=True) as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(4)
            owner = Owner(harness, sink, epoch=12, reset=12)
            assert await owner.open(2, keep=True) == 2
            assert await harness.results() == {"0": [0, 1, 2, 3]}
            assert await owner.commit(5)
        assert await harness.results() == {"0": [0, 1, 2, 3, 2, 3, 4]}

    asyncio.run(scenario())


def test_a_reset_is_refused_where_results_cannot_be_taken_back_and_nothing_is_changed(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            owner = Owner(harness, mine, epoch=5)
            await owner.open()
            assert await owner.commit(4)
            with pytest.raises(NotReversible, match=r"partition 0 of .* to 2"):
                await Owner(harness, yours, epoch=12, reset=12).open(2)
            assert await owner.commit(5)
            later = Owner(harness, yours, epoch=12, reset=12)
            assert await later.open(8) == 8  # Forwards there is nothing to take back.
            assert await later.commit(9)
        assert await harness.results() == {"0": [0, 1, 2, 3, 4, 8]}

    asyncio.run(scenario())


def test_a_group_made_anew_starts_over_and_its_forerunner_is_refused(harness: SinkHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as mine, harness.sink() as yours:
            old = Owner(harness, mine, epoch=7, where=harness.place(identity="zz", made=1))
            await old.open()
            assert await old.commit(3)
            new = Owner(harness, yours, epoch=7, where=harness.place(identity="aa", made=2))
            assert await new.open(2) == 2
            assert await new.commit(3)
            assert not await old.commit(4)
            with pytest.raises(GroupExists, match="another group named"):
                await old.open(3)
            assert await new.commit(4)
        # Without atomic batches nobody makes up for what the forerunner had under way.
        left = [3] if harness.kind == "nats-ids" else []
        assert await harness.results() == {"0": [0, 1, 2, 2, *left, 3]}

    asyncio.run(scenario())


def test_partitions_at_the_same_time_do_not_disturb_each_other(harness: SinkHarness) -> None:
    partitions = ["0", "1", "orders/0", "orders.eu/10"]

    async def scenario() -> None:
        async with harness.sink() as sink:
            owners = [Owner(harness, sink, epoch=5, where=harness.place(partition)) for partition in partitions]
            await asyncio.gather(*(owner.open() for owner in owners))
            assert all(await asyncio.gather(*(owner.work(20) for owner in owners)))
        assert await harness.results() == {partition: list(range(20)) for partition in partitions}

    asyncio.run(scenario())


def test_owners_that_race_lose_and_repeat_nothing(harness: SinkHarness) -> None:
    epochs = itertools.count(1)
    end = 150

    async def own_until_fenced() -> int:
        """An instance that believes again and again that the partition is its own."""
        wins = 0
        async with harness.sink() as sink:
            while True:
                owner = Owner(harness, sink, epoch=next(epochs))
                if not await owner.open_again():
                    continue
                begin = owner.position
                is_done = await owner.work(min(end, begin + random.randint(1, 12)))
                wins += owner.position - begin
                if is_done and owner.position == end:
                    return wins

    async def scenario() -> None:
        wins = await asyncio.gather(*(own_until_fenced() for _ in range(3)))
        assert sum(wins) >= end
        assert await harness.results() == {"0": list(range(end))}

    asyncio.run(scenario())

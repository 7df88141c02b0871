"""Following a group's log: every entry once, in order, whatever happens to the server."""

import asyncio
from itertools import chain

import pytest

from echelon.brokers.base import Log
from echelon.errors import EchelonError, GroupNotFound
from echelon.model import Entry
from echelon.testing.contract.harness import Harness, again, append_again, closing, name, scenario, take


class FollowContract:
    """`Log.follow`."""

    @scenario
    async def test_a_follower_gets_what_is_there_and_then_what_comes(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            start = (await log.bounds()).first
            old = [await log.append(f"old {n}".encode()) for n in range(50)]
            async with closing(log.follow(start)) as entries:
                got = await take(entries, 50)
                new = []
                for n in range(50):
                    new.append(await log.append(f"new {n}".encode()))
                    got += await take(entries, 1)
            assert got == await log.read(start, new[-1] + 1)
        assert [entry.sequence for entry in got] == old + new

    @scenario
    async def test_a_follower_starts_where_it_is_told(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(f"{n}".encode()) for n in range(10)]
            async with closing(log.follow(sequences[6])) as entries:
                assert [entry.data for entry in await take(entries, 4)] == [b"6", b"7", b"8", b"9"]
            async with closing(log.follow(sequences[-1] + 1)) as entries:
                waiting = asyncio.create_task(take(entries, 1))
                await asyncio.sleep(0.3)
                assert not waiting.done()
                last = await log.append(b"10")
                assert [(entry.sequence, entry.data) for entry in await waiting] == [(last, b"10")]

    @scenario
    async def test_a_follower_of_a_trimmed_log_begins_with_what_is_left(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(f"{n}".encode()) for n in range(10)]
            await log.trim(sequences[7])
            async with closing(log.follow(sequences[2])) as entries:
                assert [entry.data for entry in await take(entries, 3)] == [b"7", b"8", b"9"]
                await log.append(b"10")
                assert [entry.data for entry in await take(entries, 1)] == [b"10"]

    @scenario
    async def test_followers_agree_while_several_connections_append(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as two, harness.connect() as three:
            log = await one.create_log(group)
            logs = [log, await two.log(group), await three.log(group)]
            start = (await log.bounds()).first
            async with closing(logs[0].follow(start)) as early, closing(logs[1].follow(start)) as other:
                following = [asyncio.create_task(take(entries, 300)) for entries in (early, other)]
                appended = await asyncio.gather(*(_append_many(each, f"{n}", 100) for n, each in enumerate(logs)))
                seen = await asyncio.gather(*following)
            bounds = await log.bounds()
            stored = await log.read(bounds.first, bounds.end)
        assert seen == [stored, stored]
        assert sorted(entry.sequence for entry in stored) == sorted(chain.from_iterable(appended))
        for n in range(3):
            own = [entry.data for entry in stored if entry.data.startswith(f"{n} ".encode())]
            assert own == [f"{n} {k}".encode() for k in range(100)]

    @scenario
    async def test_a_follower_goes_on_after_a_restart_of_the_server(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as two:
            log = await one.create_log(group)
            writing = await two.log(group)
            start = (await log.bounds()).first
            async with closing(log.follow(start)) as entries:
                await _append_many(writing, "before", 30)
                got = await take(entries, 30)
                await harness.stop()
                waiting = asyncio.create_task(take(entries, 1))
                await asyncio.sleep(0.5)
                assert not waiting.done()
                await harness.start()
                await append_again(writing, b"first after")
                await _append_many(writing, "after", 30)
                last = await append_again(writing, b"last")
                got += await waiting
                while got[-1].sequence < last:
                    got += await take(entries, 1)
            assert got == await again(lambda: log.read(start, last + 1))
        self._check_kept(got)

    @staticmethod
    def _check_kept(entries: list[Entry]) -> None:
        data = [entry.data for entry in entries]
        assert data[:30] == [f"before {k}".encode() for k in range(30)]
        assert [each for each in data if each.startswith(b"after ")] == [f"after {k}".encode() for k in range(30)]
        sequences = [entry.sequence for entry in entries]
        assert sequences == sorted(set(sequences))

    @scenario
    async def test_a_follower_of_a_deleted_group_is_told(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as two:
            log = await one.create_log(group)
            await log.append(b"there")
            async with closing(log.follow((await log.bounds()).first)) as entries:
                assert [entry.data for entry in await take(entries, 1)] == [b"there"]
                await two.delete_log(group)
                with pytest.raises(GroupNotFound):
                    await take(entries, 1)

    @scenario
    async def test_a_follower_that_stops_leaves_the_others_alone(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            start = (await log.bounds()).first
            async with closing(log.follow(start)) as staying:
                async with closing(log.follow(start)) as leaving:
                    await log.append(b"1")
                    assert [entry.data for entry in await take(leaving, 1)] == [b"1"]
                await log.append(b"2")
                assert [entry.data for entry in await take(staying, 2)] == [b"1", b"2"]

    @scenario
    async def test_leaving_the_broker_ends_what_follows_through_it(self, harness: Harness) -> None:
        async with harness.connect() as broker:
            log = await broker.create_log(name("group"))
            entries = log.follow((await log.bounds()).first)
            waiting = asyncio.create_task(take(entries, 1))
            await asyncio.sleep(0.2)
        with pytest.raises((EchelonError, StopAsyncIteration)):
            await waiting


async def _append_many(log: Log, prefix: str, count: int) -> list[int]:
    return [await append_again(log, f"{prefix} {k}".encode()) for k in range(count)]

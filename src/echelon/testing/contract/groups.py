"""The groups of a broker: made, listed, deleted, and kept apart."""

import pytest

from echelon.errors import GroupNotFound
from echelon.testing.contract.harness import Harness, Sent, name, scenario


class GroupContract:
    """`Broker.groups`, `create_log`, `log`, `delete_log`, `commit` and `committed`."""

    @scenario
    async def test_groups_are_listed_in_order_until_they_are_deleted(self, harness: Harness) -> None:
        made = sorted(name(what) for what in ("b", "a", "a-b", "B", "1", "_x"))
        async with harness.connect() as broker:
            for group in reversed(made):
                await broker.create_log(group)
            listed = await broker.groups()
            assert listed == sorted(listed)
            assert [group for group in listed if group in made] == made
            await broker.delete_log(made[2])
            listed = await broker.groups()
            assert [group for group in listed if group in made] == made[:2] + made[3:]

    @scenario
    async def test_a_group_that_is_not_there_is_not_found(self, harness: Harness) -> None:
        group = name("nobody")
        async with harness.connect() as broker:
            with pytest.raises(GroupNotFound, match=group):
                await broker.log(group)
            with pytest.raises(GroupNotFound, match=group):
                await broker.delete_log(group)
            assert group not in await broker.groups()

    @scenario
    async def test_a_log_that_is_there_is_not_made_anew(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as two:
            log = await one.create_log(group)
            sequence = await log.append(b"kept")
            again = await two.create_log(group)
            assert [entry.data for entry in await again.read(sequence, sequence + 1)] == [b"kept"]

    @scenario
    async def test_a_deleted_log_takes_and_gives_nothing(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as one, harness.connect() as two:
            log = await one.create_log(group)
            sequence = await log.append(b"gone")
            await two.delete_log(group)
            with pytest.raises(GroupNotFound, match=group):
                await log.append(b"more")
            with pytest.raises(GroupNotFound, match=group):
                await log.bounds()
            with pytest.raises(GroupNotFound, match=group):
                await log.read(sequence, sequence + 1)
            with pytest.raises(GroupNotFound, match=group):
                await two.log(group)

    @scenario
    async def test_a_group_made_anew_starts_with_an_empty_log(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as broker:
            old = await broker.create_log(group)
            await old.append(b"old")
            await broker.delete_log(group)
            log = await broker.create_log(group)
            bounds = await log.bounds()
            assert bounds.first == bounds.end
            sequence = await log.append(b"new")
            assert [entry.data for entry in await log.read(0, sequence + 1)] == [b"new"]

    @scenario
    async def test_logs_are_kept_apart(self, harness: Harness) -> None:
        group = name("group")
        async with harness.connect() as broker:
            logs = {each: await broker.create_log(each) for each in (group, f"{group}-2", f"_{group}", group.upper())}
            for n in range(10):
                for each, log in logs.items():
                    await log.append(f"{each} {n}".encode())
            for each, log in logs.items():
                bounds = await log.bounds()
                entries = await log.read(bounds.first, bounds.end)
                assert [entry.data for entry in entries] == [f"{each} {n}".encode() for n in range(10)]

    @scenario
    async def test_committed_positions_are_kept_or_there_is_no_place_for_them(self, harness: Harness) -> None:
        group = name("group")
        described = await harness.create_stream(name("stream"), 3)
        await harness.publish(described, [Sent(f"{n}", b"") for n in range(30)])
        async with harness.connect() as broker:
            await broker.create_log(group)
            stream = await broker.prepare(group, described)
            with pytest.raises(GroupNotFound):
                await broker.committed(name("nobody"), stream)
            await broker.commit(group, stream, {0: 1, 2: 3})
            await broker.commit(group, stream, {1: 2, 2: 4})
            try:
                kept = await broker.committed(group, stream)
            except GroupNotFound:
                return
        assert kept == {0: 1, 1: 2, 2: 4}

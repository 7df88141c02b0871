"""An administrator notices what becomes of its records: on a real group, whose time a real member moves."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from echelon.brokers.base import Log
from echelon.errors import GroupDeleted, GroupNotFound, UnknownName, Unreachable, WrongState
from echelon.members import admin as module
from echelon.members.admin import Admin
from echelon.model import Bounds, Entry
from tests.members.stage import Stage, scene

pytestmark = pytest.mark.parametrize("stage", ["nats"], indirect=True)


class LateLog:
    """A log to which appends take so many seconds each, as from a busy machine."""

    def __init__(self, log: Log, *seconds: float) -> None:
        self._log = log
        self._seconds = list(seconds)
        self.appends = 0

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        self.appends += 1
        await asyncio.sleep(self._seconds.pop(0))
        return await self._log.append(data, admin=admin)

    async def bounds(self) -> Bounds:
        return await self._log.bounds()

    async def read(self, start: int, end: int) -> list[Entry]:
        return await self._log.read(start, end)

    def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        return self._log.follow(start)

    async def trim(self, before: int) -> None:
        await self._log.trim(before)


@scene
async def test_a_record_that_was_stored_too_late_to_count_is_written_again_or_that_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRIES", 2)
    await stage.prepare(partitions=1, members=("a",), interval=0.1)
    await stage.launch_seated("a", "a")
    log = LateLog(await stage.broker.log(stage.group), 1.5, 0.0, 1.5, 1.5)
    async with Admin(log, stage.group) as late:
        await late.pause()
        assert log.appends == 2
        assert late.world.paused is not None
        with pytest.raises(Unreachable, match=r"ignored 2 records .* more than 1 s after"):
            await late.resume()
        assert late.world.paused is not None


@scene
async def test_a_cut_is_refused_while_one_is_under_way_or_the_group_is_paused(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a",))
    await stage.launch_seated("a", "a", slow=1.0)
    await stage.publish(1)
    await stage.until(lambda _: bool(stage.told("Begun")))
    cutting = asyncio.ensure_future(stage.admin.cut())
    await stage.until_world(lambda world: world.cut is not None)
    with pytest.raises(WrongState, match="takes no cut now"):
        await stage.admin.cut()
    under_way = stage.admin.world.cut
    assert under_way is not None
    await stage.admin.abort_cut(under_way.sequence)
    with pytest.raises(WrongState, match="was aborted"):
        await cutting
    await stage.admin.pause()
    with pytest.raises(WrongState, match="takes no cut now"):
        await stage.admin.cut()


@scene
async def test_a_seat_that_nobody_holds_cannot_be_given_up_and_a_cut_that_is_not_there_not_gone_back_to(
    stage: Stage,
) -> None:
    await stage.prepare(members=("a",))
    with pytest.raises(WrongState, match="nobody holds the seat of a"):
        await stage.admin.step_down("a")
    with pytest.raises(UnknownName, match="has no member b"):
        await stage.admin.step_down("b")
    with pytest.raises(UnknownName, match="has no cut 7"):
        await stage.admin.reset_to_cut(7)


@scene
async def test_whoever_administers_a_group_that_was_deleted_is_told_so(stage: Stage) -> None:
    await stage.prepare(members=("a",))
    async with Admin(await stage.broker.log(stage.group), stage.group) as other:
        await stage.admin.delete()
        with pytest.raises(GroupDeleted, match=stage.group):
            await other.pause()
        await stage.broker.delete_log(stage.group)
        with pytest.raises(GroupNotFound, match=stage.group):
            await other.until(lambda world: not world.deleted)

"""What an instance does now and then: one chore that fails keeps none of the others from being done."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

import pytest

from echelon.brokers.base import StreamInfo
from echelon.brokers.memory import MemoryBroker
from echelon.errors import Denied, EchelonError, Unreachable
from echelon.group.config import Config, Stream
from echelon.group.own import Own
from echelon.group.records import Configure, Profile, Record
from echelon.group.world import Instance, Partition, World
from echelon.keys import RecordKey
from echelon.members.chores import Chores
from echelon.members.desk import Desk
from echelon.members.handlers import understand
from echelon.members.options import Options
from echelon.model import Bounds, Entry

STREAM = Stream("s", 2, RecordKey(), "native")


class Place(MemoryBroker):
    """A broker, desk and log of a group whose stream has gained a partition; what is named in `failing` fails."""

    def __init__(self, *failing: str) -> None:
        super().__init__("memory://chores")
        self.failing = set(failing)
        self.done: list[str] = []
        self.trimmed: list[int] = []
        self.sent: list[Record] = []
        self.world = World(identity="g", interval=100, broker_time=100_000, snapshot=9)
        self.world.config = Config(streams=(STREAM,), positions={"0": 0, "1": 0}, history=60.0)
        self.world.partitions = {"0": Partition("0", 5, 5, owner="me")}
        self.world.instances = {"me": Instance("me", Profile("me"), None, 1, 0, 0, 0)}
        own = Own("me", Profile("me"), began=0)
        desk = LookedAt(self, own)
        self.chores = Chores(
            self, TrimmedLog(self), "group", desk, own, world=lambda: self.world, send=self.sent.append
        )

    def note(self, chore: str, error: type[EchelonError] = Denied) -> None:
        if chore in self.failing:
            raise error(f"no {chore}")
        self.done.append(chore)

    async def commit(self, group: str, stream: Stream, positions: Mapping[int, int]) -> None:
        assert (group, stream, positions) == ("group", STREAM, {0: 5})
        self.note("commit")


class LookedAt(Desk):
    def __init__(self, place: Place, own: Own) -> None:
        super().__init__(place, "group", understand(lambda message: message), Options(), own, lambda: None)
        self._place = place

    async def look_at_backlog(self) -> None:
        self._place.note("backlog")

    async def info(self, stream: Stream) -> StreamInfo:
        assert stream == STREAM
        self._place.note("growth")
        return StreamInfo("", {number: Bounds(0, 7) for number in range(4)})


class TrimmedLog:
    """A log of records 1 to 9, of which all but the last are old."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        raise NotImplementedError

    async def bounds(self) -> Bounds:
        return Bounds(1, 10)

    async def read(self, start: int, end: int) -> list[Entry]:
        return [Entry(n, 0, b"") for n in range(start, end)]

    def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        raise NotImplementedError

    async def trim(self, before: int) -> None:
        self._place.note("trim", Unreachable)
        self._place.trimmed.append(before)


CHORES = {
    "backlog": "the backlog of group is not known",
    "commit": "the broker was not told the positions of group in s",
    "growth": "whether the streams of group have grown is not known",
    "trim": "old records of the log of group were not deleted",
}


@pytest.mark.parametrize("failing", CHORES)
def test_a_chore_that_fails_is_told_in_its_own_words_and_the_others_are_done(
    failing: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(failing)
    asyncio.run(place.chores.do())
    assert place.done == [chore for chore in CHORES if chore != failing]
    assert [record.getMessage() for record in caplog.records] == [f"{CHORES[failing]}: no {failing}"]


def test_what_failed_is_tried_again_and_told_once_and_what_was_done_is_not_done_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        place = Place("commit", "trim")
        await place.chores.do()
        await place.chores.do()
        assert place.done == ["backlog", "growth"] * 2
        assert len(caplog.records) == 2
        place.failing.clear()
        await place.chores.do()
        assert place.done[4:] == ["backlog", "commit", "growth", "trim"]
        await place.chores.do()
        assert place.done[8:] == ["backlog", "growth"]
        assert place.trimmed == [9]
        place.failing.add("backlog")
        await place.chores.do()
        assert len(caplog.records) == 3

    asyncio.run(body())


def test_only_one_instance_looks_for_growth_and_trims_the_log() -> None:
    place = Place()
    asyncio.run(place.chores.do())
    [record] = place.sent
    assert isinstance(record, Configure)
    assert (record.sender, record.config.streams[0].partitions) == ("me", 4)
    other = Place()
    other.world.instances["before"] = Instance("before", Profile("before"), None, 1, 0, 0, 0)
    asyncio.run(other.chores.do())
    assert other.done == ["backlog", "commit"]
    assert not other.sent

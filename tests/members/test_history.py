"""Old records of a log go when a snapshot makes them superfluous and the group's history has passed."""

import asyncio
from collections.abc import AsyncGenerator

from echelon.group.config import Config, Stream
from echelon.group.world import World
from echelon.members.history import trim_history
from echelon.model import Bounds, Entry


class FakeLog:
    """A log of entries, one a second, with every third sequence missing as on a stream that groups share."""

    def __init__(self, count: int) -> None:
        self.entries = [Entry(n, n * 1000, b"") for n in range(1, count + 1) if n % 3]

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        raise NotImplementedError

    async def bounds(self) -> Bounds:
        return Bounds(self.entries[0].sequence, self.entries[-1].sequence + 1)

    async def read(self, start: int, end: int) -> list[Entry]:
        return [entry for entry in self.entries if start <= entry.sequence < end]

    def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        raise NotImplementedError

    async def trim(self, before: int) -> None:
        self.entries = [entry for entry in self.entries if entry.sequence >= before]


def trimmed(count: int, *, snapshot: int, history: float) -> list[int]:
    log = FakeLog(count)
    world = World(broker_time=count * 1000, snapshot=snapshot, interval=3000)
    world.config = Config(streams=(Stream("s", 1),), positions={"0": 1}, history=history)
    asyncio.run(trim_history(log, world))
    return [entry.sequence for entry in log.entries]


def test_what_is_older_than_the_history_goes() -> None:
    assert trimmed(20_000, snapshot=19_999, history=100)[0] == 19_900


def test_the_record_that_the_snapshot_stands_on_stays_however_old_it_is() -> None:
    assert trimmed(20_000, snapshot=7_000, history=100)[0] == 7_000


def test_ten_intervals_stay_whatever_the_history() -> None:
    assert trimmed(1_000, snapshot=999, history=0.0)[0] == 970


def test_without_a_snapshot_nothing_goes() -> None:
    assert trimmed(1_000, snapshot=0, history=100)[0] == 1


def test_a_young_log_stays_whole() -> None:
    assert trimmed(1_000, snapshot=999, history=5_000)[0] == 1

"""The simulated broker: one group's log with a clock of its own, and a sink with positions."""

from collections.abc import Callable
from random import Random

from echelon.group import delivery
from echelon.group.delivery import SinkState
from echelon.group.records import AnyRecord, Newer, decode
from echelon.model import Entry
from echelon.testing.simulate.plan import BASE_TIME


class SimLog:
    """A group's log in virtual time. `archive` keeps what was trimmed, for the reference world."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.archive: list[Entry] = []
        self.records: dict[int, AnyRecord | Newer | None] = {}
        self.stored_at: list[int] = []
        self.first = 0
        """Sequences below this were trimmed."""
        self.clock = BASE_TIME
        """What the broker's clock is ahead of virtual time."""
        self.down_until = 0
        self.on_stored: Callable[[Entry], None] = lambda _: None

    @property
    def last(self) -> int:
        """The newest sequence; 0 in an empty log."""
        return self.archive[-1].sequence if self.archive else 0

    def store(self, data: bytes, now: int) -> int:
        """Store one record; sequences may skip numbers, as they do where groups share a stream."""
        entry = Entry(self.last + (1 if self._rng.random() < 0.8 else 3), self.clock + now, data)
        self.archive.append(entry)
        self.stored_at.append(now)
        self.records[entry.sequence] = decode(data)
        self.on_stored(entry)
        return entry.sequence

    def lose_tail(self, count: int) -> None:
        """Forget the newest records, as a broker that lost them would: their sequences come again."""
        for entry in self.archive[-count:]:
            del self.records[entry.sequence]
        del self.archive[-count:], self.stored_at[-count:]

    def holds(self, entry: Entry) -> bool:
        """Whether this very entry is still in the log."""
        index = self.index_after(entry.sequence) - 1
        return entry.sequence >= self.first and index >= 0 and self.archive[index] == entry

    def index_after(self, sequence: int) -> int:
        """The index in the archive of the first entry after `sequence`."""
        low, high = 0, len(self.archive)
        while low < high:
            middle = (low + high) // 2
            if self.archive[middle].sequence <= sequence:
                low = middle + 1
            else:
                high = middle
        return low

    def held(self) -> list[Entry]:
        """The entries that were not trimmed."""
        return self.archive[self.index_after(self.first - 1) :]


class SimSink:
    """An exactly-once sink: results and positions change together. `applied` lists what it took, in order."""

    def __init__(self) -> None:
        self.states: dict[str, SinkState] = {}
        self.applied: dict[str, list[int]] = {}

    def open(self, partition: str, epoch: int, reset: int, position: int) -> int | None:
        """Open a new epoch; where to go on, or None if it is refused."""
        before = self.states.get(partition, SinkState())
        state = delivery.open_epoch(before, epoch=epoch, reset=reset, position=position)
        if state is None:
            return None
        self.states[partition] = state
        if state.position != before.position:
            self.applied[partition] = [m for m in self.applied.get(partition, ()) if m < (state.position or 0)]
        return state.position

    def commit(self, partition: str, epoch: int, begin: int, end: int) -> bool:
        """Commit the messages from `begin` up to `end`; False if it is refused."""
        state = delivery.commit(self.states[partition], epoch=epoch, begin=begin, end=end)
        if state is None:
            return False
        self.states[partition] = state
        self.applied.setdefault(partition, []).extend(range(begin, end))
        return True

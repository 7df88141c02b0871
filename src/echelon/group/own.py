"""What an instance knows of itself that is not in the log: its clock, what it has sent, what it runs.

Times are milliseconds of the instance's own monotonic clock, which is passed in. The shell around the core
(a Python member, a Spark driver, the simulator) keeps this up to date through the methods here; `decide`
reads it.
"""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Literal, TypeVar

from msgspec import Raw, Struct, structs

from echelon.group.records import Advance, AnyRecord, CutPart, Join, Leave, Newer, Profile, Record, Release, Snapshot
from echelon.group.world import Partition, World, dump
from echelon.model import Entry

RecordT = TypeVar("RecordT", bound=Record)


class Run(Struct):
    """A partition that this instance processes, or has not finished with, under one epoch.

    `running` takes messages; `draining` takes no more and lets what it began end; `halted` has cancelled it.
    """

    epoch: int
    position: int
    """Up to where everything has been processed: what may be reported."""
    state: Literal["running", "draining", "halted"] = "running"
    since: int = 0
    """When it came into this state."""
    busy: bool = False
    """Handlers are running."""
    ready: bool = True
    """The position is known. Exactly once: the sink was opened and has told it."""
    released: bool = False
    """A release was sent under this epoch: nothing more is processed under it."""
    refused: bool = False
    """The sink holds a later epoch. If none follows in the log (it lost its tail), a release brings a higher one."""
    asked: int | None = None
    """When a release or a part of a cut was last sent."""
    wanted: int = 0
    """At most once: the position that the next batch would reach."""
    advanced: int = 0
    """At most once: the position that was last announced."""
    parked: Mapping[str, int] | None = None
    """The keys that are parked; None: as the world has them."""
    pending: int = 0
    in_flight: int = 0
    state_at_cut: bytes | None = None
    """What the application wants to keep with the cut under way."""
    saved_for: int = 0
    """The cut for which it was asked."""


class Own:
    """One instance's private side. Not shared between threads."""

    def __init__(self, id: str, profile: Profile, *, began: int) -> None:
        self.id = id
        self.profile = profile
        self.runs: dict[str, Run] = {}
        self.leaving = False
        """It was asked to drain and go."""
        self.rejoin = False
        """It was put out of an auto group's assignment and was told to come back."""
        self.gone: set[str] = set()
        """Instances whose processes are known to have ended on this machine."""
        self.backlog: dict[str, int] = {}
        """Messages that wait in partitions that nobody owns, as far as this instance looked."""
        self.told: dict[str, int] = {}
        """When it was last told that they are gone."""
        self.counter = 0
        self.last_sent: int | None = None
        self.asked: dict[type[Record], int] = {}
        """When a record of a kind was last sent."""
        self.begin_reading(began)

    def begin_reading(self, now: int) -> None:
        """Begin with an empty world: what was read back and what was seen counts no more."""
        self.began = now
        self.lease: int | None = None
        """When the newest record that counted and was read back was first sent."""
        self.acknowledged: int | None = None
        """When the broker last acknowledged a record."""
        self.unread_since: int | None = None
        """Since when it has acknowledged records again and again, and none was read back."""
        self._sent: dict[int, int] = {}
        self._read: list[int] = []
        self._read_at: list[int] = []
        self._since_snapshot = 0
        self.picture: Snapshot | None = None
        """A snapshot that is due to be sent."""

    def start_over(self, now: int) -> None:
        """The world is void: end all runs and begin to read again. What was released stays so."""
        for run in self.runs.values():
            run.state = "halted"
            run.since = now
            if not run.released:
                run.epoch = -1
        self.begin_reading(now)

    def stamp(self, record: RecordT, now: int) -> RecordT:
        """The record with this sender's next counter; it counts as first sent now."""
        self.counter += 1
        self._sent[self.counter] = now
        self.last_sent = now
        if isinstance(record, Leave) and record.gone is not None:
            self.told[record.gone] = now
        else:
            self.asked[type(record)] = now
        self._note_sent(record, now)
        return structs.replace(record, counter=self.counter)

    def _note_sent(self, record: Record, now: int) -> None:
        if isinstance(record, Release):
            for name, progress in record.progress.items():
                # A partition that was never started is remembered too: it must not be started under this epoch.
                run = self.runs.setdefault(name, Run(progress.epoch, progress.position, "draining", now))
                run.released = True
                run.asked = now
        elif isinstance(record, CutPart):
            for name in record.progress:
                self.runs[name].asked = now
        elif isinstance(record, Advance):
            for name, progress in record.progress.items():
                self.runs[name].advanced = progress.position

    def start(self, partition: Partition, now: int, *, idle: bool, ready: bool = True) -> Run:
        """The partition is started where the world has it; `idle`: it takes no messages yet.

        Not `ready`: only its sink knows where it stands, and has not told yet.
        """
        run = Run(partition.epoch, partition.position, "draining" if idle else "running", now)
        run.parked = partition.parked
        run.ready = ready
        self.runs[partition.name] = run
        return run

    def turn(self, name: str, state: Literal["running", "draining", "halted"], now: int) -> None:
        """The partition's run came into another state."""
        run = self.runs[name]
        run.state = state
        run.since = now
        if state == "running":
            run.asked = None

    def stored(self, interval: int, now: int) -> None:
        """The broker acknowledged a record of this instance."""
        if self.unread_since is None or self.acknowledged is None or now - self.acknowledged > interval:
            self.unread_since = now
        self.acknowledged = now

    def heard(self, world: World, entry: Entry, record: AnyRecord | Newer | None, *, counted: bool, now: int) -> None:
        """The entry was read and applied to the world."""
        if counted and record is not None and record.sender == self.id:
            self._renew(record.counter)
        if self._read_at and self._read_at[-1] == now:
            self._read[-1] = entry.sequence
        else:
            self._read.append(entry.sequence)
            self._read_at.append(now)
            self._forget_before(now - 3 * world.interval)
        self._note_snapshot(world, record, counted=counted)

    def _renew(self, counter: int) -> None:
        self.unread_since = None
        sent = self._sent.get(counter)
        if sent is not None and (self.lease is None or sent > self.lease):
            self.lease = sent
        for old in [key for key in self._sent if key <= counter]:
            del self._sent[old]

    def _forget_before(self, time: int) -> None:
        old = bisect_left(self._read_at, time)
        if old > 64:
            # The newest of the old ones stays, and stands for all before it: those were waited for long ago.
            del self._read[: old - 1], self._read_at[: old - 1]

    def _note_snapshot(self, world: World, record: AnyRecord | Newer | None, *, counted: bool) -> None:
        self._since_snapshot += 1
        if isinstance(record, Snapshot) and counted and world.snapshot == record.as_of:
            self._since_snapshot = 0
            self.picture = None
        if self.picture is not None and world.marks and self.picture.as_of < world.marks[0].sequence:
            self.picture = None  # It is too old to count.
        every = world.config.snapshot_every if world.config is not None else None
        if every is None or self._since_snapshot < every or self.picture is not None:
            return
        mark = world.marks[-1]
        if mark.sequence == world.sequence and world.chair() == self.id:
            self.picture = Snapshot(
                group=world.identity,
                sender=self.id,
                as_of=mark.sequence,
                as_of_sender=mark.sender,
                as_of_counter=mark.counter,
                world=Raw(dump(world)),
            )
            self._since_snapshot = 0

    def read_at(self, sequence: int) -> int:
        """When this instance read the entry of that sequence; when it first read anything, if not that one itself."""
        return self._read_at[bisect_left(self._read, sequence)]

    def fenced(self, interval: int, now: int) -> bool:
        """Whether this instance must not process: it has not seen its own records for an interval."""
        return self.lease is None or now - self.lease > interval

    def join(self, world: World) -> Join:
        """The record by which this instance joins."""
        return Join(group=world.identity, sender=self.id, read=world.sequence, profile=self.profile)

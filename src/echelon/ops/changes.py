"""Every change of a partition in a log, with its cause in words.

Pure: it folds records and compares the worlds before and after each. A partition *moves* when its owner is asked to
release it; it is *lost* when its owner has it no longer, *gained* when somebody owns it, *reset* when its position
was set. One record may bring several of them.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

from echelon.group.config import Config
from echelon.group.fold import apply
from echelon.group.records import (
    Claim,
    Configure,
    Heartbeat,
    Join,
    Leave,
    Newer,
    Record,
    Release,
    Resume,
    StepDown,
    decode,
)
from echelon.group.world import Partition, World
from echelon.model import Entry
from echelon.ops.status import when

Kind = Literal["moving", "lost", "gained", "reset"]


class Change(Struct, frozen=True, kw_only=True):
    """Something that a record did to a partition. `member` and `instance` are who had, got or has it."""

    sequence: int
    time: datetime
    partition: str
    change: Kind
    member: str | None
    name: str | None
    instance: str | None
    epoch: int
    position: int
    record: str
    by: str
    cause: str


class _Seen(Struct):
    """What is remembered of a partition from one record to the next."""

    owner: str | None
    epoch: int
    member: str | None
    moving: bool


class Observer:
    """Folds a log, and keeps every change of its partitions. It takes over the world that it is given."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.changes: list[Change] = []
        self._names = {instance.id: instance.profile.name for instance in world.instances.values()}
        self._times = dict.fromkeys(world.senders, world.broker_time)
        self._seen = {p.name: self._look(p) for p in world.partitions.values()}
        self._before = Before(world)

    def take(self, entries: Iterable[Entry]) -> None:
        """Apply entries, in order."""
        for entry in entries:
            self._take(entry)

    def _take(self, entry: Entry) -> None:
        world, turn = self.world, self.world.turn
        record = decode(entry.data)
        counted = apply(world, entry, record)
        if isinstance(record, Join):
            self._names[record.sender] = record.profile.name
        if world.turn != turn:
            self._compare(_Causes(self, self._before, entry, record if counted else None))
            self._before = Before(world)
        if counted and record is not None:
            self._times[record.sender] = entry.time

    def _look(self, partition: Partition) -> _Seen:
        moving = partition.owner is not None and self.world.leaves(partition)
        member = partition.former[0] if partition.former is not None else partition.seat
        return _Seen(partition.owner, partition.epoch, member, moving)

    def _compare(self, causes: "_Causes") -> None:
        for partition in self.world.partitions.values():
            new = self._look(partition)
            old = self._seen.get(partition.name) or _Seen(None, 0, None, moving=False)
            self._seen[partition.name] = new
            # 0 is never, and on Kafka also the sequence of the first record.
            was_reset = 0 < partition.reset == causes.entry.sequence
            passed = old.owner != new.owner or (old.epoch != new.epoch and not was_reset)
            if old.owner is not None and passed:
                self._note("lost", partition, old, causes, causes.of_loss(old.owner))
            if was_reset:
                self._note("reset", partition, new, causes, causes.of_reset(partition))
            if new.owner is not None and passed:
                self._note("gained", partition, new, causes, causes.of_gain(partition))
            if new.moving and (passed or not old.moving):
                self._note("moving", partition, new, causes, causes.of_move(partition))

    def _note(self, kind: Kind, partition: Partition, seen: _Seen, causes: "_Causes", cause: str) -> None:
        self.changes.append(
            Change(
                sequence=causes.entry.sequence,
                time=when(causes.entry.time),
                partition=partition.name,
                change=kind,
                member=seen.member,
                name=self._names.get(seen.owner or ""),
                instance=seen.owner,
                epoch=seen.epoch,
                position=partition.position,
                record=causes.kind,
                by=causes.sender,
                cause=cause,
            )
        )

    def called(self, instance: str) -> str:
        """An instance, or an administrator, in words."""
        name = self._names.get(instance)
        return f"{name} ({instance[:6]})" if name is not None else f"an administrator ({instance[:6]})"

    def silence(self, instance: str, now: int) -> float:
        """Seconds since an instance's last record that counted."""
        return (now - self._times.get(instance, now)) / 1000


class Before:
    """The little of the world before a record that its causes are told by."""

    def __init__(self, world: World) -> None:
        self.paused = world.paused
        self.cut = world.cut
        self.config = world.config
        self.stale = {i.id for i in world.instances.values() if i.stale}
        self.spilling = {s.member for s in world.seats.values() if s.spilling}


class _Causes:
    """Why one record did what it did, in words."""

    def __init__(self, observer: Observer, before: Before, entry: Entry, record: Record | Newer | None) -> None:
        self.entry = entry
        self._observer = observer
        self._before = before
        self._world = observer.world
        self._record = record
        self.kind = str(record.__struct_config__.tag) if record is not None else "unread"
        self.sender = observer.called(record.sender) if record is not None else "somebody"

    def of_loss(self, owner: str) -> str:
        """Why the owner has the partition no longer."""
        named, record = self._observer.called(owner), self._record
        if isinstance(record, Release) and record.sender == owner:
            return f"{named} had drained it and released it"
        if isinstance(record, Leave) and (record.gone or record.sender) == owner:
            if record.gone is not None and record.gone != record.sender:
                return f"the process of {named} was gone, as {self.sender} saw on the same machine"
            return f"{named} left"
        known = self._world.instances.get(owner)
        if known is not None:
            seconds, limit = self._silence(owner)
            return f"{named} was stale, it had written nothing for {seconds:.1f} s (the limit is {limit:g} s)"
        if isinstance(record, Join) and record.profile.sole:
            return f"{self.sender} joined under the same name and vouched that {named} was gone"
        return f"{named} had been silent for long and was forgotten"

    def of_move(self, partition: Partition) -> str:
        """Why the owner has to release the partition."""
        return self._of_order(partition) or f"the group wanted it at {partition.seat or 'no seat'}"

    def of_gain(self, partition: Partition) -> str:
        """Why the new owner got the partition now."""
        owner, record = partition.owner or "", self._record
        named, seat = self._observer.called(owner), f"the seat of {partition.seat}"
        if isinstance(record, Claim) and record.sender == owner:
            return f"{named} claimed {'its seat' if self._world.auto else seat}"
        if isinstance(record, Release):
            return f"{named} was there for it" if self._world.auto else f"{named} held {seat}, where it belongs"
        seconds, limit = self._silence(owner)
        if record is not None and record.sender == owner and (owner in self._before.stale or seconds > limit):
            return f"{named} wrote again, and {'its seat' if self._world.auto else seat} was still its own"
        return self._of_order(partition) or f"{named} holds {seat}"

    def _silence(self, instance: str) -> tuple[float, float]:
        """For how many seconds an instance had written nothing, and after how many it is stale."""
        return self._observer.silence(instance, self.entry.time), 2 * self._world.interval / 1000

    def of_reset(self, partition: Partition) -> str:
        """Where the position was set."""
        origin = f"to the cut {partition.restored}" if partition.restored else "to positions of choice"
        return f"{self.sender} reset it {origin}, and it goes on at {partition.position}"

    def _of_order(self, partition: Partition) -> str | None:
        """What changed in the group with this record, as far as it moves partitions."""
        if partition.held:
            return "it was added, and waits until the older partitions have passed their ends"
        return self._of_administration() or self._of_members(partition)

    def _of_administration(self) -> str | None:
        record = self._record
        is_paused, was_paused = self._world.paused is not None, self._before.paused is not None
        if is_paused and not was_paused:
            return f"{self.sender} paused the group"
        if was_paused and not is_paused:
            return f"{self.sender} resumed the group" if isinstance(record, Resume) else "the pause was over"
        if isinstance(record, StepDown):
            return self._of_step_down(record)
        return self._of_configure(self._before.config, record.config) if isinstance(record, Configure) else None

    def _of_members(self, partition: Partition) -> str | None:
        world, before, record = self._world, self._before, self._record
        gone = {i.id for i in world.instances.values() if i.stale} - before.stale
        spilling = {s.member for s in world.seats.values() if s.spilling}
        if isinstance(record, Claim):
            return self._of_claim(record, partition)
        if gone:
            return f"what {self._observer.called(min(gone))} had was spread over the others"
        if isinstance(record, Leave):
            return f"what {self._observer.called(record.gone or record.sender)} had was spread over the others"
        if isinstance(record, Heartbeat) and spilling != before.spilling:
            return "the backlog " + ("called for an overflow member" if spilling else "no longer calls for overflow")
        if before.cut is not None and world.cut is None:
            return f"the cut {before.cut.sequence} was over"
        return None

    def _of_step_down(self, record: StepDown) -> str:
        for instance in self._world.instances.values():
            if instance.stepped_down == self.entry.sequence:
                named = self._observer.called(instance.id)
                return f"{named} is leaving" if instance.leaving else f"{self.sender} had {named} step down"
        return f"{self.sender} had the holder of the seat with epoch {record.epoch} step down"

    def _of_claim(self, record: Claim, partition: Partition) -> str:
        if self._world.auto:
            return f"{self.sender} took a seat, and the partitions were spread anew"
        if record.member == partition.seat:
            return f"{self.sender} claimed the seat of {record.member} with better priority"
        return f"{self.sender} claimed the seat of {record.member}, which changed who takes part"

    def _of_configure(self, old: Config | None, new: Config) -> str:
        if old is None:
            return f"{self.sender} made the group"
        added, dropped = set(new.seats()) - set(old.seats()), set(old.seats()) - set(new.seats())
        told = [f"added {', '.join(sorted(added))}"] if added else []
        told += [f"dropped {', '.join(sorted(dropped))}"] if dropped else []
        told += ["changed the mapping"] if new.mapping != old.mapping else []
        told += ["added partitions"] if len(new.positions) > len(old.positions) else []
        return f"{self.sender} {' and '.join(told) or 'configured the group anew'}"


def changes(world: World, entries: Iterable[Entry]) -> list[Change]:
    """Every change of a partition among the entries, which follow `world`; that is used up."""
    observer = Observer(world)
    observer.take(entries)
    return observer.changes

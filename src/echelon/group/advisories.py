"""Advisories: what changed between two worlds that somebody may want to act on.

Each has an id made of the record's sequence and its kind, so that a second copy is recognised.
"""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from echelon.group.world import Partition, World

IDLE_AFTER: Final = 2
"""Intervals without an owner after which a partition is reported idle."""
IDLE_EVERY: Final = 10
"""Intervals after which that is said again, while it lasts."""


class Advisory(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Something happened to the group at the record `sequence`, at the broker's `time`."""

    sequence: int
    time: int

    @property
    def kind(self) -> str:
        """What happened, in one word."""
        return str(self.__struct_config__.tag)

    @property
    def id(self) -> str:
        """The same for every copy of this advisory, and for no other."""
        return f"{self.sequence}-{self.kind}{self._subject()}"

    def _subject(self) -> str:
        return ""


class SeatTaken(Advisory, frozen=True, kw_only=True, tag="seat_taken"):
    """An instance sat down."""

    member: str
    instance: str

    def _subject(self) -> str:
        return f"-{self.member}"


class SeatLost(Advisory, frozen=True, kw_only=True, tag="seat_lost"):
    """An instance no longer holds its seat. `gone`: it did not leave, others know that its process has ended."""

    member: str
    instance: str
    reason: Literal["timeout", "admin", "left", "gone", "preempted"]

    def _subject(self) -> str:
        return f"-{self.member}"


class PartitionMoved(Advisory, frozen=True, kw_only=True, tag="partition_moved"):
    """A partition has another owner than it had last: caches for it can be purged at `from_instance`."""

    partition: str
    from_member: str
    from_instance: str
    to_member: str
    to_instance: str
    position: int

    def _subject(self) -> str:
        return f"-{self.partition}"


class PartitionIdle(Advisory, frozen=True, kw_only=True, tag="partition_idle"):
    """A partition has had no owner for so many seconds of group time. Repeated while it lasts."""

    partition: str
    seconds: float
    pending: int

    def _subject(self) -> str:
        return f"-{self.partition}"


class SeatsUnfilled(Advisory, frozen=True, kw_only=True, tag="seats_unfilled"):
    """There are more seats than instances."""

    seats: int
    instances: int


class GroupPaused(Advisory, frozen=True, kw_only=True, tag="group_paused"):
    """The group is paused, until a broker time or until it is resumed."""

    until: int | None


class GroupResumed(Advisory, frozen=True, kw_only=True, tag="group_resumed"):
    """The group goes on after a pause."""


class CutComplete(Advisory, frozen=True, kw_only=True, tag="cut_complete"):
    """A cut holds the position of every partition."""

    cut: int


class CutAborted(Advisory, frozen=True, kw_only=True, tag="cut_aborted"):
    """A cut was given up: its time ran out, or something overtook it."""

    cut: int


class CutRetired(Advisory, frozen=True, kw_only=True, tag="cut_retired"):
    """A cut is kept no longer."""

    cut: int

    def _subject(self) -> str:
        return f"-{self.cut}"


class GroupReset(Advisory, frozen=True, kw_only=True, tag="group_reset"):
    """These partitions have new positions."""

    positions: dict[str, int]


class GroupDeleted(Advisory, frozen=True, kw_only=True, tag="group_deleted"):
    """The group has ended."""


class Watch:
    """Compares each world with the one before it. Call `look` after every applied record, with the same world."""

    def __init__(self, world: World) -> None:
        self._before = world.copy()

    def look(self, world: World) -> list[Advisory]:
        """What this record brought; cheap where nothing but time and progress changed."""
        before = self._before
        if world.turn == before.turn and (not world.marks or world.marks[-1:] == before.marks[-1:]):
            return []
        found = difference(before, world)
        self._before = world.copy()
        return found


def difference(before: World, after: World) -> list[Advisory]:
    """The advisories that lead from one world to a later one of the same group."""
    return [*_seats(before, after), *_partitions(before, after), *_group(before, after), *_cuts(before, after)]


def _seats(before: World, after: World) -> Iterator[Advisory]:
    at, time = after.sequence, after.broker_time
    for member in sorted(before.seats.keys() | after.seats.keys()):
        old, new = before.holder(member), after.holder(member)
        if old is not None and (new is None or new.id != old.id):
            yield SeatLost(
                sequence=at, time=time, member=member, instance=old.id, reason=_reason(before, after, member, old.id)
            )
        if new is not None and (old is None or new.id != old.id):
            yield SeatTaken(sequence=at, time=time, member=member, instance=new.id)
    unfilled = _unfilled(after)
    if unfilled and not _unfilled(before):
        yield SeatsUnfilled(sequence=at, time=time, seats=len(after.seats), instances=len(after.seats) - unfilled)


def _reason(
    before: World, after: World, member: str, instance: str
) -> Literal["timeout", "admin", "left", "gone", "preempted"]:
    known = after.instances.get(instance)
    if known is None:
        sender = after.senders.get(instance)
        if sender is None:  # It was silent for so long that it was forgotten.
            return "timeout"
        return "left" if sender.sequence == after.sequence else "gone"
    stepped_down = known.stepped_down > before.sequence
    if stepped_down and known.leaving:
        return "left"
    if known.stale:
        return "timeout"
    return "admin" if member not in after.seats or stepped_down else "preempted"


def _unfilled(world: World) -> int:
    """How many more seats than instances there are."""
    there = sum(not instance.stale for instance in world.instances.values())
    return 0 if world.auto or not world.instances else max(0, len(world.seats) - there)


def _partitions(before: World, after: World) -> Iterator[Advisory]:
    at, time = after.sequence, after.broker_time
    for name, new in after.partitions.items():
        old = before.partitions.get(name)
        if old is not None and old.former is not None and new.former is not None and old.former[1] != new.former[1]:
            yield PartitionMoved(
                sequence=at,
                time=time,
                partition=name,
                from_member=old.former[0],
                from_instance=old.former[1],
                to_member=new.former[0],
                to_instance=new.former[1],
                position=new.position,
            )
        if _times_idle(after, new) > (0 if old is None or old.since != new.since else _times_idle(before, old)):
            seconds = (after.time - new.since) / 1000
            yield PartitionIdle(sequence=at, time=time, partition=name, seconds=seconds, pending=new.pending)


def _times_idle(world: World, partition: Partition) -> int:
    """How often a partition should have been reported idle by now."""
    if partition.owner is not None or world.deleted:
        return 0
    intervals = (world.time - partition.since) // max(1, world.interval)
    return 0 if intervals < IDLE_AFTER else 1 + (intervals - IDLE_AFTER) // IDLE_EVERY


def _group(before: World, after: World) -> Iterator[Advisory]:
    at, time = after.sequence, after.broker_time
    if after.paused is not None and after.paused != before.paused:
        yield GroupPaused(sequence=at, time=time, until=after.paused.until)
    if before.paused is not None and after.paused is None:
        yield GroupResumed(sequence=at, time=time)
    if after.reset > before.reset:
        positions = {p.name: p.position for p in after.partitions.values() if p.reset == after.reset}
        yield GroupReset(sequence=at, time=time, positions=positions)
    if after.deleted and not before.deleted:
        yield GroupDeleted(sequence=at, time=time)


def _cuts(before: World, after: World) -> Iterator[Advisory]:
    at, time = after.sequence, after.broker_time
    if after.aborted > before.aborted:
        yield CutAborted(sequence=at, time=time, cut=after.aborted)
    for cut in sorted(after.cuts.keys() - before.cuts.keys()):
        yield CutComplete(sequence=at, time=time, cut=cut)
    for cut in sorted(before.cuts.keys() - after.cuts.keys()):
        yield CutRetired(sequence=at, time=time, cut=cut)

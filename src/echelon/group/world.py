"""The world: the state of a group as of one record of its log.

Plain data. `echelon.group.fold` is the only place that changes it, from records alone; so all who have read
as far have equal worlds. It is also what a snapshot holds.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct, field

from echelon.group.config import Config
from echelon.group.records import Profile

HORIZON: Final = 10
"""Intervals of group time after which a sender that wrote nothing, and what it had read, are forgotten."""


class Sender(Struct, gc=False):
    """Who has written: the counter and the sequence of its last record that counted."""

    counter: int
    sequence: int


class Instance(Struct):
    """A process that has joined. Times are group time."""

    id: str
    profile: Profile
    member: str | None
    """The only seat that it may claim, if there is just one."""
    joined: int
    """Sequence of its join."""
    joined_time: int
    """Broker time of its join."""
    last: int
    """When its last record was made."""
    fresh_since: int
    """Since when it has been fresh on end."""
    stale: bool = False
    stepped_down: int = 0
    """Sequence of the step-down that put it out of its seat; 0: none since it joined."""
    leaving: bool = False
    """It gave up its seat by itself."""


class Seat(Struct):
    """A member's seat. `epoch` is the sequence of the claim by which `holder` sat down."""

    member: str
    holder: str | None = None
    epoch: int = 0
    former: str | None = None
    """Who held it before."""
    barred: dict[str, int] = field(default_factory=dict)
    """Instances that stepped down, each with the group time until which it may not claim this seat again."""
    overflow: bool = False
    """Its holder, or the last one, is an overflow member."""
    spilling: bool = False
    """The backlog is high enough for an overflow seat to take part in the assignment."""


class Called(Struct, frozen=True, array_like=True, gc=False):
    """A parked key is to be tried again, or (`skip`) passed over; `sequence` is that of the record that asks for it."""

    sequence: int
    skip: bool


class Partition(Struct):
    """A partition: how far the group is in it, and who owns it."""

    name: str
    position: int
    done: int
    """Up to where processing has ended; only in an at-most-once group may it lag behind the position."""
    epoch: int = 0
    before: int = 0
    """The epoch before this one."""
    owner: str | None = None
    seat: str | None = None
    """The member whose holder should own it."""
    since: int = 0
    """Group time since which it has, or has not, an owner."""
    reported: bool = False
    """Something was reported under this epoch."""
    unsure: bool = False
    """The last owner ended without a release: an exactly-once sink may be ahead of the position."""
    reset: int = 0
    """Sequence of the last reset that named it."""
    keep: bool = False
    """That reset lets a sink keep what lies past the new position."""
    restored: int = 0
    """The cut that the last reset went back to."""
    waits: dict[str, int] = field(default_factory=dict)
    """Former owners that did not release, each with the sequence of its last record before the loss."""
    former: tuple[str, str] | None = None
    """The last owner's seat and instance."""
    seated: int = 0
    """The epoch under which it came to its last owner's seat from another."""
    parked: Mapping[str, int] = field(default_factory=dict)
    """Keys whose messages wait apart, each with the sequence of its first parked message."""
    called: dict[str, Called] = field(default_factory=dict)
    """Parked keys that the owner is asked to take up."""
    pending: int = 0
    in_flight: int = 0
    held: bool = False
    """It was added, and waits until those that were there before have passed the ends recorded then."""


class Part(Struct, frozen=True):
    """A partition's part of a cut."""

    position: int
    parked: Mapping[str, int] = {}
    state: bytes | None = None


class Cut(Struct):
    """A checkpoint of all positions; complete when `parts` covers all partitions."""

    sequence: int
    time: int
    broker_time: int
    periodic: bool
    parts: dict[str, Part] = field(default_factory=dict)


class Paused(Struct, frozen=True):
    """The group is paused, until a broker time or (None) until it is resumed."""

    sequence: int
    until: int | None


class Mark(Struct, frozen=True, array_like=True, gc=False):
    """A record remembered every quarter of an interval: a mile stone to tell old from new by."""

    sequence: int
    time: int
    sender: str
    counter: int


class World(Struct):
    """The state of a group as of `sequence`."""

    identity: str = ""
    made: int = 0
    """Broker time of the first configure."""
    version: int = 0
    config: Config | None = None
    configured: int = 0
    """Sequence of the configure in force."""
    interval: int = 0
    """The group's interval in milliseconds."""
    sequence: int = 0
    broker_time: int = 0
    time: int = 0
    """Group time, in milliseconds."""
    turn: int = 0
    """Grows with every record that changes more than time and progress."""
    check_at: int = 0
    """Nobody becomes stale before this group time."""
    senders: dict[str, Sender] = field(default_factory=dict)
    instances: dict[str, Instance] = field(default_factory=dict)
    seats: dict[str, Seat] = field(default_factory=dict)
    partitions: dict[str, Partition] = field(default_factory=dict)
    paused: Paused | None = None
    cut: Cut | None = None
    """The cut under way."""
    last_cut: int = 0
    """Group time at which the last cut was asked for."""
    cuts: dict[int, Cut] = field(default_factory=dict)
    """Complete cuts, by the sequence of their record."""
    aborted: int = 0
    """The last cut that was aborted."""
    reset: int = 0
    """Sequence of the last reset."""
    marks: list[Mark] = field(default_factory=list)
    snapshot: int = 0
    """The as-of of the newest snapshot that counts."""
    deleted: int = 0
    """Sequence of the delete."""

    @property
    def auto(self) -> bool:
        """Whether every instance has a seat of its own."""
        return self.config is not None and self.config.membership == "auto"

    def holder(self, member: str | None) -> Instance | None:
        """Who sits on a member's seat and is not stale."""
        seat = self.seats.get(member) if member is not None else None
        instance = self.instances.get(seat.holder) if seat is not None and seat.holder is not None else None
        return None if instance is None or instance.stale else instance

    def seat_of(self, instance: str) -> Seat | None:
        """The seat that an instance holds."""
        return next((seat for seat in self.seats.values() if seat.holder == instance), None)

    def owned(self, instance: str) -> Iterator[Partition]:
        """The partitions that an instance owns."""
        return (partition for partition in self.partitions.values() if partition.owner == instance)

    def saved_state(self, partition: Partition) -> bytes | None:
        """What the application had saved of a partition at the cut to which it was reset, if it still stands there."""
        cut = self.cuts.get(partition.restored)
        part = cut.parts.get(partition.name) if cut is not None else None
        return part.state if part is not None and part.position == partition.position else None

    def fresh(self, instance: Instance) -> bool:
        """Whether an instance's last record is at most one interval old."""
        return self.time - instance.last <= self.interval

    def leaves(self, partition: Partition) -> bool:
        """Whether an owned partition must be drained and released: it moves, is held, or the group is paused."""
        if self.paused is not None or partition.held:
            return True
        seat = self.seats.get(partition.seat) if partition.seat is not None else None
        return seat is None or seat.holder != partition.owner

    def vacant(self, seat: Seat) -> bool:
        """Whether nobody sits on the seat, or a stale instance."""
        return self.holder(seat.member) is None

    def claimable(self, seat: Seat, instance: Instance) -> bool:
        """Whether a claim of this seat by this instance would be accepted now."""
        if self.paused is not None or self.deleted or self.seat_of(instance.id) is not None:
            return False
        if instance.stepped_down and self.auto:
            return False
        if seat.barred.get(instance.id, 0) > self.time or (instance.member or seat.member) != seat.member:
            return False
        holder = self.holder(seat.member)
        if holder is None:
            return True
        rested = instance.last - instance.fresh_since >= 4 * self.interval
        return instance.profile.priority < holder.profile.priority and rested and not instance.stepped_down

    def chair(self) -> str | None:
        """The fresh instance with the lowest id: it writes snapshots, takes periodic cuts, publishes advisories."""
        return min((i.id for i in self.instances.values() if self.fresh(i)), default=None)

    def copy(self) -> "World":
        """An independent world, equal to this one."""
        return load(dump(self))


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(World)


def dump(world: World) -> bytes:
    """The world as a snapshot holds it."""
    return _encoder.encode(world)


def load(data: bytes | msgspec.Raw) -> World:
    """The world that a snapshot holds. Raises msgspec.DecodeError if it holds none."""
    return _decoder.decode(data)


def milliseconds(seconds: float) -> int:
    """Seconds of the configuration as whole milliseconds."""
    return round(seconds * 1000)

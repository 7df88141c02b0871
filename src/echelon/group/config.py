"""The configuration of a group: what it is over, how it delivers, who its members are.

Besides membership, mapping and the number of partitions, nothing about a group changes after it is made.
Durations are seconds. `check` and `check_change` hold every limit, with one clear error for each mistake.
"""

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from echelon.assignment import check_mapping
from echelon.errors import InvalidConfig
from echelon.keys import Key, SubjectKey, check_key
from echelon.model import partition_name, partition_order

Delivery = Literal["at_most_once", "at_least_once", "exactly_once"]
Assignment = Literal["sticky", "blocks", "mapped"]
Partitioning = Literal["token", "derived", "computed", "native"]

MAX_PARTITIONS: Final = 4096
MAX_MEMBERS: Final = 4096
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,127}")
_LONGEST: Final = 10 * 365 * 86400.0
# Fields with the least and the most they may be, in seconds.
_DURATIONS: Final = (
    ("interval", 0.1, 300.0),
    ("drain_time", 0.1, 3600.0),
    ("cut_time", 0.1, 86400.0),
    ("history", 60.0, _LONGEST),
)
_COUNTS: Final = (("snapshot_every", 100), ("cuts_kept", 1), ("retries", 0), ("parked", 0))


class Stream(Struct, frozen=True):
    """One data stream of a group and how its messages fall into partitions.

    `partitioning` says how: `token` (the subjects carry the partition number as first token), `derived` (a
    second stream inserts it), `computed` (readers hash the key), `native` (a Kafka topic's own partitions).
    `identity` is the broker's: a stream made anew under the same name is another one.
    """

    name: str
    partitions: int
    key: Key = field(default_factory=SubjectKey)
    partitioning: Partitioning = "computed"
    identity: str = ""


class Config(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group's configuration, as the `configure` record holds it.

    `members` lists the seats of a *listed* group; None makes it *auto* (every instance has its own seat);
    with `mapping`, the group is *mapped* and the mapping lists the seats.
    `positions` are the positions that the group was made with, by partition: they also say which partitions
    there are. `ends` are, for each time that partitions were added, the ends of those that were there before.
    """

    streams: tuple[Stream, ...]
    positions: Mapping[str, int]
    members: tuple[str, ...] | None = None
    mapping: Mapping[str, tuple[str, ...]] | None = None
    ends: tuple[Mapping[str, int], ...] = ()
    interval: float = 3.0
    delivery: Delivery = "at_least_once"
    assignment: Assignment = "sticky"
    drain_time: float = 30.0
    cut_time: float = 60.0
    cut_every: float | None = None
    cuts_kept: int = 10
    history: float = 7 * 86400.0
    snapshot_every: int = 10_000
    out_of_range: Literal["fail", "earliest"] = "fail"
    retries: int = 5
    backoff: tuple[float, float] = (0.1, 30.0)
    on_failure: Literal["stop", "dead_letter", "park"] = "stop"
    parked: int = 1000
    growth: Literal["ordered", "at_once"] = "ordered"

    @property
    def membership(self) -> Literal["listed", "mapped", "auto"]:
        """Where the seats come from: a list, a mapping, or the instances that are there."""
        if self.assignment == "mapped":
            return "mapped"
        return "auto" if self.members is None else "listed"

    def seats(self) -> tuple[str, ...]:
        """The members that have a seat by configuration, sorted; none in an auto group."""
        return tuple(sorted(set(self.mapping if self.assignment == "mapped" and self.mapping else self.members or ())))

    def partitions(self) -> tuple[str, ...]:
        """The names of all partitions, in order."""
        return tuple(sorted(self.positions, key=partition_order))

    def locate(self, partition: str) -> tuple[Stream, int]:
        """The stream and the number of a partition."""
        name, _, number = partition.rpartition("/")
        stream = self.streams[0] if len(self.streams) == 1 else next(s for s in self.streams if s.name == name)
        return stream, int(number)


def check_group_name(name: str) -> None:
    """Raise InvalidConfig unless `name` can name a group on every broker."""
    if not _GROUP_NAME.fullmatch(name):
        raise InvalidConfig(
            f"'{name}' cannot name a group",
            remedy="Use 1 to 128 letters, digits, dashes and underscores, not beginning with a dash",
        )


def check_member_name(name: str) -> None:
    """Raise InvalidConfig unless `name` can name a member."""
    if not _MEMBER_NAME.fullmatch(name):
        raise InvalidConfig(
            f"'{name}' cannot name a member",
            remedy="Use 1 to 128 letters, digits and _ . : @ -, beginning with a letter, a digit or _",
        )


def check(config: Config) -> None:
    """Raise InvalidConfig, naming the mistake, unless `config` may be a group's configuration."""
    try:
        msgspec.convert(msgspec.to_builtins(config), Config)
    except msgspec.ValidationError as error:
        raise InvalidConfig(f"the configuration does not fit: {error}") from error
    _check_streams(config)
    for name, least, most in _DURATIONS:
        _check_range(name, getattr(config, name), least, most)
    if config.cut_every is not None:
        _check_range("cut_every", config.cut_every, config.cut_time, _LONGEST)
    for name, minimum in _COUNTS:
        if getattr(config, name) < minimum:
            raise InvalidConfig(f"{name} is {getattr(config, name)}; it must be at least {minimum}")
    least, most = config.backoff
    if not 0 < least <= most <= 3600:
        raise InvalidConfig(f"backoff is {least} to {most} s; it must grow from above 0 to at most 3600 s")
    if config.on_failure == "park" and config.delivery != "at_least_once":
        raise InvalidConfig(
            "keys can be parked only where delivery is at least once",
            remedy="Choose 'dead_letter' or 'stop' as what happens on failure",
        )
    _check_membership(config)


def check_change(old: Config, new: Config) -> None:
    """Raise InvalidConfig unless a group configured as `old` may become `new`.

    Membership and mapping may change, and partitions may be added; the ends of the partitions that were
    there before are recorded with them.
    """
    check(new)
    if old.membership != new.membership and "auto" in (old.membership, new.membership):
        raise InvalidConfig(f"the group is {old.membership}; it cannot become {new.membership}")
    if old.assignment != new.assignment and "mapped" not in (old.assignment, new.assignment):
        raise InvalidConfig(f"the assignment is {old.assignment}; it cannot become {new.assignment}")
    for name in Config.__struct_fields__:
        if name in ("members", "mapping", "assignment", "positions", "ends", "streams"):
            continue
        if getattr(old, name) != getattr(new, name):
            raise InvalidConfig(
                f"{name} is {getattr(old, name)}; it cannot change after the group is made",
                remedy="Make a new group, from the positions of this one if need be",
            )
    _check_growth(old, new)


def _check_range(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidConfig(f"{name} is {value:g} s; it must be {least:g} to {most:g} s")


def _check_streams(config: Config) -> None:
    if not config.streams:
        raise InvalidConfig("the group is over no stream", remedy="Name at least one stream or topic")
    names = [stream.name for stream in config.streams]
    if len(set(names)) < len(names):
        raise InvalidConfig(f"a stream is named twice among {', '.join(names)}")
    expected: set[str] = set()
    for stream in config.streams:
        if not stream.name:
            raise InvalidConfig("a stream has an empty name")
        if not 1 <= stream.partitions <= MAX_PARTITIONS:
            raise InvalidConfig(
                f"stream {stream.name} has {stream.partitions} partitions; it must be 1 to {MAX_PARTITIONS}"
            )
        check_key(stream.key)
        alone = len(names) == 1
        expected.update(partition_name(stream.name, number, alone=alone) for number in range(stream.partitions))
    if set(config.positions) != expected:
        wrong = sorted(expected ^ set(config.positions), key=partition_order)
        raise InvalidConfig(f"positions must name each partition once; {wrong[0]} is missing or is not one")
    below = [name for name, position in config.positions.items() if position < 0]
    if below:
        raise InvalidConfig(f"the position of partition {below[0]} is negative")


def _check_membership(config: Config) -> None:
    if config.assignment == "mapped":
        if config.mapping is None or config.members is not None:
            raise InvalidConfig("a mapped group has a mapping of members to partitions, and no list of members")
        check_mapping(config.mapping, config.partitions())
    elif config.mapping is not None:
        raise InvalidConfig("a mapping was given", remedy="Choose the assignment 'mapped' with it")
    seats = config.seats()
    for member in seats:
        check_member_name(member)
    if len(seats) > MAX_MEMBERS:
        raise InvalidConfig(f"the group has {len(seats)} members; it must be at most {MAX_MEMBERS}")


def _check_growth(old: Config, new: Config) -> None:
    if [(s.name, s.key, s.partitioning, s.identity) for s in old.streams] != [
        (s.name, s.key, s.partitioning, s.identity) for s in new.streams
    ]:
        raise InvalidConfig("the group's streams and keys cannot change after it is made")
    for name, position in old.positions.items():
        if new.positions.get(name) != position:
            raise InvalidConfig(f"partition {name} cannot be taken away, nor its first position changed")
    if set(new.positions) == set(old.positions):
        if new.ends != old.ends:
            raise InvalidConfig("ends are recorded only when partitions are added")
    elif new.ends[:-1] != old.ends or not new.ends or set(new.ends[-1]) != set(old.positions):
        raise InvalidConfig("partitions were added", remedy="Record the end of each partition that was there before")

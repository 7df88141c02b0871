"""The configuration of JetStream-native groups: what they are over, and who their members are.

A *static* group is over a stream whose subjects begin with the partition number; nothing about it changes. An
*elastic* group is over any stream: a work queue sources from it and inserts the number, and members come and go.
The number of partitions is called `max_members`: there is no use for more members than that.
"""

import re
from typing import Final, Literal

from msgspec import Struct

from echelon.assignment import blocks, check_mapping
from echelon.brokers.nats.subjects import number_wildcards, overlap
from echelon.errors import InvalidConfig
from echelon.keys import Key, SubjectKey, TokensKey, check_key

Kind = Literal["static", "elastic"]
Format = Literal["current", "v0.1", "java"]
"""How a group is written: `current` as Go v0.2 and .NET do; `v0.1` as Go v0.1 did; `java` for a static group with one
filter, which is otherwise current."""

_NAME: Final = re.compile(r"[A-Za-z0-9_=-]+")
# With the older format the consumer's priority group has the member's name.
_SHORT_NAME: Final = re.compile(r"[A-Za-z0-9_=-]{1,16}")
_PRIORITY_GROUP: Final = "PCG"


class MemberMapping(Struct, frozen=True):
    """The partitions that a member has, by number."""

    member: str
    partitions: tuple[int, ...]


class PartitioningFilter(Struct, frozen=True):
    """Which messages an elastic group takes, and which of the `*` in the filter make their key; none: the subject."""

    filter: str
    partitioning_wildcards: tuple[int, ...] = ()

    @property
    def key(self) -> Key:
        """The same in Echelon's own words."""
        wildcards = self.partitioning_wildcards
        return TokensKey(self.filter, wildcards) if wildcards else SubjectKey(self.filter)


class Membership(Struct, frozen=True, kw_only=True):
    """What both kinds of groups have. Either `members` or `member_mappings`, or neither as yet."""

    max_members: int
    members: tuple[str, ...] = ()
    member_mappings: tuple[MemberMapping, ...] = ()
    format: Format = "current"

    def names(self) -> tuple[str, ...]:
        """The members, sorted; those past `max_members` have no partitions."""
        return tuple(sorted({*self.members, *(mapping.member for mapping in self.member_mappings)}))

    def is_in_membership(self, member: str) -> bool:
        """Whether there is such a member."""
        return member in self.names()

    def partitions(self, member: str) -> tuple[int, ...]:
        """The numbers of a member's partitions."""
        if self.member_mappings:
            return next((m.partitions for m in self.member_mappings if m.member == member), ())
        owners = blocks(self.members, map(str, range(self.max_members)))
        return tuple(number for number in range(self.max_members) if owners.get(str(number)) == member)

    def subjects(self) -> tuple[str, ...]:
        """What subjects look like behind the partition number; empty: anything."""
        raise NotImplementedError

    def partition_filters(self, member: str) -> tuple[str, ...]:
        """The filters of a member's consumer, in the order in which all instances must give them.

        With a mapping they are not narrower than the partition. (So it is in Go; but there several filters of the
        group make it give the same one several times, which no server takes.)
        """
        is_plain = bool(self.member_mappings) or self.format != "current"
        subjects = (">",) if is_plain else self.subjects() or (">",)
        return tuple(f"{number}.{subject}" for subject in subjects for number in self.partitions(member))

    def priority_group(self, member: str) -> str:
        """The name of the priority group of a member's consumer."""
        return member if self.format == "v0.1" else _PRIORITY_GROUP


class StaticConfig(Membership, frozen=True, kw_only=True):
    """A static group: with `filters` only messages that match one of them, behind the partition number."""

    filters: tuple[str, ...] = ()

    def subjects(self) -> tuple[str, ...]:
        """What subjects look like behind the partition number."""
        return self.filters


class ElasticConfig(Membership, frozen=True, kw_only=True):
    """An elastic group. Without filters it takes all messages, by their whole subject.

    The work queue holds at most `max_buffered_msgs` messages and `max_buffered_bytes` bytes, if they are given. When
    it is full the server pauses sourcing for a second or more, so it should hold what is consumed in several.
    """

    partitioning_filters: tuple[PartitioningFilter, ...] = ()
    max_buffered_msgs: int = 0
    max_buffered_bytes: int = 0

    def subjects(self) -> tuple[str, ...]:
        """What subjects look like behind the partition number."""
        return tuple(each.filter for each in self.partitioning_filters)

    def transforms(self) -> list[dict[str, str]]:
        """How subjects of the stream become those of the work queue."""
        filters = self.partitioning_filters or (PartitioningFilter(">"),)
        return [{"src": each.filter, "dest": _destination(each, self.max_members)} for each in filters]


GroupConfig = StaticConfig | ElasticConfig


def _destination(filter: PartitioningFilter, partitions: int) -> str:
    arguments = ",".join(map(str, (partitions, *filter.partitioning_wildcards)))
    return f"{{{{Partition({arguments})}}}}.{number_wildcards(filter.filter)}"


def check_names(stream: str, group: str, config: Membership | None = None) -> None:
    """Raise InvalidConfig unless these can name a stream, a group on it and its members."""
    members = config.names() if config is not None else ()
    short = config is not None and config.format == "v0.1"
    for what, name in (("stream", stream), ("group", group), *(("member", member) for member in members)):
        pattern = _SHORT_NAME if short and what == "member" else _NAME
        if not pattern.fullmatch(name):
            most = ", at most 16" if pattern is _SHORT_NAME else ""
            raise InvalidConfig(f"'{name}' cannot name a {what}", remedy=f"Use letters, digits and - _ ={most}")


def check(config: GroupConfig) -> None:
    """Raise InvalidConfig, naming the mistake, unless `config` may be a group's configuration."""
    if config.max_members < 1:
        raise InvalidConfig(f"max_members is {config.max_members}; it must be at least 1")
    if isinstance(config, ElasticConfig):
        for each in config.partitioning_filters:
            check_key(each.key)
    else:
        for subject in config.filters:
            if not all(subject.split(".")) or any(map(str.isspace, subject)):
                raise InvalidConfig(f"'{subject}' is no subject filter")
    _check_apart(config.subjects())
    if config.format != "current":
        _check_format(config)
    if config.members and config.member_mappings:
        raise InvalidConfig("a group has either members or mappings of members to partitions, not both")
    if config.member_mappings:
        mapping = {each.member: tuple(map(str, each.partitions)) for each in config.member_mappings}
        if len(mapping) < len(config.member_mappings):
            raise InvalidConfig("the mapping names a member twice")
        check_mapping(mapping, map(str, range(config.max_members)))


def _check_apart(filters: tuple[str, ...]) -> None:
    for place, one in enumerate(filters):
        for other in filters[:place]:
            if overlap(one, other):
                raise InvalidConfig(f"the filters '{other}' and '{one}' overlap", remedy="Let none take what others do")


def _check_format(config: GroupConfig) -> None:
    if isinstance(config, StaticConfig):
        if len(config.filters) > 1:
            raise InvalidConfig(f"in the format {config.format} a static group has one filter, not several")
    elif config.format == "java":
        raise InvalidConfig("the format java is one of static groups", remedy="Java's elastic groups are current")
    elif len(config.partitioning_filters) != 1 or not config.partitioning_filters[0].partitioning_wildcards:
        raise InvalidConfig("in the format v0.1 an elastic group has one filter, with wildcards to make the key of")

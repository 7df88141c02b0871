"""How groups are written down in JSON, as the Go, Java and .NET libraries read it, now and in their first versions."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from echelon.errors import GroupError
from echelon.pcg.config import (
    ElasticConfig,
    Format,
    GroupConfig,
    Kind,
    MemberMapping,
    Membership,
    PartitioningFilter,
    StaticConfig,
)


class _Filter(Struct):
    filter: str
    partitioning_wildcards: tuple[int, ...] | None = None


class _Written(Struct):
    """All that any of the libraries has ever written."""

    max_members: int
    filters: tuple[str, ...] | None = None
    filter: str | None = None
    partitioning_filters: tuple[_Filter, ...] | None = None
    partitioning_wildcards: tuple[int, ...] | None = None
    max_buffered_msg: int = 0
    max_buffered_bytes: int = 0
    members: tuple[str, ...] | None = None
    member_mappings: tuple[MemberMapping, ...] | None = None


def encode(config: GroupConfig) -> bytes:
    """A group's entry. Fields are in the order of the libraries, and left out where they leave them out."""
    entry: dict[str, Any] = {"max_members": config.max_members}
    if isinstance(config, StaticConfig):
        if config.format != "current":
            entry["filter"] = config.filters[0] if config.filters else ""
        elif config.filters:
            entry["filters"] = config.filters
    else:
        if config.format == "v0.1":
            entry |= msgspec.to_builtins(config.partitioning_filters[0])
        else:
            entry["partitioning_filters"] = config.partitioning_filters or None
        if config.max_buffered_msgs:
            entry["max_buffered_msg"] = config.max_buffered_msgs
        if config.max_buffered_bytes:
            entry["max_buffered_bytes"] = config.max_buffered_bytes
    return msgspec.json.encode(_with_members(entry, config))


def encode_change(entry: bytes, config: Membership) -> bytes:
    """An entry with other members. What else is written in it stays, whoever wrote it."""
    fields = msgspec.json.decode(entry, type=dict[str, Any])
    fields.pop("members", None)
    fields.pop("member_mappings", None)
    return msgspec.json.encode(_with_members(fields, config))


def _with_members(entry: dict[str, Any], config: Membership) -> dict[str, Any]:
    if config.members:
        entry["members"] = config.members
    if config.member_mappings:
        entry["member_mappings"] = config.member_mappings
    return entry


def decode(entry: bytes, kind: Kind, what: str) -> GroupConfig:
    """The configuration in an entry of the group `what`. Raises GroupError.

    A static entry with a single `filter` may be from Go v0.1 or from Java: `recognise` tells by its consumers.
    """
    try:
        written = msgspec.json.decode(entry, type=_Written)
    except msgspec.DecodeError as error:
        raise GroupError(
            f"the entry of the group {what} cannot be read: {error}",
            remedy="Delete the group and make it anew, or use a newer Echelon",
        ) from error
    is_current = written.filter is None
    common: dict[str, Any] = {
        "max_members": written.max_members,
        "members": written.members or (),
        "member_mappings": written.member_mappings or (),
        "format": "current" if is_current else "v0.1",
    }
    if kind == "static":
        given = written.filters or () if is_current else (written.filter or "",)
        return StaticConfig(filters=tuple(each for each in given if each), **common)
    if is_current:
        found = written.partitioning_filters or ()
        filters = tuple(PartitioningFilter(each.filter, each.partitioning_wildcards or ()) for each in found)
    else:
        filters = (PartitioningFilter(written.filter or "", written.partitioning_wildcards or ()),)
    return ElasticConfig(
        partitioning_filters=filters,
        max_buffered_msgs=written.max_buffered_msg,
        max_buffered_bytes=written.max_buffered_bytes,
        **common,
    )


def recognise(config: GroupConfig, priority_groups: Mapping[str, str], said: Format | None = None) -> GroupConfig:
    """The configuration, with Java's format where the consumers have its priority group.

    `priority_groups` are those of the consumers that there are, by member. Without any, a static entry with a single
    filter is in the format that a user has `said`, or else counts as one of Go v0.1.
    """
    if config.format != "v0.1" or not isinstance(config, StaticConfig):
        return config
    others = [group for member, group in priority_groups.items() if group != member]
    is_java = bool(others) if priority_groups else said == "java"
    return replace(config, format="java") if is_java else config

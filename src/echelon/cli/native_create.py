"""`create` for JetStream-native groups, which are called `STREAM.NAME`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from echelon.cli.native import connected, partition_numbers
from echelon.errors import GroupExists, GroupNotFound, InvalidConfig

if TYPE_CHECKING:
    from echelon.keys import Key
    from echelon.ops.status import GroupRow
    from echelon.pcg import Groups
    from echelon.pcg.config import GroupConfig, Kind, PartitioningFilter


def create_native(ctx: typer.Context, group: str, streams: Sequence[str], config: "GroupConfig") -> "GroupRow":
    """Make a group; returns it as a listing has it.

    Raises InvalidConfig if another stream than its own is named, GroupExists if a group differs or is of another kind.
    """
    stream, _, name = group.partition(".")
    if streams and list(streams) != [stream]:
        raise InvalidConfig(
            f"{group} would be a group over the stream {stream}, not over {', '.join(streams)}",
            remedy="A JetStream-native group is over one stream, which its name begins with; other names have no dot",
        )

    async def work(groups: "Groups") -> "GroupRow":
        from echelon.ops import native
        from echelon.pcg import StaticConfig

        other: Kind = "elastic" if isinstance(config, StaticConfig) else "static"
        try:
            await groups.get(stream, name, other)
        except GroupNotFound:
            await groups.create(stream, name, config)
            return native.group_row(await native.look(groups, group))
        raise GroupExists(f"there is another group {group}, which is {other}", remedy="Choose another name")

    return connected(ctx, group, work)


def native_config(
    partitions: int | None,
    members: tuple[str, ...],
    mapping: Mapping[str, Sequence[str]],
    key: "Key | None",
    settings: Mapping[str, object],
    *,
    static: bool,
) -> "GroupConfig":
    """The configuration that the options describe. Raises InvalidConfig for what such a group does not have."""
    from echelon.group.config import MAX_PARTITIONS
    from echelon.pcg import ElasticConfig, MemberMapping, StaticConfig

    if partitions is None:
        raise InvalidConfig("say how many partitions the group is to have", remedy="As --partitions 12")
    if partitions > MAX_PARTITIONS:
        raise InvalidConfig(f"the group would have {partitions} partitions; it must be 1 to {MAX_PARTITIONS}")
    chosen = (_filter(key),) if key is not None else ()
    mappings = tuple(MemberMapping(member, partition_numbers(names)) for member, names in mapping.items())
    if not static:
        return ElasticConfig(
            max_members=partitions,
            members=members,
            member_mappings=mappings,
            partitioning_filters=chosen,
            max_buffered_msgs=_number(settings, "max_buffered_msgs"),
            max_buffered_bytes=_number(settings, "max_buffered_bytes"),
        )
    if settings or any(each.partitioning_wildcards for each in chosen):
        raise InvalidConfig(
            "a static group has no work queue, and its subjects carry the partition already",
            remedy="Leave out --set; say which messages it takes with --key subject:FILTER",
        )
    filters = tuple(each.filter for each in chosen)
    return StaticConfig(max_members=partitions, members=members, member_mappings=mappings, filters=filters)


def _filter(key: "Key") -> "PartitioningFilter":
    from echelon.keys import SubjectKey, TokensKey
    from echelon.pcg import PartitioningFilter

    match key:
        case SubjectKey(filter=filter):
            return PartitioningFilter(filter)
        case TokensKey(filter=filter, wildcards=wildcards):
            return PartitioningFilter(filter, wildcards)
    raise InvalidConfig(
        "the key of a JetStream-native group is made of the subject",
        remedy="Write subject, subject:FILTER or tokens:FILTER:1,2",
    )


def _number(settings: Mapping[str, object], name: str) -> int:
    value = settings.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfig(f"{name} is '{value}'; it must be a number, 0 or more")
    return value

"""How commands get at JetStream-native groups, which are called `STREAM.NAME`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from echelon.cli.connection import Connection
from echelon.errors import Denied, GroupNotFound, InvalidConfig

if TYPE_CHECKING:
    from echelon.model import Message
    from echelon.ops.native import View
    from echelon.ops.status import GroupRow
    from echelon.pcg import Groups

T = TypeVar("T")


def connected(ctx: typer.Context, group: str, work: "Callable[[Groups], Awaitable[T]]") -> T:
    """Connect to NATS, and do something with its groups. Raises GroupNotFound on Kafka, which has none."""
    import asyncio

    return asyncio.run(_connected(ctx, group, work))


async def _connected(ctx: typer.Context, group: str, work: "Callable[[Groups], Awaitable[T]]") -> T:
    connection: Connection = ctx.obj
    url, options = connection.find()
    if url.startswith("kafka://"):
        raise GroupNotFound(
            f"there is no group {group}", remedy="A name with a dot is that of a JetStream-native group; this is Kafka"
        )
    from echelon.pcg import open_groups

    async with open_groups(url, **options) as groups:
        return await work(groups)


def run_native(ctx: typer.Context, group: str, work: "Callable[[Groups, View], Awaitable[T]]") -> T:
    """Connect to NATS, find the group, and do something with it. Raises GroupNotFound."""

    async def found(groups: "Groups") -> T:
        from echelon.ops.native import look

        return await work(groups, await look(groups, group))

    return connected(ctx, group, found)


async def look_native(ctx: typer.Context, group: str) -> "View":
    """A group as it is now. Raises GroupNotFound."""
    from echelon.ops.native import look

    return await _connected(ctx, group, lambda groups: look(groups, group))


def view_native(ctx: typer.Context, group: str, view: "Callable[[View], T]") -> T:
    """A view of the group."""
    import asyncio

    return view(asyncio.run(look_native(ctx, group)))


async def list_native(ctx: typer.Context) -> "list[GroupRow]":
    """All JetStream-native groups; none on Kafka. Who may not see them is told so, and gets the others."""
    connection: Connection = ctx.obj
    url, options = connection.find()
    if url.startswith("kafka://"):
        return []
    from echelon.ops import native
    from echelon.pcg import open_groups

    try:
        async with open_groups(url, **options) as groups:
            return await native.list_native(groups)
    except Denied as error:
        typer.echo(f"JetStream-native groups are not shown: {error.what}", err=True)
        return []


def add_native(ctx: typer.Context, group: str, members: Sequence[str]) -> Sequence[str]:
    """Add members to an elastic group; returns all."""

    async def work(groups: "Groups", found: "View") -> tuple[str, ...]:
        from echelon.ops.native import check_elastic

        check_elastic(found)
        known = [member for member in members if member in found.found.config.names()]
        if known:
            raise InvalidConfig(f"{known[0]} is a member of {group} already")
        return await groups.add_members(found.found.stream, found.found.name, members)

    return run_native(ctx, group, work)


def drop_native(ctx: typer.Context, group: str, members: Sequence[str]) -> Sequence[str]:
    """Take members out of an elastic group; returns those left."""

    async def work(groups: "Groups", found: "View") -> tuple[str, ...]:
        from echelon.ops.listing import check_member
        from echelon.ops.native import check_elastic

        check_elastic(found)
        for member in members:
            check_member(group, member, found.found.config.names())
        return await groups.drop_members(found.found.stream, found.found.name, members)

    return run_native(ctx, group, work)


def map_native(ctx: typer.Context, group: str, mapping: Mapping[str, Sequence[str]]) -> None:
    """Give the members of an elastic group their partitions; with an empty mapping, take the mapping away."""

    async def work(groups: "Groups", found: "View") -> None:
        from echelon.ops.native import check_elastic
        from echelon.pcg import MemberMapping

        check_elastic(found)
        pairs = [MemberMapping(member, partition_numbers(names)) for member, names in mapping.items()]
        if not mapping and not found.found.config.member_mappings:
            raise InvalidConfig(f"the group {group} is not mapped")
        stream, name = found.found.stream, found.found.name
        if mapping:
            await groups.set_mappings(stream, name, pairs)
        else:
            await groups.delete_mappings(stream, name)

    run_native(ctx, group, work)


def partition_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """The partitions of these names. Raises InvalidConfig for what is no number."""
    for name in names:
        if not name.isdecimal():
            raise InvalidConfig(f"'{name}' is no partition", remedy="Partitions have numbers, from 0 on")
    return tuple(map(int, names))


def step_down_native(ctx: typer.Context, group: str, member: str) -> None:
    """Have the active instance of a member replaced by one that stands by."""

    async def work(groups: "Groups", found: "View") -> None:
        from echelon.ops.listing import check_member, vacant

        check_member(group, member, found.found.config.names())
        if member not in found.active:
            raise vacant(group, member)
        await groups.step_down(found.found.stream, found.found.name, member, found.found.kind)

    run_native(ctx, group, work)


def join_native(
    ctx: typer.Context, group: str, member: str | None, count: int | None, show: "Callable[[Message], None]"
) -> None:
    """Be an instance of a member, and show each message; leave after so many, or when a signal says so."""

    async def work(groups: "Groups", found: "View") -> None:
        from echelon.ops.listing import check_member
        from echelon.pcg import Member, Options

        if member is None:
            names = ", ".join(found.found.config.names()) or "there are none yet"
            raise InvalidConfig(f"say for which member of {group}", remedy=f"As --member NAME: {names}")
        check_member(group, member, found.found.config.names())
        shown = 0

        async def handle(message: "Message") -> None:
            nonlocal shown
            show(message)
            shown += 1
            if shown == count:
                instance.drain()

        # Whatever keeps it from showing a message (nobody reads on) will not pass.
        options = Options(retries=0)
        place = (found.found.stream, found.found.name, member)
        instance = Member(groups, *place, handle, kind=found.found.kind, options=options)
        await instance.run(signals=True)

    run_native(ctx, group, work)

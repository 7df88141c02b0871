"""How commands get at JetStream-native groups, which are called `STREAM.NAME`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import typer

from echelon.cli.connection import Connection
from echelon.errors import Denied, GroupNotFound, InvalidConfig

if TYPE_CHECKING:
    from echelon.ops.native import View
    from echelon.ops.status import GroupRow
    from echelon.pcg import Groups

T = TypeVar("T")


def run_native(ctx: typer.Context, group: str, work: "Callable[[Groups, View], Awaitable[T]]") -> T:
    """Connect to NATS, find the group, and do something with it. Raises GroupNotFound."""
    import asyncio

    connection: Connection = ctx.obj
    url, options = connection.find()
    if url.startswith("kafka://"):
        raise GroupNotFound(
            f"there is no group {group}", remedy="A name with a dot is that of a JetStream-native group; this is Kafka"
        )

    async def connected() -> T:
        from echelon.ops.native import look
        from echelon.pcg import open_groups

        async with open_groups(url, **options) as groups:
            return await work(groups, await look(groups, group))

    return asyncio.run(connected())


def view_native(ctx: typer.Context, group: str, view: "Callable[[View], T]") -> T:
    """A view of the group."""

    async def work(_groups: "Groups", found: "View") -> T:
        return view(found)

    return run_native(ctx, group, work)


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
        wrong = [number for numbers in mapping.values() for number in numbers if not number.isdecimal()]
        if wrong:
            raise InvalidConfig(f"'{wrong[0]}' is no partition", remedy="Partitions have numbers, from 0 on")
        if not mapping and not found.found.config.member_mappings:
            raise InvalidConfig(f"the group {group} is not mapped")
        stream, name = found.found.stream, found.found.name
        if mapping:
            pairs = [MemberMapping(member, tuple(map(int, numbers))) for member, numbers in mapping.items()]
            await groups.set_mappings(stream, name, pairs)
        else:
            await groups.delete_mappings(stream, name)

    run_native(ctx, group, work)


def step_down_native(ctx: typer.Context, group: str, member: str) -> None:
    """Have the active instance of a member replaced by one that stands by."""

    async def work(groups: "Groups", found: "View") -> None:
        from echelon.ops.listing import check_member

        check_member(group, member, found.found.config.names())
        await groups.step_down(found.found.stream, found.found.name, member, found.found.kind)

    run_native(ctx, group, work)

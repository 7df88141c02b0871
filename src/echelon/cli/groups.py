"""`ls`, `info`, `rm`: the groups on a broker."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import ForceOption, GroupArgument, administer, confirm, now, run
from echelon.cli.native import connected, list_native, view_native
from echelon.cli.output import Format, FormatOption, as_mapping, show, show_one
from echelon.errors import GroupError, GroupNotFound, LogBroken, StreamNotFound, WrongState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echelon.brokers.base import Broker
    from echelon.pcg import Groups


def ls(
    ctx: typer.Context,
    names: Annotated[bool, typer.Option("--names", "-n", help="Only their names, one in a line.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """List the groups of every kind."""

    async def work(broker: "Broker") -> "Sequence[object]":
        import asyncio

        from echelon.ops.listing import list_groups

        if names:
            own, native = await asyncio.gather(broker.groups(), list_native(ctx))
            return [{"group": name} for name in sorted([*own, *(row.group for row in native)])]
        found = await asyncio.gather(list_groups(broker, now()), list_native(ctx))
        return sorted((row for rows in found for row in rows), key=lambda row: (row.group, row.kind))

    rows = run(ctx, work)
    if names and output is Format.table:
        for row in rows:
            typer.echo(as_mapping(row)["group"])
    else:
        from echelon.ops.status import GroupRow

        show(rows, output, like=GroupRow, empty="there are no groups; make one with: echelon create")


def info(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """Show the state and the configuration of a group."""
    from echelon.ops.listing import is_native

    if is_native(group):
        from echelon.ops import native

        show_one(view_native(ctx, group, native.describe), output)
        return

    async def work(broker: "Broker") -> "dict[str, object]":
        from echelon.members.follower import read_world
        from echelon.ops.ends import read_ends
        from echelon.ops.info import describe
        from echelon.ops.listing import find_log

        world, _ = await read_world(await find_log(broker, group, "configuration"))
        assert world.config is not None
        positions = {name: partition.position for name, partition in world.partitions.items()}
        return describe(group, world, await read_ends(broker, group, world.config, positions), now())

    show_one(run(ctx, work), output)


def rm(ctx: typer.Context, group: GroupArgument, force: ForceOption = False) -> None:
    """Delete a group. Its members stop, its log and history go; the messages of its streams stay."""

    async def look(broker: "Broker") -> str:
        try:
            async with await administer(broker, group, "log to delete") as admin:
                there = sum(not instance.stale for instance in admin.world.instances.values())
        except LogBroken:
            return "whose log is broken"
        return f"in which {there} instances are, with its history"

    async def work(broker: "Broker") -> None:
        import asyncio

        with suppress(LogBroken):  # Then nobody can be told.
            async with await administer(broker, group, "log to delete") as admin:
                live = any(not instance.stale for instance in admin.world.instances.values())
                if not admin.world.deleted:
                    await admin.delete()
                if live:  # Those who are there read why they have to stop before the log is gone.
                    await asyncio.sleep(admin.world.interval / 1000)
        await broker.delete_log(group)

    def look_native() -> str:
        try:
            return f"in which {view_native(ctx, group, lambda found: len(found.active))} members are active"
        except (GroupNotFound, WrongState):
            raise
        except StreamNotFound:
            return "whose stream is gone"
        except GroupError:
            return "whose entry cannot be read"

    async def work_native(groups: "Groups") -> None:
        from echelon.ops.native import parts

        kind, stream, name = parts(group)
        await groups.delete(stream, name, kind)

    from echelon.ops.listing import is_native

    if is_native(group):
        confirm(f"Delete the group {group}, {look_native()}?", force=force)
        connected(ctx, group, work_native)
    else:
        confirm(f"Delete the group {group}, {run(ctx, look)}?", force=force)
        run(ctx, work)
    typer.echo(f"deleted {group}", err=True)

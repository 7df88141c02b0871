"""`partitions`, `lag`: how far a group is."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import GroupArgument, now, run, world_of
from echelon.cli.native import look_native, view_native
from echelon.cli.output import Format, FormatOption, show
from echelon.cli.watching import CountOption, EveryOption, watch

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.group.world import World
    from echelon.ops.progress import Ends, LagRow, PartitionRow


def partitions(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """Show owner, position and lag of each partition."""
    from echelon.ops.listing import is_native

    if is_native(group):
        from echelon.ops import native

        show(view_native(ctx, group, native.partitions), output)
        return

    async def work(broker: "Broker") -> "tuple[World, list[PartitionRow]]":
        from echelon.members.follower import read_world
        from echelon.ops import progress
        from echelon.ops.listing import find_log

        world, entries = await read_world(await find_log(broker, group, "partitions"))
        rows = progress.partitions(world, await _ends(broker, group, world), now(), progress.last_progress(entries))
        return world, rows

    world, rows = run(ctx, work)
    show(rows, output)
    tell_silence(group, world)


def lag(
    ctx: typer.Context,
    group: GroupArgument,
    is_watched: Annotated[bool, typer.Option("--watch", "-w", help="Show it again and again.")] = False,
    every: EveryOption = 2.0,
    count: CountOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Show how much waits, in messages and in seconds."""
    from echelon.ops.listing import is_native

    async def look(broker: "Broker") -> "list[LagRow]":
        if is_native(group):
            from echelon.ops import native

            return native.lag(await look_native(ctx, group))
        from echelon.ops import progress

        world = await world_of(broker, group, "lag")
        if not is_watched:
            tell_silence(group, world)
        return progress.lag(world, await _ends(broker, group, world), now())

    if is_watched:
        watch(ctx, look, every=every, count=count, output=output)
    else:
        show(run(ctx, look), output)


async def _ends(broker: "Broker", group: str, world: "World") -> "dict[str, Ends]":
    from echelon.ops.ends import read_ends

    assert world.config is not None
    positions = {name: partition.position for name, partition in world.partitions.items()}
    return await read_ends(broker, group, world.config, positions)


def tell_silence(group: str, world: "World") -> None:
    """Say on stderr that nobody writes to the log of a group, if so: what it says of owners is not so any more."""
    from echelon.ops.status import is_silent

    if is_silent(world, now()):
        age = (now() - world.broker_time) / 1000
        typer.echo(f"{group} is silent: nobody has written to its log for {age:.1f} s, so nobody works", err=True)

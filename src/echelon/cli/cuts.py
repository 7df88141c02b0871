"""`cut`: checkpoints of all positions of a group."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import ForceOption, GroupArgument, administer, confirm, now, run, world_of
from echelon.cli.output import Format, FormatOption, show
from echelon.errors import UnknownName, Unreachable, WrongState

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.group.world import World
    from echelon.members.admin import Admin
    from echelon.ops.kept import CutPartRow, CutRow

app = typer.Typer(help="Checkpoints of all positions of a group.", no_args_is_help=True)

CutArgument = Annotated[int, typer.Argument(metavar="CUT", help="The cut, by its number.", show_default=False)]


@app.command("take")
def take(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """Take a cut. All owners drain and tell their positions; this waits until all have."""

    async def work(broker: "Broker") -> "list[CutRow]":
        from echelon.ops import kept
        from echelon.ops.status import is_silent

        async with await administer(broker, group, "cut") as admin:
            world = admin.world
            if world.paused is not None:
                raise WrongState(f"{group} is paused", remedy=f"Resume it first: echelon resume {group}")
            if is_silent(world, now()):
                await _hear_somebody(admin)
            if world.cut is not None:
                raise WrongState(f"the cut {world.cut.sequence} of {group} is under way", remedy="Wait for its end")
            assert world.config is not None
            cut = await admin.cut(seconds=world.config.cut_time + 10)
            return [row for row in kept.cuts(admin.world) if row.cut == cut.sequence]

    show(run(ctx, work), output)


async def _hear_somebody(admin: "Admin") -> None:
    """Raise WrongState if nobody writes: the group seemed silent, but by this machine's clock, which may be wrong."""
    read = admin.world.sequence
    try:
        await admin.until(lambda world: world.sequence > read, seconds=2 * admin.world.interval / 1000)
    except Unreachable:
        raise WrongState(
            f"{admin.group} is silent: who is to drain for a cut is gone, or cut off from the broker",
            remedy=f"Start a member first; see: echelon members {admin.group}",
        ) from None


@app.command("list")
def list_cuts(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """List the cuts that are kept."""

    async def work(broker: "Broker") -> "list[CutRow]":
        from echelon.ops import kept

        return kept.cuts(await world_of(broker, group, "cut"))

    from echelon.ops.kept import CutRow

    show(run(ctx, work), output, like=CutRow, empty=f"{group} has no cuts; take one with: echelon cut take {group}")


@app.command("show")
def show_cut(ctx: typer.Context, group: GroupArgument, cut: CutArgument, output: FormatOption = Format.table) -> None:
    """Show what a cut holds of each partition."""

    async def work(broker: "Broker") -> "list[CutPartRow]":
        from echelon.ops import kept

        world = await world_of(broker, group, "cut")
        _check(group, world, cut)
        return kept.cut_parts(world, cut)

    show(run(ctx, work), output)


@app.command("retire")
def retire(ctx: typer.Context, group: GroupArgument, cut: CutArgument, force: ForceOption = False) -> None:
    """Forget a cut: the group can no longer be reset to it."""

    async def look(broker: "Broker") -> None:
        _check(group, await world_of(broker, group, "cut"), cut)

    async def work(broker: "Broker") -> None:
        async with await administer(broker, group, "cut") as admin:
            await admin.retire(cut)

    run(ctx, look)
    confirm(f"Forget the cut {cut} of {group}?", force=force)
    run(ctx, work)
    typer.echo(f"retired the cut {cut}", err=True)


def _check(group: str, world: "World", cut: int) -> None:
    if cut not in world.cuts:
        kept = ", ".join(map(str, sorted(world.cuts)))
        raise UnknownName(f"{group} has no cut {cut}", remedy=f"There are {kept}" if kept else "There are none")

"""`pause` and `resume`."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import GroupArgument, administer, now, run
from echelon.errors import InvalidConfig

if TYPE_CHECKING:
    from echelon.brokers.base import Broker


def pause(
    ctx: typer.Context,
    group: GroupArgument,
    until: Annotated[
        str | None,
        typer.Argument(metavar="UNTIL", help="A time, or for how long: 30m.", show_default="until it is resumed"),
    ] = None,
) -> None:
    """Pause a group. All finish what is in flight and release their partitions; then nothing is processed."""
    from echelon.cli.times import moment
    from echelon.ops.status import when

    end = None if until is None else moment(until, now(), ahead=True)
    if end is not None and end <= now():
        raise InvalidConfig(f"'{until}' has passed", remedy="Give a time to come, or for how long, as 30m")

    async def work(broker: "Broker") -> None:
        async with await administer(broker, group, "pause") as admin:
            await admin.pause(end)

    run(ctx, work)
    told = "until it is resumed" if end is None else f"until {when(end):%Y-%m-%d %H:%M:%S} UTC"
    typer.echo(f"{group} is paused {told}", err=True)


def resume(ctx: typer.Context, group: GroupArgument) -> None:
    """End the pause of a group."""

    async def work(broker: "Broker") -> bool:
        async with await administer(broker, group, "pause") as admin:
            was_paused = admin.world.paused is not None
            await admin.resume()
            return was_paused

    typer.echo(f"{group} goes on" if run(ctx, work) else f"{group} was not paused", err=True)

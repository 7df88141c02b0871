"""`top`: all groups at work."""

from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import now
from echelon.cli.native import list_native
from echelon.cli.output import Format, FormatOption
from echelon.cli.watching import CountOption, EveryOption, watch

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.ops.rates import RateRow


def top(
    ctx: typer.Context,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Only these.", show_default=False)] = None,
    every: EveryOption = 2.0,
    count: CountOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Show groups, members, lag and rates, again and again."""
    from echelon.ops.rates import Rates

    rates = Rates()

    async def look(broker: "Broker") -> "list[RateRow]":
        return await rates.look(broker, now(), groups or (), await list_native(ctx))

    watch(ctx, look, every=every, count=count, output=output)

"""Views that are shown again and again: redrawn on a terminal, one after the other elsewhere."""

import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echelon.cli.connection import run
from echelon.cli.output import Format, as_mapping, one_by_one, show, table

if TYPE_CHECKING:
    from echelon.brokers.base import Broker

EveryOption = Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks.")]
_NOTHING: Final = "nothing is there"
_COLOUR: Final = re.compile("\x1b\\[[0-9;]*m")

CountOption = Annotated[int | None, typer.Option("--count", min=1, help="So many times.", show_default="until Ctrl-C")]


def watch(
    ctx: typer.Context,
    look: "Callable[[Broker], Awaitable[Sequence[object]]]",
    *,
    every: float,
    count: int | None,
    output: Format,
) -> None:
    """Look and show, until Ctrl-C or so many times. JSON and CSV come as one line for each row."""

    async def work(broker: "Broker") -> None:
        import asyncio

        left = count
        draw = _drawer(output, colours=ctx.color is not False)
        while left is None or left > 0:
            draw(await look(broker))
            left = None if left is None else left - 1
            if left != 0:
                await asyncio.sleep(every)

    run(ctx, work)


def _drawer(output: Format, *, colours: bool) -> "Callable[[Sequence[object]], None]":
    if output is Format.table:
        if sys.stdout.isatty():
            return lambda rows: _redraw(rows, colours=colours)
        return lambda rows: show(rows, output, empty=_NOTHING)
    show_row = one_by_one(output)

    def draw(rows: Sequence[object]) -> None:
        for row in rows:
            show_row(row)

    return draw


def _redraw(rows: Sequence[object], *, colours: bool) -> None:
    """Draw over what was there, from the top of the screen, and clear what is left below.

    Nothing may scroll: long lines are cut off, and of too many the last is shown, which may be a total.
    """
    lines = table([as_mapping(row) for row in rows]) if rows else [_NOTHING]
    most = max(shutil.get_terminal_size().lines - 1, 3)
    if len(lines) > most:
        left_out = len(lines) - most + 1
        lines = [*lines[: most - 2], f"({left_out} rows more)", lines[-1]]
    drawn = "".join(f"{line if colours else _COLOUR.sub('', line)}\x1b[K\n" for line in lines)
    typer.echo(f"\x1b[H\x1b[?7l{drawn}\x1b[J\x1b[?7h", nl=False, color=True)

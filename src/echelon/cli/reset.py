"""`reset`: go back, or ahead, to other positions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import GroupArgument, administer, now, run
from echelon.cli.output import Format, FormatOption, show
from echelon.errors import InvalidConfig, WrongState

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.ops.resets import ResetRow, Target


def reset(  # noqa: PLR0913 - one option for each place to go to
    ctx: typer.Context,
    group: GroupArgument,
    to_cut: Annotated[int | None, typer.Option(metavar="CUT", help="To a cut.")] = None,
    to_initial: Annotated[bool, typer.Option("--to-initial", help="To where the group was made with.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest message.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_time: Annotated[str | None, typer.Option(metavar="TIME", help="To a time, or so long ago: 2h.")] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="To positions in a JSON or CSV file, as `partitions -o csv` writes it."),
    ] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="So many sequences on, or (negative) back.")] = None,
    partition: Annotated[
        list[str] | None, typer.Option("--partition", "-p", metavar="P", help="Only this one; several times.")
    ] = None,
    keep_output: Annotated[
        bool, typer.Option("--keep-output", help="An exactly-once sink keeps what it has past the new positions.")
    ] = False,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this, it is only shown.")] = False,
    output: FormatOption = Format.table,
) -> None:
    """Set the positions of a group. Shows before and after; acts only with --execute."""
    from echelon.ops.resets import ShiftBy, ToCut, ToPositions, ToTime

    targets: list[Target] = []
    targets += [ToCut(to_cut)] if to_cut is not None else []
    targets += ["initial"] if to_initial else []
    targets += ["earliest"] if to_earliest else []
    targets += ["latest"] if to_latest else []
    targets += [ToTime(_time(to_time))] if to_time is not None else []
    targets += [ToPositions(read_positions(from_file))] if from_file is not None else []
    targets += [ShiftBy(shift_by)] if shift_by is not None else []
    if len(targets) != 1:
        raise InvalidConfig(
            "say where to, once" if targets else "say where to",
            remedy="Use one of --to-cut, --to-initial, --to-earliest, --to-latest, --to-time, --from-file, --shift-by",
        )

    async def work(broker: "Broker") -> "list[ResetRow]":
        from echelon.ops.resets import forgotten, plan_reset

        async with await administer(broker, group, "reset") as admin:
            config = admin.world.config
            if keep_output and config is not None and config.delivery != "exactly_once":
                raise InvalidConfig(
                    f"{group} delivers {config.delivery}: no sink would take anything back",
                    remedy="Leave out --keep-output",
                )
            rows = await plan_reset(broker, group, admin.world, targets[0], partition or ())
            if names := forgotten(admin.world, rows, targets[0]):
                typer.echo(
                    f"keys of partition {', '.join(names)} are parked: the reset forgets them, and passes over their "
                    f"messages before the new position. To decide first: echelon parked list {group}",
                    err=True,
                )
            if execute:
                before = admin.world.reset
                positions = {row.partition: row.after for row in rows}
                await admin.reset(positions, cut=to_cut, keep=keep_output)
                if admin.world.reset == before:
                    raise WrongState(f"the reset of {group} did not count", remedy="Look at it again, and try again")
        return rows

    show(run(ctx, work), output)
    typer.echo(f"{group} was reset" if execute else "nothing was done: add --execute to do it", err=True)


def _time(text: str) -> int:
    from echelon.cli.times import moment

    return moment(text, now())


def read_positions(file: Path) -> dict[str, int]:
    """Positions by partition, from JSON (an object, or rows) or CSV with such columns. Raises InvalidConfig."""
    import csv
    import json

    try:
        text = file.read_text(encoding="utf-8-sig")  # Some editors, and spreadsheets, begin with a mark.
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{file} cannot be read: {error}") from error
    try:
        found = json.loads(text) if text.lstrip().startswith(("{", "[")) else list(csv.DictReader(text.splitlines()))
        pairs = found.items() if isinstance(found, dict) else ((row["partition"], row["position"]) for row in found)
        positions = {str(name): _whole(position) for name, position in pairs}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, csv.Error):
        positions = {}
    if not positions:
        raise InvalidConfig(
            f"{file} holds no positions",
            remedy='Write {"0": 17, "1": 4}, or the columns partition and position, as `partitions -o csv` does',
        )
    return positions


def _whole(position: object) -> int:
    """A number from JSON or CSV. Raises what `int` does, and ValueError if it is not whole."""
    if isinstance(position, bool) or not isinstance(position, int | float | str):
        raise TypeError
    number = int(position)
    if isinstance(position, float) and number != position:
        raise ValueError
    return number

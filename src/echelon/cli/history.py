"""`events`, `history`, `why`: what happened to a group."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import GroupArgument, now, run
from echelon.cli.output import Format, FormatOption, one_by_one, show, show_one
from echelon.cli.progress import tell_silence
from echelon.errors import InvalidConfig

if TYPE_CHECKING:
    from datetime import datetime

    from echelon.brokers.base import Broker
    from echelon.ops.events import EventRow
    from echelon.ops.why import Answer

SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="From a time on, or for so long: 1h.", show_default="all")
]


def events(
    ctx: typer.Context,
    group: GroupArgument,
    follow: Annotated[bool, typer.Option("--follow", help="As they come; with --since, those before too.")] = False,
    kind: Annotated[
        list[str] | None, typer.Option("--kind", metavar="KIND", help="Only this kind; several times.")
    ] = None,
    since: SinceOption = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many that come.")] = None,
    output: FormatOption = Format.table,
) -> None:
    """Show the advisories of a group. Seats and partitions that change hands, pauses, cuts, resets."""
    begin = _since(since)
    _check_kinds(kind or ())
    if count is not None and not follow:
        raise InvalidConfig("--count is for events that come", remedy="Say --follow, too")

    async def past(broker: "Broker") -> "list[EventRow]":
        from echelon.ops.events import events
        from echelon.ops.listing import find_log
        from echelon.ops.replay import replay

        return list(events(await replay(await find_log(broker, group, "history, nor events"), begin)))

    async def watch(broker: "Broker") -> None:
        from contextlib import aclosing

        from echelon.members.follower import read_world
        from echelon.ops.events import follow_events
        from echelon.ops.listing import find_log
        from echelon.ops.replay import Replay, replay

        log = await find_log(broker, group, "history, nor events")
        # What comes from now on is what lies behind the last record, whatever this machine's clock says.
        found = Replay((await read_world(log))[0], (), whole=False) if begin is None else await replay(log, begin)
        left = count
        show_event = _show_event if output is Format.table else one_by_one(output)
        async with aclosing(follow_events(log, found, now)) as coming:
            async for row in coming:
                if not _is_after(row.time, begin) or (kind and row.kind not in kind):
                    continue
                show_event(row)
                left = None if left is None else left - 1
                if left == 0:
                    break

    if follow:
        run(ctx, watch)
    else:
        from echelon.ops.events import EventRow

        rows = [row for row in run(ctx, past) if _is_after(row.time, begin) and (not kind or row.kind in kind)]
        show(rows, output, like=EventRow, empty=f"nothing happened to {group}", wide=("id", "details"))


def _check_kinds(kinds: Collection[str]) -> None:
    """Raise InvalidConfig, with what looks alike, if there is no event of such a kind."""
    from echelon.ops.events import KINDS
    from echelon.ops.listing import alike

    for kind in kinds:
        if kind not in KINDS:
            remedy = alike(kind, KINDS) or f"There are {', '.join(KINDS)}"
            raise InvalidConfig(f"there are no events of the kind {kind}", remedy=remedy)


def _show_event(row: "EventRow") -> None:
    typer.echo(f"{row.time:%Y-%m-%d %H:%M:%S}.{row.time.microsecond // 1000:03}  {row.kind:16}  {row.what}")


def history(
    ctx: typer.Context,
    group: GroupArgument,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="P", help="What befell this partition, and why.")
    ] = None,
    routine: Annotated[bool, typer.Option("--all", help="What is written all the time, too.")] = False,
    since: SinceOption = None,
    output: FormatOption = Format.table,
) -> None:
    """Replay the log of a group. Its records in words, or the changes of one partition with their causes."""
    begin = _since(since)

    async def work(broker: "Broker") -> "list[object]":
        from echelon.ops.changes import changes
        from echelon.ops.history import history
        from echelon.ops.listing import check_partition, find_log
        from echelon.ops.replay import replay

        found = await replay(await find_log(broker, group, "history"), begin)
        rows: list[object] = []
        if partition is None:
            rows += [r for r in history(found.world, found.entries, routine=routine) if _is_after(r.time, begin)]
        else:
            told = changes(found.world, found.entries)
            check_partition(found.world, partition)
            rows += [row for row in told if row.partition == partition and _is_after(row.time, begin)]
        return rows

    wide = ("partition", "name", "instance", "epoch", "record", "by") if partition is not None else ()
    from echelon.ops.changes import Change
    from echelon.ops.history import HistoryRow

    like = Change if partition is not None else HistoryRow
    show(run(ctx, work), output, like=like, empty=f"nothing happened to {partition or group}", wide=wide)


def why(
    ctx: typer.Context,
    group: GroupArgument,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="As 3, or orders/3.", show_default=False)],
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="At a time, or so long ago.")] = None,
    output: FormatOption = Format.table,
) -> None:
    """Say who owns a partition, since which record, and why."""
    moment = _since(at)

    async def work(broker: "Broker") -> "Answer":
        from echelon.members.follower import read_world
        from echelon.ops.listing import find_log
        from echelon.ops.why import ask

        log = await find_log(broker, group, "history, so nobody knows why")
        if moment is None:
            tell_silence(group, (await read_world(log))[0])
        return await ask(log, partition, moment)

    answer = run(ctx, work)
    if output is Format.table:
        typer.echo(answer.sentence)
    else:
        show_one(answer, output)


def _since(text: str | None) -> int | None:
    from echelon.cli.times import moment

    return None if text is None else moment(text, now())


def _is_after(time: "datetime", begin: int | None) -> bool:
    return begin is None or time.timestamp() * 1000 >= begin

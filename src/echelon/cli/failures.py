"""`parked` and `dead`: what handlers gave up on."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from echelon.cli.connection import ForceOption, GroupArgument, administer, confirm, run, world_of
from echelon.cli.native import look_native
from echelon.cli.output import Format, FormatOption, show
from echelon.errors import InvalidConfig, UnknownName

if TYPE_CHECKING:
    from echelon.brokers.base import Broker
    from echelon.group.world import World
    from echelon.ops.dead import DeadLetter, Decision, Origin
    from echelon.ops.kept import ParkedRow

parked_app = typer.Typer(help="Keys that wait apart since a handler gave up.", no_args_is_help=True)
dead_app = typer.Typer(help="Messages that were put aside since a handler gave up.", no_args_is_help=True)

KeyOption = Annotated[list[str] | None, typer.Option("--key", "-k", metavar="KEY", help="This key; several times.")]
PartitionOption = Annotated[str | None, typer.Option("--partition", "-p", metavar="P", help="Only of this partition.")]
EveryKeyOption = Annotated[bool, typer.Option("--all", help="Every parked key.")]
LettersArgument = Annotated[
    list[int] | None, typer.Argument(metavar="LETTER", help="The dead letters, by number.", show_default=False)
]
EveryLetterOption = Annotated[bool, typer.Option("--all", help="Every dead letter.")]


@parked_app.command("list")
def list_parked(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """List the parked keys of a group."""

    async def work(broker: "Broker") -> "list[ParkedRow]":
        from echelon.ops import kept

        return kept.parked(await world_of(broker, group, "parked keys"))

    from echelon.ops.kept import ParkedRow

    show(run(ctx, work), output, like=ParkedRow, empty=f"no key of {group} is parked")


@parked_app.command("retry")
def retry_parked(
    ctx: typer.Context,
    group: GroupArgument,
    key: KeyOption = None,
    partition: PartitionOption = None,
    every: EveryKeyOption = False,
) -> None:
    """Have parked keys tried again, from their first parked message on."""
    chosen = _choose_keys(ctx, group, key, partition, every=every)
    _unpark(ctx, group, chosen, skip=False)


@parked_app.command("skip")
def skip_parked(
    ctx: typer.Context,
    group: GroupArgument,
    key: KeyOption = None,
    partition: PartitionOption = None,
    every: EveryKeyOption = False,
    force: ForceOption = False,
) -> None:
    """Pass over what is parked of keys: it is never processed."""
    chosen = _choose_keys(ctx, group, key, partition, every=every)
    confirm(f"Never process what is parked of {sum(map(len, chosen.values()))} keys of {group}?", force=force)
    _unpark(ctx, group, chosen, skip=True)


def _choose_keys(
    ctx: typer.Context, group: str, keys: list[str] | None, partition: str | None, *, every: bool
) -> dict[str, list[str]]:
    """The keys that are meant, by partition. Raises UnknownName for a key that is not parked, or a partition."""
    _check_choice(keys, every=every, what="keys", how="Name them with --key")

    async def look(broker: "Broker") -> "World":
        return await world_of(broker, group, "parked keys")

    from echelon.ops.kept import parked
    from echelon.ops.listing import check_partition, suggestion

    world = run(ctx, look)
    if partition is not None:
        check_partition(world, partition)
    rows = [row for row in parked(world) if partition in (None, row.partition)]
    there = {row.key for row in rows}
    for key in keys or ():
        if key not in there:
            remedy = suggestion(key, sorted(there), f"parked list {group}")
            raise UnknownName(f"the key '{key}' is not parked in {group}", remedy=remedy)
    found: dict[str, list[str]] = {}
    for row in rows:
        if every or row.key in (keys or ()):
            found.setdefault(row.partition, []).append(row.key)
    return found


def _unpark(ctx: typer.Context, group: str, chosen: dict[str, list[str]], *, skip: bool) -> None:
    async def work(broker: "Broker") -> None:
        async with await administer(broker, group, "parked keys") as admin:
            for partition, keys in chosen.items():
                await admin.unpark(partition, keys, skip=skip)

    run(ctx, work)
    count = sum(map(len, chosen.values()))
    typer.echo(f"{count} keys are to be {'passed over' if skip else 'tried again'}", err=True)


@dead_app.command("list")
def list_dead(ctx: typer.Context, group: GroupArgument, output: FormatOption = Format.table) -> None:
    """List the dead letters about which nothing was decided yet."""

    async def work(broker: "Broker") -> "list[DeadLetter]":
        from echelon.ops import dead

        return await dead.list_dead(broker, await _origin(ctx, broker, group))

    from echelon.ops.dead import DeadLetter

    show(run(ctx, work), output, like=DeadLetter, empty=f"{group} has no dead letters")


@dead_app.command("retry")
def retry_dead(
    ctx: typer.Context, group: GroupArgument, letters: LettersArgument = None, every: EveryLetterOption = False
) -> None:
    """Publish dead letters anew. They come at the end of their streams, for all who read them."""
    done = _decide(ctx, group, _choose_letters(ctx, group, letters, every=every), "retry")
    typer.echo(f"published {done} anew", err=True)


@dead_app.command("skip")
def skip_dead(
    ctx: typer.Context,
    group: GroupArgument,
    letters: LettersArgument = None,
    every: EveryLetterOption = False,
    force: ForceOption = False,
) -> None:
    """Take dead letters off the list for good."""
    chosen = _choose_letters(ctx, group, letters, every=every)
    confirm(f"Forget {len(chosen)} dead letters of {group}?", force=force)
    typer.echo(f"forgot {_decide(ctx, group, chosen, 'skip')}", err=True)


def _choose_letters(ctx: typer.Context, group: str, letters: list[int] | None, *, every: bool) -> list[int]:
    _check_choice(letters, every=every, what="dead letters", how="Give their numbers")

    async def look(broker: "Broker") -> list[int]:
        from echelon.ops import dead

        return [row.letter for row in await dead.list_dead(broker, await _origin(ctx, broker, group))]

    return letters or run(ctx, look)


def _decide(ctx: typer.Context, group: str, letters: list[int], decision: "Decision") -> int:
    async def work(broker: "Broker") -> int:
        from echelon.ops import dead

        return len(await dead.decide(broker, await _origin(ctx, broker, group), letters, decision))

    return run(ctx, work)


async def _origin(ctx: typer.Context, broker: "Broker", group: str) -> "Origin":
    from echelon.ops.dead import Origin, origin
    from echelon.ops.listing import is_native

    if not is_native(group):
        return origin(group, await world_of(broker, group))
    found = (await look_native(ctx, group)).found
    called = f"{found.stream}-{found.name}"
    return Origin(group, called, called)


def _check_choice(named: Collection[object] | None, *, every: bool, what: str, how: str) -> None:
    if bool(named) == every:
        raise InvalidConfig(f"say which {what}", remedy=f"{how}, or say --all")

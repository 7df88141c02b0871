"""`join`: sit in a group and print its messages."""

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echelon.cli.connection import GroupArgument, run, world_of
from echelon.cli.native import join_native
from echelon.cli.output import Format, FormatOption, one_by_one
from echelon.errors import InvalidConfig, UnknownName

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from echelon.brokers.base import Broker
    from echelon.group.world import World
    from echelon.model import Message


_SETTLING_SECONDS: Final = 0.2


def join(
    ctx: typer.Context,
    group: GroupArgument,
    member: Annotated[
        str | None, typer.Option("--member", "-m", help="The seat.", show_default="any; in an auto group its own")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="A name for people.", show_default="the host's")] = None,
    priority: Annotated[int, typer.Option(min=0, max=9, help="Lower sits first.")] = 0,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Leave after so many messages.")] = None,
    output: FormatOption = Format.table,
) -> None:
    """Take a seat in a group, or stand by, and print each message. What was printed counts as processed."""
    from echelon.ops.listing import is_native

    if is_native(group):
        if name is not None or priority:
            raise InvalidConfig("instances of a JetStream-native group have no name and no priority")
        join_native(ctx, group, member, count, _printer(output))
        return

    async def work(broker: "Broker") -> None:
        import os
        from contextlib import aclosing

        from echelon.group.records import Profile
        from echelon.members.iterate import messages

        _tell_waiting(group, await _check(broker, group, member), member)
        given = messages(broker, group, Profile(name or os.uname().nodename, member, priority), signals=True)
        printed, show = 0, _printer(output)
        async with aclosing(given):  # It leaves the seat before the broker is closed, also when nobody reads any more.
            async for message in given:
                show(message)
                printed += 1
                if printed == count:
                    await _settle(given)
                    return

    run(ctx, work)


async def _settle(given: "AsyncGenerator[Message, None]") -> None:
    """Wait until the message at hand counts: it does so once the next one is asked for, which may never come."""
    import asyncio

    following = asyncio.ensure_future(anext(given))
    await asyncio.wait((following,), timeout=_SETTLING_SECONDS)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def _check(broker: "Broker", group: str, member: str | None) -> "World":
    """The world. Raises UnknownName, with the names that look alike, unless the group has that seat."""
    from echelon.ops.listing import suggestion

    world = await world_of(broker, group, "seat")
    if member is not None and world.auto:
        raise InvalidConfig(
            f"{group} has no list of members: each instance has a seat of its own", remedy="Leave out -m"
        )
    if member is not None and member not in world.seats:
        remedy = suggestion(member, list(world.seats), f"members {group}")
        raise UnknownName(f"{group} has no member {member}", remedy=remedy)
    return world


def _tell_waiting(group: str, world: "World", member: str | None) -> None:
    """Say on a terminal why no message comes yet."""
    if not sys.stderr.isatty():
        return
    if world.paused is not None:
        typer.echo(f"{group} is paused; messages come after: echelon resume {group}", err=True)
    elif not world.auto and all(world.holder(seat) for seat in ([member] if member else world.seats)):
        typer.echo(f"standing by: somebody holds {f'the seat of {member}' if member else 'every seat'}", err=True)


def _printer(output: Format) -> "Callable[[Message], None]":
    if output is Format.table:
        return _print_line
    show = one_by_one(output)
    return lambda message: show(_row(message))


def _print_line(message: "Message") -> None:
    from echelon.keys import key_name

    data = message.data.decode(errors="backslashreplace")
    typer.echo(f"{message.partition}  {message.sequence}  {key_name(message.key)}  {data}")


def _row(message: "Message") -> dict[str, object]:
    from echelon.keys import key_name
    from echelon.ops.status import when

    return {
        "partition": message.partition,
        "sequence": message.sequence,
        "time": when(message.time),
        "subject": message.subject,
        "key": None if message.key is None else key_name(message.key),
        "headers": {name: value.decode(errors="backslashreplace") for name, value in message.headers},
        "data": message.data.decode(errors="backslashreplace"),
    }

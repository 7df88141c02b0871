"""Echelon's own groups on a broker: all of them, or the log of one."""

import asyncio
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from echelon.brokers.base import Broker, Log
from echelon.errors import GroupError, GroupNotFound, UnknownName, Unsupported, WrongState
from echelon.group.world import World
from echelon.members.follower import read_world
from echelon.model import partition_order
from echelon.ops.status import GroupRow, group_row

_AT_ONCE: Final = 16


async def list_groups(broker: Broker, now: int) -> list[GroupRow]:
    """Echelon's own groups on the broker, by name; `now` is the observer's clock in milliseconds.

    A group whose log cannot be read is `broken`; one that was just deleted is left out.
    """
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> GroupRow | None:
        async with limit:
            try:
                world, _ = await read_world(await broker.log(name))
            except GroupNotFound:
                return None
            except GroupError:
                return GroupRow(group=name, kind="echelon", membership=None, state="broken")
        return group_row(name, world, now)

    found = await asyncio.gather(*(look(name) for name in await broker.groups()))
    return [row for row in found if row is not None]


def is_native(group: str) -> bool:
    """Whether the name is that of a JetStream-native group: `STREAM.NAME`. Others have no dot in theirs."""
    return "." in group


async def find_log(broker: Broker, group: str, need: str) -> Log:
    """The log of a group, for a command that needs one: `need` says for what ("history", "a cut").

    Raises GroupNotFound, with the names that look alike, and Unsupported if the group is of a kind that has no log.
    """
    if is_native(group):
        raise Unsupported(
            f"{group} names a JetStream-native group: these have no log, so no {need}",
            remedy="Groups of the kind echelon have it",
        )
    try:
        return await broker.log(group)
    except GroupNotFound as error:
        remedy = suggestion(group, await broker.groups(), "ls")
        raise GroupNotFound(f"there is no group {group}", remedy=remedy) from error


def check_member(group: str, member: str, known: Sequence[str]) -> None:
    """Raise UnknownName, with the names that look alike, unless the member is known."""
    if member not in known:
        raise UnknownName(f"{group} has no member {member}", remedy=suggestion(member, known, f"members {group}"))


def vacant(group: str, member: str) -> WrongState:
    """What to raise where somebody has to hold a seat, and nobody does."""
    return WrongState(f"nobody holds the seat of {member} in {group}", remedy=f"See: echelon members {group}")


def check_partition(world: World, name: str) -> None:
    """Raise UnknownName, with those that there are, unless the group has the partition."""
    if not world.partitions:
        raise UnknownName(f"there was no partition {name} yet", remedy="The group was made later")
    if name not in world.partitions:
        names = sorted(world.partitions, key=partition_order)
        raise UnknownName(f"there is no partition {name}", remedy=f"There are {names[0]} to {names[-1]}")


def suggestion(name: str, known: Sequence[str], command: str) -> str:
    """What to say to somebody who has mistyped a name: those that look alike, or the command that lists all."""
    return alike(name, known) or f"List them with: echelon {command}"


def alike(name: str, known: Sequence[str]) -> str:
    """The names that look like this one, as a question; empty if none does."""
    found = get_close_matches(name, known, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(found)}?" if found else ""

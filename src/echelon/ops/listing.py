"""The groups on a broker, of every kind. A further kind of group is one more source in `sources`."""

import asyncio
from difflib import get_close_matches
from typing import Final, Protocol

from echelon.brokers.base import Broker, Log
from echelon.errors import GroupError, GroupNotFound, Unsupported
from echelon.members.follower import read_world
from echelon.ops.status import GroupRow, group_row

_AT_ONCE: Final = 16


class Source(Protocol):
    """Groups of one kind, or of a few, on one broker."""

    async def names(self) -> dict[str, str]:
        """The kind of each group, by its name."""
        ...

    async def rows(self, now: int) -> list[GroupRow]:
        """Each group with its state; `now` is the observer's clock in milliseconds."""
        ...


class LogGroups:
    """Echelon's own groups, which have logs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def names(self) -> dict[str, str]:
        """All of kind `echelon`."""
        return dict.fromkeys(await self._broker.groups(), "echelon")

    async def rows(self, now: int) -> list[GroupRow]:
        """One row for each. A group whose log cannot be read is `broken`; one that was just deleted is left out."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def look(name: str) -> GroupRow | None:
            async with limit:
                try:
                    world, _ = await read_world(await self._broker.log(name))
                except GroupNotFound:
                    return None
                except GroupError:
                    return GroupRow(group=name, kind="echelon", membership="", state="broken")
            return group_row(name, world, now)

        found = await asyncio.gather(*(look(name) for name in await self._broker.groups()))
        return [row for row in found if row is not None]


def sources(broker: Broker) -> list[Source]:
    """All kinds of groups that there can be on this broker."""
    return [LogGroups(broker)]


async def list_groups(broker: Broker, now: int) -> list[GroupRow]:
    """All groups on the broker, by name."""
    rows = [row for source in sources(broker) for row in await source.rows(now)]
    return sorted(rows, key=lambda row: (row.group, row.kind))


async def group_kinds(broker: Broker) -> dict[str, str]:
    """The kind of each group on the broker, by its name; an Echelon group comes before another of the same name."""
    kinds: dict[str, str] = {}
    for source in sources(broker):
        kinds = {**await source.names(), **kinds}
    return kinds


async def find_log(broker: Broker, group: str, need: str) -> Log:
    """The log of a group, for a command that needs one: `need` says for what ("history", "a cut").

    Raises GroupNotFound, with the names that look alike, and Unsupported if the group is of a kind that has no log.
    """
    try:
        return await broker.log(group)
    except GroupNotFound as error:
        kinds = await group_kinds(broker)
        if group in kinds:
            raise Unsupported(
                f"{group} is a group of the kind {kinds[group]}: it has no log, so no {need}",
                remedy="Groups of the kind echelon have it",
            ) from None
        raise GroupNotFound(f"there is no group {group}", remedy=suggestion(group, kinds, "ls")) from error


def suggestion(name: str, known: "dict[str, str] | list[str]", command: str) -> str:
    """What to say to somebody who has mistyped a name: those that look alike, or the command that lists all."""
    alike = get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(alike)}?" if alike else f"List them with: echelon {command}"

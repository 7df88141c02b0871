"""A group's log, read back into the past: a world to begin with, and the entries that follow it."""

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from typing import Final

from msgspec import Struct

from echelon.brokers.base import Log
from echelon.group.newcomer import fitting_worlds
from echelon.group.records import Configure, decode
from echelon.group.world import World
from echelon.members.follower import not_whole, read_backwards
from echelon.model import Entry

_CONFIGURE: Final = b'"type":"configure"'


class Replay(Struct, frozen=True):
    """A world, and the entries after it, without a gap. `whole`: there is nothing older to be known."""

    world: World
    entries: Sequence[Entry]
    whole: bool


async def replays(log: Log) -> AsyncGenerator[Replay, None]:
    """Ever longer replays of the same log up to now; the last one is whole. Take as many as you need.

    Each has a world of its own, to be changed at will. Raises GroupNotFound, LogBroken, Unreachable.
    """
    found = None
    async with aclosing(read_backwards(log)) as pieces:
        async for entries, is_all in pieces:
            found = _begin(entries, whole=is_all)
            if found is not None:
                yield found
    if found is None:
        raise not_whole()


async def replay(log: Log, since: int | None = None) -> Replay:
    """All that is known of the group, or the part that begins at a broker time, or somewhat before it."""
    found = None
    async for found in replays(log):
        if since is not None and found.world.sequence and found.world.broker_time <= since:
            break
    assert found is not None
    return found


def _begin(entries: Sequence[Entry], *, whole: bool) -> Replay | None:
    """The longest replay among the newest entries of a log; None if no world to begin with is among them."""
    if whole:
        for place, entry in enumerate(entries):
            if _CONFIGURE in entry.data[:64] and _makes(entry):
                return Replay(World(), entries[place:], whole)
    oldest = None
    for oldest in fitting_worlds(entries):  # noqa: B007 - the last one is wanted
        pass
    if oldest is None:
        return None
    place, world = oldest
    return Replay(world, entries[place + 1 :], whole)


def _makes(entry: Entry) -> bool:
    record = decode(entry.data)
    return isinstance(record, Configure) and record.replaces is None


async def times_of(log: Log, entries: Sequence[Entry], wanted: Collection[int]) -> dict[int, int]:
    """The broker times of these records: from the entries that were read already, else from the log, if it has them."""
    found = {entry.sequence: entry.time for entry in entries if entry.sequence in wanted}
    for sequence in wanted:
        if sequence and sequence not in found:
            found |= {entry.sequence: entry.time for entry in await log.read(sequence, sequence + 1)}
    return found

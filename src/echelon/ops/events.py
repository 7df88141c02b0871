"""Advisories as rows, from a log, as they were or as they come. An observer also says when a group falls silent."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from echelon.brokers.base import Log
from echelon.group.advisories import Advisory, GroupPaused, GroupReset, PartitionMoved, SeatLost, SeatTaken, Watch
from echelon.group.fold import apply
from echelon.group.records import decode
from echelon.group.world import World
from echelon.model import Entry
from echelon.ops.replay import Replay
from echelon.ops.status import is_silent, when

_LOOK_SECONDS: Final = 0.25
_SILENT: Final = "group_silent"
KINDS: Final = (*sorted(str(kind.__struct_config__.tag) for kind in Advisory.__subclasses__()), _SILENT)
"""All kinds of events."""


class EventRow(Struct, frozen=True, kw_only=True):
    """An advisory. `id` is the same for every copy of it; `details` are its own fields."""

    sequence: int
    time: datetime
    kind: str
    id: str
    what: str
    details: Mapping[str, object]


def events(found: Replay) -> Iterator[EventRow]:
    """The advisories of a replay, whose world is used up."""
    return _take(found.entries, found.world, Watch(found.world), _Names(found.world))


def _take(entries: Iterable[Entry], world: World, watch: Watch, names: "_Names") -> Iterator[EventRow]:
    for entry in entries:
        apply(world, entry, decode(entry.data))
        names.learn(world)
        for advisory in watch.look(world):
            yield _row(advisory, names)


async def follow_events(log: Log, found: Replay, now: Callable[[], int]) -> AsyncGenerator[EventRow, None]:
    """The advisories of a replay, and then those that come, with one of its own when the group falls silent.

    Never ends by itself. `now` is the observer's clock in milliseconds.
    """
    world = found.world
    watch, names = Watch(world), _Names(world)

    for row in _take(found.entries, world, watch, names):
        yield row
    told_at = 0
    async with aclosing(log.follow(world.sequence + 1)) as feed:
        coming = asyncio.ensure_future(anext(feed))
        try:
            while True:
                await asyncio.wait((coming,), timeout=_LOOK_SECONDS)
                if coming.done():
                    for row in _take(coming.result(), world, watch, names):
                        yield row
                    coming = asyncio.ensure_future(anext(feed))
                elif is_silent(world, now()) and told_at != world.sequence:
                    told_at = world.sequence
                    yield _silence(world, now())
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _silence(world: World, now: int) -> EventRow:
    seconds = (now - world.broker_time) / 1000
    return EventRow(
        sequence=world.sequence,
        time=when(now),
        kind=_SILENT,
        id=f"{world.sequence}-{_SILENT}",
        what=f"nobody has written for {seconds:.1f} s",
        details={"seconds": seconds},
    )


class _Names:
    """What instances are called, also after they have left."""

    def __init__(self, world: World) -> None:
        self._known: dict[str, str] = {}
        self.learn(world)

    def learn(self, world: World) -> None:
        if len(world.instances) and not self._known.keys() >= world.instances.keys():
            self._known |= {instance.id: instance.profile.name for instance in world.instances.values()}

    def of(self, instance: str) -> str:
        """An instance: its name and the beginning of its id."""
        return f"{self._known.get(instance, '')} {instance[:6]}".lstrip()

    def seat(self, member: str, instance: str) -> str:
        """A seat with its holder; in an auto group, where every instance has its own, only that."""
        return self.of(instance) if member == instance else f"{member} ({self.of(instance)})"


def _row(advisory: Advisory, names: _Names) -> EventRow:
    details = {
        name: value for name, value in msgspec.to_builtins(advisory).items() if name not in ("kind", "sequence", "time")
    }
    return EventRow(
        sequence=advisory.sequence,
        time=when(advisory.time),
        kind=advisory.kind,
        id=advisory.id,
        what=_what(advisory, details, names),
        details=details,
    )


def _what(advisory: Advisory, details: Mapping[str, object], names: _Names) -> str:
    """The advisory for people, in few words: instances by their names, times as such."""
    match advisory:
        case SeatTaken(member=member, instance=instance):
            return names.seat(member, instance)
        case SeatLost(member=member, instance=instance, reason=reason):
            return f"{names.seat(member, instance)}: {reason}"
        case PartitionMoved():
            old = names.seat(advisory.from_member, advisory.from_instance)
            new = names.seat(advisory.to_member, advisory.to_instance)
            return f"{advisory.partition} at {advisory.position}: {old} -> {new}"
        case GroupPaused(until=until):
            return "until it is resumed" if until is None else f"until {when(until):%Y-%m-%d %H:%M:%S} UTC"
        case GroupReset(positions=positions):
            return ", ".join(f"{name} to {position}" for name, position in positions.items())
    return ", ".join(f"{name} {value}" for name, value in details.items())

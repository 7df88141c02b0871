"""Keeps a world up to date with a group's log, and makes sure that the log stays the one that was read."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from echelon.brokers.base import Log
from echelon.errors import GroupNotFound, LogBroken, Unreachable
from echelon.group.fold import apply
from echelon.group.newcomer import world_of
from echelon.group.records import AnyRecord, Newer, decode
from echelon.group.world import World
from echelon.model import Entry

logger = logging.getLogger(__name__)

_PIECE = 2048


class _Void(Exception):
    """The log is not the one that was read."""


async def read_backwards(log: Log) -> AsyncGenerator[tuple[list[Entry], bool], None]:
    """The newest entries of the log, then ever more of them, in order; and whether these are all.

    Raises GroupNotFound, Unreachable.
    """
    bounds = await log.bounds()
    if bounds.first == bounds.end:
        raise GroupNotFound("the log of the group is empty: the group was not made yet")
    entries: list[Entry] = []
    start, piece = bounds.end, _PIECE
    while start > bounds.first:
        start, end = max(bounds.first, start - piece), start
        entries = [*await log.read(start, end), *entries]
        piece *= 2
        yield entries, start == bounds.first


def not_whole() -> LogBroken:
    """The error of a log in which there is no world to begin with."""
    return LogBroken(
        "the log of the group is not whole: it holds neither its first record nor a snapshot that fits",
        remedy="Delete the group and make it anew, from the positions that are known to be processed",
    )


async def read_world(log: Log) -> tuple[World, list[Entry]]:
    """The world as it is now, and the newest entries of the log, as many as had to be read for it; at least one.

    Raises GroupNotFound, LogBroken, UnknownVersion, Unreachable.
    """
    async with aclosing(read_backwards(log)) as pieces:
        async for entries, is_all in pieces:
            world = world_of(entries, from_start=is_all)
            if world is not None:
                return world, entries
    raise not_whole()


class Follower:
    """Follows a group's log. `world` is always the world as of the last entry that was applied.

    `on_entry` is called after each entry, with whether it counted; `on_void` when the log turned out to be another
    one than was read (trimmed behind a sleeper, or its tail lost) and the world is a new one.
    """

    def __init__(
        self,
        log: Log,
        *,
        on_entry: Callable[[Entry, AnyRecord | Newer | None, bool], None] = lambda *_: None,
        on_void: Callable[[], None] = lambda: None,
    ) -> None:
        self.world = World()
        self._log = log
        self._on_entry = on_entry
        self._on_void = on_void
        self._last: Entry | None = None
        self._warned = False
        # What was applied since the ground was last checked, after the last entry that was.
        self._unchecked: list[Entry] = []

    @property
    def last(self) -> Entry:
        """The last entry that was applied; there is one once `open` has returned."""
        assert self._last is not None
        return self._last

    async def open(self) -> None:
        """Read the world as it is now. Raises GroupNotFound, LogBroken, UnknownVersion, Unreachable."""
        self.world, entries = await read_world(self._log)
        self._last = entries[-1]
        self._unchecked = entries[-1:]

    async def run(self) -> None:
        """Follow the log until cancelled. Raises what `open` raises, if the log has to be read anew."""
        while True:
            try:
                await self._follow()
            except _Void:
                logger.warning("the group's log is not the one that was read; reading it anew")
            await self._reopen()

    async def _follow(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read())
                tasks.create_task(self._check_ground())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None

    async def _reopen(self) -> None:
        while True:
            try:
                await self.open()
            except Unreachable as error:
                logger.warning("the group's log cannot be read: %s", error)
                await asyncio.sleep(self.world.interval / 4000)
            else:
                self._on_void()
                return

    async def _read(self) -> None:
        async with aclosing(self._log.follow(self.last.sequence + 1)) as feed:
            async for entries in feed:
                for entry in entries:
                    self._take(entry)

    def _take(self, entry: Entry) -> None:
        record = decode(entry.data)
        if record is None:
            if not self._warned:
                logger.warning("entry %d of the group's log is no record; such entries are passed over", entry.sequence)
            self._warned = True
        counted = apply(self.world, entry, record)
        self._last = entry
        self._unchecked.append(entry)
        self._on_entry(entry, record, counted)

    async def _check_ground(self) -> None:
        """Ask again, every interval, for what was applied since: the ground that this world stands on.

        All of it, since a log that lost its tail may have got another one before anybody asks.
        """
        while True:
            await asyncio.sleep(max(0.1, self.world.interval / 1000))
            applied = self._unchecked.copy()
            try:
                found = await self._log.read(applied[0].sequence, applied[-1].sequence + 1)
            except Unreachable:
                continue
            if found != applied:
                raise _Void
            del self._unchecked[: len(applied) - 1]

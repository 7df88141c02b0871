"""A group's log in memory."""

from collections.abc import AsyncGenerator
from typing import Final

from echelon.brokers.memory.server import Connection, check_size, now
from echelon.brokers.memory.tape import Tape
from echelon.errors import GroupNotFound
from echelon.model import Bounds, Entry

_BATCH: Final = 1000


class MemoryLog:
    """A group's log, as `echelon.brokers.base.Log` describes it."""

    def __init__(self, connection: Connection, group: str, tape: Tape[Entry]) -> None:
        self._connection = connection
        self._group = group
        self._tape = tape

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        """Store one record and return its sequence."""
        self._check()
        check_size(data)
        return self._tape.append(Entry(self._tape.bounds.end, now(), data))

    async def bounds(self) -> Bounds:
        """The oldest sequence in the log, and one past the newest."""
        self._check()
        return self._tape.bounds

    async def read(self, start: int, end: int) -> list[Entry]:
        """All entries with `start <= sequence < end` that the log holds now."""
        self._check()
        return [entry for _, entry in self._tape.read(start, end)]

    async def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        """Entries from `start` on, as they come; never ends by itself."""
        position = start
        while True:
            self._connection.check_open()
            self._check_there()
            position = max(position, self._tape.bounds.first)
            entries = self._tape.read(position, position + _BATCH) if self._connection.server.is_up else []
            if not entries:
                await self._tape.changed()
                continue
            position = entries[-1][0] + 1
            yield [entry for _, entry in entries]

    async def trim(self, before: int) -> None:
        """Delete the entries with a sequence below `before`."""
        self._check()
        self._tape.trim(before)

    def _check(self) -> None:
        self._connection.check()
        self._check_there()

    def _check_there(self) -> None:
        if self._tape.is_deleted:
            raise GroupNotFound(f"the group {self._group} was deleted")

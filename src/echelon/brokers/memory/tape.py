"""A sequence in memory that grows at its end, is trimmed at its beginning, and can be waited on."""

import asyncio
import uuid
from typing import Generic, TypeVar

from echelon.model import Bounds

Item = TypeVar("Item")


class Tape(Generic[Item]):
    """Items with consecutive sequences from 1 on. `identity` is drawn anew for each tape."""

    def __init__(self) -> None:
        self.identity = uuid.uuid4().hex
        self.is_deleted = False
        self._first = 1
        self._items: list[Item] = []
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def bounds(self) -> Bounds:
        """The oldest sequence, and the one that the next item will have."""
        return Bounds(self._first, self._first + len(self._items))

    def append(self, item: Item) -> int:
        """Add an item at the end and return its sequence."""
        self._items.append(item)
        self.wake()
        return self._first + len(self._items) - 1

    def read(self, start: int, end: int) -> list[tuple[int, Item]]:
        """The items that are there with `start <= sequence < end`, each with its sequence."""
        start = max(start, self._first)
        return list(enumerate(self._items[start - self._first : max(end - self._first, 0)], start))

    def trim(self, before: int) -> None:
        """Delete the items with a sequence below `before`."""
        count = min(max(before - self._first, 0), len(self._items))
        del self._items[:count]
        self._first += count
        self.wake()

    def delete(self) -> None:
        """Mark the tape as gone, and tell all that wait for it."""
        self.is_deleted = True
        self.wake()

    async def changed(self) -> None:
        """Wait until something happens to the tape."""
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def wake(self) -> None:
        """End all waits. Those that wait may do so in loops of other threads."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            loop = future.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)

"""Ranges of a stream by batched direct gets, shared by all that read near the same place."""

import asyncio
from typing import Final

from echelon.brokers.nats.api import Details, JetStream
from echelon.brokers.nats.columns import Columns, Splitter
from echelon.brokers.nats.replies import Batch

# What one request asks for, at most. The server counts payloads, subjects and stored headers.
_MESSAGES: Final = 4096
_BYTES: Final = 2 << 20
_KEPT: Final = 4


class Window:
    """What a stream holds from `start` to `end`. If the replica that was asked had no more, `is_last`.

    `first` is the sequence of the first message. `details` are those of the stream when it had been read.
    """

    def __init__(self, start: int, batch: Batch, splitter: Splitter, details: Details) -> None:
        self.start = start
        self.first = batch.sequences[0] if batch.sequences else start
        self.end = batch.sequences[-1] + 1 if batch.sequences else start
        self.is_last = not batch.pending
        self.details = details
        self._batch = batch
        self._splitter = splitter
        self._columns: dict[int, Columns] | None = None

    def of(self, partition: int, start: int, end: int) -> Columns | None:
        """The messages of a partition with `start <= sequence < end`, if there are any."""
        if self._columns is None:
            self._columns = self._splitter.split(self._batch)
            self._batch = Batch()
        columns = self._columns.get(partition)
        return columns.cut(start, end) if columns else None


class Windows:
    """Reads a stream's messages that match a filter, window by window, the next one while this one is used.

    A few windows are kept, so that readers of several partitions in step with each other read once. Where there is
    only one reader, they are smaller, and one is kept.
    """

    def __init__(self, js: JetStream, stream: str, filter: str, splitter: Splitter, *, is_shared: bool) -> None:
        self._js = js
        self._size = _MESSAGES if is_shared else _MESSAGES // 2
        self._bytes = _BYTES if is_shared else _BYTES // 2
        self._most_kept = _KEPT if is_shared else 1
        self._stream = stream
        self._filter = filter
        self._splitter = splitter
        self._kept: list[Window] = []
        self._fetching: dict[int, asyncio.Task[Window]] = {}

    async def get(self, position: int, end: int) -> Window:
        """The window with `position` in it, or an empty one if nothing is there; begins to read the next before `end`.

        Raises StreamNotFound, Unreachable, Denied.
        """
        window = self._find(position)
        while not window:
            window = await asyncio.shield(self._under_way(position) or self._fetch(position))
            if not (window.start <= position < window.end or window.start == position):
                window = None  # It was under way and held less than it might have.
        if not window.is_last and window.end < end and not self._find(window.end) and not self._under_way(window.end):
            self._fetch(window.end)
            # The request has to be written before the caller keeps the processor busy with this window.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return window

    def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
        for task in self._fetching.values():
            task.cancel()

    def _find(self, position: int) -> Window | None:
        return next((window for window in self._kept if window.start <= position < window.end), None)

    def _under_way(self, position: int) -> "asyncio.Task[Window] | None":
        """The fetch whose window may have the position in it."""
        return next((task for start, task in self._fetching.items() if start <= position < start + self._size), None)

    def _fetch(self, start: int) -> "asyncio.Task[Window]":
        task = asyncio.create_task(self._read(start))
        task.add_done_callback(_look_at)
        self._fetching[start] = task
        return task

    async def _read(self, start: int) -> Window:
        try:
            body: dict[str, object] = {"seq": max(start, 1), "batch": self._size, "max_bytes": self._bytes}
            if self._filter:
                body["next_by_subj"] = self._filter
            batch, details = await asyncio.gather(self._js.get(self._stream, body), self._js.details(self._stream))
            window = Window(start, batch, self._splitter, details)
            if window.end > start:
                self._kept = [*self._kept, window][-self._most_kept :]
            return window
        finally:
            del self._fetching[start]


def _look_at(task: "asyncio.Task[Window]") -> None:
    """A window that nobody waits for any more may fail unseen."""
    if not task.cancelled():
        task.exception()

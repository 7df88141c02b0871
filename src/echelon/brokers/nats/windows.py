"""Ranges of a stream, shared by all that read near the same place.

They are read by batched direct gets; where there is much to read, through a consumer.
"""

import asyncio
from typing import Final

from echelon.brokers.nats.api import Details, JetStream
from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.columns import Columns, Splitter
from echelon.brokers.nats.stretch import Stretch
from echelon.errors import Denied, Unreachable

# What one request asks for, at most. The server counts payloads, subjects and stored headers.
MESSAGES: Final = 8192
_BYTES: Final = 2 << 20
_KEPT: Final = 4
# With so many windows still to come, a consumer is worth being made.
_MANY: Final = 4


class Window:
    """What a stream holds from `start` to `end`. If the replica that was asked had no more, `is_last`.

    If it `is_dense`, no sequence is missing. Otherwise something may have been deleted; `details` tell what the
    stream held when it had been read. They are left out if it is certain that it is still the same stream.
    """

    def __init__(self, start: int, batch: Batch, splitter: Splitter, details: Details | None) -> None:
        self.start = start
        self.end = max(start, batch.end)
        self.is_last = not batch.pending
        self.is_dense = self.end - start == len(batch.sequences) > 0
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
        chosen = columns.cut(start, end) if columns else None
        return chosen if chosen and chosen.sequences else None


class Windows:
    """Reads a stream's messages that match a filter, window by window, the next one while this one is used.

    A few windows are kept, so that readers of several partitions in step with each other read once. Where there is
    only one reader, they are smaller, and one is kept.
    """

    def __init__(self, js: JetStream, stream: str, filter: str, splitter: Splitter, *, is_shared: bool) -> None:
        self._js = js
        self._stream = stream
        self._filter = filter
        self._splitter = splitter
        self._size = MESSAGES if is_shared else MESSAGES // 4
        self._bytes = _BYTES if is_shared else _BYTES // 4
        self._most_kept = _KEPT if is_shared else 1
        self._kept: list[Window] = []
        self._fetching: dict[int, asyncio.Task[Window]] = {}
        self._stretch: Stretch | None = None

    async def get(self, position: int, end: int) -> Window:
        """The window with `position` in it, or an empty one if nothing is there; begins to read the next before `end`.

        Raises StreamNotFound, Unreachable, Denied.
        """
        window = self._find(position)
        while not window:
            window = await asyncio.shield(self._under_way(position) or self._fetch(position, end))
            if not (window.start <= position < window.end or window.start == position):
                window = None  # It was under way and held less than it might have.
        if not window.is_last and window.end < end and not self._find(window.end) and not self._under_way(window.end):
            self._fetch(window.end, end)
            # The request has to be written before the caller keeps the processor busy with this window.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return window

    async def close(self) -> None:
        """Drop everything."""
        self._kept.clear()
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._end_stretch()

    def _find(self, position: int) -> Window | None:
        return next((window for window in self._kept if window.start <= position < window.end), None)

    def _under_way(self, position: int) -> "asyncio.Task[Window] | None":
        """The fetch whose window may have the position in it."""
        return next((task for start, task in self._fetching.items() if start <= position < start + self._size), None)

    def _fetch(self, start: int, end: int) -> "asyncio.Task[Window]":
        task = asyncio.create_task(self._read(start, end))
        task.add_done_callback(_look_at)
        self._fetching[start] = task
        return task

    async def _read(self, start: int, end: int) -> Window:
        try:
            batch, details = await self._read_on(start) or await self._get(start, end)
            window = Window(start, batch, self._splitter, details)
            if window.end > start:
                self._kept = [*self._kept, window][-self._most_kept :]
            return window
        finally:
            del self._fetching[start]

    async def _get(self, start: int, end: int) -> tuple[Batch, Details]:
        """The batch by a direct get; if there is much after it, that will be read through a consumer."""
        body: dict[str, object] = {"seq": max(start, 1), "batch": self._size, "max_bytes": self._bytes}
        if self._filter:
            body["next_by_subj"] = self._filter
        batch, details = await asyncio.gather(self._js.get(self._stream, body), self._js.details(self._stream))
        if self._stretch is None and min(batch.pending, end - batch.end) > _MANY * self._size:
            self._stretch = Stretch(self._js, self._stream, self._filter, batch.end)
            try:
                await self._stretch.open()
            except (Denied, Unreachable):
                await self._end_stretch()
        return batch, details

    async def _read_on(self, start: int) -> tuple[Batch, Details | None] | None:
        """The batch through the consumer, if there is one that has come so far and is well."""
        stretch = self._stretch
        if stretch is None or stretch.position != start:
            return None
        try:
            batch = await stretch.read(self._size, self._bytes)
            # A consumer does not outlive its stream. But what is deleted before it gets there it passes over.
            is_dense = batch.end - start == len(batch.sequences)
            details = None if is_dense else await self._js.details(self._stream)
        except Unreachable:
            await self._end_stretch()
            return None
        if not batch.pending:
            await self._end_stretch()
        return (batch, details) if batch.sequences else None

    async def _end_stretch(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch:
            await stretch.close()


def _look_at(task: "asyncio.Task[Window]") -> None:
    """A window that nobody waits for any more may fail unseen."""
    if not task.cancelled():
        task.exception()

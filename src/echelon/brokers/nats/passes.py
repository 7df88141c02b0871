"""Who of a process reads where in a stream: those that are close together read it together."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.columns import Splitter
from echelon.brokers.nats.partitioning import Layout
from echelon.brokers.nats.windows import MESSAGES, Window, Windows

# So many windows apart is close.
_CLOSE: Final = 4


class Reading:
    """Somebody who reads a partition, and how far."""

    def __init__(self, partition: int, position: int) -> None:
        self.partition = partition
        self.position = position


class Passes:
    """Reads a stream for a process's partitions, alone or together."""

    def __init__(self, js: JetStream, layout: Layout, splitter: Splitter) -> None:
        self._js = js
        self._layout = layout
        self._splitter = splitter
        self._readings: set[Reading] = set()
        self._shared = Windows(js, layout.source, layout.filter, splitter, is_shared=True)

    @asynccontextmanager
    async def begin(self, partition: int, position: int) -> AsyncIterator[Reading]:
        """Somebody reads from `position` on."""
        reading = Reading(partition, position)
        self._readings.add(reading)
        try:
            yield reading
        finally:
            self._readings.discard(reading)
            if not self._readings:
                await self._shared.close()

    async def windows(self, reading: Reading, end: int) -> AsyncGenerator[Window, None]:
        """Windows with the reading's position in them, which the caller moves on, up to `end` or the last one there is.

        Raises StreamNotFound, Unreachable, Denied.
        """
        narrow = self._layout.filter_of(reading.partition)
        own = Windows(self._js, self._layout.source, narrow, self._splitter, is_shared=False)
        try:
            while reading.position < end:
                windows = self._shared if self._reads_whole(reading.position) else own
                window = await windows.get(reading.position, end)
                yield window
                if window.is_last:
                    return
        finally:
            await own.close()

    def _reads_whole(self, position: int) -> bool:
        close = sum(abs(each.position - position) <= _CLOSE * MESSAGES for each in self._readings)
        return self._layout.is_best_read_whole(close)

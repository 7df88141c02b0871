"""The data of one stream, by partition.

Positions are sequences of the stream that is read, which all its partitions share; so they share their bounds
too. A partition whose position is before the stream's first message may have lost some of its own or not: that
cannot be known, and counts as out of range.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from echelon.brokers.base import StreamInfo
from echelon.brokers.nats.api import Details, JetStream
from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.columns import Columns, Splitter
from echelon.brokers.nats.consumer import OrderedConsumer
from echelon.brokers.nats.partitioning import Layout
from echelon.brokers.nats.passes import Passes, Reading
from echelon.brokers.nats.waking import Waiter, Waker
from echelon.errors import OutOfRange, Unreachable
from echelon.group.config import Stream
from echelon.keys import HeaderKey
from echelon.model import Bounds, Message, partition_name

if TYPE_CHECKING:
    import pyarrow as pa

_FOR_EVER: Final = sys.maxsize
_CHECK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.01
# How much is looked at to tell a partition's lag, where the server cannot.
_COUNTED: Final = 1000
_COUNTED_BYTES: Final = 1 << 20


class NatsReader:
    """A stream's data, as `echelon.brokers.base.Reader` describes it.

    Where readers compute the partition, `lag` is exact if no more than a thousand messages of all partitions (1 MiB)
    lie ahead. Of more it is an estimate, by the partition's share of the first ones; at least 1.
    """

    def __init__(self, js: JetStream, stream: Stream, layout: Layout, *, alone: bool) -> None:
        self._js = js
        self._stream = stream
        self._layout = layout
        self._names = [partition_name(stream.name, number, alone=alone) for number in range(stream.partitions)]
        self._splitter = Splitter(layout.locate, by_header=isinstance(stream.key, HeaderKey))
        self._passes = Passes(js, layout, self._splitter)
        self._wakers: dict[str, Waker] = {}
        self._tailing = 0

    async def info(self) -> StreamInfo:
        """Identity and bounds now; the partitions share their bounds. Raises StreamNotFound, Unreachable."""
        details = await self._js.details(self._layout.source)
        bounds = Bounds(details.state.first, details.state.end)
        return StreamInfo(details.created, dict.fromkeys(range(self._stream.partitions), bounds))

    async def lag(self, partition: int, position: int) -> int:
        """How many messages lie from `position` on."""
        start = max(position, 1)
        if self._layout.filters or self._layout.partitions == 1:
            batch = await self._get_one(partition, {"seq": start})
            return batch.pending + len(batch.sequences)
        only = {"next_by_subj": self._layout.filter} if self._layout.filter else {}
        body = {"seq": start, "batch": _COUNTED, "max_bytes": _COUNTED_BYTES, **only}
        batch = await self._js.get(self._layout.source, body)
        places = map(self._splitter.place, batch.subjects, batch.headers)
        own = sum(place is not None and place.partition == partition for place in places)
        # The messages that were not looked at are taken to be spread as those that were.
        return max(1, own + batch.pending * own // max(1, len(batch.sequences))) if batch.pending else own

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """The messages of a range, in lists of bounded size."""
        async with aclosing(self._read(partition, start, end)) as parts:
            async for columns in parts:
                yield columns.messages(self._names[partition])

    async def read_arrow(self, partition: int, start: int, end: int) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The same range as Arrow record batches."""
        async with aclosing(self._read(partition, start, end)) as parts:
            async for columns in parts:
                yield columns.arrow(self._names[partition])

    async def tail(self, partition: int, start: int) -> AsyncGenerator[list[Message], None]:
        """Messages from `start` on, as they come. Raises StreamNotFound too."""
        position = start
        is_checked = False
        self._tailing += 1
        try:
            while True:
                try:
                    if not is_checked:
                        self._check(partition, await self._js.details(self._layout.source), start)
                        is_checked = True
                    async with (
                        self._passes.begin(partition, position) as reading,
                        aclosing(self._pass(reading, _FOR_EVER)) as parts,
                    ):
                        async for columns in parts:
                            position = reading.position
                            yield columns.messages(self._names[partition])
                        position = reading.position
                    position = await self._wait(partition, position)
                except Unreachable:
                    self._js.connection.check_open()
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            self._tailing -= 1

    async def position_at(self, partition: int, time: int) -> int:
        """The sequence of the first message whose time is not before `time`; the end if there is none."""
        details = await self._js.details(self._layout.source)
        since = datetime.fromtimestamp(time // 1000, UTC).replace(microsecond=time % 1000 * 1000)
        batch = await self._get_one(partition, {"start_time": since.isoformat()})
        if not batch.sequences:
            return details.state.end
        if self._layout.filters:
            return batch.sequences[0]
        async with aclosing(self._read(partition, batch.sequences[0], details.state.end)) as parts:
            async for columns in parts:
                return columns.sequences[0]
        return details.state.end

    async def _get_one(self, partition: int, body: Mapping[str, object]) -> Batch:
        wanted = self._layout.filter_of(partition)
        only = {"next_by_subj": wanted} if wanted else {}
        return await self._js.get(self._layout.source, {**body, **only, "batch": 1})

    async def _read(self, partition: int, start: int, end: int) -> AsyncGenerator[Columns, None]:
        async with self._passes.begin(partition, start) as reading:
            details = await self._js.details(self._layout.source)
            self._check(partition, details, start)
            self._check(partition, details, end)
            progress = time.monotonic()
            while reading.position < end:
                try:
                    async with aclosing(self._pass(reading, end)) as parts:
                        async for columns in parts:
                            yield columns
                            progress = time.monotonic()
                    # The leader may have more than the replica that answered.
                    following = await self._next(partition, reading.position)
                    if following is None or following >= end:
                        return
                    reading.position = following
                    late = Unreachable(f"no replica of {self._layout.source} that answers has message {following} yet")
                except Unreachable as error:
                    self._js.connection.check_open()
                    late = error
                if time.monotonic() > progress + self._js.connection.settings.timeout:
                    raise late
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _pass(self, reading: Reading, end: int) -> AsyncGenerator[Columns, None]:
        """The messages from the reading's position to `end`, as far as there are any."""
        async with aclosing(self._passes.windows(reading, end)) as windows:
            async for window in windows:
                if window.details and window.is_dense:
                    self._check_identity(reading.partition, window.details, reading.position)
                elif window.details:
                    self._check(reading.partition, window.details, reading.position)
                columns = window.of(reading.partition, reading.position, end)
                reading.position = max(reading.position, window.end)
                if columns:
                    yield columns

    async def _next(self, partition: int, position: int) -> int | None:
        """The sequence of the first message from `position` on that the leader has."""
        found = await self._js.next(self._layout.source, position, self._layout.filter_of(partition))
        return found.seq if found else None

    async def _wait(self, partition: int, position: int) -> int:
        """Wait until there is a message from `position` on, and return its sequence."""
        source = self._layout.source
        is_whole = self._layout.is_best_read_whole(self._tailing)
        watched = self._layout.filter if is_whole else self._layout.filter_of(partition)
        if watched not in self._wakers:
            consumer = OrderedConsumer(self._js, source, watched, position, headers_only=True)
            self._wakers[watched] = Waker(consumer, self._splitter)
        waker, waiter = self._wakers[watched], Waiter(partition, position)
        try:
            await waker.watch(waiter)
            # What is stored from now on the waker will tell; this is for what was stored before.
            following = await self._next(partition, position)
            if following is not None:
                await asyncio.sleep(_PAUSE_SECONDS if following == position else 0)
                return following
            while not await waker.wait(waiter, _CHECK_SECONDS):
                details = await self._js.details(source)
                self._check_identity(partition, details, position)
                if details.state.end < position:
                    self._check(partition, details, position)
            return waiter.found
        finally:
            waker.unwatch(waiter)

    def _check(self, partition: int, details: Details, position: int) -> None:
        """Raise OutOfRange unless the stream holds all that was ever stored from `position` on."""
        self._check_identity(partition, details, position)
        state = details.state
        if position > state.end or (position < state.first and not self._layout.is_compacted):
            raise self._out_of_range(
                f"partition {partition} of {self._stream.name} holds {state.first} to {state.end}, not {position}",
                partition,
                details,
                position,
            )

    def _check_identity(self, partition: int, details: Details, position: int) -> None:
        if details.created != self._stream.identity:
            words = f"the stream {self._layout.source} was made anew"
            raise self._out_of_range(words, partition, details, position)

    def _out_of_range(self, what: str, partition: int, details: Details, position: int) -> OutOfRange:
        return OutOfRange(
            what,
            partition=self._names[partition],
            position=position,
            first=details.state.first,
            end=details.state.end,
            remedy="Reset the group to positions that are there",
        )

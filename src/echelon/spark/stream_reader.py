"""The stream reader of a query without a seat: its checkpoint alone says how far it is."""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from echelon.errors import InvalidConfig, OutOfRange, Unreachable
from echelon.spark import process
from echelon.spark.limits import choose_ends
from echelon.spark.offsets import Offset, from_offset, identity_of, to_offset
from echelon.spark.options import Options
from echelon.spark.ranges import Slice, average_size, read_slice
from echelon.spark.streams import Held, Streams, made_anew, open_streams

logger = logging.getLogger(__name__)

# How long `latestOffset` waits for messages: Spark would ask again at once, a hundred times a second.
_POLL_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.02
# How long the size of messages is taken to be what it was.
_SIZE_SECONDS: Final = 10.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads streams from where a checkpoint says. Making it does nothing: Spark makes it in several processes."""

    def __init__(self, options: Options) -> None:
        if options.end is not None:
            raise InvalidConfig("the option endingPositions is for batches; a stream has no end")
        self._options = options
        self._opened: Streams | None = None
        self._initial: Offset | None = None
        self._held: Held | None = None
        self._last: Mapping[str, int] | None = None
        self._size = 0.0
        self._sized = -_SIZE_SECONDS

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins; the same each time Spark asks."""
        if self._initial is None:
            self._initial = process.run(self._begin())
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """That there is a limit; `latestOffset` knows which."""
        if self._options.most_messages is not None:
            return ReadMaxRows(self._options.most_messages)
        if self._options.most_bytes is not None:
            return ReadMaxBytes(self._options.most_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """Where the next batch ends. Waits for messages, but not for long; returns `start` if none came.

        So it does while the broker cannot be reached. Raises OutOfRange if the stream does not hold `start` any more.
        """
        return process.run(self._next(start, is_limited=not isinstance(limit, ReadAllAvailable)))

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's name
        """What was there when Spark last asked, for the query's progress."""
        return to_offset(self._held.ends, self._held.identity) if self._held else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What is there now is the last that this run reads."""
        self._last = process.run(self._look())[1].ends

    def partitions(self, start: Offset, end: Offset) -> Sequence[Slice]:
        """What the tasks of a batch read. Raises OutOfRange if the stream was made anew since."""
        return process.run(self._plan(start, end))

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # it is always a slice
        """The rows of one slice, in a task."""
        return read_slice(partition)

    def commit(self, end: Offset) -> None:
        """Nothing: the checkpoint has it."""

    def stop(self) -> None:
        """Nothing: the connections end with the process."""

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs of it is in its slice."""
        return StreamReader(self._options).__dict__

    async def _look(self) -> tuple[Streams, Held]:
        """The streams and what they hold; opened anew if a stream was made anew."""
        if self._opened is None:
            self._opened = await open_streams(self._options)
        self._held = await self._opened.held()
        if self._held.identity not in ("", self._opened.wheres[0].stream.identity):
            self._opened = await open_streams(self._options)
            self._held = await self._opened.held()
        return self._opened, self._held

    async def _begin(self) -> Offset:
        streams, held = await self._look()
        place = self._options.start or streams.initial or "latest"
        return to_offset(await streams.positions_at(place, held), held.identity)

    async def _next(self, start: Offset, *, is_limited: bool) -> Offset:
        until = time.monotonic() + _POLL_SECONDS
        while True:
            try:
                streams, held = await self._look()
            except Unreachable as error:
                # A broker that was there may come back. But what is available now is not known without it.
                if self._held is None or self._last is not None:
                    raise
                logger.warning("the query waits for its broker: %s", error)
                await asyncio.sleep(_POLL_SECONDS)
                return start
            begins = self._begins(start, streams, held)
            ends = self._last if self._last is not None else held.ends
            limit = await self._limit(streams, begins, ends) if is_limited else None
            chosen = choose_ends(begins, ends, streams.spreads(begins), limit)
            if chosen != from_offset(start) or self._last is not None or time.monotonic() > until:
                return to_offset(chosen, held.identity)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _plan(self, start: Offset, end: Offset) -> list[Slice]:
        streams, held = await self._look()
        if identity_of(end) != held.identity:
            self._lose(made_anew(streams.wheres[0], held.bounds, from_offset(end)))
            return []
        begins, ends = self._begins(start, streams, held), from_offset(end)
        if not self._options.fails_on_loss:
            ends = {name: min(each, held.bounds[name].end) for name, each in ends.items()}
            begins = {
                name: held.bounds[name].first if begins[name] > each else begins[name] for name, each in ends.items()
            }
        return streams.slices(begins, ends, self._options.tasks)

    def _begins(self, start: Offset, streams: Streams, held: Held) -> dict[str, int]:
        """The positions to go on from. Partitions that a topic got meanwhile are read from their first message."""
        given = from_offset(start)
        is_native = all(where.stream.partitioning == "native" for where in streams.wheres)
        if given.keys() - held.bounds.keys() or (given.keys() != held.bounds.keys() and not is_native):
            raise InvalidConfig(
                f"the checkpoint has positions of {len(given)} partitions, and the query reads {len(held.bounds)}",
                remedy="Give the query the partitions that it began with, or a new checkpoint",
            )
        positions = dict.fromkeys(held.bounds, 0) | given
        if identity_of(start) != held.identity:
            self._lose(made_anew(streams.wheres[0], held.bounds, positions))
            return held.firsts
        for name, position in positions.items():
            first, end = held.bounds[name].first, held.bounds[name].end
            # Of positions before the first message, only who reads there can tell whether anything is missing.
            if position > end or (position < first and not self._options.fails_on_loss):
                what = f"partition {name} of {streams.find(name)[0].stream.name} holds {first} to {end}, not {position}"
                remedy = "Start a query with a new checkpoint"
                self._lose(OutOfRange(what, partition=name, position=position, first=first, end=end, remedy=remedy))
                positions[name] = first
        return positions

    def _lose(self, error: OutOfRange) -> None:
        """Fail because messages are lost, or go on without them."""
        if self._options.fails_on_loss:
            raise error
        logger.warning("messages may be lost; the query goes on from the earliest that is there: %s", error.what)

    async def _limit(self, streams: Streams, begins: Mapping[str, int], ends: Mapping[str, int]) -> int | None:
        """How many messages a batch may have."""
        most, most_bytes = self._options.most_messages, self._options.most_bytes
        if most_bytes is None:
            return most
        if time.monotonic() > self._sized + _SIZE_SECONDS:
            parts = streams.slices(begins, ends, 1)
            if parts:
                self._size, self._sized = await average_size(parts[0]), time.monotonic()
        fitting = max(1, int(most_bytes / self._size)) if self._size else 1
        return fitting if most is None else min(most, fitting)

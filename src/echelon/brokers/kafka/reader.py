"""The data of one topic: group partitions are the topic's own."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from confluent_kafka import Message as KafkaMessage
from confluent_kafka import TopicPartition

from echelon.brokers.base import StreamInfo
from echelon.brokers.kafka.connection import Connection
from echelon.brokers.kafka.feed import Feed, PlaceLost
from echelon.brokers.kafka.messages import to_messages, to_record_batch
from echelon.brokers.kafka.ranges import read_range
from echelon.errors import OutOfRange, Unreachable
from echelon.group.config import Stream
from echelon.model import Bounds, Message, partition_name

if TYPE_CHECKING:
    import pyarrow as pa

Made = TypeVar("Made")

# To make a topic anew takes longer than this many seconds.
_PAUSE: Final = 0.2
_AGAIN: Final = 0.05


class KafkaReader:
    """A topic's data, as `echelon.brokers.base.Reader` describes it. `stream` has its identity."""

    def __init__(self, connection: Connection, group: str, stream: Stream, *, alone: bool) -> None:
        self._connection = connection
        self._group = group
        self._topic = stream.name
        self._identity = stream.identity
        self._alone = alone
        self._feeds: list[Feed[Message]] = []
        self._heard = 0.0

    async def info(self) -> StreamInfo:
        """Identity and bounds now, of partitions that were added meanwhile too."""
        topic = await self._connection.admin.topic(self._topic)
        return StreamInfo(topic.identity, await self._connection.admin.bounds(self._topic, range(topic.partitions)))

    async def lag(self, partition: int, position: int) -> int:
        """How many offsets lie between `position` and the last stable one; an upper bound of the messages."""
        held = await self._bounds(partition)
        return max(held.end - max(position, held.first), 0)

    def read(self, partition: int, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """The messages of a range, in order."""
        return self._read(partition, start, end, partial(to_messages, self._name(partition), self._topic))

    def read_arrow(self, partition: int, start: int, end: int) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The same range as Arrow record batches."""
        return self._read(partition, start, end, partial(to_record_batch, self._name(partition), self._topic))

    async def tail(self, partition: int, start: int) -> AsyncGenerator[list[Message], None]:
        """Messages from `start` on, as they come; never ends by itself.

        Of a topic that was made anew it may give what comes within the first seconds, before it raises OutOfRange.
        """
        await self._check(partition, start, start)
        feed = self._feed(partition)
        position = start
        try:
            async with self._connection.following(feed), aclosing(feed.follow(partition, start)) as following:
                async for messages in following:
                    await self._check_after_pause(partition, position)
                    position = messages[-1].sequence + 1
                    yield messages
        except PlaceLost as error:
            raise await self._out_of_range(partition, position, str(error)) from error

    async def position_at(self, partition: int, time: int) -> int:
        """The offset of the first message whose time is not before `time`; the end if there is none."""
        offset = await self._connection.admin.offset_at(self._topic, partition, time)
        return (await self._bounds(partition)).end if offset is None else offset

    async def _read(
        self, partition: int, start: int, end: int, convert: Callable[[Sequence[KafkaMessage]], Made]
    ) -> AsyncGenerator[Made, None]:
        await self._check(partition, start, end)
        place = TopicPartition(self._topic, partition, start)
        check = partial(self._check, partition, start, end)
        try:
            reading = read_range(self._connection, self._group, place, end, convert, check)
            async with aclosing(reading):
                async for made in reading:
                    yield made
        except PlaceLost as error:
            raise await self._out_of_range(partition, start, str(error)) from error

    def _feed(self, partition: int) -> Feed[Message]:
        """The feed that the reader's tails share; another one if it has this partition already."""
        self._feeds = [feed for feed in self._feeds if feed.is_open]
        for feed in self._feeds:
            if partition not in feed:
                return feed
        # A partition that joins the others waits until what was asked for them is answered.
        properties = {**self._connection.settings.consumer(self._group), "fetch.wait.max.ms": "100"}
        feed = Feed(properties, self._connection.admin, self._topic, self._identity, self._convert)
        self._feeds.append(feed)
        return feed

    def _convert(self, partition: int, messages: Sequence[KafkaMessage]) -> list[Message]:
        return to_messages(self._name(partition), self._topic, messages)

    def _name(self, partition: int) -> str:
        return partition_name(self._topic, partition, alone=self._alone)

    async def _bounds(self, partition: int) -> Bounds:
        return (await self._connection.admin.bounds(self._topic, [partition]))[partition]

    async def _check(self, partition: int, start: int, end: int) -> None:
        """Raise OutOfRange unless the partition holds the range."""
        held, topic = await asyncio.gather(self._bounds(partition), self._connection.admin.topic(self._topic))
        if topic.identity != self._identity:
            raise self._error(partition, start, held, f"the topic {self._topic} was made anew")
        if start < held.first or end > held.end:
            position = start if start < held.first else end
            what = f"partition {partition} of {self._topic} holds {held.first} to {held.end}, not {position}"
            raise self._error(partition, position, held, what)

    async def _check_after_pause(self, partition: int, position: int) -> None:
        """What comes after a pause of all partitions may come from another topic of that name. Raises OutOfRange then.

        Waits while the broker is away.
        """
        loop = asyncio.get_running_loop()
        while loop.time() - self._heard > _PAUSE:
            try:
                topic = await self._connection.admin.topic(self._topic)
            except Unreachable:
                self._connection.check_open()
                await asyncio.sleep(_AGAIN)
                continue
            if topic.identity != self._identity:
                raise await self._out_of_range(partition, position, "the topic was made anew")
            break
        self._heard = loop.time()

    async def _out_of_range(self, partition: int, position: int, why: str) -> OutOfRange:
        """The error for a place that was lost on the way."""
        held = await self._bounds(partition)
        what = f"partition {partition} of {self._topic} does not hold {position} any more: {why}"
        return self._error(partition, position, held, what)

    def _error(self, partition: int, position: int, held: Bounds, what: str) -> OutOfRange:
        return OutOfRange(
            what,
            partition=self._name(partition),
            position=position,
            first=held.first,
            end=held.end,
            remedy="Reset the group to positions that are there",
        )

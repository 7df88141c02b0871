"""A group's log: a topic of one partition that keeps everything, with the broker's time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, TypeVar

from confluent_kafka import Message, TopicPartition

from echelon.brokers.kafka.connection import Connection
from echelon.brokers.kafka.diagnosis import why_not_stored
from echelon.brokers.kafka.feed import Feed, PlaceLost
from echelon.brokers.kafka.messages import to_entries
from echelon.brokers.kafka.ranges import read_range
from echelon.errors import GroupNotFound, StreamNotFound, Unreachable
from echelon.model import Bounds, Entry

Answer = TypeVar("Answer")

PREFIX: Final = "__echelon."
_RETRY: Final = 0.2


def log_config(replicas: int) -> dict[str, str]:
    """The configuration of a log's topic: the broker deletes nothing by itself, and keeps what it acknowledged."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "message.timestamp.type": "LogAppendTime",
        "unclean.leader.election.enable": "false",
        "min.insync.replicas": str(replicas // 2 + 1),
    }


class KafkaLog:
    """A group's log, as `echelon.brokers.base.Log` describes it."""

    def __init__(self, connection: Connection, group: str, identity: str) -> None:
        self._connection = connection
        self._group = group
        self._identity = identity
        self._topic = PREFIX + group

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        """Store one record and return its offset once all in-sync replicas have it."""
        try:
            return await self._connection.log_sender.send(self._topic, data, partition=0)
        except StreamNotFound as error:
            raise self._gone() from error
        except Unreachable as error:
            why = await why_not_stored(self._connection, self._topic, error)
            raise (self._gone() if isinstance(why, StreamNotFound) else why) from error

    async def bounds(self) -> Bounds:
        """The oldest offset in the log, and one past the newest."""
        try:
            return (await self._connection.admin.bounds(self._topic, [0]))[0]
        except StreamNotFound as error:
            raise self._gone() from error

    async def read(self, start: int, end: int) -> list[Entry]:
        """All entries with `start <= sequence < end` that the log holds now, in order."""
        while True:
            held = await self.bounds()
            place = TopicPartition(self._topic, 0, max(start, held.first))
            reading = read_range(self._connection, self._group, place, min(end, held.end), to_entries, self._check)
            try:
                async with aclosing(reading):
                    return [entry async for entries in reading for entry in entries]
            except PlaceLost:
                continue  # It was trimmed meanwhile.

    async def follow(self, start: int) -> AsyncGenerator[list[Entry], None]:
        """Entries from `start` on, as they come; never ends by itself."""
        position = start
        while True:
            held = await self._at_last(self.bounds)
            if position > held.end:  # The log has lost its tail: what comes in its place is not asked for.
                await asyncio.sleep(_RETRY)
                continue
            position = max(position, held.first)
            properties = self._connection.settings.consumer(self._group)
            feed = Feed(properties, self._connection.admin, self._topic, self._identity, _convert)
            try:
                async with self._connection.following(feed), aclosing(feed.follow(0, position)) as following:
                    async for entries in following:
                        position = entries[-1].sequence + 1
                        yield entries
            except PlaceLost:
                await self._at_last(self._check_identity)
            except Unreachable:
                self._connection.check_open()
                await asyncio.sleep(_RETRY)
            except StreamNotFound as error:
                raise self._gone() from error

    async def trim(self, before: int) -> None:
        """Delete the entries with a sequence below `before`."""
        held = await self.bounds()
        if before > held.first:
            await self._connection.admin.delete_records(self._topic, 0, min(before, held.end))

    async def _at_last(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What the broker answers, as soon as it can be asked."""
        while True:
            try:
                return await ask()
            except Unreachable:
                self._connection.check_open()
                await asyncio.sleep(_RETRY)

    async def _check(self) -> None:
        await self.bounds()

    async def _check_identity(self) -> None:
        try:
            topic = await self._connection.admin.topic(self._topic)
        except StreamNotFound as error:
            raise self._gone() from error
        if topic.identity != self._identity:
            raise self._gone()

    def _gone(self) -> GroupNotFound:
        return GroupNotFound(f"there is no group {self._group}: its log, the topic {self._topic}, is not there")


def _convert(_partition: int, messages: Sequence[Message]) -> list[Entry]:
    return to_entries(messages)

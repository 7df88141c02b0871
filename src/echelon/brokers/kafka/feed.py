"""Following partitions of a topic: one consumer, and the one thread that owns it.

The consumer of confluent-kafka lets nobody else in while a thread polls it, so everything that is asked of
it is done by that thread, between two polls. What it receives goes to the loop a batch at a time.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Generic, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from echelon.brokers.kafka.admin import Admin
from echelon.brokers.kafka.faults import OUT_OF_RANGE, fault
from echelon.brokers.kafka.messages import partition_of
from echelon.errors import EchelonError, Unreachable

log = logging.getLogger(__name__)

Item = TypeVar("Item")

_POLL: Final = 0.05  # What is asked of the consumer waits as long, in seconds.
_BATCH: Final = 1000
# A partition is paused while its receiver has as much to take.
_MESSAGES: Final = 5000
_BYTES: Final = 1 << 20
# How often a feed makes sure that its topic is still there and still the same, in seconds.
_WATCH: Final = 2.0


class PlaceLost(Exception):
    """The topic does not hold the position that was to be read next, or is another topic by now."""


class _Lane(Generic[Item]):
    """What was received of one partition and not yet taken."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.is_paused = False
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._size = 0
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    def put(self, items: list[Item], size: int) -> bool:
        """Add what was received; whether it is enough for now. For the thread."""
        with self._lock:
            self._items += items
            self._size += size
            return len(self._items) >= _MESSAGES or self._size >= _BYTES

    def tell(self) -> None:
        """Wake the receiver."""
        self._news.set()

    def fail(self, failure: Exception) -> None:
        """End the receiver, once it has taken what is there."""
        self._failure = self._failure or failure
        self._news.set()

    async def take(self) -> list[Item]:
        """All that is there, as soon as there is something."""
        while not self._items:
            if self._failure:
                raise self._failure
            await self._news.wait()
            self._news.clear()
        with self._lock:
            items, self._items, self._size = self._items, [], 0
        return items


class Feed(Generic[Item]):
    """Some partitions of one topic, each followed by one receiver.

    `convert` makes items of the messages of a partition, in the thread. The feed ends when its last
    partition does. Must be made in the loop that uses it.
    """

    def __init__(
        self,
        properties: dict[str, str],
        admin: Admin,
        topic: str,
        identity: str,
        convert: Callable[[int, Sequence[Message]], list[Item]],
    ) -> None:
        self.is_open = True
        self._consumer = Consumer(properties)
        self._admin = admin
        self._topic = topic
        self._identity = identity
        self._convert = convert
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[int, _Lane[Item]] = {}
        self._orders: deque[Callable[[], None]] = deque()
        # The lanes again, as the thread knows them: they change in step with what the consumer is assigned.
        self._assigned: dict[int, _Lane[Item]] = {}
        self._thread = threading.Thread(target=self._serve, name="kafka-feed", daemon=True)
        self._watching: asyncio.Task[None] | None = None

    def __contains__(self, partition: int) -> bool:
        return partition in self._lanes

    async def follow(self, partition: int, start: int) -> AsyncGenerator[list[Item], None]:
        """Items of a partition from `start` on, as they come. Raises PlaceLost, StreamNotFound, Denied."""
        lane = self._lanes[partition] = _Lane[Item](partition)
        self._orders.append(partial(self._assign, lane, start))
        if self._watching is None:
            self._watching = self._loop.create_task(self._watch())
            self._thread.start()
        try:
            while True:
                items = await lane.take()
                if lane.is_paused:
                    self._orders.append(partial(self._resume, lane))
                yield items
        finally:
            del self._lanes[partition]
            self._orders.append(partial(self._unassign, lane))
            if not self._lanes:
                self.close()

    def close(self) -> None:
        """End the feed; receivers raise Unreachable. The thread ends within one poll."""
        self.is_open = False
        if self._watching is not None:
            self._watching.cancel()
        self._fail(self._lanes.values(), Unreachable(f"the connection that follows {self._topic} is closed"))

    def join(self) -> None:
        """Wait until the thread of a closed feed has ended. Blocks."""
        if self._watching is not None:
            self._thread.join()

    async def _watch(self) -> None:
        """Tell the receivers if the topic is gone, is another one, or may no longer be read."""
        while True:
            await asyncio.sleep(_WATCH)
            try:
                topic = await self._admin.topic(self._topic)
            except Unreachable:
                continue
            except EchelonError as error:
                self._fail(self._lanes.values(), error)
                return
            if topic.identity != self._identity:
                self._fail(self._lanes.values(), PlaceLost(f"the topic {self._topic} was made anew"))
                return

    @staticmethod
    def _fail(lanes: Iterable[_Lane[Item]], error: Exception) -> None:
        for lane in lanes:
            lane.fail(error)

    def _serve(self) -> None:
        """What the thread does."""
        try:
            while self.is_open:
                while self._orders:
                    self._orders.popleft()()
                first = self._consumer.poll(_POLL)
                if first is not None:
                    self._receive([first, *self._consumer.consume(_BATCH, 0)])
        except KafkaException as error:
            self._call(self._fail, list(self._assigned.values()), fault(error.args[0], f"follow {self._topic}"))
        finally:
            self._consumer.close()

    def _receive(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            for message in messages:
                if message.error():
                    self._hear(message)
            messages = [message for message in messages if not message.error()]
        told = []
        for partition, run in groupby(messages, partition_of):
            lane = self._assigned.get(partition)
            if lane is None:
                continue
            part = list(run)
            is_enough = lane.put(self._convert(lane.partition, part), sum(map(len, part)))
            if is_enough and not lane.is_paused:
                lane.is_paused = True
                self._consumer.pause([TopicPartition(self._topic, lane.partition)])
            told.append(lane)
        if told:
            self._call(_tell, told)

    def _hear(self, message: Message) -> None:
        error = message.error()
        lane = self._assigned.get(partition_of(message))
        if error and error.name() in OUT_OF_RANGE and lane:
            self._call(lane.fail, PlaceLost(error.str()))
        else:
            log.info("Kafka, following %s: %s", self._topic, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Have the loop call a function."""
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # The loop is closed: nobody receives any more.
            self.is_open = False

    def _assign(self, lane: _Lane[Item], start: int) -> None:
        self._consumer.incremental_assign([TopicPartition(self._topic, lane.partition, start)])
        self._assigned[lane.partition] = lane

    def _unassign(self, lane: _Lane[Item]) -> None:
        self._consumer.incremental_unassign([TopicPartition(self._topic, lane.partition)])
        del self._assigned[lane.partition]

    def _resume(self, lane: _Lane[Item]) -> None:
        if self._assigned.get(lane.partition) is lane and lane.is_paused:
            lane.is_paused = False
            self._consumer.resume([TopicPartition(self._topic, lane.partition)])


def _tell(lanes: Iterable[_Lane[Item]]) -> None:
    for lane in lanes:
        lane.tell()

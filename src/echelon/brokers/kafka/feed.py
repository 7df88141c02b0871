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
from echelon.brokers.kafka.messages import offset_of, partition_of
from echelon.errors import BrokerError, EchelonError, Unreachable

log = logging.getLogger(__name__)

Item = TypeVar("Item")

# What is asked of the consumer waits for the end of a poll: shortly, while someone is about to ask.
_POLL: Final = 0.05
_SHORT_POLL: Final = 0.002
_BATCH: Final = 1000
# A partition is fetched no further while its receiver has as much to take.
_MESSAGES: Final = 5000
_BYTES: Final = 1 << 20
# How often a feed makes sure that its topic is still there and still the same, in seconds.
_WATCH: Final = 2.0


class PlaceLost(Exception):
    """The topic does not hold the position that was to be read next, or is another topic by now."""


class _Lane(Generic[Item]):
    """What was received of one partition and not yet taken."""

    def __init__(self, partition: int, start: int) -> None:
        self.partition = partition
        self.position = start
        self._lock = threading.Lock()
        self._items: list[Item] = []
        self._size = 0
        self._is_full = False
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be fetched for now."""
        return self._is_full

    def put(self, items: list[Item], size: int) -> bool:
        """Add what was received; whether the lane is full by that. For the thread."""
        with self._lock:
            self._items += items
            self._size += size
            was_full = self._is_full
            self._is_full = was_full or len(self._items) >= _MESSAGES or self._size >= _BYTES
            return self._is_full and not was_full

    def tell(self) -> None:
        """Wake the receiver."""
        self._news.set()

    def fail(self, failure: Exception) -> None:
        """End the receiver, once it has taken what is there."""
        self._failure = self._failure or failure
        self._news.set()

    async def take(self) -> tuple[list[Item], bool]:
        """All that is there, as soon as there is something; and whether the lane was full."""
        while not self._items:
            if self._failure:
                raise self._failure
            await self._news.wait()
            self._news.clear()
        with self._lock:
            items, self._items, self._size = self._items, [], 0
            was_full, self._is_full = self._is_full, False
        return items, was_full


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
        # For the thread: the lanes that the consumer fetches for, and those that are full.
        self._fetching: dict[int, _Lane[Item]] = {}
        self._full: set[_Lane[Item]] = set()
        self._thread = threading.Thread(target=self._serve, name="kafka-feed", daemon=True)
        self._watching: asyncio.Task[None] | None = None

    def __contains__(self, partition: int) -> bool:
        return partition in self._lanes

    async def follow(self, partition: int, start: int) -> AsyncGenerator[list[Item], None]:
        """Items of a partition from `start` on, as they come. Raises PlaceLost, StreamNotFound, Denied."""
        lane = self._lanes[partition] = _Lane[Item](partition, start)
        self._orders.append(partial(self._fetch, lane))
        if self._watching is None:
            self._watching = self._loop.create_task(self._watch())
            self._thread.start()
        try:
            while True:
                items, was_full = await lane.take()
                if was_full:
                    self._orders.append(partial(self._fetch_again, lane))
                yield items
        finally:
            del self._lanes[partition]
            self._orders.append(partial(self._fetch_no_more, lane))
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
                continue
            if topic.identity != self._identity:
                self._fail(self._lanes.values(), PlaceLost(f"the topic {self._topic} was made anew"))

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
                first = self._consumer.poll(_SHORT_POLL if self._full else _POLL)
                if first is not None:
                    self._receive([first, *self._consumer.consume(_BATCH, 0)])
        except KafkaException as error:
            self._give_up(fault(error.args[0], f"follow {self._topic}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._give_up(BrokerError(f"could not follow {self._topic}: {error!r}"))
        finally:
            self._consumer.close()

    def _give_up(self, error: EchelonError) -> None:
        self.is_open = False
        self._call(self._fail, [*self._fetching.values(), *self._full], error)

    def _receive(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            for message in messages:
                if message.error():
                    self._hear(message)
            messages = [message for message in messages if not message.error()]
        told = []
        for partition, run in groupby(messages, partition_of):
            lane = self._fetching.get(partition)
            if lane is None:
                continue
            part = list(run)
            lane.position = offset_of(part[-1]) + 1
            if lane.put(self._convert(partition, part), sum(map(len, part))):
                self._fetch_no_more(lane)
                self._full.add(lane)
            told.append(lane)
        if told:
            self._call(_tell, told)

    def _hear(self, message: Message) -> None:
        error = message.error()
        lane = self._fetching.get(partition_of(message))
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

    def _fetch(self, lane: _Lane[Item]) -> None:
        self._consumer.incremental_assign([TopicPartition(self._topic, lane.partition, lane.position)])
        self._fetching[lane.partition] = lane

    def _fetch_no_more(self, lane: _Lane[Item]) -> None:
        # Not paused: a paused partition goes on only after a second.
        if self._fetching.get(lane.partition) is lane:
            self._consumer.incremental_unassign([TopicPartition(self._topic, lane.partition)])
            del self._fetching[lane.partition]
        self._full.discard(lane)

    def _fetch_again(self, lane: _Lane[Item]) -> None:
        if lane in self._full and not lane.is_full:
            self._full.remove(lane)
            self._fetch(lane)


def _tell(lanes: Iterable[_Lane[Item]]) -> None:
    for lane in lanes:
        lane.tell()

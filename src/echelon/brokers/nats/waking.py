"""Telling those that wait at the end of a stream that there is a message for them."""

import asyncio
from collections import defaultdict
from typing import Final

from echelon.brokers.nats.columns import Splitter
from echelon.brokers.nats.consumer import Delivery, OrderedConsumer

# So many messages are passed over one by one rather than with a new consumer.
_CLOSE: Final = 1000
_SECONDS: Final = 1.0


class Waiter:
    """Somebody who waits for the first message of a partition from `position` on; `found` is its sequence."""

    def __init__(self, partition: int, position: int) -> None:
        self.partition = partition
        self.position = position
        self.found = 0
        self.changed = asyncio.Event()


class Waker:
    """Watches a stream for all who wait for it, as long as somebody does, and only the headers of its messages.

    Of a message that is stored after `watch` has returned, its waiter will be told, whatever happens to the server.
    """

    def __init__(self, consumer: OrderedConsumer, splitter: Splitter) -> None:
        self._consumer = consumer
        self._splitter = splitter
        self._waiters: defaultdict[int, set[Waiter]] = defaultdict(set)
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    async def watch(self, waiter: Waiter) -> None:
        """Add a waiter. Raises StreamNotFound, Denied, Unreachable if the connection is closed."""
        async with self._lock:
            if not self._waiters and waiter.position > self._consumer.next_sequence + _CLOSE:
                self._consumer.seek(waiter.position)
            await self._consumer.open()
            self._waiters[waiter.partition].add(waiter)
            if self._task is None or self._task.done():
                self._error = None
                self._task = asyncio.create_task(self._run())

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Whether something was found for the waiter within some time. Raises as `watch`."""
        try:
            async with asyncio.timeout(seconds):
                await waiter.changed.wait()
        except TimeoutError:
            return False
        if self._error:
            raise self._error
        return True

    def unwatch(self, waiter: Waiter) -> None:
        """Take a waiter away."""
        self._waiters[waiter.partition].discard(waiter)
        if not self._waiters[waiter.partition]:
            del self._waiters[waiter.partition]

    async def _run(self) -> None:
        try:
            while self._waiters:
                for delivery in await self._consumer.take(_SECONDS):
                    self._tell(delivery)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the waiters' to know
            self._error = error
            for waiters in self._waiters.values():
                for waiter in waiters:
                    waiter.changed.set()

    def _tell(self, delivery: Delivery) -> None:
        place = self._splitter.place(delivery.subject, delivery.header)
        if place is None or place.partition not in self._waiters:
            return
        for waiter in self._waiters[place.partition]:
            if waiter.position <= delivery.sequence and not waiter.found:
                waiter.found = delivery.sequence
                waiter.changed.set()

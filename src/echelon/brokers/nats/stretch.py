"""A long range of a stream, read through a consumer: the server spends about half as much on it as on direct gets.

It keeps nothing that outlives it for long, and gives up when anything is amiss; direct gets can then go on.
"""

import asyncio
import uuid
from typing import Final

from nats.aio.subscription import Subscription

from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.consumer import configuration
from echelon.brokers.nats.deliveries import Deliveries
from echelon.brokers.nats.wire import Sink
from echelon.errors import Unreachable

_SECONDS: Final = 30.0


class Stretch:
    """The messages of a stream that match `filter`, from `position` on, in batches."""

    def __init__(self, js: JetStream, stream: str, filter: str, position: int) -> None:
        self.position = position
        self._js = js
        self._stream = stream
        self._filter = filter
        self._name = f"echelon-{uuid.uuid4().hex}"
        self._deliveries = Deliveries(stream, self._name)
        self._subscription: Subscription | None = None
        self._requests = 0

    async def open(self) -> None:
        """Make the consumer. Raises StreamNotFound, Denied, Unreachable."""
        deliveries = self._deliveries
        self._js.connection.listeners.add(deliveries.lose)
        self._subscription = await self._js.connection.subscribe(Sink(deliveries.take, deliveries.take_run))
        config = configuration(self._name, self._filter, self.position, idle_seconds=_SECONDS)
        await self._js.create_consumer(self._stream, config)

    async def read(self, messages: int, size: int) -> Batch:
        """The next messages, at most so many and about so many bytes; fewer if the stream ends.

        One call at a time. Raises Unreachable if anything is amiss; then it cannot be used any more.
        """
        assert self._subscription
        self._requests += 1
        reply = f"{self._subscription.subject[:-1]}{self._requests}"
        self._deliveries.begin(reply, messages, size)
        body = b'{"batch":%d,"max_bytes":%d,"no_wait":true}' % (messages, size)
        subject = f"{self._js.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._js.connection.publish(subject, body, reply=reply)
        batch, count = self._deliveries.batch, -1
        while count < len(batch.data) and not self._deliveries.is_over.is_set():
            count = len(batch.data)
            try:
                async with asyncio.timeout(_SECONDS):
                    await self._deliveries.is_over.wait()
            except TimeoutError:
                pass
        if not self._deliveries.is_over.is_set() or self._deliveries.is_lost:
            self._deliveries.lose()
            raise Unreachable(f"the consumer that read {self._stream} was lost")
        self.position = max(self.position, batch.end)
        return batch

    async def close(self) -> None:
        """Stop, and tell the server so."""
        self._js.connection.listeners.discard(self._deliveries.lose)
        if self._subscription:
            await self._js.connection.unsubscribe(self._subscription)
        if self._js.connection.is_up:
            await self._js.connection.publish(f"{self._js.prefix}.CONSUMER.DELETE.{self._stream}.{self._name}")

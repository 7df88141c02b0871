"""Reading a range of a partition, as fast as the consumer gives it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from echelon.brokers.kafka.connection import Connection
from echelon.brokers.kafka.faults import OUT_OF_RANGE, fault
from echelon.brokers.kafka.feed import PlaceLost
from echelon.brokers.kafka.messages import offset_of
from echelon.errors import EchelonError

Made = TypeVar("Made")

_BATCH: Final = 2000
# How long a batch may take to become full, in seconds. A range that ends in a gap may cost as much, once.
_FILL: Final = 0.02
# The end of a range is there: what is not answered at once is a gap. The default would wait for half a second.
_PROPERTIES: Final = {"enable.partition.eof": "true", "fetch.wait.max.ms": "10"}


class _Range:
    """A consumer on its way through one range. Its methods block."""

    def __init__(self, properties: dict[str, str], place: TopicPartition, end: int) -> None:
        self._place = place
        self._position = place.offset
        self._end = end
        self._consumer = Consumer({**properties, **_PROPERTIES})
        self._consumer.assign([place])

    @property
    def is_done(self) -> bool:
        """Whether there is nothing more to come."""
        return self._position >= self._end

    def next(self) -> list[Message]:
        """The next messages; none if none has come yet, or if only a gap was left."""
        try:
            messages = self._consumer.consume(min(_BATCH, self._end - self._position), _FILL)
        except KafkaException as error:
            raise self._fault(error.args[0]) from error
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not self._is_error(message)]
        if messages:
            self._position = max(self._position, offset_of(messages[-1]) + 1)
            while messages and offset_of(messages[-1]) >= self._end:
                messages.pop()
        return messages

    def close(self) -> None:
        self._consumer.close()

    def _is_error(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return False
        if error.name() == "_PARTITION_EOF":
            self._position = max(self._position, offset_of(message))
        elif error.name() in OUT_OF_RANGE:
            raise PlaceLost(error.str())
        elif not error.retriable():
            raise self._fault(error)
        return True

    def _fault(self, error: KafkaError) -> EchelonError:
        return fault(error, f"read partition {self._place.partition} of {self._place.topic}")


async def read_range(
    connection: Connection,
    group: str,
    place: TopicPartition,
    end: int,
    convert: Callable[[Sequence[Message]], Made],
    check: Callable[[], Awaitable[None]],
) -> AsyncGenerator[Made, None]:
    """What `convert` makes of the messages from `place` to `end`, in order, a batch at a time.

    `check` is awaited when nothing has come for the connection's timeout; it raises if nothing will. Raises
    PlaceLost if messages of the range have been deleted.
    """
    if place.offset >= end:
        return
    loop = asyncio.get_running_loop()

    def advance() -> Made | None:
        messages = reading.next()
        return convert(messages) if messages else None

    reading = _Range(connection.settings.consumer(group), place, end)
    try:
        heard = loop.time()
        while not reading.is_done:
            connection.check_open()
            made = await loop.run_in_executor(connection.threads, advance)
            if made is not None:
                yield made
                heard = loop.time()
            elif loop.time() - heard > connection.settings.timeout:
                await check()
                heard = loop.time()
    finally:
        await asyncio.to_thread(reading.close)

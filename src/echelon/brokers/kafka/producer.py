"""Sending records to Kafka, and awaiting that they are stored."""

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from echelon.brokers.kafka.faults import fault
from echelon.brokers.kafka.settings import Settings
from echelon.errors import Unreachable

_POLL: Final = 0.1
_LOOK: Final = 0.5  # How long a new producer may look for a topic, in seconds; records can be sent all the same.
Stored = tuple["asyncio.Future[int]", KafkaError | None, int | None]


class Sender:
    """An idempotent producer, and the thread that hears what became of the records.

    Records for one partition are stored in the order of the calls. A record that was not stored in time is
    given up; the client does not store it later. Must be made in the loop that uses it.
    """

    def __init__(self, settings: Settings) -> None:
        self._properties = settings.producer()
        self._loop = asyncio.get_running_loop()
        self._stored: list[Stored] = []
        self._is_open = True
        self._client: Producer | None = None
        self._fatal: KafkaError | None = None
        self._thread: threading.Thread | None = None
        self._turn = asyncio.Lock()

    async def send(
        self,
        topic: str,
        data: bytes,
        *,
        partition: int = -1,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes]] = (),
    ) -> int:
        """Store a record and return its offset. Without a partition, the key decides; without a key, chance.

        Raises StreamNotFound, Unreachable, Denied, TooLarge, StorageFull.
        """
        doing = f"write to {topic}"
        result: asyncio.Future[int] = self._loop.create_future()
        hear = partial(self._hear, result)
        async with self._turn:
            while True:
                self._check_open(doing)
                try:
                    client = self._client or await self._new_client(topic)
                    self._check_open(doing)
                    client.produce(topic, data, key, partition, headers=list(headers) or None, on_delivery=hear)
                    break
                except BufferError:
                    await asyncio.sleep(0.01)  # The queue is full; the thread empties it.
                except KafkaException as error:
                    raise fault(self._fatal or error.args[0], doing) from error
        try:
            return await result
        except KafkaException as error:
            raise fault(error.args[0], doing) from error

    def close(self) -> None:
        """Give up what is not stored yet. The thread ends within one poll."""
        self._is_open = False

    def join(self) -> None:
        """Wait until the thread of a closed sender has ended. Blocks."""
        if self._thread is not None:
            self._thread.join()

    def _check_open(self, doing: str) -> None:
        if not self._is_open:
            raise Unreachable(f"could not {doing}: the connection is closed")

    async def _new_client(self, topic: str) -> Producer:
        """A producer that has looked for the topic.

        One that is given a record before it is connected asks for its producer's id half a second later.
        """
        self._fatal = None
        client = self._client = Producer(self._properties)
        self._thread = threading.Thread(target=self._serve, args=(client,), name="kafka-sender", daemon=True)
        self._thread.start()
        for _ in range(2):  # Over the first connection, then over that to the broker that it has learned of.
            with suppress(KafkaException):
                await asyncio.to_thread(client.list_topics, topic, _LOOK)
        return client

    def _serve(self, client: Producer) -> None:
        """What the thread does, until the sender is closed or the producer refuses to go on."""
        try:
            while self._is_open:
                client.poll(_POLL)
                self._tell()
        except KafkaException as error:
            self._fatal = error.args[0]
        client.purge()
        with suppress(KafkaException):  # The same again.
            client.flush(_POLL)
        self._tell()
        self._client = None  # The next record gets a new one.

    def _hear(self, result: "asyncio.Future[int]", error: KafkaError | None, message: Message) -> None:
        self._stored.append((result, error and (self._fatal or error), message.offset()))

    def _tell(self) -> None:
        """Hand over to the loop, all at once, what one poll has heard."""
        if not self._stored:
            return
        stored, self._stored = self._stored, []
        try:
            self._loop.call_soon_threadsafe(_settle, stored)
        except RuntimeError:  # The loop is closed: nobody waits any more.
            self._is_open = False


def _settle(stored: list[Stored]) -> None:
    for result, error, offset in stored:
        if result.done():
            continue
        if error is not None:
            result.set_exception(KafkaException(error))
        elif offset is None or offset < 0:
            result.set_exception(Unreachable("a record was stored, but the broker did not say where"))
        else:
            result.set_result(offset)

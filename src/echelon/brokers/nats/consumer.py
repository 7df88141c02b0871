"""A stream's messages as they are stored, through a consumer that is made anew whenever it is lost."""

import asyncio
import time
import uuid
from typing import Final, NamedTuple

from msgspec import Struct
from nats.aio.subscription import Subscription

from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.wire import Sink
from echelon.errors import Unreachable
from echelon.pauses import pause

_SECOND: Final = 1_000_000_000
_BATCH: Final = 256
_EXPIRES_SECONDS: Final = 30
_HEARTBEAT_SECONDS: Final = 0.5
# Without a sign of life for so long, the consumer counts as lost.
_SILENCE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = (0.01, 0.5)


class Delivery(Struct, gc=False):
    """A message as a consumer delivers it. `time` is in milliseconds."""

    sequence: int
    time: int
    subject: bytes
    header: bytes
    data: bytes


class Ack(NamedTuple):
    """What the reply subject of a delivered message tells. `number` counts the consumer's deliveries from 1."""

    sequence: int
    number: int
    time: int
    pending: int


def parse_ack(reply: bytes) -> Ack:
    """Take a reply subject apart. The time is in milliseconds."""
    # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<deliveries>.<sequence>.<number>.<time>.<pending>[.<token>]
    words = reply.split(b".")
    sequence, number, time, pending = map(int, words[5:9] if len(words) == 9 else words[7:11])
    return Ack(sequence, number, time // 1_000_000, pending)


def configuration(name: str, filter: str, start: int, *, idle_seconds: float) -> dict[str, object]:
    """A consumer in the server's memory that needs no acknowledgements and goes when nobody asks it any more."""
    return {
        "name": name,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(start, 1),
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": int(idle_seconds * _SECOND),
        **({"filter_subject": filter} if filter else {}),
    }


class OrderedConsumer:
    """The messages of a stream that match `filter`, from `start` on, each once and in order.

    The server keeps nothing that outlives it for long: no acknowledgements, and the consumer itself lives in its
    memory. When the connection, the consumer or one of its messages is lost, a new one goes on after the last
    message that came. At most `_BATCH` messages are held that were not taken.
    """

    def __init__(self, js: JetStream, stream: str, filter: str, start: int, *, headers_only: bool = False) -> None:
        self.next_sequence = start
        self._js = js
        self._stream = stream
        self._filter = filter
        self._headers_only = headers_only
        self._is_lost = True
        self._name = ""
        self._pull = ""
        self._subscription: Subscription | None = None
        self._got: list[Delivery] = []
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._number = 0
        self._requests = 0
        self._asked = 0
        self._heard = 0.0
        self._failures = 0

    async def open(self) -> None:
        """Make the consumer, if there is none: what is stored from now on will be delivered.

        Keeps trying while the server is away. Raises StreamNotFound, Denied, Unreachable if the connection is closed.
        """
        self._js.connection.listeners.add(self._lose)
        async with self._lock:
            while self._is_lost:
                self._js.connection.check_allowed(self._pull)
                if self._failures:
                    await asyncio.sleep(pause(*_PAUSE_SECONDS, self._failures))
                self._failures += 1
                try:
                    await self._create()
                except Unreachable:
                    self._js.connection.check_open()

    async def take(self, seconds: float) -> list[Delivery]:
        """What was delivered since the last call; waits for it, but then returns an empty list. Raises as `open`."""
        deadline = time.monotonic() + seconds
        while not self._got:
            if self._is_lost:
                await self.open()
            if not self._asked:
                await self._ask()
            self._changed.clear()
            patience = min(deadline, self._heard + _SILENCE_SECONDS) - time.monotonic()
            try:
                async with asyncio.timeout(max(patience, 0)):
                    await self._changed.wait()
            except TimeoutError:
                if time.monotonic() - self._heard >= _SILENCE_SECONDS:
                    self._lose()
                elif time.monotonic() >= deadline:
                    return []
        got, self._got = self._got, []
        return got

    def seek(self, start: int) -> None:
        """Go on from another sequence. What was delivered and not taken is dropped."""
        self._lose()
        self._got = []
        self.next_sequence = start

    async def close(self) -> None:
        """Stop, and tell the server so."""
        self._js.connection.listeners.discard(self._lose)
        self._lose()
        await self._drop()

    async def _create(self) -> None:
        await self._drop()
        name = f"echelon-{uuid.uuid4().hex}"
        self._subscription = await self._js.connection.subscribe(Sink(self._receive))
        config = configuration(name, self._filter, self.next_sequence, idle_seconds=2 * _EXPIRES_SECONDS)
        await self._js.create_consumer(self._stream, {**config, "headers_only": self._headers_only})
        self._name, self._number, self._asked = name, 0, 0
        self._pull = f"{self._js.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{name}"
        self._is_lost = False
        self._changed.set()

    async def _ask(self) -> None:
        assert self._subscription
        body = b'{"batch":%d,"expires":%d,"idle_heartbeat":%d}' % (
            _BATCH,
            _EXPIRES_SECONDS * _SECOND,
            int(_HEARTBEAT_SECONDS * _SECOND),
        )
        self._requests += 1
        reply = f"{self._subscription.subject[:-1]}{self._requests}"
        try:
            await self._js.connection.publish(self._pull, body, reply=reply)
            self._asked = _BATCH
            self._heard = time.monotonic()
        except Unreachable:
            self._lose()

    async def _drop(self) -> None:
        name, self._name = self._name, ""
        subscription, self._subscription = self._subscription, None
        try:
            if subscription:
                await self._js.connection.unsubscribe(subscription)
            if name and self._js.connection.is_up:
                await self._js.connection.publish(f"{self._js.prefix}.CONSUMER.DELETE.{self._stream}.{name}")
        except Unreachable:
            pass  # The server will notice by itself.

    def _lose(self) -> None:
        self._is_lost = True
        self._changed.set()

    def _receive(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take what the server sends to the subscription."""
        self._heard = time.monotonic()
        if not reply.startswith(b"$JS.ACK."):
            if subject.endswith(b".%d" % self._requests):  # Or it is about a request that is over.
                self._receive_status(header)
            return
        ack = parse_ack(reply)
        if self._is_lost or ack.number != self._number + 1:
            self._lose()
            return
        self._number = ack.number
        self._asked -= 1
        self._failures = 0
        self.next_sequence = ack.sequence + 1
        self._got.append(Delivery(ack.sequence, ack.time, subject, header, payload))
        self._changed.set()

    def _receive_status(self, header: bytes) -> None:
        code = header[9:12]
        if code == b"100":  # A heartbeat.
            self._failures = 0
        elif code in {b"404", b"408"}:  # The request is over.
            self._asked = 0
            self._changed.set()
        else:  # The consumer is gone, or its server is.
            self._lose()

"""Messages of one consumer, pulled without end: requests overlap, and are made anew whenever they are lost."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from nats.aio.subscription import Subscription

from echelon.brokers.nats.api import NO_RESPONDERS
from echelon.brokers.nats.pull_consumers import Consumers
from echelon.brokers.nats.pull_message import Pulled
from echelon.brokers.nats.pull_request import PullRequest, check_request
from echelon.brokers.nats.wire import Sink
from echelon.errors import BrokerError, ConsumerNotFound, EchelonError, InvalidConfig, Unreachable

_STATUS: Final = re.compile(rb"NATS/1\.0 (\d{3}) ?([^\r]*)")
_LEFT: Final = re.compile(rb"\r\nNats-Pending-Messages: (\d+)")
_HEARTBEAT: Final = 100
_BAD_REQUEST: Final = 400
_OVER: Final = frozenset({404, 408})
_CONFLICT: Final = 409
_WRONG_PIN: Final = 423
# What a 409 says when the request is over, but others may be served.
_PASSING: Final = (b"leadership change", b"server shutdown", b"exceeded maxwaiting")
_GONE: Final = b"consumer deleted"
_NO_PIN: Final = b"\r\nNats-Pin-Id: \r\n"  # in no message
_PAUSE_SECONDS: Final = 0.1
# How often not to look for a message without sleeping once that was in vain.
_WAITS: Final = 32
# For so long nobody else in the event loop may have to wait.
_TURN_SECONDS: Final = 0.0005


class _Asked(NamedTuple):
    """A request that the server may still serve."""

    batch: int
    pin: str
    at: float


class Pull:
    """A client of one pull consumer. An async context manager: messages come from entering it to leaving it.

    `take` gives messages, in the order in which they came; `async for` gives them one by one. When half of
    `request.batch` has been taken, more is asked for. After a lost connection, a restarted server or missed
    heartbeats it asks again by itself.

    With the policy `pinned_client`: `pin` is the id that the server has given with a message, and is sent with every
    request; `asked` is when that was last done, by `clock`; 0 if not since this pin or this connection began. Such a
    request begins the pin's timeout anew. One is made in every `request.expires`, and others only as messages are
    taken. `on_pinned(id)` is called when another id comes, before its first message can be taken; `on_unpinned(id)`
    when the server refuses the id, upon which it asks again at once, without one. Both are called in the event loop
    and must not block.

    `spin`: while messages wait at the server, look for them for so many seconds on end before going to sleep. The event
    loop may turn only every half millisecond meanwhile. That costs processor time and saves what it takes to be woken
    up, which is a third of a round trip.
    """

    def __init__(
        self,
        consumers: Consumers,
        stream: str,
        consumer: str,
        request: PullRequest | None = None,
        *,
        on_pinned: Callable[[str], None] = lambda _: None,
        on_unpinned: Callable[[str], None] = lambda _: None,
        spin: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pin = ""
        self.asked = 0.0
        self._consumers = consumers
        self._connection = consumers.connection
        self._stream = stream
        self._consumer = consumer
        self._request = request or PullRequest()
        check_request(self._request)
        self._on_pinned = on_pinned
        self._on_unpinned = on_unpinned
        self._spin = spin
        self._clock = clock
        self._waits = 0
        self._turned = 0.0
        self._subject = f"{consumers.prefix}.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        self._subscription: Subscription | None = None
        self._inbox = b""
        self._got: list[Pulled] = []
        self._changed = asyncio.Event()
        self._requests: dict[int, _Asked] = {}
        self._count = 0
        self._outstanding = 0
        self._pending = 0
        self._pin_line = _NO_PIN
        self._heard = 0.0
        self._failure: EchelonError | None = None
        self._is_doubtful = False
        self._checking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._subscription = await self._connection.subscribe(Sink(self._receive))
        self._inbox = self._subscription.subject[:-1].encode()
        self._connection.listeners.add(self._note_connection)
        self._ask_for_more()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> list[Pulled]:
        """Take no more; returns what came and was not taken. An ack that is sent later brings no other message."""
        self._connection.listeners.discard(self._note_connection)
        subscription, self._subscription = self._subscription, None
        if self._checking is not None:
            self._checking.cancel()
        if subscription:
            await self._connection.drain(subscription)
        if self._checking is not None:
            await asyncio.gather(self._checking, return_exceptions=True)
        got, self._got = self._got, []
        return got

    async def take(self, seconds: float) -> list[Pulled]:
        """What has come since the last call; waits for it, but then returns an empty list.

        Raises ConsumerNotFound, StreamNotFound, Denied, InvalidConfig if the server refuses the requests, and
        Unreachable if the connection was closed for good.
        """
        if not self._got and self._pending and self._spin:
            await self._look()
        if not self._got:
            await self._wait(time.monotonic() + seconds)
        got, self._got = self._got, []
        self._ask_for_more()
        return got

    async def __aiter__(self) -> AsyncGenerator[Pulled, None]:
        while True:
            for message in await self.take(60.0):
                yield message

    def renew(self) -> None:
        """Make a request now, which tells the server that a pinned client is there."""
        self._ask(max(1, self._request.batch - self._outstanding - len(self._got)))

    def forget_pin(self) -> None:
        """The pin is known to be another's: ask without it, as after a refusal.

        What was not taken is dropped: the server gives it to whoever is pinned now.
        """
        pin, self.pin, self._pin_line = self.pin, "", _NO_PIN
        if pin:
            self.asked = 0.0
            # The server will refuse them too, but perhaps only when it has another message.
            self._requests = {number: asked for number, asked in self._requests.items() if asked.pin != pin}
            self._outstanding = sum(asked.batch for asked in self._requests.values())
            self._got = []
            self._on_unpinned(pin)
            self._ask_for_more()

    async def _look(self) -> None:
        """Look for a message without going to sleep; not again for a while if none came."""
        if self._waits:
            self._waits -= 1
            return
        connection, now = self._connection, time.perf_counter()
        until = now + self._spin
        connection.lookers += 1
        try:
            while not self._got and now < until:
                alone = connection.lookers == 1 and now < self._turned + _TURN_SECONDS
                if not (alone and connection.look()) and not self._got:
                    await asyncio.sleep(0)
                    self._turned = time.perf_counter()
                now = time.perf_counter()
        finally:
            connection.lookers -= 1
        self._waits = 0 if self._got else _WAITS

    async def _wait(self, deadline: float) -> None:
        while not self._got:
            self._connection.check_open()
            self._connection.check_allowed(self._subject.decode())
            if self._failure:
                raise self._failure
            self._ask_for_more()
            until = deadline
            if self._outstanding and not self._is_doubtful:
                until = min(deadline, self._heard + 2 * self._request.beat)
            self._changed.clear()
            try:
                async with asyncio.timeout(max(until - time.monotonic(), 0)):
                    await (self._checked() if self._is_doubtful and self._subscription else self._changed.wait())
            except TimeoutError:
                if time.monotonic() >= deadline:
                    return
                # An event loop that stood still finds the time over and what came meanwhile at once.
                if time.monotonic() >= self._heard + 2 * self._request.beat:
                    self._is_doubtful = True

    async def _checked(self) -> None:
        """Wait for a check. Who waits no longer lets it go on: the server may take longer to answer than any `take`."""
        checking = self._checking = self._checking or asyncio.ensure_future(self._check())
        await asyncio.wait({checking})
        self._checking = None
        if not checking.cancelled():
            checking.result()

    async def _check(self) -> None:
        """See whether the consumer is there, and begin anew. Raises ConsumerNotFound, StreamNotFound, Denied."""
        try:
            await self._consumers.info(self._stream, self._consumer)
        except Unreachable:
            await asyncio.sleep(_PAUSE_SECONDS)
        else:
            self._is_doubtful = False
            self._requests.clear()
            self._outstanding = 0

    def _ask_for_more(self) -> None:
        room = self._request.batch - self._outstanding - len(self._got)
        if 2 * room >= self._request.batch and not self._is_doubtful and not self._failure:
            self._ask(room)

    def _ask(self, batch: int) -> None:
        if self._subscription is None:
            return
        now, clock = time.monotonic(), self._clock()
        # The server does not say when it has served a request in full.
        for number in [n for n, asked in self._requests.items() if asked.at + 2 * self._request.expires < now]:
            del self._requests[number]
        self._count += 1
        reply = b"%b%d" % (self._inbox, self._count)
        if self._connection.send(self._subject, self._request.encode(batch, self.pin), reply=reply):
            self._requests[self._count] = _Asked(batch, self.pin, now)
            self._outstanding += batch
            self._heard = now
            if self.pin:
                self.asked = clock

    def _note_connection(self) -> None:
        """Requests that were made before may not have come to the server, or are lost; if not, they do no harm."""
        self.asked = 0.0
        self._requests.clear()
        self._outstanding = 0
        self._is_doubtful = True
        self._changed.set()

    def _receive(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take what the server sends to the subscription."""
        self._heard = time.monotonic()
        status = _STATUS.match(header) if header else None
        if status and not payload:
            self._receive_status(int(subject.rpartition(b".")[2]), int(status[1]), status[2], header)
        else:
            message = Pulled(self._connection, subject, reply, header, payload)
            self._outstanding -= 1
            self._pending = message.pending
            if self._request.group and self._pin_line not in header:
                self._note_pin(message.pin)
            self._got.append(message)
        self._changed.set()

    def _note_pin(self, pin: str) -> None:
        if pin:
            self.pin, self.asked = pin, 0.0
            self._pin_line = b"\r\nNats-Pin-Id: %b\r\n" % pin.encode()
            # One of the requests without an id is under this one now.
            self._requests = {n: asked if asked.pin else asked._replace(pin=pin) for n, asked in self._requests.items()}
            self._on_pinned(pin)

    def _receive_status(self, number: int, code: int, words: bytes, header: bytes) -> None:
        if code == _HEARTBEAT or number not in self._requests:
            return
        asked = self._requests.pop(number)
        left = _LEFT.search(header)
        self._outstanding = max(self._outstanding - (int(left[1]) if left else asked.batch), 0)
        if code == _WRONG_PIN:
            if asked.pin == self.pin:
                self.forget_pin()
        elif code == NO_RESPONDERS:
            self._is_doubtful = True
        elif code not in _OVER:
            self._failure = self._explain(code, words)
        self._ask_for_more()

    def _explain(self, code: int, words: bytes) -> EchelonError | None:
        """The error that a status stands for; None if it passes."""
        who, text = f"the consumer {self._consumer} of the stream {self._stream}", words.decode(errors="replace")
        if code == _CONFLICT and words.lower().startswith(_PASSING):
            return None
        if code == _CONFLICT and words.lower().startswith(_GONE):
            return ConsumerNotFound(f"{who} was deleted")
        if code in (_BAD_REQUEST, _CONFLICT):
            return InvalidConfig(f"{who} refuses requests: {text}")
        return BrokerError(f"{who} answered a request with {code} {text}")

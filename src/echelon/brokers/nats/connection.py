"""One connection to a NATS system: requests and their replies, subscriptions, and what happens when it is lost."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from nats import errors
from nats.aio.subscription import Subscription

from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.client import EchelonClient, next_server
from echelon.brokers.nats.explain import explain, telling, violation
from echelon.brokers.nats.replies import Many, Replies, Reply, Single
from echelon.brokers.nats.settings import Settings
from echelon.brokers.nats.wire import Sink
from echelon.errors import BrokerError, Denied, InvalidConfig, TooLarge, Unreachable

T = TypeVar("T")

_log = logging.getLogger(__name__)
_PENDING_BYTES: Final = 1 << 23
_SEARCH_SECONDS: Final = 30.0


class Connection:
    """A connection that comes back by itself, for ever, until it is closed.

    Requests that are under way when it is lost raise Unreachable; new ones wait for it to come back, at most
    `settings.timeout` seconds. `listeners` are called when it is lost, back, or closed.
    """

    def __init__(self, settings: Settings, purpose: str, *, ping_seconds: int = 10) -> None:
        self.settings = settings
        self.listeners: set[Callable[[], None]] = set()
        self.lookers = 0
        """How many would `look` now: not more than one should."""
        self._purpose = purpose
        self._ping_seconds = ping_seconds
        self._client = EchelonClient(needs_tls=settings.needs_tls, on_violation=self._violated)
        self._replies = Replies("")
        self._asked: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)
        self._refused: dict[str, Denied] = {}
        self._trouble: Exception | None = None
        self._up = asyncio.Event()
        self._was_let_in = False
        self._waiting = 0
        self._is_closed = False

    async def open(self) -> None:
        """Connect. Raises Unreachable, Denied."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self._client.connect(
                    **self.settings.arguments,
                    name=f"echelon {self._purpose}",
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    ping_interval=self._ping_seconds,
                    pending_size=_PENDING_BYTES,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    reconnect_to_server_handler=next_server,
                )
                if not self._client.is_connected:
                    raise ConnectionResetError("the server closed the connection during the handshake")
                self._client.keep_connecting()
                self._replies = Replies(f"{self._client.new_inbox()}.")
                sink = Sink(self._replies.take, self._replies.take_run)
                await self._client.subscribe_sink(f"{self._replies.prefix}*", sink)
        except (OSError, errors.Error) as error:
            if not isinstance(error, errors.NoServersError):
                self._trouble = telling(self._trouble, error)
            await self._client.close()
            raise self._explain() from None
        self._was_let_in = True
        self._up.set()

    async def close(self) -> None:
        """Close for good. Whatever waits raises Unreachable."""
        self._is_closed = True
        await self._client.close()
        self._replies.fail(self._explain())
        self._up.set()
        self._tell()

    @property
    def max_payload(self) -> int:
        """The most bytes that the server takes as headers and payload of a message."""
        return self._client.max_payload

    @property
    def has_jetstream(self) -> bool:
        """Whether the server says that it has JetStream."""
        return self._client.has_jetstream

    @property
    def is_up(self) -> bool:
        """Whether there is a connection now."""
        return self._up.is_set() and not self._is_closed

    def check_open(self) -> None:
        """Raise Unreachable if the connection was closed for good."""
        if self._is_closed:
            raise self._explain()

    def check_allowed(self, subject: str) -> None:
        """Raise Denied if the server has refused to take a message on this subject, or to give any."""
        for key in (subject, ""):
            if key in self._refused:
                raise self._refused[key]

    async def wait_until_up(self) -> None:
        """Return when there is a connection, to those that wait in the order in which they came.

        Raises Unreachable after a while, Denied if the server does not accept the credentials any more.
        """
        self.check_open()
        if self._up.is_set() and not self._waiting:
            return
        self._waiting += 1
        try:
            async with asyncio.timeout(self.settings.timeout):
                if self._up.is_set():
                    await asyncio.sleep(0)  # Lets those go on that were told before.
                else:
                    await self._up.wait()
        except TimeoutError:
            raise self._explain() from None
        finally:
            self._waiting -= 1
        self.check_open()

    async def publish(
        self, subject: str, payload: bytes = b"", *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a message, in the order of the calls. Raises Unreachable, TooLarge, InvalidConfig."""
        lines = [f"{name}: {value}\r\n".encode() for name, value in headers.items()] if headers else []
        size = len(payload) + (len(b"NATS/1.0\r\n\r\n") + sum(map(len, lines)) if lines else 0)
        if size > self.max_payload:
            raise TooLarge(
                f"a message of {size} bytes for {subject} is too large: the server takes {self.max_payload}",
                remedy="Send less, or raise max_payload in the server's configuration",
            )
        await self.wait_until_up()
        try:
            await self._client.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None)
        except (errors.BadSubjectError, errors.BadHeaderError) as error:
            raise InvalidConfig(f"a message for '{subject}' cannot be sent: {error}") from None
        except errors.Error as error:
            raise self._explain(error) from None

    def send(self, subject: bytes, payload: bytes, *, reply: bytes = b"") -> bool:
        """Send a small message at once, without blocking; False if there is no connection now."""
        if not self.is_up:
            return False
        self._client.send_at_once(b"PUB %b %b %d\r\n%b\r\n" % (subject, reply, len(payload), payload))
        return True

    def look(self) -> bool:
        """Take what has come without waiting for a turn of the event loop. True: nothing has; else it should turn."""
        return self._client.look()

    async def ask(
        self, subject: str, payload: bytes = b"", *, headers: Mapping[str, str] | None = None
    ) -> "asyncio.Future[Reply]":
        """Send a request, in the order of the calls; the reply comes later, to be awaited with `answer`."""
        request = Single(asyncio.get_running_loop().create_future())
        await self._ask(subject, payload, request, headers)
        return request.future

    async def answer(self, future: "asyncio.Future[T]") -> T:
        """What the future brings. Raises Unreachable if that takes too long."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await future
        except TimeoutError:
            raise Unreachable(
                f"{self.settings.place} did not answer within {self.settings.timeout:g} s",
                remedy="See whether the server is overloaded or has lost its leader",
            ) from None

    async def request(self, subject: str, payload: bytes = b"") -> Reply:
        """Send a request and wait for the reply. Raises Unreachable, Denied."""
        return await self.answer(await self.ask(subject, payload))

    async def request_many(self, subject: str, payload: bytes) -> tuple[Batch, Reply]:
        """Send a batched direct get; returns the messages, and the status that came after them.

        Raises Unreachable, Denied. The server may have to search long for a message that matches.
        """
        many = Many(asyncio.get_running_loop().create_future())
        seconds = max(self.settings.timeout, _SEARCH_SECONDS)
        try:
            await self._ask(subject, payload, many)
            count = -1
            while count < len(many.batch.data) and not many.future.done():
                count = len(many.batch.data)
                await asyncio.wait({many.future}, timeout=seconds)
            if not many.future.done():
                raise Unreachable(f"{self.settings.place} did not go on answering within {seconds:g} s")
            return many.future.result()
        finally:
            many.future.cancel()

    async def subscribe(self, sink: Sink) -> Subscription:
        """Subscribe to new subjects for replies: that of the subscription with any token in place of its `*`."""
        await self.wait_until_up()
        try:
            return await self._client.subscribe_sink(f"{self._client.new_inbox()}.*", sink)
        except errors.Error as error:
            raise self._explain(error) from None

    async def listen(self, subject: str, sink: Sink) -> Subscription:
        """Subscribe to a subject that others publish to. Raises Unreachable."""
        await self.wait_until_up()
        try:
            return await self._client.subscribe_sink(subject, sink)
        except errors.Error as error:
            raise self._explain(error) from None

    async def unsubscribe(self, subscription: Subscription) -> None:
        """End a subscription."""
        await self._client.unsubscribe_sink(subscription)

    async def drain(self, subscription: Subscription) -> None:
        """End a subscription; returns when what the server had sent before it heard of that has come."""
        try:
            async with asyncio.timeout(self.settings.timeout):
                await self._client.drain_sink(subscription)
        except (TimeoutError, errors.Error) as error:
            _log.debug("a subscription at %s was not drained: %s", self.settings.place, error)

    async def _ask(
        self, subject: str, payload: bytes, request: Single | Many, headers: Mapping[str, str] | None = None
    ) -> None:
        self.check_allowed("")
        future: asyncio.Future[Any] = request.future
        self._asked[subject].add(future)
        future.add_done_callback(lambda done: self._forget(subject, done))
        try:
            await self.publish(subject, payload, reply=self._replies.add(request), headers=headers)
        except BaseException:
            future.cancel()
            raise

    async def _on_error(self, error: Exception) -> None:
        self._trouble = telling(self._trouble, error)
        _log.debug("connection to %s for the %s: %s", self.settings.place, self._purpose, error)

    async def _on_disconnected(self) -> None:
        self._up.clear()
        self._client.forget_unsent()
        if not self._is_closed:
            _log.info("lost the connection to %s for the %s", self.settings.place, self._purpose)
        self._replies.fail(Unreachable(f"the connection to {self.settings.place} was lost"))
        self._tell()

    async def _on_reconnected(self) -> None:
        self._trouble = None
        self._refused.clear()
        self._client.forget_attempts()
        self._up.set()
        _log.info("connected to %s again for the %s", self.settings.place, self._purpose)
        self._tell()

    def _violated(self, words: str) -> None:
        """The server says so some time after it was asked; what was asked would never be answered."""
        subject, error = violation(words)
        _log.warning("%s: %s", self.settings.place, error.what)
        self._refused[subject] = error
        asked = [self._asked.get(subject, ())] if subject else self._asked.values()
        for future in [each for futures in asked for each in futures]:
            if not future.done():
                future.set_exception(error)

    def _forget(self, subject: str, future: "asyncio.Future[Any]") -> None:
        self._asked[subject].discard(future)
        if not self._asked[subject]:
            del self._asked[subject]

    def _tell(self) -> None:
        for listener in list(self.listeners):
            listener()

    def _explain(self, error: Exception | None = None) -> BrokerError:
        """Why there is no connection."""
        if self._is_closed:
            return Unreachable(f"the connection to {self.settings.place} is closed")
        # Once it has let the user in, a connection that breaks is an outage: else it says why.
        wants_proof = not self._was_let_in and (self.settings.needs_tls or self._client.wants_credentials)
        return explain(error or self._trouble, self.settings.place, wants_proof=wants_proof)

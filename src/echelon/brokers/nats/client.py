"""nats-py's client, changed in a few places: this module alone touches what is private in it.

A test holds that these places are as they are expected to be in the nats-py that is installed.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import ParseResult

from nats import errors
from nats.aio.client import Client, Server
from nats.aio.subscription import Subscription
from nats.aio.transport import TcpTransport

from echelon.brokers.nats.wire import Parser, Sink
from echelon.pauses import pause

# nats-py reads 32 KiB at a time; large reads cost less for each message.
_READ_BYTES: Final = 1 << 18
_CLOSE_SECONDS: Final = 0.5
_SECONDS_BETWEEN_ATTEMPTS: Final = (0.01, 0.25)


class _Transport(TcpTransport):
    """TCP, with or without TLS, with a large read buffer."""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        self._abort()  # The client forgets a connection over which it was not let in.
        await super().connect(uri, _READ_BYTES, connect_timeout)

    async def read(self, buffer_size: int) -> bytes:
        data: bytes = await super().read(_READ_BYTES)
        return data

    def read_now(self) -> bytes | None:
        """What the socket has received, perhaps nothing; None if that is for the event loop to read."""
        assert self._io_reader is not None
        assert self._io_writer is not None
        transport = self._io_writer.transport
        connection = transport.get_extra_info("socket")
        if connection is None or transport.get_extra_info("sslcontext"):
            return None
        if self._io_reader._buffer or self._io_reader.at_eof():  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio does not tell whether a reader holds anything
            return None
        try:
            # At its end it gives nothing, too; the event loop will find that.
            return os.read(connection.fileno(), _READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:  # It is closed, or broken: the event loop will find out.
            return None

    def put_back(self, data: bytes) -> None:
        """Leave to the event loop what was read."""
        assert self._io_reader is not None
        self._io_reader.feed_data(data)

    async def wait_closed(self) -> None:
        """With TLS the other side has a say in it, and may be frozen or gone."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().wait_closed()  # type: ignore[no-untyped-call]  # its base has no annotations
        except TimeoutError:
            self._abort()

    def _abort(self) -> None:
        if self._io_writer is not None:
            with suppress(AttributeError):  # So early Pythons 3.11 say that it is closed already, with TLS.
                self._io_writer.transport.abort()

    def __bool__(self) -> bool:
        return True  # Or the client would put its own in its place.


class EchelonClient(Client):
    """Hands messages to sinks, connects anew whatever the server said, and sends nothing without TLS if it must not.

    `on_violation` is called with the server's words when it refuses a publish or a subscription.
    """

    def __init__(self, *, needs_tls: bool, on_violation: Callable[[str], None]) -> None:
        super().__init__()
        self._needs_tls = needs_tls
        self._on_violation = on_violation
        self._transport = _Transport()  # type: ignore[no-untyped-call]  # its base has no annotations
        self.parser = Parser(self)
        self._ps = self.parser  # type: ignore[assignment]  # ours has the methods that the client calls

    @property
    def has_jetstream(self) -> bool:
        """Whether the server that it is connected to has JetStream."""
        return bool(self._server_info.get("jetstream"))

    @property
    def wants_credentials(self) -> bool:
        """Whether the server said so when it was connected to last."""
        return bool(self._server_info.get("auth_required"))

    def keep_connecting(self) -> None:
        """From now on, connect anew whenever the connection is lost, for ever."""
        self.options["allow_reconnect"] = True
        self.options["max_reconnect_attempts"] = -1

    def look(self) -> bool:
        """Hand what the socket has received to the sinks at once. True: it has received nothing.

        False: something has changed, or it is for the event loop to read; so that should turn.
        """
        transport = self._transport
        assert isinstance(transport, _Transport)
        received = None if self.parser.is_busy or not self.is_connected else transport.read_now()
        if received and (rest := self.parser.parse_messages(received)):
            transport.put_back(rest)
        return received == b""

    def forget_attempts(self) -> None:
        """Ask all servers alike when the connection is lost again. The client forgets only those of the one it found.

        The others would have to wait until that one was tried as often as they were.
        """
        for server in self._server_pool:
            server.reconnects = 0

    def forget_unsent(self) -> None:
        """Drop what is not sent yet. Subscriptions are sent again by the client when it has reconnected."""
        self._pending = []
        self._pending_data_size = 0

    def send_at_once(self, data: bytes) -> None:
        """Hand bytes to the connection without waiting for a turn of the event loop, after what waits to be sent."""
        assert self._transport is not None
        self._transport.writelines([*self._pending, data])
        self.forget_unsent()

    async def subscribe_sink(self, subject: str, sink: Sink) -> Subscription:
        """Subscribe, with `sink` called for each message from within the reading of the socket."""
        subscription = await self.subscribe(subject)
        self.parser.set_sink(number_of(subscription), sink)
        return subscription

    async def drain_sink(self, subscription: Subscription) -> None:
        """End a subscription of `subscribe_sink`, when all that the server had sent for it has come."""
        try:
            if not self.is_closed:
                await subscription.unsubscribe()
            if self.is_connected:
                await self.flush()
        finally:
            self.parser.set_sink(number_of(subscription), None)

    async def unsubscribe_sink(self, subscription: Subscription) -> None:
        """End a subscription of `subscribe_sink`, also while there is no connection."""
        self.parser.set_sink(number_of(subscription), None)
        if not self.is_closed:
            await subscription.unsubscribe()

    async def _process_connect_init(self) -> None:
        """What the client does not expect, as of a half-written file with credentials, would end its attempts."""
        try:
            await super()._process_connect_init()
        except (OSError, errors.Error):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may succeed
            # Its words may hold credentials.
            raise errors.Error(f"nats: no handshake: {type(error).__name__}") from None

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as in the base
        if initial_connection and self._needs_tls and not info.get("tls_required"):
            raise errors.Error("nats: the server does not speak TLS")
        await super()._process_info(info, initial_connection)

    async def _process_err(self, err_msg: str) -> None:
        """The client would close itself for good upon most errors."""
        if "permissions violation" in err_msg.lower():
            self._on_violation(err_msg)
        else:
            await self._process_op_err(errors.Error(f"nats: {err_msg}"))


def number_of(subscription: Subscription) -> int:
    """The number that the server puts into each message of a subscription."""
    return subscription._id  # noqa: SLF001 - nats-py tells it nobody


def next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """The server to connect to next, and how long to wait before: at first hardly at all."""
    # nats-py counts the attempt for the first server of that address; another one would never get a pause.
    places = {each.uri.netloc: each for each in reversed(servers)}
    server = min(places.values(), key=lambda each: each.reconnects)
    return server, pause(*_SECONDS_BETWEEN_ATTEMPTS, server.reconnects) if server.reconnects else 0.0

"""The bytes that a nats-server sends, taken apart: in place of nats-py's own parser, for speed.

nats-py's parser makes several coroutine calls for each message. This one hands a message to a plain function,
and a run of messages that are alike to another, which takes all of them at once.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from nats.errors import ProtocolError

CRLF: Final = b"\r\n"
_MAX_LINE: Final = 1 << 20
# Where a run is shorter, the messages up to there are taken one by one: looking for runs costs time too.
RUN_BYTES: Final = 1 << 16


class Sink(NamedTuple):
    """What is done with the messages of a subscription.

    `take` is called with subject, reply subject, header block and payload of each. `take_run` is tried first:
    given the bytes received and the place of a message in them, it takes as many messages as it can and returns
    the place after them. All that it is given is preceded by CRLF.
    """

    take: Callable[[bytes, bytes, bytes, bytes], None]
    take_run: Callable[[bytes, int], int] | None = None


class Client(Protocol):
    """What nats-py's client does with all that is no message."""

    async def _process_ping(self) -> None: ...
    async def _process_pong(self) -> None: ...
    async def _process_info(self, info: dict[str, Any]) -> None: ...
    async def _process_err(self, err_msg: str) -> None: ...


class Parser:
    """Takes the place of `nats.protocol.parser.Parser`. Messages go to the sink of their subscription, or nowhere."""

    def __init__(self, client: Client) -> None:
        self.is_busy = False
        """Some of what was received is being parsed."""
        self._client = client
        self._sinks: dict[bytes, Sink] = {}
        self.reset()

    def reset(self) -> None:
        """Forget what was received in part: the connection is a new one."""
        # The CRLF before the next message is always kept: runs are found by it.
        self._parts = [CRLF]
        self._missing = 1

    def set_sink(self, subscription: int, sink: Sink | None) -> None:
        """Give a subscription's messages to `sink`; None ends that."""
        key = b"%d" % subscription
        if sink is None:
            self._sinks.pop(key, None)
        else:
            self._sinks[key] = sink

    async def parse(self, data: bytes = b"") -> None:
        """Take in what was received. Raises ProtocolError, upon which nats-py connects anew."""
        parts = self._parts
        parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        data = b"".join(parts)
        self.is_busy = True
        try:
            place, missing = await self._take(data)
        except (ValueError, IndexError, msgspec.DecodeError):
            raise ProtocolError from None
        finally:
            self.is_busy = False
        if parts is self._parts:  # Not reset meanwhile.
            self._parts, self._missing = [data[place - 2 :]], missing

    def parse_messages(self, data: bytes) -> bytes:
        """Take in what was received, up to a line that begins no message; returns the rest, which is to be parsed.

        Not while `is_busy`.
        """
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return b""
        data = b"".join(self._parts)
        place, missing = self._take_messages(data, len(CRLF))
        end = len(data) if missing else place
        self._parts, self._missing = [data[place - 2 : end]], missing or 1
        return data[end:]

    async def _take(self, data: bytes) -> tuple[int, int]:
        """Take all that is complete. Returns the place after it, and how many more bytes are needed at least."""
        place, missing = self._take_messages(data, len(CRLF))
        while not missing:
            line_end = data.index(CRLF, place)
            await self._control(data[place:line_end])
            place, missing = self._take_messages(data, line_end + 2)
        return place, missing

    def _take_messages(self, data: bytes, place: int) -> tuple[int, int]:
        """The same, up to what begins no message, or none as it should be: nothing is missing then."""
        no_run_before = 0
        while place < len(data):
            line_end = data.find(CRLF, place)
            if line_end < 0:
                return place, int(len(data) - place <= _MAX_LINE)
            line = data[place:line_end]
            if not line.startswith((b"MSG ", b"HMSG ")):
                return place, 0
            words, is_plain = line.split(b" "), line[0] == ord("M")
            try:
                sink, size, header = self._sinks.get(words[2]), int(words[-1]), 0 if is_plain else int(words[-2])
            except (ValueError, IndexError):
                return place, 0
            if sink and sink.take_run and place >= no_run_before:
                after = sink.take_run(data, place)
                if after < place + RUN_BYTES:
                    no_run_before = place + RUN_BYTES
                if after > place:
                    place = after
                    continue
            start = line_end + 2
            end = start + size
            if end + 2 > len(data):
                return place, end + 2 - len(data)
            if sink:
                reply = words[3] if len(words) == (5 if is_plain else 6) else b""
                sink.take(words[1], reply, data[start : start + header], data[start + header : end])
            place = end + 2
        return place, 1

    async def _control(self, line: bytes) -> None:
        operation, _, rest = line.partition(b" ")
        match operation.upper():
            case b"PING":
                await self._client._process_ping()  # noqa: SLF001 - nats-py calls it so itself
            case b"PONG":
                await self._client._process_pong()  # noqa: SLF001 - the same
            case b"INFO":
                await self._client._process_info(msgspec.json.decode(rest, type=dict[str, Any]))  # noqa: SLF001 - the same
            case b"-ERR":
                await self._client._process_err(rest.strip().strip(b"'").decode(errors="replace"))  # noqa: SLF001 - the same
            case b"+OK":
                pass
            case _:
                raise ProtocolError

"""Replies to requests, all received through one subscription and told apart by the last token of their subject.

A request is answered by one message, or (a batched direct get) by many. Those that come in a run are taken
apart with one regular expression, in C; one by one where that does not fit.
"""

import re
from asyncio import Future
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.wire import CRLF

# Header lines that the server puts after those that were stored with the message. A message of a stream that
# is sourced from another has one more, which says where it came from.
_SERVER_LINES: Final = (
    rb"(?:Nats-Stream-Source: [^\r]*+\r\n)?"
    rb"Nats-Stream: [^\r]*+\r\nNats-Subject: ([^\r]*+)\r\nNats-Sequence: (\d++)\r\nNats-Time-Stamp: ([^\rZ]*+)Z\r\n"
    rb"Nats-Num-Pending: \d++\r\nNats-Last-Sequence: \d++\r\n\r\n"
)
_HEADER: Final = re.compile(rb"(?:NATS/1\.0[^\r]*\r\n)?(.*?)" + _SERVER_LINES, re.DOTALL)
_STATUS: Final = re.compile(rb"NATS/1\.0 (\d+) ?([^\r]*)\r\n")
_PENDING: Final = re.compile(rb"Nats-Num-Pending: (\d+)\r\n")
_GROUPS: Final = 7


class Reply(NamedTuple):
    """One message in answer to a request."""

    header: bytes
    payload: bytes

    @property
    def status(self) -> tuple[int, str]:
        """The code and the words of a status message; 0 if it is none."""
        found = _STATUS.match(self.header)
        return (int(found[1]), found[2].decode(errors="replace")) if found else (0, "")


class Single:
    """A request that is answered by one message."""

    def __init__(self, future: "Future[Reply]") -> None:
        self.future = future

    def take(self, reply: Reply) -> None:
        """Take the reply."""
        if not self.future.done():
            self.future.set_result(reply)


class Many:
    """A batched direct get, which is answered by messages and a status at the end."""

    def __init__(self, future: "Future[tuple[Batch, Reply]]") -> None:
        self.future = future
        self.batch = Batch()

    def take(self, reply: Reply) -> None:
        """Take a message, or the status after the last one."""
        if found := _HEADER.fullmatch(reply.header):
            headers, subject, sequence, time = found.groups()
            self.take_columns([headers], [subject], [sequence], [time], [reply.payload])
            return
        pending = _PENDING.search(reply.header)
        self.batch.pending = int(pending[1]) if pending else 0
        if not self.future.done():
            self.future.set_result((self.batch, reply))

    def take_columns(
        self, headers: list[bytes], subjects: list[bytes], sequences: list[bytes], times: list[bytes], data: list[bytes]
    ) -> None:
        """Take several messages."""
        self.batch.extend(Batch(headers, subjects, list(map(int, sequences)), milliseconds(times), data))


class Replies:
    """The requests that are not answered yet. `prefix` is what the subjects of all replies begin with."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._waiting: dict[bytes, Single | Many] = {}
        self._count = 0
        self._pattern = re.compile(
            rb"\r\nHMSG " + re.escape(prefix.encode()) + rb"(\d++) \d++ (\d++) (\d++)\r\n"
            rb"NATS/1\.0\r\n((?:[^\r]*+\r\n)*?)" + _SERVER_LINES
        )  # fmt: skip

    def add(self, request: Single | Many) -> str:
        """Wait for the replies to a request; returns the subject that they are to be sent to."""
        self._count += 1
        key = b"%d" % self._count
        self._waiting[key] = request
        request.future.add_done_callback(lambda _future: self._waiting.pop(key, None))
        return f"{self.prefix}{self._count}"

    def fail(self, error: Exception) -> None:
        """No request will be answered any more."""
        for request in list(self._waiting.values()):
            if not request.future.done():
                request.future.set_exception(error)

    def take(self, subject: bytes, _reply: bytes, header: bytes, payload: bytes) -> None:
        """Take one message."""
        if request := self._waiting.get(subject[len(self.prefix) :]):
            request.take(Reply(header, payload))

    def take_run(self, data: bytes, place: int) -> int:
        """Take the messages at `place`, but for the last, as far as they are replies to one batched direct get.

        What does not add up (another message among them, or a payload that looks like one) ends the run.
        """
        key_start = place + len("HMSG ") + len(self.prefix)
        key_end = data.find(b" ", key_start)
        key = data[key_start:key_end]
        request = self._waiting.get(key)
        last = data.rfind(data[place - len(CRLF) : key_end + 1], place) if isinstance(request, Many) else -1
        if last < 0 or not isinstance(request, Many):
            return place
        fields = self._pattern.split(memoryview(data)[place - len(CRLF) : last])
        columns = [fields[column :: _GROUPS + 1] for column in range(1, _GROUPS + 2)]
        keys, header_sizes, sizes, *_, payloads = columns
        is_whole = not fields[0] and keys.count(key) == len(keys)
        if is_whole and sum(map(len, payloads)) + sum(map(int, header_sizes)) == sum(map(int, sizes)):
            request.take_columns(*columns[3:])
            return last + len(CRLF)
        if fields[0]:
            return place
        count = _sound(key, keys, header_sizes, sizes, payloads)
        request.take_columns(*(column[:count] for column in columns[3:]))
        # All the lines before the messages are as long as the first, but for the numbers at their ends.
        numbers_start = data.find(b" ", key_end + 1) + 1
        line = numbers_start - place + len(b" \r\n") + len(CRLF)
        numbers = zip(header_sizes[:count], sizes, strict=False)
        return place + sum(line + len(header_size) + len(size) + int(size) for header_size, size in numbers)


def milliseconds(times: list[bytes]) -> list[int]:
    """Times as the server writes them (`2026-11-15T10:05:28.90072325`) as milliseconds since the epoch, UTC."""
    cut = [text[:23] for text in times]
    known = {text: _seconds(text[:19]) * 1000 + int(text[20:].ljust(3, b"0")) for text in set(cut)}
    return [known[text] for text in cut]


@lru_cache(1024)
def _seconds(text: bytes) -> int:
    return int(datetime.fromisoformat(text.decode()).replace(tzinfo=UTC).timestamp())


def _sound(key: bytes, keys: list[bytes], header_sizes: list[bytes], sizes: list[bytes], payloads: list[bytes]) -> int:
    """How many messages, from the first on, belong to the request and are as long as they say."""
    for count, (own, header_size, size, payload) in enumerate(zip(keys, header_sizes, sizes, payloads, strict=True)):
        if own != key or len(payload) != int(size) - int(header_size):
            return count
    return len(keys)

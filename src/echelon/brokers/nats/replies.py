"""Replies to requests, all received through one subscription and told apart by the last token of their subject.

A request is answered by one message, or (a batched direct get) by many. Those that come in a run are taken
apart with one regular expression, in C; one by one where that does not fit.
"""

import re
from asyncio import Future
from typing import Final, NamedTuple

from msgspec import Struct, field

from echelon.brokers.nats.wire import CRLF

# Header lines that the server puts after those that were stored with the message. A message of a stream that
# is sourced from another has one more, which says where it came from.
_SERVER_LINES: Final = (
    rb"(?:Nats-Stream-Source: [^\r]*\r\n)?"
    rb"Nats-Stream: [^\r]*+\r\nNats-Subject: ([^\r]*+)\r\nNats-Sequence: (\d++)\r\nNats-Time-Stamp: ([^\rZ]*+)Z\r\n"
    rb"Nats-Num-Pending: \d++\r\nNats-Last-Sequence: \d++\r\n\r\n"
)
_HEADER: Final = re.compile(rb"(?:NATS/1\.0[^\r]*\r\n)?(.*?)" + _SERVER_LINES, re.DOTALL)
_STATUS: Final = re.compile(rb"NATS/1\.0 (\d+) ?([^\r]*)\r\n")
_END: Final = re.compile(rb"Nats-Num-Pending: (\d+)\r\n")
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


class Batch(Struct):
    """Messages as the server sent them, column by column. `pending` is how many more it had."""

    headers: list[bytes] = field(default_factory=list)
    subjects: list[bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    times: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    pending: int = 0


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
        found = _HEADER.fullmatch(reply.header)
        if found:
            headers, subject, sequence, time = found.groups()
            self.take_run([headers], [subject], [sequence], [time], [reply.payload])
            return
        pending = _END.search(reply.header)
        self.batch.pending = int(pending[1]) if pending else 0
        if not self.future.done():
            self.future.set_result((self.batch, reply))

    def take_run(
        self, headers: list[bytes], subjects: list[bytes], sequences: list[bytes], times: list[bytes], data: list[bytes]
    ) -> None:
        """Take several messages, column by column."""
        batch = self.batch
        batch.headers += headers
        batch.subjects += subjects
        batch.sequences += map(int, sequences)
        batch.times += times
        batch.data += data


class Replies:
    """The requests that are not answered yet. `prefix` is what the subjects of all replies begin with."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._waiting: dict[bytes, Single | Many] = {}
        self._count = 0
        self._line_bytes = 0
        self._pattern = re.compile(b"")

    def set_subscription(self, number: bytes) -> None:
        """Say which subscription the replies come through."""
        self._line_bytes = len(number) + len(b"   \r\n\r\n")
        self._pattern = re.compile(
            rb"\r\nHMSG " + re.escape(self.prefix.encode()) + rb"(\d+) " + number + rb" (\d+) (\d+)\r\n"
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
        """Take one message; the sink of the subscription."""
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
        if key_end < 0 or not isinstance(request, Many):
            return place
        last = data.rfind(data[place - len(CRLF) : key_end + 1], place)
        if last < 0:
            return place
        fields = self._pattern.split(memoryview(data)[place - len(CRLF) : last])
        columns = [fields[column :: _GROUPS + 1] for column in range(1, _GROUPS + 2)]
        keys, header_sizes, sizes, *_, payloads = columns
        is_whole = not fields[0] and keys.count(key) == len(keys)
        if is_whole and sum(map(len, payloads)) + sum(map(int, header_sizes)) == sum(map(int, sizes)):
            request.take_run(*columns[3:])
            return last + len(CRLF)
        if fields[0]:
            return place
        count = _sound(key, keys, header_sizes, sizes, payloads)
        request.take_run(*(column[:count] for column in columns[3:]))
        # What stands before each payload: as many bytes as before the first, but for the numbers.
        lines = count * (key_start - place + len(key) + self._line_bytes)
        return place + lines + sum(len(n) + len(m) + int(m) for n, m in zip(header_sizes[:count], sizes, strict=False))


def _sound(key: bytes, keys: list[bytes], header_sizes: list[bytes], sizes: list[bytes], payloads: list[bytes]) -> int:
    """How many messages, from the first on, belong to the request and are as long as they say."""
    for count, (own, header_size, size, payload) in enumerate(zip(keys, header_sizes, sizes, payloads, strict=True)):
        if own != key or len(payload) != int(size) - int(header_size):
            return count
    return len(keys)

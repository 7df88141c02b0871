"""What a consumer delivers in answer to pull requests, taken apart: a run of messages at once, in C."""

import asyncio
import re
from typing import Final

from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.consumer import parse_ack
from echelon.brokers.nats.wire import CRLF

_STORED_HEADER: Final = re.compile(rb"NATS/1\.0[^\r]*\r\n(.*?)(?:Nats-Stream-Source: [^\r]*\r\n)?\r\n", re.DOTALL)
_GROUPS: Final = 9
# What the server does not count as a message's size: CRLF twice, `MSG`, four spaces; of one with headers more.
_UNCOUNTED: Final = 11
_UNCOUNTED_OF_HEADERS: Final = 2


class Deliveries:
    """The messages of one consumer, each right after the one before, in batches.

    `batch` grows until it `is_over`: when as much came as was asked for, when the consumer says so, or when a message
    is missing or came unasked. Then it `is_lost` too, for good.
    """

    def __init__(self, stream: str, consumer: str) -> None:
        self.batch = Batch()
        self.is_over = asyncio.Event()
        self.is_lost = False
        self._request = b""
        self._messages_left = 0
        self._bytes_left = 0
        self._number = 0
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.1.<sequence>.<number>.<time>.<pending>[.<token>]
        # The time is in nanoseconds, of which the milliseconds are taken.
        ack = re.escape(f"{stream}.{consumer}.1.".encode())
        self._pattern = re.compile(
            rb"\r\n(?:(H)|)MSG (\S++) \d++ \$JS\.ACK\.(?:[^. ]++\.[^. ]++\.)??" + ack +
            rb"(\d++)\.(\d++)\.(\d{13})\d{6}\.(\d++)(?:\.\S++)? (?:(\d++) )?(\d++)\r\n"
            rb"(?(1)NATS/1\.0\r\n((?:[^\r]*+\r\n)*?)(?:Nats-Stream-Source: [^\r]*+\r\n)?\r\n|)"
        )  # fmt: skip
        self._marker = f".{consumer}.1.".encode()

    def begin(self, request: str, messages: int, size: int) -> None:
        """Begin a new batch: at most so many messages and bytes have been asked for, the answers to go to `request`."""
        self.batch = Batch()
        self._request = request.encode()
        self._messages_left, self._bytes_left = messages, size
        if not self.is_lost:
            self.is_over.clear()

    def lose(self) -> None:
        """The consumer, or one of its messages, is lost."""
        self.is_lost = True
        self.is_over.set()

    def take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take one message, or a status."""
        if not reply:
            if subject == self._request:  # Or it is about a request that is over.
                self._take_status(header)
            return
        ack = parse_ack(reply)
        found = _STORED_HEADER.fullmatch(header)
        self._add(
            ack.number,
            len(subject) + len(reply) + len(header) + len(payload),
            Batch(
                [found[1] if found else header], [subject], [ack.sequence], [ack.time], [payload], pending=ack.pending
            ),
        )

    def take_run(self, data: bytes, place: int) -> int:
        """Take the messages at `place`, but for the last, if all that lies between them is their payloads."""
        marker = data.rfind(self._marker, place)
        last = data.rfind(CRLF, place - len(CRLF), marker) if marker >= 0 else -1
        if last <= place:
            return place
        run = memoryview(data)[place - len(CRLF) : last]
        fields = self._pattern.split(run)
        columns = [fields[column :: _GROUPS + 1] for column in range(1, _GROUPS + 2)]
        _, subjects, sequences, numbers, times, pending, header_sizes, sizes, headers, payloads = columns
        with_headers = list(filter(None, header_sizes))
        if fields[0] or sum(map(len, payloads)) + sum(map(int, with_headers)) != sum(map(int, sizes)):
            return place
        if int(numbers[0]) + len(numbers) - 1 != int(numbers[-1]):
            return place
        subscription = data[place : data.find(CRLF, place)].split(b" ")[2]
        uncounted = len(sizes) * (_UNCOUNTED + len(subscription)) + sum(map(len, sizes))
        uncounted += len(with_headers) * _UNCOUNTED_OF_HEADERS + sum(map(len, with_headers))
        self._add(
            int(numbers[0]),
            len(run) - uncounted,
            Batch(
                [each or b"" for each in headers],
                subjects,
                list(map(int, sequences)),
                list(map(int, times)),
                payloads,
                pending=int(pending[-1]),
            ),
        )
        return last + len(CRLF)

    def _take_status(self, header: bytes) -> None:
        if header[9:12] in {b"404", b"408"} or b"MaxBytes" in header or b"Batch Completed" in header:
            self.is_over.set()
        else:
            self.lose()

    def _add(self, number: int, size: int, part: Batch) -> None:
        """Add messages, the first of which is the consumer's delivery `number`."""
        if self.is_over.is_set() or number != self._number + 1:
            self.lose()
            return
        self.batch.extend(part)
        self._number += len(part.data)
        self._messages_left -= len(part.data)
        self._bytes_left -= size
        # If the bytes come out even, the server says no word.
        if self._messages_left <= 0 or self._bytes_left == 0 or not part.pending:
            self.is_over.set()

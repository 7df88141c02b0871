"""A long range of a stream, read through a consumer: the server spends about half as much on it as on direct gets.

It keeps nothing that outlives it for long, and gives up when anything is amiss; direct gets can then go on.
"""

import asyncio
import re
import uuid
from typing import Final

from nats.aio.subscription import Subscription

from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.batch import Batch
from echelon.brokers.nats.consumer import configuration, parse_ack
from echelon.brokers.nats.wire import CRLF, Sink
from echelon.errors import Unreachable

_SECONDS: Final = 30.0
_STORED_HEADER: Final = re.compile(rb"NATS/1\.0[^\r]*\r\n(.*?)(?:Nats-Stream-Source: [^\r]*\r\n)?\r\n", re.DOTALL)
_GROUPS: Final = 9


class Stretch:
    """The messages of a stream that match `filter`, from `position` on, in batches."""

    def __init__(self, js: JetStream, stream: str, filter: str, position: int) -> None:
        self.position = position
        self._js = js
        self._stream = stream
        self._filter = filter
        self._name = f"echelon-{uuid.uuid4().hex}"
        self._subscription: Subscription | None = None
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batch = Batch()
        self._wanted = 0
        self._number = 0
        self._requests = 0
        # $JS.ACK.[<domain>.<account>.]<stream>.<consumer>.1.<sequence>.<number>.<time>.<pending>[.<token>]
        # The time is in nanoseconds, of which the milliseconds are taken.
        ack = re.escape(f"{stream}.{self._name}.1.".encode())
        self._pattern = re.compile(
            rb"\r\n(?:(H)|)MSG (\S++) \d++ \$JS\.ACK\.(?:[^. ]++\.[^. ]++\.)??" + ack +
            rb"(\d++)\.(\d++)\.(\d{13})\d{6}\.(\d++)(?:\.\S++)? (?:(\d++) )?(\d++)\r\n"
            rb"(?(1)NATS/1\.0\r\n((?:[^\r]*+\r\n)*?)(?:Nats-Stream-Source: [^\r]*+\r\n)?\r\n|)"
        )  # fmt: skip
        self._marker = f".{self._name}.1.".encode()

    async def open(self) -> None:
        """Make the consumer. Raises StreamNotFound, Denied, Unreachable."""
        self._js.connection.listeners.add(self._lose)
        self._subscription = await self._js.connection.subscribe(Sink(self._take, self._take_run))
        config = configuration(self._name, self._filter, self.position, idle_seconds=_SECONDS)
        await self._js.create_consumer(self._stream, config)

    async def read(self, messages: int, size: int) -> Batch:
        """The next messages, at most so many and about so many bytes; fewer if the stream ends.

        One call at a time. Raises Unreachable if anything is amiss; then it cannot be used any more.
        """
        assert self._subscription
        self._batch, self._wanted = Batch(), messages
        self._future = asyncio.get_running_loop().create_future()
        self._requests += 1
        reply = f"{self._subscription.subject[:-1]}{self._requests}"
        body = b'{"batch":%d,"max_bytes":%d,"no_wait":true}' % (messages, size)
        subject = f"{self._js.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        await self._js.connection.publish(subject, body, reply=reply)
        count = -1
        while count < len(self._batch.data) and not self._future.done():
            count = len(self._batch.data)
            await asyncio.wait({self._future}, timeout=_SECONDS)
        if not self._future.done():
            raise Unreachable(f"the stream {self._stream} did not go on answering within {_SECONDS:g} s")
        self._future.result()
        self.position = max(self.position, self._batch.end)
        return self._batch

    async def close(self) -> None:
        """Stop, and tell the server so."""
        self._js.connection.listeners.discard(self._lose)
        if self._subscription:
            await self._js.connection.unsubscribe(self._subscription)
        if self._js.connection.is_up:
            await self._js.connection.publish(f"{self._js.prefix}.CONSUMER.DELETE.{self._stream}.{self._name}")

    def _lose(self) -> None:
        if not self._future.done():
            self._future.set_exception(Unreachable(f"the consumer that read {self._stream} was lost"))

    def _take(self, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """Take one message, or a status."""
        if not reply:
            if not subject.endswith(b".%d" % self._requests):
                return  # It is about a request that is over.
            if header[9:12] in {b"404", b"408"} or b"MaxBytes" in header or b"Batch Completed" in header:
                self._finish()
            else:
                self._lose()
            return
        ack = parse_ack(reply)
        found = _STORED_HEADER.fullmatch(header)
        self._take_columns(
            [found[1] if found else header], [subject], [ack.sequence], [ack.time], [payload], ack.number, ack.pending
        )

    def _take_run(self, data: bytes, place: int) -> int:
        """Take the messages at `place`, but for the last, if all that lies between them is their payloads."""
        marker = data.rfind(self._marker, place)
        last = data.rfind(CRLF, place - len(CRLF), marker) if marker >= 0 else -1
        if last <= place:
            return place
        fields = self._pattern.split(memoryview(data)[place - len(CRLF) : last])
        columns = [fields[column :: _GROUPS + 1] for column in range(1, _GROUPS + 2)]
        _, subjects, sequences, numbers, times, pending, header_sizes, sizes, headers, payloads = columns
        header_bytes = sum(map(int, filter(None, header_sizes)))
        if fields[0] or sum(map(len, payloads)) + header_bytes != sum(map(int, sizes)):
            return place
        if int(numbers[0]) + len(numbers) - 1 != int(numbers[-1]):
            return place
        self._take_columns(
            [each or b"" for each in headers],
            subjects,
            list(map(int, sequences)),
            list(map(int, times)),
            payloads,
            int(numbers[0]),
            int(pending[-1]),
        )
        return last + len(CRLF)

    def _take_columns(
        self,
        headers: list[bytes],
        subjects: list[bytes],
        sequences: list[int],
        times: list[int],
        data: list[bytes],
        number: int,
        pending: int,
    ) -> None:
        if number != self._number + 1:
            self._lose()
        self._number += len(data)
        batch = self._batch
        batch.headers += headers
        batch.subjects += subjects
        batch.sequences += sequences
        batch.times += times
        batch.data += data
        batch.pending = pending
        if len(batch.data) >= self._wanted or not pending:
            self._finish()

    def _finish(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

"""The data of a stream in memory: readers compute the partition of each message."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from echelon.brokers.base import StreamInfo
from echelon.brokers.memory.server import Connection, Record
from echelon.brokers.memory.tape import Tape
from echelon.errors import OutOfRange
from echelon.group.config import Stream
from echelon.keys import RecordKey, extractor, matches, nats_partition
from echelon.model import Message, partition_name

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH: Final = 1000


class MemoryReader:
    """A stream's data by partition, as `echelon.brokers.base.Reader` describes it."""

    def __init__(self, connection: Connection, stream: Stream, *, alone: bool) -> None:
        self._connection = connection
        self._stream = stream
        self._names = [partition_name(stream.name, number, alone=alone) for number in range(stream.partitions)]
        self._key_of = extractor(stream.key)
        self._filter = ">" if isinstance(stream.key, RecordKey) else stream.key.filter

    async def info(self) -> StreamInfo:
        """Identity and bounds now; the partitions share their bounds."""
        tape = self._tape()
        return StreamInfo(tape.identity, dict.fromkeys(range(self._stream.partitions), tape.bounds))

    async def lag(self, partition: int, position: int) -> int:
        """How many messages the partition holds from `position` on."""
        tape = self._tape()
        return len(self._select(tape, partition, position, tape.bounds.end))

    async def read(self, partition: int, start: int, end: int) -> AsyncGenerator[list[Message], None]:
        """The messages of a range, in order."""
        tape = self._tape()
        self._check_range(tape, partition, start, end)
        for position in range(start, end, _BATCH):
            if messages := self._select(tape, partition, position, min(position + _BATCH, end)):
                yield messages

    async def read_arrow(self, partition: int, start: int, end: int) -> "AsyncGenerator[pa.RecordBatch, None]":
        """The same range as Arrow record batches."""
        from echelon.brokers.arrow import from_messages

        async for messages in self.read(partition, start, end):
            yield from_messages(messages)

    async def tail(self, partition: int, start: int) -> AsyncGenerator[list[Message], None]:
        """Messages from `start` on, as they come; never ends by itself."""
        tape = self._tape()
        position = start
        while True:
            self._connection.check_open()
            if tape.is_deleted:
                tape = self._tape()  # Another one, which the check refuses, or none.
            self._check_range(tape, partition, position, position)
            end = min(position + _BATCH, tape.bounds.end) if self._connection.server.is_up else position
            if position == end:
                await tape.changed()
                continue
            messages = self._select(tape, partition, position, end)
            position = end
            if messages:
                yield messages

    async def position_at(self, partition: int, time: int) -> int:
        """The sequence of the first message whose time is not before `time`; the end if there is none."""
        tape = self._tape()
        messages = self._select(tape, partition, tape.bounds.first, tape.bounds.end)
        return next((message.sequence for message in messages if message.time >= time), tape.bounds.end)

    def _tape(self) -> Tape[Record]:
        return self._connection.stream(self._stream.name)

    def _select(self, tape: Tape[Record], partition: int, start: int, end: int) -> list[Message]:
        """The messages of the partition among those of the range that are there."""
        name, count = self._names[partition], self._stream.partitions
        messages = []
        for sequence, record in tape.read(start, end):
            if matches(self._filter, record.subject):
                key = self._key_of(record.subject, record.headers, record.key)
                if nats_partition(key or b"", count) == partition:
                    message = Message(name, sequence, record.subject, key, record.headers, record.data, record.time)
                    messages.append(message)
        return messages

    def _check_range(self, tape: Tape[Record], partition: int, start: int, end: int) -> None:
        bounds = tape.bounds
        is_same = self._stream.identity == tape.identity
        if is_same and bounds.first <= start and end <= bounds.end:
            return
        position = start if not is_same or start < bounds.first else end
        raise OutOfRange(
            f"partition {partition} of {self._stream.name} holds {bounds.first} to {bounds.end}, not {position}"
            if is_same
            else f"the stream {self._stream.name} was made anew",
            partition=self._names[partition],
            position=position,
            first=bounds.first,
            end=bounds.end,
            remedy="Reset the group to positions that are there",
        )

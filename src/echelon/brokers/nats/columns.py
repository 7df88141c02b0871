"""From what the server sent to messages by partition: as columns, of which structs and Arrow batches are made."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from echelon.brokers.nats.replies import Batch
from echelon.model import Message

if TYPE_CHECKING:
    import pyarrow as pa

Headers = tuple[tuple[str, bytes], ...]

_REMEMBERED: Final = 65_536


class Place(Struct, frozen=True, gc=False):
    """Where a message belongs: its partition, its subject as users know it, its key."""

    partition: int
    subject: str
    key: bytes


# Given a subject as it stands in the stream, and the headers; None if the message is in no partition.
Locate = Callable[[str, Headers], Place | None]


class Columns(Struct, gc=False):
    """Messages of one partition, column by column. `headers` is None if no message has any."""

    sequences: tuple[int, ...]
    subjects: tuple[str, ...]
    keys: tuple[bytes, ...]
    headers: tuple[Headers, ...] | None
    data: tuple[bytes, ...]
    times: tuple[int, ...]

    def messages(self, partition: str) -> list[Message]:
        """The messages as structs."""
        return list(
            map(
                Message,
                repeat(partition),
                self.sequences,
                self.subjects,
                self.keys,
                self.headers or repeat(()),
                self.data,
                self.times,
            )
        )

    def arrow(self, partition: str) -> "pa.RecordBatch":
        """The messages as an Arrow record batch."""
        from echelon.brokers.arrow import from_columns

        return from_columns(partition, self.sequences, self.subjects, self.keys, self.headers, self.data, self.times)

    def cut(self, start: int, end: int) -> "Columns":
        """Those with `start <= sequence < end`."""
        sequences = self.sequences
        if sequences[0] >= start and sequences[-1] < end:
            return self
        first = next((place for place, each in enumerate(sequences) if each >= start), len(sequences))
        last = next((place for place, each in enumerate(sequences) if each >= end), len(sequences))
        chosen = slice(first, last)
        return Columns(
            sequences[chosen],
            self.subjects[chosen],
            self.keys[chosen],
            self.headers[chosen] if self.headers else None,
            self.data[chosen],
            self.times[chosen],
        )


class Splitter:
    """Splits batches by partition. Where a subject belongs is remembered unless it depends on the headers."""

    def __init__(self, locate: Locate, *, by_header: bool) -> None:
        self._locate = locate
        self._by_header = by_header
        self._places: dict[bytes, Place | None] = {}

    def place(self, subject: bytes, headers: bytes) -> Place | None:
        """Where one message belongs."""
        if self._by_header:
            return self._locate(_text(subject), parse_headers(headers))
        if subject not in self._places:
            if len(self._places) >= _REMEMBERED:
                self._places.clear()
            self._places[subject] = self._locate(_text(subject), ())
        return self._places[subject]

    def split(self, batch: Batch) -> dict[int, Columns]:
        """The batch's messages by partition, each in order; those that are in none are left out."""
        places = self._find(batch)
        rows: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            if place is not None:
                try:
                    rows[place.partition].append(row)
                except KeyError:
                    rows[place.partition] = [row]
        headers = list(map(parse_headers, batch.headers)) if any(batch.headers) else None
        times = milliseconds(batch.times)
        return {partition: _choose(chosen, places, batch, headers, times) for partition, chosen in rows.items()}

    def _find(self, batch: Batch) -> "list[Place | None]":
        if not self._by_header:
            try:
                return [self._places[subject] for subject in batch.subjects]
            except KeyError:
                pass
        return list(map(self.place, batch.subjects, batch.headers))


def parse_headers(block: bytes) -> Headers:
    """Name and value of each line."""
    if not block:
        return ()
    lines = [line.partition(b":") for line in block.split(b"\r\n")]
    return tuple((_text(name), value.strip()) for name, colon, value in lines if colon)


def milliseconds(times: list[bytes]) -> list[int]:
    """Times as the server writes them (`2026-11-15T10:05:28.90072325`) as milliseconds since the epoch, UTC."""
    try:
        return [_times[text[:23]] for text in times]
    except KeyError:
        return list(map(_milliseconds, times))


def _milliseconds(text: bytes) -> int:
    text = text[:23]
    if text not in _times:
        if len(_times) >= _REMEMBERED:
            _times.clear()
        second = datetime.fromisoformat(text[:19].decode()).replace(tzinfo=UTC)
        _times[text] = int(second.timestamp()) * 1000 + int(text[20:].ljust(3, b"0"))
    return _times[text]


_times: Final[dict[bytes, int]] = {}


def _choose(
    rows: list[int], places: "list[Place | None]", batch: Batch, headers: list[Headers] | None, times: list[int]
) -> Columns:
    found = [place for row in rows if (place := places[row])]
    # Twice the first row: of a single one, itemgetter would not make a tuple.
    choose = itemgetter(rows[0], *rows)
    return Columns(
        choose(batch.sequences)[1:],
        tuple([place.subject for place in found]),
        tuple([place.key for place in found]),
        choose(headers)[1:] if headers else None,
        choose(batch.data)[1:],
        choose(times)[1:],
    )


def _text(name: bytes) -> str:
    return name.decode(errors="replace")

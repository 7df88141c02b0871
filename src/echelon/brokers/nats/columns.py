"""From what the server sent to messages by partition: as columns, of which structs and Arrow batches are made."""

from bisect import bisect_left
from collections.abc import Callable
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from echelon.brokers.nats.batch import Batch
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
        chosen = slice(bisect_left(sequences, start), bisect_left(sequences, end))
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
        return self._places_of([subject])[0]

    def split(self, batch: Batch) -> dict[int, Columns]:
        """The batch's messages by partition, each in order; those that are in none are left out."""
        if self._by_header:
            places = list(map(self.place, batch.subjects, batch.headers))
        else:
            places = self._places_of(batch.subjects)
        rows: dict[int, list[int]] = {}
        for row, place in enumerate(places):
            if place is not None:
                try:
                    rows[place.partition].append(row)
                except KeyError:
                    rows[place.partition] = [row]
        headers = list(map(parse_headers, batch.headers)) if any(batch.headers) else None
        return {partition: _choose(chosen, places, batch, headers) for partition, chosen in rows.items()}

    def _places_of(self, subjects: list[bytes]) -> "list[Place | None]":
        try:
            return [self._places[subject] for subject in subjects]
        except KeyError:
            new = set(subjects).difference(self._places)
        if len(self._places) + len(new) > _REMEMBERED:
            self._places.clear()
            new = set(subjects)
        for subject in new:
            self._places[subject] = self._locate(_text(subject), ())
        return [self._places[subject] for subject in subjects]


def parse_headers(block: bytes) -> Headers:
    """Name and value of each line."""
    if not block:
        return ()
    lines = [line.partition(b":") for line in block.split(b"\r\n")]
    return tuple((_text(name), value.strip()) for name, colon, value in lines if colon)


def _choose(rows: list[int], places: "list[Place | None]", batch: Batch, headers: list[Headers] | None) -> Columns:
    found = [place for row in rows if (place := places[row])]
    # Twice the first row: of a single one, itemgetter would not make a tuple.
    choose = itemgetter(rows[0], *rows)
    return Columns(
        choose(batch.sequences)[1:],
        tuple([place.subject for place in found]),
        tuple([place.key for place in found]),
        choose(headers)[1:] if headers else None,
        choose(batch.data)[1:],
        choose(batch.times)[1:],
    )


def _text(name: bytes) -> str:
    return name.decode(errors="replace")

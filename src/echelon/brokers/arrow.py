"""Messages as Arrow record batches, in the one schema that all brokers share and that Spark takes as it is.

Only this module of the brokers needs pyarrow; they import it when `read_arrow` is called.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from echelon.model import Message

# All fields may be null and the list's field is named as Spark names it: Spark compares types strictly.
_HEADER: Final = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIME: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("headers", _HEADERS),
        pa.field("data", pa.binary()),
        pa.field("time", _TIME),
    ]
)


def from_columns(
    partition: str,
    sequences: Sequence[int],
    subjects: str | Sequence[str],
    keys: Sequence[bytes | None],
    headers: Sequence[Sequence[tuple[str, bytes]]] | None,
    data: Sequence[bytes],
    times: Sequence[int],
) -> pa.RecordBatch:
    """One batch of one partition from its columns, which are of equal length.

    One string as `subjects` stands for every row; None as `headers` says that no row has any. `times` are
    milliseconds.
    """
    rows = len(sequences)
    return pa.record_batch(
        [
            _constant(partition, rows),
            pa.array(sequences, pa.int64()),
            _constant(subjects, rows) if isinstance(subjects, str) else pa.array(subjects, pa.string()),
            pa.array(keys, pa.binary()),
            pa.array(headers, _HEADERS) if headers is not None else _no_headers(rows),
            pa.array(data, pa.binary()),
            pa.array(times, pa.timestamp("ms", tz="UTC")).cast(_TIME),
        ],
        schema=SCHEMA,
    )


def from_messages(messages: Sequence[Message]) -> pa.RecordBatch:
    """One batch from at least one message, all of one partition."""
    return from_columns(
        messages[0].partition,
        [message.sequence for message in messages],
        [message.subject for message in messages],
        [message.key for message in messages],
        [message.headers for message in messages] if any(message.headers for message in messages) else None,
        [message.data for message in messages],
        [message.time for message in messages],
    )


def _constant(value: str, rows: int) -> pa.Array:
    return _repeated(value, _size(rows)).slice(0, rows)


def _no_headers(rows: int) -> pa.Array:
    return _empty_lists(_size(rows)).slice(0, rows)


def _size(rows: int) -> int:
    """The next power of two, so that few sizes are kept."""
    return 1 << rows.bit_length()


# Such a column takes longer to make than the others; a slice of one that is kept takes no time.
@lru_cache(64)
def _repeated(value: str, size: int) -> pa.Array:
    return pa.repeat(value, size)


@lru_cache(32)
def _empty_lists(size: int) -> pa.Array:
    offsets = pa.repeat(pa.scalar(0, pa.int32()), size + 1)
    return pa.ListArray.from_arrays(offsets, pa.array([], _HEADER), type=_HEADERS)

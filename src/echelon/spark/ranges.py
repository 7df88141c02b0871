"""What one task of Spark reads, and the reading of it: ranges of a stream as Arrow record batches.

A range holds the same messages in the same order each time it is read. Where partitions can be read one by one, a
task reads one of them. Where readers compute the partition, everybody would have to read everything; so there a
task reads a part of the stream, and the partition's order is restored afterwards (`order.in_order`).
"""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import InputPartition

from echelon.brokers.arrow import SCHEMA
from echelon.keys import nats_partition
from echelon.spark import process
from echelon.spark.process import Where

# The columns as Spark users know them.
SPARK_SCHEMA: Final = pa.schema([field.with_name("timestamp") if field.name == "time" else field for field in SCHEMA])
# Less than so many sequences are not worth a task of their own.
_LEAST: Final = 8192


class Range(Struct, frozen=True):
    """The messages of a partition with `begin <= sequence < end`; `number` is the partition's in its stream."""

    partition: str
    number: int
    begin: int
    end: int


class Slice(InputPartition):
    """What one task reads: ranges of one stream. It has everything that the task needs, and can be pickled."""

    def __init__(self, where: Where, ranges: tuple[Range, ...]) -> None:
        self.where = where
        self.ranges = ranges


def slices(where: Where, ranges: Sequence[Range], tasks: int) -> list[Slice]:
    """The ranges of one stream as at most `tasks` slices if readers compute the partition, else as one for each.

    Ranges with nothing in them are left out.
    """
    ranges = [each for each in ranges if each.begin < each.end]
    if where.stream.partitioning != "computed":
        return [Slice(where, (each,)) for each in ranges]
    if not ranges:
        return []
    begin, end = min(each.begin for each in ranges), max(each.end for each in ranges)
    step = max(_LEAST, -(-(end - begin) // tasks))
    parts = [_cut(ranges, start, start + step) for start in range(begin, end, step)]
    return [Slice(where, part) for part in parts if part]


def read_slice(part: Slice) -> Iterator[pa.RecordBatch]:
    """The rows of a slice, in order, as record batches of `SPARK_SCHEMA`. Blocks.

    Raises OutOfRange if messages of it have been deleted, and StreamNotFound, Unreachable, Denied.
    """
    for batch in process.iterate(_batches(part)):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=SPARK_SCHEMA)


async def average_size(part: Slice) -> float:
    """About how many bytes a message of a slice has in key, headers and data; 0 if there is none."""
    async with aclosing(_batches(part)) as batches:
        async for batch in batches:
            return float(sum(batch.column(name).nbytes for name in ("key", "headers", "data")) / batch.num_rows)
    return 0.0


def _batches(part: Slice) -> AsyncGenerator[pa.RecordBatch, None]:
    if part.where.stream.partitioning == "computed":
        return _read_together(part.where, part.ranges)
    (only,) = part.ranges
    return _read(part.where, only)


async def _read(where: Where, wanted: Range) -> AsyncGenerator[pa.RecordBatch, None]:
    reader = await process.reader(where)
    async with aclosing(reader.read_arrow(wanted.number, wanted.begin, wanted.end)) as batches:
        async for batch in batches:
            yield batch


async def _read_together(where: Where, ranges: Sequence[Range]) -> AsyncGenerator[pa.RecordBatch, None]:
    """The messages of ranges of several partitions, read as one and in the order of the stream.

    The stream is read as if it had one partition; a message's own is found from its key.
    """
    count = where.stream.partitions
    wanted = {each.number: each for each in ranges}
    names = pa.array([wanted[number].partition if number in wanted else None for number in range(count)], pa.string())
    begin, end = min(each.begin for each in ranges), max(each.end for each in ranges)
    is_all = len(wanted) == count and all((each.begin, each.end) == (begin, end) for each in ranges)
    whole = Range("0", 0, begin, end)
    async with aclosing(_read(replace(where, stream=replace(where.stream, partitions=1)), whole)) as batches:
        async for batch in batches:
            numbers = _partition_numbers(batch.column("key"), count)
            batch = batch.set_column(0, SCHEMA.field(0), names.take(numbers))  # noqa: PLW2901 - it is the same rows
            if not is_all:
                batch = _only(batch, numbers, wanted, count)  # noqa: PLW2901 - some of them
            if batch.num_rows:
                yield batch


def _partition_numbers(keys: pa.Array, count: int) -> pa.Array:
    coded = keys.dictionary_encode()
    numbers = [nats_partition(key, count) for key in coded.dictionary.to_pylist()]
    return pa.array(numbers, pa.int32()).take(coded.indices)


def _only(batch: pa.RecordBatch, numbers: pa.Array, wanted: dict[int, Range], count: int) -> pa.RecordBatch:
    """The rows that lie in the range of their partition."""
    nothing = Range("", 0, 0, 0)
    held = [wanted.get(number, nothing) for number in range(count)]
    sequences = batch.column("sequence")
    begins = pa.array([each.begin for each in held], pa.int64()).take(numbers)
    ends = pa.array([each.end for each in held], pa.int64()).take(numbers)
    return batch.filter(pc.and_(pc.greater_equal(sequences, begins), pc.less(sequences, ends)))


def _cut(ranges: Sequence[Range], start: int, stop: int) -> tuple[Range, ...]:
    """What of the ranges lies from `start` to before `stop`."""
    parts = (replace(each, begin=max(each.begin, start), end=min(each.end, stop)) for each in ranges)
    return tuple(part for part in parts if part.begin < part.end)

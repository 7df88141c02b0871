"""What tasks do for a Delta table: write Parquet files, and tell the driver of them."""

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction
from pyspark.sql import Row

from echelon.spark.sinks.delta_log import open_folder

FILE_COLUMNS: Final = "path string, size long, modified long, partition_values string, stats string"
"""What tasks tell of each file, as Spark's schema."""

# What finding results by, for a reset, is quick with.
_WITH_STATISTICS: Final = ("partition", "sequence")


def file_writer(
    path: str, storage_options: Mapping[str, str], partition_by: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow`: stores a task's rows, in order, and gives a row for each file.

    Names are drawn anew by each attempt of a task, so that attempts do not disturb each other; the files of those that
    do not count are never committed.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder = open_folder(path, storage_options)
        files: dict[tuple[Any, ...], _File] = {}
        for batch in batches:
            for values, rows in _split(batch, partition_by):
                if values not in files:
                    files[values] = _File(folder, rows.schema, dict(zip(partition_by, values, strict=True)))
                files[values].write(rows)
        if files:
            yield pa.RecordBatch.from_pylist([file.close() for file in files.values()])

    return write


def to_action(row: Row) -> AddAction:
    """What Delta's log is to say of a file."""
    return AddAction(row.path, row.size, json.loads(row.partition_values), row.modified, True, row.stats)  # noqa: FBT003 - Delta's own


class _File:
    """A Parquet file while it is written."""

    def __init__(self, folder: pa.fs.FileSystem, schema: pa.Schema, values: Mapping[str, Any]) -> None:
        self._name = f"part-{uuid.uuid4()}.zstd.parquet"
        self._values = values
        self._stream = folder.open_output_stream(self._name)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self._rows = 0
        self._statistics = {name: _Statistics() for name in _WITH_STATISTICS if name in schema.names}

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows."""
        self._writer.write_batch(rows)
        self._rows += len(rows)
        for name, statistics in self._statistics.items():
            statistics.add(rows[name])

    def close(self) -> dict[str, object]:
        """Finish the file, and tell of it."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        statistics = self._statistics
        stats = {
            "numRecords": self._rows,
            "minValues": {name: each.low for name, each in statistics.items() if each.low is not None},
            "maxValues": {name: each.high for name, each in statistics.items() if each.high is not None},
            "nullCount": {name: each.nulls for name, each in statistics.items()},
        }
        return {
            "path": self._name,
            "size": size,
            "modified": int(time.time() * 1000),
            "partition_values": json.dumps({name: _text(value) for name, value in self._values.items()}),
            "stats": json.dumps(stats),
        }


class _Statistics:
    """The least and the greatest value of a column, and how many are null."""

    def __init__(self) -> None:
        self.low: Any = None
        self.high: Any = None
        self.nulls = 0

    def add(self, column: pa.Array) -> None:
        self.nulls += column.null_count
        found = pc.min_max(column).as_py()
        if found["min"] is not None:
            self.low = found["min"] if self.low is None else min(self.low, found["min"])
            self.high = found["max"] if self.high is None else max(self.high, found["max"])


def _split(batch: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows for each file, in order, without the columns that are told by the file."""
    if not batch.num_rows:
        return
    if not partition_by:
        yield (), batch
        return
    rest = batch.select([name for name in batch.schema.names if name not in partition_by])
    rows: dict[tuple[Any, ...], list[int]] = {}
    for number, values in enumerate(zip(*(batch[name].to_pylist() for name in partition_by), strict=True)):
        rows.setdefault(values, []).append(number)
    for values, numbers in rows.items():
        yield values, rest.take(pa.array(numbers))


def _text(value: Any) -> str | None:  # noqa: ANN401 - of any of the types that a table may be partitioned by
    """A value as Delta's log has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
    return str(value) or None

"""The stream reader of a seat's query: it asks the seat, in the application's process, what each batch consists of.

Spark makes this object in two processes of its own, and pickles it into every task; so making it does nothing, and
what a task needs is in its slice.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit

from echelon.spark.batch import Offset
from echelon.spark.control import Next, Plan, Wire
from echelon.spark.ranges import Range, Slice, read_slice, slices


class SeatReader(DataSourceStreamReader):
    """Reads what the seat that listens at `path` says."""

    def __init__(self, path: str) -> None:
        self._path = path

    @cached_property
    def _wire(self) -> Wire:
        return Wire(self._path)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing: every offset says itself where its batch begins."""
        return {}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; `start` if there is nothing. Blocks until the seat answers.

        What Spark gives as `start` is committed: the seat learns of it here, earlier than by `commit`.
        """
        answer = self._wire.ask(Next(msgspec.convert(start, Offset)))
        built: dict[str, Any] = msgspec.to_builtins(answer.stretches)
        return start if built == start else built

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Slice]:
        """What the tasks of a batch read: a slice for each partition that is this seat's to process."""
        answer = self._wire.ask(Plan(msgspec.convert(end, Offset)))
        ranges: dict[str, list[Range]] = {stream: [] for stream in answer.places}
        for name, stretch in answer.stretches.items():
            stream, _, number = name.rpartition("/")
            wanted = ranges[stream or next(iter(ranges))]
            wanted.append(Range(name, int(number), stretch.begin, stretch.end))
        parts = (slices(answer.places[stream], wanted, answer.tasks) for stream, wanted in ranges.items())
        # An empty batch has a task too: a rehearsal is to start everything that a batch needs.
        return [part for some in parts for part in some] or [Slice(place, ()) for place in answer.places.values()][:1]

    def read(self, partition: Slice) -> Iterator[pa.RecordBatch]:  # type: ignore[override]  # Spark's own hints differ
        """The rows of one slice, in a task."""
        return read_slice(partition) if partition.ranges else iter(())

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: it comes late, and not after the last batch."""

    def stop(self) -> None:
        """Hang up."""
        if "_wire" in self.__dict__:
            self._wire.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_wire"}

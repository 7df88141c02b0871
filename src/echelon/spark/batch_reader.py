"""The reader of a batch: the ranges between two places of a stream, for back-fills and audits."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from echelon.errors import InvalidConfig
from echelon.spark import process
from echelon.spark.options import Options
from echelon.spark.ranges import Slice, read_slice
from echelon.spark.streams import open_streams


class BatchReader(DataSourceReader):
    """Reads from the starting positions, else from a group's first ones or the earliest, to the ending ones or the end.

    Spark plans a frame once: whatever comes after its first use is not in it, however often it is used.
    """

    def __init__(self, options: Options) -> None:
        if options.most_messages is not None or options.most_bytes is not None:
            raise InvalidConfig("limits per trigger are for streams", remedy="Use endingPositions")
        self._options = options

    def partitions(self) -> Sequence[Slice]:
        """What the tasks read. Raises InvalidConfig, and the broker's errors."""
        return process.run(self._plan())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one slice, in a task. Raises OutOfRange if the stream does not hold them any more."""
        # Where there are no slices, Spark has one task with something else.
        return read_slice(partition) if isinstance(partition, Slice) else iter(())

    async def _plan(self) -> list[Slice]:
        options = self._options
        streams = await open_streams(options)
        held = await streams.held()
        begins = await streams.positions_at(options.start or streams.initial or "earliest", held)
        ends = await streams.positions_at(options.end or "latest", held)
        if not options.fails_on_loss:
            begins = {name: max(begin, held.bounds[name].first) for name, begin in begins.items()}
            ends = {name: min(end, held.bounds[name].end) for name, end in ends.items()}
        return streams.slices(begins, ends, options.tasks)

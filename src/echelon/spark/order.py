"""Order of rows by partition, where tasks have read parts of a stream that several partitions share."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame


def in_order(frame: DataFrame) -> DataFrame:
    """The rows with each partition in one task and there in the order of its sequences; it costs a shuffle.

    Only needed for streams whose readers compute the partition: all others come like this. The frame needs the
    columns `partition` and `sequence`, and may be a stream.
    """
    together = frame.repartition("partition")
    if frame.isStreaming:  # Spark does not sort streams, not even within a batch's tasks.
        return together.mapInArrow(_sort, frame.schema)
    return together.sortWithinPartitions("partition", "sequence")


def _sort(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, sorted."""
    unsorted = list(batches)
    if unsorted:
        order = [("partition", "ascending"), ("sequence", "ascending")]
        yield from pa.Table.from_batches(unsorted).sort_by(order).to_batches(max_chunksize=10_000)

"""Order of rows by partition, where tasks have read parts of a stream that several partitions share."""

from pyspark.sql import DataFrame


def in_order(frame: DataFrame) -> DataFrame:
    """The rows with each partition in one task and there in the order of its sequences; it costs a shuffle.

    Only needed for streams whose readers compute the partition: all others come like this.
    """
    return frame.repartition("partition").sortWithinPartitions("partition", "sequence")

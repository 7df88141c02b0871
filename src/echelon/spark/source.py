"""The format `echelon`: streams of NATS and Kafka as DataFrames, by `spark.readStream` and `spark.read`."""

from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from echelon.spark.batch_reader import BatchReader
from echelon.spark.options import parse
from echelon.spark.seat_reader import SeatReader
from echelon.spark.stream_reader import StreamReader

# As `ranges.SPARK_SCHEMA` has it.
COLUMNS: Final = (
    "partition string, sequence bigint, subject string, key binary, "
    "headers array<struct<name: string, value: binary>>, data binary, timestamp timestamp"
)


class EchelonSource(DataSource):
    """Rows of a group's partitions, or of a stream without a group. `subject` is the topic on Kafka.

    A range of rows is the same, in the same order, each time it is read. See `options` for what can be said.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "echelon"

    def schema(self) -> str:
        """The columns. Raises InvalidConfig if an option is wrong, so that `load` fails and not the first batch."""
        if "seat" not in self.options:
            parse(self.options)
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(parse(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For `spark.readStream`; the option `seat` is for the queries of seats."""
        if "seat" in self.options:
            return SeatReader(self.options["seat"])
        return StreamReader(parse(self.options))


def register(spark: SparkSession) -> None:
    """Let a session know the format."""
    spark.dataSource.register(EchelonSource)

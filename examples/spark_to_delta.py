"""A Spark pipeline with a seat: every reading into a Delta table, exactly once.

$ echelon run examples/spark_to_delta.py

Start it twice, and the second stands by. The table is the folder `readings`.
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from echelon.spark import DeltaSink, pipeline


@pipeline(
    group="table",
    stream="SENSORS",
    key="tokens:sensor.*.*:1",
    partitions=12,
    sink=DeltaSink("readings"),
    checkpoint="checkpoints",
    options={"members": ("m1",)},
)
def readings(messages: DataFrame) -> DataFrame:
    """One row for each message. `partition` and `sequence` are what resets and audits go by."""
    value = expr("try_cast(cast(data as string) as double)").alias("value")
    return messages.select("partition", "sequence", "subject", value)

"""Which pipelines keep state from batch to batch: those that may not lose a partition to another seat."""

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it

from echelon.spark.query import keeps_state
from tests.spark.seats.process import Numbering

STATEFUL: dict[str, Callable[[DataFrame], DataFrame]] = {
    "aggregation": lambda frame: frame.groupBy("value").count(),
    "window": lambda frame: (
        frame.withWatermark("timestamp", "1 minute").groupBy(F.window("timestamp", "5 seconds")).count()
    ),
    "deduplication": lambda frame: frame.dropDuplicates(["value"]),
    "limit": lambda frame: frame.limit(5),
    "join of streams": lambda frame: frame.alias("a").join(frame.alias("b"), F.expr("a.value = b.value")),
    "transformWithState": lambda frame: frame.groupBy("value", "timestamp").transformWithState(
        Numbering(), "value long", "Append", "None"
    ),
}
PLAIN: dict[str, Callable[[DataFrame], DataFrame]] = {
    "projection": lambda frame: frame.select("value").where("value > 1"),
    "function": lambda frame: frame.select("value").mapInArrow(lambda batches: batches, "value long"),
    "join with a table": lambda frame: frame.join(frame.sparkSession.range(3), F.expr("id = value")),
    "aggregation of a table": lambda frame: frame.join(
        frame.sparkSession.range(3).groupBy("id").count(), F.expr("id = value")
    ),
}


@pytest.mark.parametrize("name", STATEFUL)
def test_a_pipeline_with_state_is_recognised(spark: SparkSession, name: str) -> None:
    assert keeps_state(STATEFUL[name](spark.readStream.format("rate").load()))


@pytest.mark.parametrize("name", PLAIN)
def test_a_pipeline_without_state_is_recognised(spark: SparkSession, name: str) -> None:
    assert not keeps_state(PLAIN[name](spark.readStream.format("rate").load()))

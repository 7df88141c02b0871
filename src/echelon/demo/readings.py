"""The demo's pipeline: every reading of a sensor, with what is known of that sensor so far."""

import os
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's users know it
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from echelon.spark import DeltaSink, pipeline

FOLDER = os.environ.get("ECHELON_DEMO", "demo")
STATE = "readings long, total double, least double, most double"
RESULT = f"partition string, subject string, sequence long, value double, {STATE}"


@pipeline(
    group="summaries",
    stream="SENSORS",
    key="tokens:sensor.*.*:1",
    partitions=12,
    delivery="exactly_once",
    sink=DeltaSink(f"{FOLDER}/summaries"),
    checkpoint=f"{FOLDER}/checkpoints",
    max_messages=2_000,
    options={"members": ("m1",), "interval": 1.0},
)
def summarise(readings: DataFrame) -> DataFrame:
    """For each reading, in order: how many there were of that sensor, their sum, the least and the most."""
    values = readings.select(
        "partition", "subject", "sequence", F.col("data").cast("string").cast("double").alias("value")
    )
    grouped = values.groupBy("partition", "subject")
    return grouped.applyInPandasWithState(follow, RESULT, STATE, "append", GroupStateTimeout.NoTimeout)


def follow(_key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Go through a sensor's next readings, from what is known of it."""
    rows = pd.concat(list(parts)).sort_values("sequence")
    readings, total, least, most = state.get if state.exists else (0, 0.0, float("inf"), float("-inf"))
    rows["readings"] = range(readings + 1, readings + 1 + len(rows))
    rows["total"] = total + rows["value"].cumsum()
    rows["least"] = rows["value"].cummin().clip(upper=least)
    rows["most"] = rows["value"].cummax().clip(lower=most)
    last = rows.iloc[-1]
    state.update((int(last["readings"]), float(last["total"]), float(last["least"]), float(last["most"])))
    yield rows

"""Pipelines that may not be declared, or may not run in a group, and the reason that is given."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from echelon.errors import InvalidConfig
from echelon.group.config import Config, Stream
from echelon.spark import DeltaSink, EachBatch, Pipeline, SparkOutput, pipeline
from echelon.spark.pipeline import check_pipeline, check_streams


def count(frame: DataFrame) -> DataFrame:
    return frame.groupBy("key").count()


def nothing(_frame: DataFrame, _number: int) -> None:
    pass


def declared(**declarations: Any) -> Pipeline:  # noqa: ANN401 - each declaration has its own type
    chosen = {"group": "g", "stream": "S", "sink": EachBatch(nothing), "broker": "nats://localhost", **declarations}
    return pipeline(**chosen)(count)


def config(**fields: Any) -> Config:  # noqa: ANN401 - the same
    return Config(streams=(Stream("S", 2),), positions={"0": 1, "1": 1}, **fields)


@pytest.mark.parametrize(
    ("declarations", "told"),
    [
        ({"delivery": "exactly_once"}, "its sink does not keep positions"),
        ({"sink": DeltaSink("t"), "delivery": "at_least_once"}, "which is for exactly once"),
        ({"trigger": -1.0}, "trigger must not be negative"),
        ({"max_messages": 0}, "max_messages must be at least 1"),
        ({"options": {"colour": 1}}, "a group has no option 'colour'"),
    ],
)
def test_what_cannot_be_declared(declarations: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        declared(**{"delivery": "at_least_once", **declarations})


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"delivery": "at_most_once"}, "the group g delivers at_most_once"),
        ({"streams": (Stream("other", 2),)}, "the group g is over other"),
    ],
)
def test_a_group_that_is_not_as_the_pipeline_wants_it(fields: dict[str, Any], told: str) -> None:
    found = Config(**{"streams": (Stream("S", 2),), "positions": {"0": 1, "1": 1}, **fields})
    with pytest.raises(InvalidConfig, match=told):
        check_streams(declared(delivery="at_least_once"), found)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"members": ("m1", "m2")}, "keeps state, which stays with its seat"),
        ({}, "keeps state, which stays with its seat"),
        ({"members": ("m1",), "on_failure": "park"}, "which a Spark member cannot"),
    ],
)
def test_state_is_refused_where_partitions_move_and_so_is_what_spark_cannot_do(
    spark: SparkSession, fields: dict[str, object], told: str
) -> None:
    with pytest.raises(InvalidConfig, match=told) as caught:
        check_pipeline(declared(delivery="at_least_once"), config(**fields), spark)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("fields", "told"), [({"members": ("m1", "m2")}, "g has more than one seat"), ({}, "g may have more than one seat")]
)
def test_a_file_sink_of_sparks_is_refused_where_several_queries_would_write_to_it(
    spark: SparkSession, fields: dict[str, object], told: str
) -> None:
    made = declared(delivery="at_least_once", sink=SparkOutput("parquet", {"path": "files"}))
    with pytest.raises(InvalidConfig, match=told) as caught:
        check_pipeline(made, config(**fields), spark)
    assert caught.value.remedy
    assert check_pipeline(made, config(members=("m1",)), spark)


def test_state_is_fine_where_partitions_stay(spark: SparkSession) -> None:
    made = declared(delivery="at_least_once")
    mapping = {"m1": ("0",), "m2": ("1",)}
    for found in (config(members=("m1",)), config(assignment="mapped", mapping=mapping)):
        assert check_pipeline(made, found, spark)

"""Spark applications that deliver at most once, and at least once by a sink of Spark's own, whoever dies."""

import asyncio
import signal

from tests.members.stage import scene
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import check_files, until_done


@scene
async def test_at_most_once_nothing_is_repeated_after_a_crash_and_a_failure(nats_stage: SparkStage) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="at_most_once", interval=1.0)
    stage.launch_spark("one", "m1", dies="reading", max_messages=60)
    stage.launch_spark("two", "m1", fails=("reading",), priority=1, max_messages=60)
    await stage.until_joined("one", "two", seconds=60)
    async with stage.load(every=0.1):
        assert await stage.ended("one", 60) == -signal.SIGKILL
        await stage.until_handled_by("two", 300)
    end = max(partition.position for partition in stage.world.partitions.values())
    await asyncio.sleep(0.5)
    assert end > 300
    await stage.drain("two")
    stage.check("at_most_once", loud=("one", "two"))


@scene
async def test_a_file_sink_of_sparks_own_has_every_message_once_after_drivers_died_in_mid_batch_and_between_batches(
    kafka_stage: SparkStage,
) -> None:
    stage = kafka_stage
    await stage.prepare(members=("m1",), interval=1.0)
    stage.launch_spark("one", "m1", sink="parquet", dies="reading", spared=True)
    stage.launch_spark("two", "m1", sink="parquet", dies="committed", spared=True)
    await stage.until_joined("one", "two", seconds=60)
    stage.launch_spark("three", "m1", sink="parquet", priority=1)
    async with stage.load(every=0.1):
        await stage.crash_holder()
        assert await stage.crash_holder() == "three"
    await until_done(stage)
    await check_files(stage)
    await stage.drain("three")

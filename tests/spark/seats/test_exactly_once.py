"""Spark applications that deliver exactly once into a Delta table, while they die, sleep and lose what they run on."""

import os
import signal
from functools import partial

import pytest

from tests.members.stage import scene
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import check_table, until_done

MOMENTS = ("planned", "reading", "before_write", "writing", "after_write", "committed")


@pytest.mark.timeout(200)
@partial(scene, seconds=190)
async def test_a_failure_in_every_phase_of_a_batch_loses_and_doubles_nothing(kafka_stage: SparkStage) -> None:
    stage = kafka_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", fails=MOMENTS)
    await stage.until_seated("one", seconds=60)
    async with stage.load(every=0.1):
        for moment in MOMENTS:
            await stage.until_told("one", f"told to fail: {moment}")
    await until_done(stage)
    await check_table(stage)
    await stage.drain("one")


@pytest.mark.timeout(240)
@partial(scene, seconds=230)
async def test_killed_and_suspended_drivers_a_killed_worker_and_a_killed_jvm(nats_stage: SparkStage) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", dies="after_write")
    stage.launch_spark("two", "m1", sink="delta", slow=0.2, priority=1)
    stage.launch_spark("three", "m1", sink="delta", slow=0.2, priority=2)
    await stage.until_joined("one", "two", "three", seconds=90)
    async with stage.load(every=0.1):
        assert await stage.ended("one", 60) == -signal.SIGKILL
        await stage.until_seated("two")
        await until_further(stage, 300)

        await stage.suspend("two", 6)
        assert stage.holders() == {"m1": "three"}, "the stand-by has the seat when the suspended one wakes"
        workers = stage.workers("three")
        assert workers
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await until_further(stage, 300)

        os.kill(stage.jvm("three"), signal.SIGKILL)
        assert await stage.ended("three") == 1
        assert "JVM" in stage.errors("three")
        await stage.until_seated("two")
    await until_done(stage)
    await check_table(stage)
    await stage.drain("two")


async def until_further(stage: SparkStage, messages: int) -> None:
    """Wait until the group has reported so many more messages."""

    def total() -> int:
        return max(partition.position for partition in stage.world.partitions.values())

    least = total() + messages
    await stage.until_world(lambda _: total() >= least)

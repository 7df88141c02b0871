"""Runs a pipeline: makes what is missing, waits for the seat, works until it is told to stop."""

import asyncio
import logging
from collections.abc import Callable

from msgspec import Struct
from pyspark.sql import SparkSession

from echelon.brokers.base import Broker
from echelon.brokers.connect import open_broker
from echelon.errors import GroupNotFound
from echelon.group.config import Config
from echelon.group.records import Profile
from echelon.members.admin import create_group
from echelon.members.events import Event
from echelon.members.follower import Follower
from echelon.spark.member import SparkMember
from echelon.spark.pipeline import Pipeline, check_checkpoint, check_streams
from echelon.spark.query import Batch
from echelon.spark.rehearsal import rehearse
from echelon.spark.session import build_session, stop_session

logger = logging.getLogger(__name__)


class Watcher(Struct, frozen=True):
    """Who is told how a pipeline goes: all of it in the event loop, and nothing may block."""

    on_stage: Callable[[str], None] = lambda _: None
    on_instance: Callable[[str], None] = lambda _: None
    """With the id of this instance, before the first event."""
    on_event: Callable[[Event], None] = lambda _: None
    on_batch: Callable[[Batch], None] = lambda _: None


async def run_pipeline(
    pipeline: Pipeline, profile: Profile, *, master: str = "local[*]", watcher: Watcher | None = None
) -> None:
    """Run a pipeline as an instance with this profile until SIGTERM or Ctrl-C, which drain.

    The session is started and the pipeline rehearsed first: an instance that stands by is ready when it gets the seat.
    Raises as `Sitting.run` does, and MissingComponent, PipelineFailed, JvmGone.
    """
    watcher = watcher or Watcher()
    check_checkpoint(pipeline, master)
    async with open_broker(pipeline.broker, **pipeline.broker_options) as broker:
        config = await _found_or_made(broker, pipeline)
        watcher.on_stage("starting Spark")
        spark = await asyncio.to_thread(build_session, pipeline.group, master=master, settings=pipeline.spark)
        try:
            watcher.on_stage("rehearsing")
            await rehearse(spark, pipeline, config)
            watcher.on_stage("waiting for the seat")
            member = SparkMember(
                broker,
                pipeline,
                spark,
                profile,
                on_event=watcher.on_event,
                on_batch=watcher.on_batch,
                on_drain=lambda: watcher.on_stage("draining"),
            )
            watcher.on_instance(member.id)
            await member.run(signals=True)
        finally:
            await asyncio.to_thread(_stop, spark)


async def _found_or_made(broker: Broker, pipeline: Pipeline) -> Config:
    """The configuration of the pipeline's group, which is made if it is not there. Raises InvalidConfig."""
    try:
        follower = Follower(await broker.log(pipeline.group))
        await follower.open()
        world = follower.world
    except GroupNotFound:
        world = await create_group(
            broker,
            pipeline.group,
            pipeline.streams(),
            start=pipeline.start,
            delivery=pipeline.delivery,
            **pipeline.options,
        )
    assert world.config is not None
    check_streams(pipeline, world.config)
    return world.config


def _stop(spark: SparkSession) -> None:
    try:
        stop_session(spark)
    except Exception as error:  # noqa: BLE001 - the JVM may be gone; there is nothing left to do about it
        logger.debug("the session did not stop in good order: %s", error)

"""A stand-by's rehearsal: the pipeline runs once on nothing, so that the first real batch finds everything started."""

import asyncio
import tempfile
import uuid

from pyspark.sql import DataFrame, SparkSession

from echelon.group.config import Config
from echelon.spark.batch import Offset, Stretch
from echelon.spark.control import Answer, Control
from echelon.spark.output import EachBatch
from echelon.spark.pipeline import Pipeline
from echelon.spark.process import Where
from echelon.spark.query import Query


async def rehearse(spark: SparkSession, pipeline: Pipeline, config: Config) -> None:
    """Run one empty batch through the source and the function, and throw the result away.

    Raises PipelineFailed if the function cannot be run.
    """
    done = asyncio.Event()
    alone = len(config.streams) == 1
    places = {stream.name: Where(pipeline.access, pipeline.group, stream, alone) for stream in config.streams}

    async def next_batch(start: Offset) -> Answer:
        if start:
            done.set()
            await asyncio.Event().wait()
        return Answer({"rehearsal/0": Stretch(0, 1, 0)})

    async def plan(_end: Offset) -> Answer:
        return Answer({}, places)

    def write(frame: DataFrame, _batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def build(frame: DataFrame) -> DataFrame:
        return pipeline.build(frame, config)

    with tempfile.TemporaryDirectory(prefix="echelon-rehearsal-", ignore_cleanup_errors=True) as folder:
        where = folder if (spark.sparkContext.master or "").startswith("local") else _beside(pipeline)
        async with Control(next_batch, plan) as control:
            source = {"seat": control.path}
            query = Query(spark, source, build, EachBatch(write), where, mode=pipeline.mode, name="rehearsal")
            running = asyncio.ensure_future(asyncio.to_thread(query.run))
            running.add_done_callback(lambda _: done.set())
            await done.wait()
            await asyncio.to_thread(query.stop)
            error = await running
    if error is not None:
        raise error


def _beside(pipeline: Pipeline) -> str:
    """A place that the executors of a cluster can reach too; what is left there is some small files."""
    return f"{pipeline.checkpoint.rstrip('/')}/rehearsals/{uuid.uuid4().hex}"

"""When a seat's next batch begins."""

import asyncio
import time
from typing import Any

from pyspark.sql import DataFrame

from echelon.brokers.base import StreamInfo
from echelon.group.config import Config, Stream
from echelon.group.own import Own, Run
from echelon.group.records import Profile
from echelon.group.world import Partition, World
from echelon.members.clock import now
from echelon.model import Bounds
from echelon.spark.batch import Offset
from echelon.spark.batching import Batching
from echelon.spark.output import SparkOutput
from echelon.spark.pipeline import Pipeline
from echelon.spark.share import Share


class Growing:
    """A stream of one partition, which has a message more whenever somebody looks."""

    def __init__(self) -> None:
        self._looks = 0

    async def info(self, config: Config, stream: Stream) -> StreamInfo:
        self._looks += 1
        return StreamInfo("", {0: Bounds(1, 1 + self._looks)})


def same(frame: DataFrame) -> DataFrame:
    return frame


async def begin_batches(count: int, trigger: float) -> list[float]:
    """When so many batches begin, if a query asks for the next as soon as one has ended."""
    pipeline = Pipeline(function=same, group="g", stream="s", sink=SparkOutput("noop"), trigger=trigger)
    own = Own("me", Profile(name="me"), began=now())
    own.lease = now()
    partition = Partition("0", 1, 1, epoch=5, owner="me")
    nothing = lambda *_: None  # noqa: E731 - shorter than what it says
    shares = {"0": Share(Run(5, 1), partition, begin=nothing, end=nothing, look=nothing)}
    readers: Any = Growing()
    batching = Batching(pipeline, own, readers, shares, stateful=False, tasks=1, on_change=nothing, wake=nothing)
    config = Config(streams=(Stream("s", 1),), positions={"0": 1})
    batching.heard(World(config=config, interval=60_000, partitions={"0": partition}))
    ended: Offset = {}
    begun: list[float] = []
    for _ in range(count):
        ended = (await batching.next_batch(ended)).stretches
        begun.append(time.monotonic())
    assert shares["0"].run.position > count - 1, "each batch had messages, and goes on where the one before ended"
    return begun


def test_a_batch_begins_no_sooner_after_the_last_than_the_trigger_says() -> None:
    begun = asyncio.run(begin_batches(4, trigger=0.2))
    assert begun[-1] - begun[0] > 0.55

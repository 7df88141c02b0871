"""A Kafka topic gains partitions while members run: keys that move to new partitions keep their order."""

import asyncio
import logging

import pytest
from confluent_kafka.cimpl import NewPartitions

from echelon.brokers.base import StreamInfo
from echelon.group.config import Config, Stream
from echelon.keys import RecordKey
from echelon.members.growth import grown
from echelon.model import Bounds
from tests.brokers.harnesses import KafkaHarness, result
from tests.members.stage import Stage, scene


async def grow(stage: Stage, partitions: int) -> None:
    """Add partitions to the topic; what is sent from now on goes to all of them."""
    old = stage.harness
    assert isinstance(old, KafkaHarness)
    await result(old.admin.create_partitions([NewPartitions(stage.stream.name, partitions)])[stage.stream.name])
    stage.harness = KafkaHarness(old.server)
    await stage.harness.settle(stage.stream.name, partitions)


@pytest.mark.parametrize("stage", ["kafka"], indirect=True)
@scene
async def test_keys_keep_their_order_when_a_topic_gains_partitions_under_load(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a", "b"))
    for name in ("a", "b"):
        stage.launch(name, name, slow=0.004, lanes=2)
    await stage.until_seated("a", "b")
    await stage.publish(1500)
    await stage.until_more(50)
    await grow(stage, 4)
    await stage.publish(600)
    await stage.until_world(lambda world: len(world.partitions) == 4)
    assert stage.owners().keys() <= {"0", "1"}, "those that were there before are not at their recorded ends yet"
    stage.kill("b")
    stage.launch("b2", "b")
    await stage.until_all_handled()
    moved = {line.key for line in stage.lines() if line.partition in ("2", "3")}
    assert moved & {line.key for line in stage.lines() if line.partition in ("0", "1")}
    await stage.until_world(lambda _: len(stage.owners()) == 4)
    stage.check("at_least_once")


@pytest.mark.parametrize(("partitions", "warns"), [(4, False), (5, True)])
def test_a_growth_that_moves_keys_between_old_partitions_is_warned_of(
    caplog: pytest.LogCaptureFixture, partitions: int, warns: bool
) -> None:
    config = Config(streams=(Stream("s", 2, RecordKey(), "native"),), positions={"0": 0, "1": 0})

    async def info(_stream: Stream) -> StreamInfo:
        return StreamInfo("", {number: Bounds(0, 7) for number in range(partitions)})

    with caplog.at_level(logging.WARNING):
        new = asyncio.run(grown(config, info))
    assert new is not None
    assert new.ends == ({"0": 7, "1": 7},)
    assert ("no multiple" in caplog.text) == warns

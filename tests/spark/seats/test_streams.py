"""Spark applications that deliver exactly once into streams, while they die in several phases of a batch."""

import json
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from tests.cli.several import Several
from tests.members.sinks.harnesses import make_harness
from tests.members.stage import scene
from tests.spark.seats.process import Moment
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import until_done


@pytest.fixture(scope="module")
def several() -> Iterator[Several]:
    """A process for audits."""
    with Several() as process:
        yield process


@pytest.mark.timeout(200)
@partial(scene, seconds=190)
async def test_crashes_with_message_ids_on_nats(nats_stage: SparkStage, several: Several) -> None:
    await crash(nats_stage, several, "nats-ids", ("planned", "writing"))


@pytest.mark.timeout(200)
@partial(scene, seconds=190)
async def test_crashes_with_transactions_on_kafka(kafka_stage: SparkStage, several: Several) -> None:
    await crash(kafka_stage, several, "kafka", ("before_write", "committed"))


async def crash(stage: SparkStage, several: Several, sink: str, moments: tuple[Moment, ...]) -> None:
    """Applications take over from each other, each of which dies in its second batch, but for the last."""
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    target = f"R{stage.group}"
    harness = make_harness(sink, stage.url, target)
    await harness.prepare()
    told = {"sink": sink, "address": stage.url, "target": target}
    for moment in moments:
        stage.launch_spark(moment, "m1", dies=moment, **told)
    stage.launch_spark("last", "m1", priority=1, **told)
    await stage.until_world(lambda _: bool(stage.holders()), 90)
    async with stage.load(every=0.2):
        for moment in moments:
            assert await stage.ended(moment, 90) == -signal.SIGKILL
        await stage.until_seated("last", seconds=90)
    await until_done(stage)
    await stage.drain("last")
    stored = {name: [message.sequence for message in found] for name, found in (await stage.stored()).items()}
    assert await harness.results() == {name: found for name, found in stored.items() if found}
    audited = ("--broker", stage.url, "audit", stage.group, "--stream", target, "--master", "local[2]", "-o", "json")
    found = json.loads(several.run(*audited))
    count = sum(map(len, stage.sent.values()))
    exact = {"messages": count, "processed": count, "lost": 0, "duplicated": 0, "out_of_order": 0}
    assert found == {**exact, "unexpected": 0, "unjudged": 0, "offenders": []}

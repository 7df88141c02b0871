"""Spark applications that deliver exactly once into streams, while they die in several phases of a batch."""

from tests.cli.several import Several
from tests.members.sinks.harnesses import make_harness
from tests.members.stage import scene
from tests.spark.seats.process import Moment
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import audit, until_done


@scene
async def test_a_crash_while_results_are_sent_with_message_ids_to_nats(
    nats_stage: SparkStage, several: Several
) -> None:
    await crash(nats_stage, several, "nats-ids", "writing")


@scene
async def test_a_crash_between_results_and_the_commit_of_their_transaction_on_kafka(
    kafka_stage: SparkStage, several: Several
) -> None:
    await crash(kafka_stage, several, "kafka", "writing")


async def crash(stage: SparkStage, several: Several, sink: str, moment: Moment) -> None:
    """An application dies at this moment of a batch, and another takes over."""
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    target = f"R{stage.group}"
    harness = make_harness(sink, stage.url, target)
    await harness.prepare()
    told = {"sink": sink, "address": stage.url, "target": target}
    for name in ("one", "two"):
        stage.launch_spark(name, "m1", dies=moment, spared=True, **told)
    await stage.until_joined("one", "two", seconds=60)
    async with stage.load(every=0.2):
        successor = await stage.crash_holder()
    await until_done(stage)
    await stage.drain(successor)
    stored = {name: [message.sequence for message in found] for name, found in (await stage.stored()).items()}
    assert await harness.results() == {name: found for name, found in stored.items() if found}
    audit(stage, several, "--stream", target)

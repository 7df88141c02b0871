"""Spark applications share a group with Python processes, and hand over in good order."""

import signal
import time

from tests.cli.several import Several
from tests.members.process import Results
from tests.members.sinks.harnesses import make_harness
from tests.members.stage import by_partition, scene
from tests.members.waiting import lateness
from tests.postgres_server import PostgresServer
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import audit, until_done


@scene
async def test_a_stepped_down_spark_member_hands_over_and_partitions_move_to_python_and_back_at_least_once(
    nats_stage: SparkStage,
) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), interval=1.0)
    stage.launch_spark("spark", "m1")
    stage.launch_spark("stand-by", "m1")
    await stage.until_joined("spark", "stand-by", seconds=60)
    async with stage.load(every=0.1):
        await stage.until_more(200)
        first = stage.holders()["m1"]
        [second] = {"spark", "stand-by"} - {first}
        await stage.admin.step_down("m1")
        await stage.until_handled_by(second, 200)
        check_handover(stage, first, second)
        queries = stage.queries(second)
        stage.launch("python", "m2")
        await stage.admin.set_members(("m1", "m2"))
        await stage.until_handled_by("python", 100)
        assert set(stage.owners().values()) == {second, "python"}
        await stage.admin.set_members(("m1",))
        await stage.until_world(lambda _: list(stage.owners().values()) == [second] * 6)
        await stage.until_more(200)
        assert stage.queries(second) == queries or stage.told("Fenced", name=second), "its query went on meanwhile"
    await stage.until_all_handled()
    async with lateness() as late:
        handled = time.monotonic()
        await until_done(stage)
    assert time.monotonic() - handled < late.allow(1.5), "a batch is committed, and within a second the log has it"
    await stage.drain("spark", "stand-by", "python")
    stage.check("once")


def check_handover(stage: SparkStage, first: str, second: str) -> None:
    """In each partition the second went on with the very message after the first's last, and nobody else came between.

    That none is missing or repeated among them is checked with all the others.
    """
    began = {told.about["partition"]: told.about["position"] for told in stage.told("PartitionStarted", name=second)}
    for name, lines in by_partition(stage.lines()).items():
        names = [line.name for line in lines]
        assert names == [first] * names.count(first) + [second] * names.count(second)
        [last] = [line.sequence for line in lines if line.name == first][-1:]
        [next_one] = [line.sequence for line in lines if line.name == second][:1]
        assert last < began[name] <= next_one


@scene
async def test_partitions_move_between_spark_and_python_members_exactly_once_also_when_one_is_killed(
    kafka_stage: SparkStage, postgres_server: PostgresServer, several: Several
) -> None:
    stage = kafka_stage
    await stage.prepare(members=("m1",), interval=1.0, delivery="exactly_once")
    results = Results("postgres", postgres_server.conninfo, stage.group)
    harness = make_harness(results.kind, results.address, results.name)
    await harness.prepare()
    told = {"address": results.address, "target": results.name}
    stage.launch_spark("spark", "m1", sink="postgres", dies="before_write", spared=True, **told)
    stage.launch("python", "m2", results=results)
    await stage.until_seated("spark", seconds=60)
    async with stage.load(every=0.1):
        await stage.until_world(lambda world: sum(p.position for p in world.partitions.values()) > 100)
        await stage.admin.set_members(("m1", "m2"))
        await stage.until_world(lambda _: set(stage.owners().values()) == {"spark", "python"})
        moved = sum(partition.position for partition in stage.world.partitions.values())
        await stage.until_world(lambda world: sum(p.position for p in world.partitions.values()) > moved + 200)
        await stage.admin.pause()
        await stage.until_world(lambda _: not stage.owners())
        await stage.admin.resume()
        stage.kill("python")
        await stage.admin.set_members(("m1",))
        await stage.until_world(lambda _: list(stage.owners().values()) == ["spark"] * 6)
        stage.launch("other", "m2", results=results)
        stage.doom("spark")
        assert await stage.ended("spark") == -signal.SIGKILL
        await stage.admin.set_members(("m2",))
        await stage.until_world(lambda _: list(stage.owners().values()) == ["other"] * 6)
    await until_done(stage)
    await stage.drain("other")
    stored = {name: [message.sequence for message in found] for name, found in (await stage.stored()).items()}
    assert await harness.results() == {name: found for name, found in stored.items() if found}
    audit(stage, several, "--postgres", results.address, "--table", f"{results.name}.results")

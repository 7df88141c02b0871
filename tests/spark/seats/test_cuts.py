"""Cuts and resets of groups with Spark members, and what becomes of a pipeline's state."""

import signal
import time
from collections import defaultdict
from collections.abc import Mapping

from deltalake import DeltaTable
from msgspec import structs

from echelon.ops.resets import Target, ToCut, ToTime, plan_reset
from tests.members.stage import scene
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import check_table, check_written_again, until_done


@scene
async def test_resets_take_back_what_the_table_holds_past_them_with_another_number_of_members_than_at_the_cut(
    nats_stage: SparkStage,
) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", dies="planned", spared=True)
    stage.launch_spark("two", "m2", sink="delta")
    await stage.until_seated("one", seconds=60)
    await stage.publish(300)
    await until_done(stage)
    cut = await stage.admin.cut()
    between = time.time_ns() // 1_000_000
    await stage.publish(300)
    await until_done(stage)
    await check_table(stage)
    await stage.until_joined("two", seconds=60)
    await stage.admin.set_members(("m1", "m2"))
    await stage.until_world(lambda _: set(stage.owners().values()) == {"one", "two"})
    await reset(stage, ToCut(cut.sequence))
    assert set(stage.owners().values()) == {"one", "two"}
    await reset(stage, ToTime(between))
    await reset(stage, "earliest")
    stage.doom("one")
    await stage.publish(300)
    assert await stage.ended("one") == -signal.SIGKILL
    await stage.admin.set_members(("m2",))
    await until_done(stage)
    await check_table(stage)
    await stage.drain("two")


async def reset(stage: SparkStage, target: Target) -> None:
    """Reset the group, and wait until all of it is in the table again, once: what lies past it was taken back."""
    rows = await plan_reset(stage.broker, stage.group, stage.world, target)
    positions = {row.partition: row.after for row in rows}
    version = DeltaTable(stage.folder / "table").version()
    await stage.admin.reset(positions, cut=target.cut if isinstance(target, ToCut) else None)
    await until_done(stage)
    await check_table(stage)
    await check_written_again(stage, positions, version)


@scene
async def test_state_is_restored_after_a_crash_and_at_a_reset_to_a_cut_and_does_not_move_to_another_seat(
    nats_stage: SparkStage,
) -> None:
    stage = nats_stage
    mapping = {"m1": ("0", "1", "2"), "m2": ("3", "4", "5")}
    await stage.prepare(assignment="mapped", mapping=mapping, delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", stateful="window", max_messages=50, dies="after_write")
    stage.launch_spark("stand-by", "m1", sink="delta", stateful="window", max_messages=50, priority=1)
    stage.launch_spark("two", "m2", sink="delta", stateful="processor")
    await stage.until_joined("one", "stand-by", "two", seconds=60)
    await stage.until_seated("one", "two")
    await stage.publish(200)
    assert await stage.ended("one", 60) == -signal.SIGKILL
    await until_done(stage)
    await check_numbers(stage, mapping)  # The batch that was in the table already is in the state, once.
    cut = await stage.admin.cut()
    await stage.publish(200)
    await until_done(stage)
    await check_numbers(stage, mapping)
    await stage.admin.reset_to_cut(cut.sequence)
    await until_done(stage)
    await check_numbers(stage, mapping)  # The state went back with the positions.
    assert stage.world.config is not None
    await stage.admin.reset(stage.world.config.positions)
    await until_done(stage)
    await check_numbers(stage, mapping)  # It began empty.
    other = {"m1": ("0", "1", "2", "3"), "m2": ("4", "5")}
    await stage.admin.configure(lambda config: structs.replace(config, mapping=other))
    assert await stage.ended("stand-by") == 1
    assert "partition 3 comes from another seat, where the state of its keys stays" in stage.errors("stand-by")
    await stage.drain("two")
    await check_numbers(stage, mapping)


async def check_numbers(stage: SparkStage, mapping: Mapping[str, tuple[str, ...]]) -> None:
    """Messages are numbered in order: by the first seat those of a key and an hour, by the second those of a key.

    The second seat has every message; the first the last of each key and hour, and some of those before.
    """
    found: dict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
    rows = DeltaTable(stage.folder / "table").to_pyarrow_table().to_pylist()
    for row in rows:
        found[row["partition"], row["key"]][row["sequence"]] = row["number"]
    assert sum(map(len, found.values())) == len(rows), "a row is there twice"
    sent: dict[tuple[str, bytes], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, messages in (await stage.stored()).items():
        for message in messages:
            hour = message.time // 3_600_000 if name in mapping["m1"] else 0
            sent[name, message.key or b""][hour].append(message.sequence)
    assert found.keys() == sent.keys()
    for (name, key), hours in sent.items():
        numbers = found[name, key]
        right = {sequence: number for each in hours.values() for number, sequence in enumerate(each, 1)}
        assert numbers.items() <= right.items()
        least = {each[-1] for each in hours.values()} if name in mapping["m1"] else right.keys()
        assert numbers.keys() >= least

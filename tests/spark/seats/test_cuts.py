"""Cuts and resets of groups with Spark members."""

import time
from collections import defaultdict
from collections.abc import Mapping

from deltalake import DeltaTable

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
    stage.launch_spark("one", "m1", sink="delta")
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
    await reset(stage, ToCut(cut.sequence))
    assert set(stage.owners().values()) == {"one", "two"}
    await reset(stage, ToTime(between))
    await reset(stage, "earliest")
    await stage.drain("one", "two")


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
async def test_a_reset_to_a_cut_restores_the_state_of_pipelines(nats_stage: SparkStage) -> None:
    stage = nats_stage
    mapping = {"m1": ("0", "1", "2"), "m2": ("3", "4", "5")}
    await stage.prepare(assignment="mapped", mapping=mapping, delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", stateful="aggregate")
    stage.launch_spark("two", "m2", sink="delta", stateful="processor")
    await stage.until_seated("one", "two", seconds=60)
    await stage.publish(400)
    await until_done(stage)
    cut = await stage.admin.cut()
    await stage.publish(400)
    await until_done(stage)
    await check_numbers(stage, mapping)
    await stage.admin.reset_to_cut(cut.sequence)
    await until_done(stage)
    await check_numbers(stage, mapping)  # The state went back with the positions.
    assert stage.world.config is not None
    await stage.admin.reset(stage.world.config.positions)
    await until_done(stage)
    await check_numbers(stage, mapping)  # It began empty.
    await stage.drain("one", "two")


async def check_numbers(stage: SparkStage, mapping: Mapping[str, tuple[str, ...]]) -> None:
    """The first seat's last number of each key is how many it has; the second's have every message, in order."""
    found: dict[tuple[str, bytes], dict[int, int]] = defaultdict(dict)
    rows = DeltaTable(stage.folder / "table").to_pyarrow_table().to_pylist()
    for row in rows:
        found[row["partition"], row["key"]][row["sequence"]] = row["number"]
    assert sum(map(len, found.values())) == len(rows), "a row is there twice"
    sent: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for name, messages in (await stage.stored()).items():
        for message in messages:
            sent[name, message.key or b""].append(message.sequence)
    assert found.keys() == sent.keys()
    for (name, key), sequences in sent.items():
        numbers = found[name, key]
        if name in mapping["m2"]:
            assert numbers == {sequence: number for number, sequence in enumerate(sequences, 1)}
        else:
            assert numbers[sequences[-1]] == max(numbers.values()) == len(sequences)

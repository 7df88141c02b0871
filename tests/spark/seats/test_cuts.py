"""Cuts and resets of groups with Spark members."""

from deltalake import DeltaTable

from tests.members.stage import scene
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import check_table, until_done


def counts(stage: SparkStage) -> dict[str, int]:
    """The last number of each key, as the stateful pipeline has counted."""
    rows = DeltaTable(stage.folder / "table").to_pyarrow_table().to_pylist()
    found: dict[str, int] = {}
    for row in rows:
        key = bytes(row["key"]).decode()
        found[key] = max(found.get(key, 0), row["number"])
    return found


@scene
async def test_a_reset_to_a_cut_takes_back_what_the_table_holds_past_it_with_another_number_of_members(
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
    await stage.publish(300)
    await until_done(stage)
    await check_table(stage)
    await stage.until_joined("two", seconds=60)
    await stage.admin.set_members(("m1", "m2"))
    await stage.admin.reset_to_cut(cut.sequence)
    await stage.until_world(lambda _: set(stage.owners().values()) == {"one", "two"})
    await until_done(stage)
    await check_table(stage)
    await stage.admin.reset(stage.world.config.positions if stage.world.config else {})
    await stage.until_world(lambda world: all(p.position == 1 or p.reported for p in world.partitions.values()))
    await until_done(stage)
    await check_table(stage)
    await stage.drain("one", "two")


@scene
async def test_a_reset_to_a_cut_restores_the_state_of_the_pipeline(nats_stage: SparkStage) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", stateful=True)
    await stage.until_seated("one", seconds=60)
    await stage.publish(400)
    await until_done(stage)
    cut = await stage.admin.cut()
    await stage.publish(400)
    await until_done(stage)
    assert set(counts(stage).values()) == {20}

    await stage.admin.reset_to_cut(cut.sequence)
    await until_done(stage)
    assert set(counts(stage).values()) == {20}, "the state went back with the positions"

    config = stage.world.config
    assert config is not None
    await stage.admin.reset(config.positions)
    await until_done(stage)
    assert set(counts(stage).values()) == {20}, "the state began empty"
    await stage.drain("one")

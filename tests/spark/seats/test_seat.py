"""Spark applications in a group, at least once: they share it with Python processes, and hand over in good order."""

from tests.members.stage import scene
from tests.spark.seats.spark_stage import SparkStage


@scene
async def test_partitions_move_between_spark_and_python_members_under_load(stage: SparkStage) -> None:
    await stage.prepare(members=("m1",), interval=1.0)
    stage.launch_spark("spark", "m1")
    await stage.until_seated("spark")
    async with stage.load(every=0.1):
        await stage.until_more(200)
        stage.launch("python", "m2")
        await stage.admin.set_members(("m1", "m2"))
        await stage.until_handled_by("python", 100)
        assert set(stage.owners().values()) == {"spark", "python"}
        await stage.admin.set_members(("m1",))
        await stage.until_world(lambda _: list(stage.owners().values()) == ["spark"] * 6)
        await stage.until_more(200)
    await stage.until_all_handled()
    await stage.drain("spark", "python")
    stage.check("once")

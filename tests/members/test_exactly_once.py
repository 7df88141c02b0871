"""Exactly once from end to end: real processes are killed, suspended and replaced, and every result is there once."""

import asyncio
from pathlib import Path

import pytest

from tests.members.process import Results
from tests.members.results import check_results, until_more_results
from tests.members.sinks.conftest import new_harness
from tests.members.stage import Stage, scene


# Every sink once; `make soak` has them all on both brokers.
@pytest.mark.parametrize(
    ("stage", "kind"),
    [("nats", "sqlite"), ("kafka", "postgres"), ("kafka", "kafka"), ("nats", "nats"), ("nats", "nats-ids")],
    indirect=["stage"],
)
@scene
async def test_every_message_has_one_result_in_order_though_processes_are_killed_and_suspended(
    stage: Stage, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    harness = await asyncio.to_thread(new_harness, request, kind, tmp_path)
    results = Results(kind, harness.address, harness.name)
    await stage.prepare(partitions=3, members=("a", "b"), delivery="exactly_once")
    for name in ("a", "b"):
        stage.launch(name, name, results=results, slow=0.002)
    await stage.until_seated("a", "b")
    stage.launch("spare", results=results, slow=0.002)
    await stage.until_joined("spare")
    async with stage.load():
        await until_more_results(harness, 50)
        stage.kill("a")
        await stage.until_world(lambda _: stage.holders().get("a") == "spare")
        await until_more_results(harness, 50)
        stage.launch("late", results=results)
        await stage.until_joined("late")
        await stage.suspend("b", 1.2)
        await until_more_results(harness, 50)
        await stage.admin.set_members(["a"])
        await until_more_results(harness, 50)
    await check_results(stage, harness)
    stage.check_quiet()

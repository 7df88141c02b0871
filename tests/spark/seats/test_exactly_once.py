"""Spark applications that deliver exactly once into a Delta table, while they die, sleep and lose what they run on."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack, suppress
from functools import partial
from urllib.parse import urlsplit

from tests.cli.several import Several
from tests.members.stage import scene
from tests.members.waiting import until
from tests.proxy import Proxy
from tests.spark.seats.spark_stage import SparkStage
from tests.spark.seats.tables import audit, check_table, until_done

MOMENTS = ("planned", "reading", "before_write", "writing", "after_write", "committed")


@partial(scene, seconds=190)
async def test_a_failure_in_every_phase_of_a_batch_loses_and_doubles_nothing(kafka_stage: SparkStage) -> None:
    stage = kafka_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    stage.launch_spark("one", "m1", sink="delta", fails=MOMENTS)
    await stage.until_seated("one", seconds=60)
    async with stage.load(every=0.2, count=10):
        for moment in MOMENTS:
            await stage.until_told("one", f"told to fail: {moment}")
    await until_done(stage)
    await check_table(stage)
    await stage.drain("one")


@partial(scene, seconds=190)
async def test_killed_suspended_and_cut_off_drivers_a_killed_worker_and_a_killed_jvm(
    nats_stage: SparkStage, several: Several
) -> None:
    stage = nats_stage
    await stage.prepare(members=("m1",), delivery="exactly_once", interval=1.0)
    there = urlsplit(stage.url)
    proxies = {
        name: Proxy(lambda: asyncio.open_connection(there.hostname, there.port)) for name in ("one", "two", "three")
    }
    async with AsyncExitStack() as stack:
        for name, proxy in proxies.items():
            url = f"nats://127.0.0.1:{await stack.enter_async_context(proxy.on_port())}"
            stage.launch_spark(name, "m1", sink="delta", slow=0.1, dies="reading", spared=True, url=url)
        await stage.until_joined(*proxies, seconds=90)
        async with stage.load(every=0.2, count=10):
            first = await stage.crash_holder()
            [second] = set(stage.alive()) - {first}
            await stage.until_further(50)

            await stage.suspend(first, 6)
            await stage.until_seated(second)
            await until(lambda: bool(stage.workers(second)))
            for pid in stage.workers(second):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await stage.until_further(50)

            await cut_off(stage, second, proxies[second])
            assert stage.holders() == {"m1": first}
            await stage.until_further(50)

            os.kill(stage.jvm(first), signal.SIGKILL)
            assert await stage.ended(first) == 1
            assert "JVM" in stage.errors(first)
            await stage.until_seated(second)
        await until_done(stage)
        await check_table(stage)
        await stage.drain(second)
    audit(stage, several, "--delta", str(stage.folder / "table"))


async def cut_off(stage: SparkStage, name: str, proxy: Proxy) -> None:
    """Cut the holder off until somebody else has its seat and its query has ended, which does not begin again."""
    fenced = len(stage.told("Fenced", name=name))
    proxy.cut()
    await stage.until_world(lambda _: stage.holders().get("m1") not in (None, name))
    await until(lambda: len(stage.told("Fenced", name=name)) > fenced)
    await until(lambda: len(set(stage.queries(name))) == 1)
    queries = stage.queries(name)
    proxy.mend()
    await stage.until_world(
        lambda world: any(world.fresh(each) for each in world.instances.values() if each.profile.name == name)
    )
    assert stage.queries(name) == queries

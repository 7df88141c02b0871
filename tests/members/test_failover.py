"""Real processes on real brokers, really killed, suspended and replaced."""

import asyncio
import signal
import time

from echelon.brokers.connect import open_broker
from echelon.members.admin import Admin
from tests.members.stage import Stage


def test_two_members_share_the_partitions_and_drain_on_sigterm(stage: Stage) -> None:
    async def play() -> None:
        async with open_broker(stage.url) as broker:
            await stage.prepare(broker, members=("a", "b"))
            await stage.publish(2000)
            for name in ("a", "b"):
                stage.launch(name, name)
            lines = await stage.until_all_handled()
            assert {line.name for line in lines} == {"a", "b"}
            for name in ("a", "b"):
                stage.kill(name, signal.SIGTERM)
            for process in stage.processes.values():
                assert process.wait(timeout=10) == 0
            async with Admin(await broker.log(stage.group), stage.group) as admin:
                assert not admin.world.instances
                assert all(partition.owner is None for partition in admin.world.partitions.values())
        stage.check()

    asyncio.run(play())


def test_a_killed_process_is_replaced_by_its_stand_by(stage: Stage) -> None:
    async def play() -> None:
        async with open_broker(stage.url) as broker:
            await stage.prepare(broker, members=("a",))
            stage.launch("first", "a", apart=True)
            await stage.publish(500)
            await stage.until_all_handled()
            stage.launch("second", "a", apart=True)
            await asyncio.sleep(1.5)
            await stage.publish(500)
            await asyncio.sleep(0.1)
            stage.kill("first")
            killed = time.monotonic()
            await stage.publish(500)
            lines = await stage.until_all_handled()
            taken_over = min(line.begun for line in lines if line.name == "second")
            assert taken_over - killed < 5 * 0.5
        stage.check(twice=True)

    asyncio.run(play())

"""Instances of one member on a real nats-server: one is active, and another takes over when it leaves or steps down."""

import asyncio
import time
from functools import partial
from pathlib import Path

import nats

from echelon.local import NatsServer
from echelon.pcg import Options, open_groups
from tests.pcg.stage import check_order, staged


def test_one_instance_is_active_and_the_other_takes_over_at_once_when_it_leaves(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            options = Options(ack_wait=5)
            stage.join("a", "m", options=options)
            await stage.publish(10)
            await stage.until_all_handled()
            stage.join("b", "m", options=options)
            async with stage.publishing():
                await asyncio.sleep(0.5)
                left = time.monotonic()
                await stage.leave("a")
                assert await stage.until_handled_by("b", after=left) - left < 1  # Not after the ack wait.
            await stage.until_all_handled()
            check_order(stage)
            assert stage.told == [("a", "active"), ("a", "inactive"), ("b", "active")]

    asyncio.run(run())


def test_an_only_instance_that_is_told_to_step_down_goes_on_at_once(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(1200)
            # What it drops unanswered when it loses the pin would come again only after that long.
            stage.join("a", "m", options=Options(ack_wait=5.0), handler=lambda _: asyncio.sleep(0.0005))

            def has_handled(count: int) -> bool:
                return len(stage.handled) >= count

            for _ in range(4):
                await stage.until(partial(has_handled, len(stage.handled) + 100), 4)
                await stage.groups.step_down(stage.stream, "g", "m")
            await stage.until_all_handled()
            check_order(stage, repeats=4)

    asyncio.run(run())


def test_an_instance_asks_no_more_often_than_it_must_to_keep_its_pin(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            stage.join("a", "m", options=Options(ack_wait=3.0))
            async with stage.publishing(rate=20):
                await stage.until(lambda: stage.told == [("a", "active")])
                client = await nats.connect(stage.url)
                asked = await client.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stage.stream}-g.m")
                began = time.monotonic()
                await asyncio.sleep(2.5)
                # Whoever would take over has to wait until the pin's timeout is over since the last request.
                assert asked.pending_msgs <= (time.monotonic() - began) / 1.5 + 1
                await client.close()
            await stage.until_all_handled()
            check_order(stage)

    asyncio.run(run())


def test_step_down_hands_over_to_the_instance_that_stands_by(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage, open_groups(stage.url) as other:
            await stage.create(stage.elastic(4, "m"))
            options = Options(ack_wait=5)
            async with stage.publishing():
                stage.join("a", "m", options=options)
                await stage.until_handled_by("a")
                stage.join("b", "m", options=options, groups=other)
                await asyncio.sleep(0.3)
                for name in ("b", "a", "b"):
                    asked = time.monotonic()
                    await stage.groups.step_down(stage.stream, "g", "m")
                    assert await stage.until_handled_by(name, after=asked) - asked < 2
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            check_order(stage)
            await stage.leave("b")
            assert [each for each in stage.told if each[1] == "active"] == [
                (name, "active") for name in ("a", "b", "a", "b")
            ]

    asyncio.run(run())

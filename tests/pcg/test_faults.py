"""Instances, servers and acknowledgements are lost under load, mostly with real processes: order by key is kept."""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from echelon.brokers.nats.pull_message import Pulled
from echelon.local import NatsServer
from echelon.pcg import MemberMapping, Options
from tests.pcg.stage import KINDS, PARTITIONS, check_order, create, handled_by, pair, staged
from tests.servers import NatsServers

# Ack wait and pin timeout of the instances here are 1 s.
TAKEN_OVER = 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_the_active_instance_is_killed(nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            async with stage.publishing():
                active, other = await pair(stage)
                stage.processes[active].kill()
                killed = time.monotonic()
                assert await stage.until_handled_by(other, after=killed) - killed < TAKEN_OVER
                await asyncio.sleep(0.3)
            await stage.until_all_handled()
            check_order(stage, repeats=1)

    asyncio.run(run())


def test_the_active_instance_is_killed_with_several_messages_under_way(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m")
            async with stage.publishing():
                active, other = await pair(stage, max_ack_pending=20, slow=0.02)
                stage.processes[active].kill()
                killed = time.monotonic()
                assert await stage.until_handled_by(other, after=killed) - killed < TAKEN_OVER
            await stage.until_all_handled()
            # What was under way may come out of order, but each instance has each message at most once.
            for name in (active, other):
                sequences = [each.sequence for each in stage.lines() if each.name == name]
                assert len(sequences) == len(set(sequences))
            both = [each.sequence for each in stage.lines()]
            assert len(both) - len(set(both)) <= 20

    asyncio.run(run())


@pytest.mark.parametrize(("kind", "plain"), [("elastic", False), ("static", True)])
def test_the_active_instance_is_suspended_and_wakes_up_when_another_is_active(
    nats_server: NatsServer, tmp_path: Path, kind: str, plain: bool
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            async with stage.publishing(rate=100):
                active, other = await pair(stage, slow=0.005, plain=plain)
                stage.processes[active].send_signal(signal.SIGSTOP)
                stopped = time.monotonic()
                assert await stage.until_handled_by(other, after=stopped) - stopped < TAKEN_OVER
                await asyncio.sleep(0.2)
                stage.processes[active].send_signal(signal.SIGCONT)
                woken = time.monotonic()
                await asyncio.sleep(0.5)
                stage.processes[other].kill()
                killed = time.monotonic()
                await stage.until_handled_by(active, after=killed)
            await stage.until_all_handled()
            lines = check_order(stage, repeats=2, begun=True)
            # What it was at it ends; it begins nothing before it is active again.
            late = [each for each in lines if each.name == active and stopped < each.ended < killed]
            assert len(late) <= 1
            assert all(each.began < stopped for each in late if each.ended > woken)

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_for_a_suspended_instance_is_not_begun_when_it_wakes_up(
    nats_server: NatsServer, tmp_path: Path, kind: str
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            await stage.publish(20)
            active, other = await pair(stage)
            await stage.until_all_handled()
            stage.processes[active].send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            # The server sends it this, for it has the pin; and does not tell it when it has the pin no more.
            await stage.publish(1)
            await stage.until_all_handled(TAKEN_OVER)
            stage.processes[active].send_signal(signal.SIGCONT)
            await asyncio.sleep(0.5)
            lines = check_order(stage)
            assert {each.name for each in lines if each.began > stopped} == {other}

    asyncio.run(run())


def test_the_only_instance_is_suspended_for_longer_than_its_consumer_waits(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m")
            async with stage.publishing():
                process = stage.launch("a", "m")
                await stage.until_handled_by("a")
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(2)
                process.send_signal(signal.SIGCONT)
                await stage.until_handled_by("a", after=time.monotonic())
            await stage.until_all_handled()
            check_order(stage, repeats=1)

    asyncio.run(run())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["restart", "kill"])
def test_the_server_goes_away_and_comes_back(nats_servers: NatsServers, tmp_path: Path, kind: str, fault: str) -> None:
    server = nats_servers()

    async def run() -> None:
        async with staged(server.url, tmp_path) as stage:
            await create(stage, kind, "m", "n")
            async with stage.publishing():
                await pair(stage)
                stage.launch("c", "n")
                await stage.until_handled_by("c")
                await asyncio.to_thread(server.stop if fault == "restart" else server.kill)
                await asyncio.sleep(0.5)
                handled = stage.lines()
                await asyncio.to_thread(server.start)
                await stage.until_handled_by("c", after=time.monotonic())
            await stage.until_all_handled()
            if (kind, fault) == ("static", "kill"):
                # The server writes down what a consumer has acknowledged ten times a second.
                forgotten = Counter(each.key for each in handled if each.ended > handled[-1].ended - 1)
                check_order(stage, repeats=forgotten.total(), back=forgotten)
            else:
                check_order(stage, repeats=2)

    asyncio.run(run())


def test_the_server_is_frozen_for_longer_than_the_pin_lasts(nats_servers: NatsServers, tmp_path: Path) -> None:
    server = nats_servers()

    async def run() -> None:
        async with staged(server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            async with stage.publishing():
                member = stage.join("a", "m")
                await stage.until(lambda: len(stage.handled) > 50)
                await asyncio.to_thread(server.pause)
                frozen = time.monotonic()
                await asyncio.sleep(1.5)
                server.resume()
                await stage.until_handled_by("a", after=time.monotonic())
            await stage.until_all_handled()
            check_order(stage, repeats=1)
            # Who cannot know that it is active begins nothing.
            assert not [each for each in stage.handled if frozen + 1.2 < each.began < frozen + 1.5]
            assert member.counters.fenced >= 1

    asyncio.run(run())


def test_members_come_and_go_and_are_killed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            groups, stream = stage.groups, stage.stream
            await create(stage, "elastic", "m1")
            for name in ("m1", "m2", "m3"):
                stage.launch(name, name)
            async with stage.publishing():
                await stage.until_handled_by("m1")
                await groups.add_members(stream, "g", ["m2", "m3"])
                await asyncio.gather(*(stage.until_handled_by(name) for name in ("m2", "m3")))
                # Its consumer still has the partitions that others are to have.
                stage.processes["m1"].kill()
                await groups.drop_members(stream, "g", ["m1"])
                changed = time.monotonic()
                await asyncio.gather(*(stage.until_handled_by(name, after=changed) for name in ("m2", "m3")))
                await groups.set_mappings(stream, "g", [MemberMapping("m2", (3,)), MemberMapping("m3", (0, 1, 2))])
                changed = time.monotonic()
                await asyncio.gather(*(stage.until_handled_by(name, after=changed) for name in ("m2", "m3")))
                await groups.set_mappings(stream, "g", [MemberMapping("m2", tuple(range(PARTITIONS)))])
                await asyncio.sleep(1)
            await stage.until_all_handled()
            lines = check_order(stage, repeats=1)
            late = [each for each in lines if each.began > lines[-1].ended - 0.3]
            assert handled_by(late) == {"m2": {str(number) for number in range(PARTITIONS)}}

    asyncio.run(run())


def test_a_message_whose_acknowledgement_was_lost_is_not_handled_again(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledge = Pulled.ack
    lost: list[Pulled] = []

    def lose_one(pulled: Pulled) -> None:
        if pulled.data == b"2" and not lost:
            lost.append(pulled)
        else:
            acknowledge(pulled)

    monkeypatch.setattr(Pulled, "ack", lose_one)

    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            stage.join("a", "m", options=Options(ack_wait=0.3))
            await stage.publish(5, keys=1)
            await stage.until_all_handled()
            assert lost
            check_order(stage)

    asyncio.run(run())

"""Faults under load, on a real nats-server and mostly with real processes: order by key is kept, and nothing lost."""

import asyncio
import signal
import time
from pathlib import Path

import nats
import pytest

from echelon.brokers.nats.pull_message import Pulled
from echelon.errors import GroupDeleted, GroupError
from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import Member, MemberMapping, Options, StaticConfig
from echelon.pcg.postgres import Cursor, PostgresLedger
from tests.brokers.nats.harness import call
from tests.pcg.stage import KINDS, PARTITIONS, Stage, check_order, create, handled_by, staged
from tests.postgres_server import PostgresServer
from tests.servers import NatsServers

# Ack wait and pin timeout of the instances here are 1 s.
TAKEN_OVER = 3.0


async def pair(stage: Stage, **fields: object) -> tuple[str, str]:
    """Two instances of the member `m` in processes of their own: who is active, and who stands by."""
    for name in ("a", "b"):
        stage.launch(name, "m", **fields)
    await stage.until(lambda: bool(stage.lines()))
    await stage.until_waiting("m", 2)
    active = stage.lines()[-1].name
    return active, "b" if active == "a" else "a"


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
                handled = stage.lines()
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.start)
                await stage.until_handled_by("c", after=time.monotonic())
            await stage.until_all_handled()
            if (kind, fault) == ("static", "kill"):
                # The server writes down what a consumer has acknowledged ten times a second.
                forgotten = sum(each.ended > handled[-1].ended - 1 for each in handled)
                check_order(stage, repeats=forgotten, back=forgotten)
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_consumer_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            found = await stage.groups.get(stage.stream, "g")
            async with stage.publishing():
                await pair(stage)
                for _ in range(3):
                    await stage.groups.consumers.delete(found.consumed, found.consumer("m"))
                    deleted = time.monotonic()
                    await stage.until_handled_by("a", "b", after=deleted, seconds=5)
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            check_order(stage, repeats=3)

    asyncio.run(run())


def test_the_work_queue_is_deleted(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m", "n")
            async with stage.publishing():
                await pair(stage)
                stage.launch("c", "n")
                await stage.until_handled_by("c")
                for _ in range(2):
                    await call(stage.url, f"STREAM.DELETE.{stage.stream}-g")
                    deleted = time.monotonic()
                    await stage.until_handled_by("c", after=deleted, seconds=5)
                    await stage.until_handled_by("a", "b", after=deleted, seconds=5)
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            # All of the stream comes again, but who was active has handled it.
            check_order(stage, repeats=4)
            assert (await call(stage.url, f"STREAM.INFO.{stage.stream}-g"))["config"]["retention"] == "workqueue"

    asyncio.run(run())


def test_the_work_queue_is_deleted_and_effects_are_to_be_had_once(
    nats_server: NatsServer, preparing_postgres: PostgresServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m")
            await stage.publish(10)
            options = Options(ack_wait=1, ledger=PostgresLedger(preparing_postgres.conninfo))
            seen: list[int] = []

            def handle(message: Message, _cursor: Cursor) -> None:
                seen.append(message.sequence)

            running = asyncio.ensure_future(Member(stage.groups, stage.stream, "g", "m", handle, options=options).run())
            await stage.until(lambda: len(seen) == 10)
            await call(stage.url, f"STREAM.DELETE.{stage.stream}-g")
            with pytest.raises(GroupError, match=r"nothing tells what has had its effect\. Delete the group"):
                await asyncio.wait_for(running, 10)
            assert seen == list(range(1, 11))

    asyncio.run(run())


def test_the_stream_is_deleted_and_made_anew(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run(kind: str) -> None:
        folder = tmp_path / kind
        folder.mkdir()
        async with staged(nats_server.url, folder) as stage:
            await create(stage, kind, "m")
            await stage.publish(60)
            stage.launch("a", "m")
            await stage.until_all_handled()
            config = (await call(stage.url, f"STREAM.INFO.{stage.stream}"))["config"]
            await call(stage.url, f"STREAM.DELETE.{stage.stream}")
            await asyncio.sleep(0.3)
            await call(stage.url, f"STREAM.CREATE.{stage.stream}", config)
            # It counts from 1 again: its messages are others, though they have the same sequences.
            async with stage.publishing():
                await stage.until(lambda: len(stage.lines()) > 200)
            await stage.until_all_handled()
            check_order(stage)

    async def both() -> None:
        # The server takes its time (some 10 s) until it sources from the new one.
        await asyncio.gather(*map(run, KINDS))

    asyncio.run(both())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["entry is deleted", "entry is purged", "bucket is deleted"])
def test_the_entry_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str, fault: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            config = (await stage.groups.get(stage.stream, "g")).config
            async with stage.publishing():
                stage.join("a", "m")
                await stage.until(lambda: len(stage.handled) > 50)
                client = await nats.connect(stage.url)
                store = await client.jetstream().key_value(f"{kind}-consumer-groups")
                if fault == "bucket is deleted":
                    await client.jetstream().delete_key_value(f"{kind}-consumer-groups")
                elif fault == "entry is purged":
                    await store.purge(f"{stage.stream}.g")
                else:
                    await store.delete(f"{stage.stream}.g")
                await client.close()
                with pytest.raises(GroupDeleted, match="create it as it was, and its members go on where they were"):
                    await stage.end_of("a")
                await stage.create(config)
                stage.join("b", "m")
                await stage.until(lambda: len(stage.handled) > 100)
            await stage.until_all_handled()
            check_order(stage, repeats=1)

    asyncio.run(run())


def test_a_static_group_that_is_another_ends_its_members_with_what_to_do(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            await stage.publish(20)
            stage.join("a", "m")
            await stage.until_all_handled()
            await stage.leave("a")
            bucket, key = stage.groups.bucket("static"), f"{stage.stream}.g"
            await bucket.delete(key, await bucket.revision(key))
            await stage.create(StaticConfig(max_members=PARTITIONS, members=("m", "n")))
            stage.join("b", "m")
            with pytest.raises(GroupError, match=r"the consumer g-m has other partitions\. Delete it if no instance"):
                await stage.end_of("b")

    asyncio.run(run())


def test_a_static_members_consumer_is_reset(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            async with stage.publishing():
                stage.launch("a", "m")
                await stage.until(lambda: len(stage.lines()) > 100)
                await stage.groups.consumers.reset(stage.stream, "g-m", 31)
                reset = time.monotonic()
                await stage.until_handled_by("a", after=reset)
            await stage.until(lambda: stage.lines()[-1].sequence == sum(stage.sent.values()))
            sequences = [each.sequence for each in stage.lines()]
            again = sequences.index(31, 32)
            assert sequences == [*range(1, again + 1), *range(31, sum(stage.sent.values()) + 1)]
            # Also the message that was handled last: it is delivered as one whose acknowledgement was lost would be.
            last = sequences[-1]
            await stage.groups.consumers.reset(stage.stream, "g-m", last)
            await stage.until(lambda: len(stage.lines()) > len(sequences))
            assert [each.sequence for each in stage.lines()] == [*sequences, last]

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

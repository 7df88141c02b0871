"""Members that come and go on a real nats-server, who they are, and what ends their instances."""

import asyncio
import time
from pathlib import Path

import pytest

from echelon.errors import GroupDeleted, GroupError, GroupNotFound
from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import ElasticConfig, Member, MemberMapping, StaticConfig
from echelon.pcg.config import Kind
from tests.pcg.stage import check_order, handled_by, staged


def ignore(_message: Message) -> None:
    pass


def test_members_come_and_go_under_load_and_order_is_kept(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(6))
            for name in ("m1", "m2", "m3"):
                stage.join(name, name)
            async with stage.publishing():
                await stage.groups.add_members(stage.stream, "g", ["m1"])
                await stage.until_handled_by("m1")
                for members, change in (
                    (("m1", "m2"), stage.groups.add_members(stage.stream, "g", ["m2"])),
                    (("m1", "m2", "m3"), stage.groups.add_members(stage.stream, "g", ["m3"])),
                    (("m2", "m3"), stage.groups.drop_members(stage.stream, "g", ["m1"])),
                ):
                    assert await change == members
                    changed = time.monotonic()
                    await asyncio.gather(*(stage.until_handled_by(member, after=changed) for member in members))
                    await asyncio.sleep(0.5)
                    assert await stage.groups.active_members(stage.stream, "g") == members
                mapping = [MemberMapping("m1", (5, 0)), MemberMapping("m3", (1, 2, 3, 4))]
                await stage.groups.set_mappings(stage.stream, "g", mapping)
                changed = time.monotonic()
                await asyncio.gather(*(stage.until_handled_by(member, after=changed) for member in ("m1", "m3")))
                await asyncio.sleep(1)
            await stage.until_all_handled()
            lines = check_order(stage)
            late = [each for each in lines if each.began > lines[-1].ended - 0.5]
            assert handled_by(late) == {"m1": {"0", "5"}, "m3": {"1", "2", "3", "4"}}

    asyncio.run(run())


def test_a_member_that_keeps_its_partitions_goes_on_undisturbed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            mapping = [MemberMapping("m1", (0, 1, 2)), MemberMapping("m2", (3, 4, 5))]
            await stage.create(stage.elastic(6, member_mappings=tuple(mapping)))
            for name in ("m1", "m2", "m3"):
                stage.join(name, name)
            async with stage.publishing():
                await stage.until_handled_by("m1")
                made = (await stage.groups.consumers.info(f"{stage.stream}-g", "m1")).created
                mapping[1:] = [MemberMapping("m3", (3, 4, 5))]
                await stage.groups.set_mappings(stage.stream, "g", mapping)
                await stage.until_handled_by("m3")
            await stage.until_all_handled()
            check_order(stage)
            assert (await stage.groups.consumers.info(f"{stage.stream}-g", "m1")).created == made
            assert ("m1", "inactive") not in stage.told

    asyncio.run(run())


def test_a_member_may_join_before_it_is_one(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            with pytest.raises(GroupNotFound):
                await Member(stage.groups, stage.stream, "g", "m", ignore).run()
            await stage.create(stage.elastic(2))
            stage.join("a", "m")
            await stage.publish(10)
            await asyncio.sleep(0.3)
            assert stage.lines() == []
            await stage.groups.add_members(stage.stream, "g", ["m"])
            await stage.until_all_handled(3)
            check_order(stage)
            await stage.groups.drop_members(stage.stream, "g", ["m"])
            await stage.until(lambda: stage.told == [("a", "active"), ("a", "inactive")])
            assert await stage.groups.active_members(stage.stream, "g") == ()

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["elastic", "static"])
def test_instances_end_when_their_group_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = stage.elastic(2, "m") if kind == "elastic" else StaticConfig(max_members=2, members=("m",))
            await stage.create(config)
            stage.join("a", "m")
            await asyncio.sleep(0.3)
            await stage.groups.delete(stage.stream, "g")
            with pytest.raises(GroupDeleted):
                await stage.end_of("a")
            assert await stage.groups.list(stage.stream) == []
            assert [name for name in await stage.groups.consumers.streams() if name == f"{stage.stream}-g"] == []
            assert await stage.groups.consumers.consumers(stage.stream) == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("elastic", b'{"max_members":3,"partitioning_filters":null,"members":["m"]}'),
        ("elastic", b'{"max_members":2,"partitioning_filters":null,"max_buffered_msg":5,"members":["m"]}'),
        ("static", b'{"max_members":2,"members":["m","n"]}'),
        ("static", b'{"max_members":2,"filters":["a.>"],"members":["m"]}'),
    ],
)
def test_instances_end_when_something_changes_that_must_not(
    nats_server: NatsServer, tmp_path: Path, kind: Kind, change: bytes
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = ElasticConfig if kind == "elastic" else StaticConfig
            await stage.create(config(max_members=2, members=("m",)))
            stage.join("a", "m")
            await asyncio.sleep(0.2)
            bucket, key = stage.groups.bucket(kind), f"{stage.stream}.g"
            assert await bucket.put(key, change, await bucket.revision(key))
            with pytest.raises(GroupError, match=r"changed in a way that is not allowed\. Stop all its instances"):
                await stage.end_of("a")

    asyncio.run(run())


def test_who_is_in_the_membership_and_who_is_active_are_told_apart(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m1", "m2"))
            member = stage.join("a", "m1", handler=lambda _: asyncio.sleep(0.2))
            await stage.publish(12)
            await stage.until(lambda: bool(stage.handled))
            told = [
                await stage.groups.is_in_membership_and_active(stage.stream, "g", name) for name in ("m1", "m2", "m3")
            ]
            # In Go all are active as soon as one is.
            assert told == [(True, True), (True, False), (False, False)]
            assert (member.counters.partitions, member.counters.messages) == (2, len(stage.handled))
            await asyncio.sleep(0.05)
            await stage.leave("a")
            assert 0 < member.counters.last_drain < 1
            assert member.counters.partitions == 0

    asyncio.run(run())

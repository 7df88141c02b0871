"""Administration of groups on a real nats-server: what is written where, and that no change is lost."""

import asyncio
from pathlib import Path

import pytest

from echelon.errors import (
    ConsumerNotFound,
    GroupError,
    GroupExists,
    GroupNotFound,
    InvalidConfig,
    StreamNotFound,
)
from echelon.local import NatsServer
from echelon.pcg import ElasticConfig, MemberMapping, Options, PartitioningFilter, StaticConfig, open_groups
from echelon.pcg.config import Kind
from echelon.pcg.seat import consumer_config
from tests.brokers.nats.harness import call
from tests.pcg.stage import check_order, staged


async def check_bucket(url: str, kind: Kind) -> None:
    """The bucket is as the reference makes it: in a file, and all else as Go's client makes any bucket."""
    config = (await call(url, f"STREAM.INFO.KV_{kind}-consumer-groups"))["config"]
    assert {name: value for name, value in config.items() if value and name != "metadata"} == {
        "name": f"KV_{kind}-consumer-groups",
        "subjects": [f"$KV.{kind}-consumer-groups.>"],
        "storage": "file",
        "num_replicas": 1,
        "max_msgs_per_subject": 1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_msg_size": -1,
        "max_consumers": -1,
        "retention": "limits",
        "compression": "none",
        "discard": "new",
        "duplicate_window": 120_000_000_000,
        "deny_delete": True,
        "allow_rollup_hdrs": True,
        "allow_direct": True,
    }


def test_an_elastic_group_is_an_entry_and_a_work_queue(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = stage.elastic(5, max_buffered_msgs=1000)
            await stage.create(config)
            await stage.publish(30)
            await check_bucket(stage.url, "elastic")
            queue = (await call(stage.url, f"STREAM.INFO.{stage.stream}-g"))["config"]
            assert (queue["retention"], queue["discard"], queue["max_msgs"]) == ("workqueue", "new", 1000)
            assert queue["allow_direct"]
            assert "subjects" not in queue
            dest = f"{{{{Partition(5,1)}}}}.{stage.stream}.{{{{Wildcard(1)}}}}"
            assert queue["sources"][0]["name"] == stage.stream
            assert queue["sources"][0]["subject_transforms"] == [{"src": f"{stage.stream}.*", "dest": dest}]
            # Equal: found, and its work queue made again if it is gone. Not equal: refused.
            await call(stage.url, f"STREAM.DELETE.{stage.stream}-g")
            await stage.create(config)
            await call(stage.url, f"STREAM.INFO.{stage.stream}-g")
            with pytest.raises(GroupExists, match="there is another elastic group g"):
                await stage.create(stage.elastic(6))
            await stage.groups.delete(stage.stream, "g")
            with pytest.raises(GroupNotFound):
                await stage.groups.get(stage.stream, "g")
            with pytest.raises(StreamNotFound):
                await stage.groups.consumers.details(f"{stage.stream}-g")
            # A name that was used can be used again, for another group.
            await stage.create(stage.elastic(6))
            assert (await stage.groups.get(stage.stream, "g")).config.max_members == 6

    asyncio.run(run())


def test_groups_without_filters_take_everything_by_the_whole_subject(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(ElasticConfig(max_members=3, members=("m",)))
            await stage.publish(30)
            stage.join("a", "m")
            await stage.until_all_handled()
            assert len({each.partition for each in stage.handled}) > 1

    asyncio.run(run())


def test_a_work_queue_that_is_another_stream_is_not_used(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            name = f"{stage.stream}-g"
            await call(stage.url, f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.x"]})
            with pytest.raises(GroupExists, match="would be the group's work queue, is another one"):
                await stage.create(stage.elastic(2))

    asyncio.run(run())


def test_static_groups_never_change_and_take_only_their_own_consumers_with_them(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = StaticConfig(max_members=2, filters=("a.>",), members=("m1", "m2"))
            await stage.create(config)
            await check_bucket(stage.url, "static")
            await stage.create(config)
            with pytest.raises(GroupExists):
                await stage.create(StaticConfig(max_members=2, filters=("a.>",), members=("m1",)))
            with pytest.raises(GroupNotFound, match="no elastic group g"):
                await stage.groups.add_members(stage.stream, "g", ["m3"])
            await stage.groups.create(stage.stream, "g-x", StaticConfig(max_members=2, members=("m",)))
            for group, member in (("g", "m1"), ("g-x", "m")):
                found = await stage.groups.get(stage.stream, group)
                consumer = consumer_config(found, member, Options())
                assert consumer.durable
                await stage.groups.consumers.create(stage.stream, consumer)
            await stage.groups.delete(stage.stream, "g")
            # In Go the deletion of `g` takes the consumers of `g-x` with it.
            assert [each.name for each in await stage.groups.consumers.consumers(stage.stream)] == ["g-x-m"]

    asyncio.run(run())


def test_members_and_mappings_exclude_each_other(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            groups, stream = stage.groups, stage.stream
            await stage.create(stage.elastic(3))
            assert await groups.add_members(stream, "g", ["b", "a", "b"]) == ("a", "b")
            assert await groups.add_members(stream, "g", ["c"]) == ("a", "b", "c")
            assert await groups.drop_members(stream, "g", ["b", "x"]) == ("a", "c")
            with pytest.raises(InvalidConfig, match="cannot name a member"):
                await groups.add_members(stream, "g", ["not.good"])
            with pytest.raises(InvalidConfig, match="names no member"):
                await groups.set_mappings(stream, "g", [])
            with pytest.raises(InvalidConfig, match="2 of 3 partitions"):
                await groups.set_mappings(stream, "g", [MemberMapping("a", (0,))])
            await groups.set_mappings(stream, "g", [MemberMapping("a", (2, 0)), MemberMapping("b", (1,))])
            config = (await groups.get(stream, "g")).config
            assert config.members == ()
            assert config.partition_filters("a") == ("2.>", "0.>")
            for change in (groups.add_members, groups.drop_members):
                with pytest.raises(InvalidConfig, match="has a mapping"):
                    await change(stream, "g", ["c"])
            await groups.delete_mappings(stream, "g")
            assert (await groups.get(stream, "g")).config.names() == ()
            with pytest.raises(ConsumerNotFound):
                await groups.step_down(stream, "g", "a")

    asyncio.run(run())


def test_no_change_of_members_is_lost_when_many_are_made_at_once(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage, open_groups(stage.url) as other:
            await stage.create(stage.elastic(20, "gone"))
            names = [f"m{n:02}" for n in range(12)]
            await asyncio.gather(
                *((stage.groups, other)[n % 2].add_members(stage.stream, "g", [name]) for n, name in enumerate(names)),
                other.drop_members(stage.stream, "g", ["gone"]),
            )
            assert (await stage.groups.get(stage.stream, "g")).config.names() == tuple(names)

    asyncio.run(run())


def test_groups_are_listed_with_their_kind_and_unreadable_entries_left_out(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.groups.create(stage.stream, "h", StaticConfig(max_members=2))
            await stage.groups.create(stage.stream, "g", StaticConfig(max_members=2))
            with pytest.raises(GroupError, match="a static and an elastic group g"):
                await stage.groups.get(stage.stream, "g")
            assert (await stage.groups.get(stage.stream, "g", "elastic")).consumed == f"{stage.stream}-g"
            bucket = stage.groups.bucket("elastic")
            await bucket.put(f"{stage.stream}.broken", b"{", 0)
            with pytest.raises(GroupError, match=f"the entry of the group {stage.stream}.broken cannot be read"):
                await stage.groups.get(stage.stream, "broken")
            await bucket.put(f"{stage.stream}.wrong", b'{"max_members":0}', 0)
            with pytest.raises(GroupError, match="is not valid: max_members is 0"):
                await stage.groups.get(stage.stream, "wrong")
            listed = [(each.kind, each.name) for each in await stage.groups.list(stage.stream)]
            assert listed == [("static", "g"), ("static", "h"), ("elastic", "g")]
            assert {each.stream for each in await stage.groups.list()} >= {stage.stream}

    asyncio.run(run())


@pytest.mark.parametrize("format", ["current", "v0.1"])
def test_a_members_consumer_is_as_the_reference_makes_it(nats_server: NatsServer, tmp_path: Path, format: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m", format=format))
            found = await stage.groups.get(stage.stream, "g")
            assert found.config.format == format
            wait = 6_000_000_000 if format == "v0.1" else 2_000_000_000
            filters = ["0.>", "1.>"] if format == "v0.1" else [f"0.{stage.stream}.*", f"1.{stage.stream}.*"]
            assert consumer_config(found, "m", Options(ack_wait=2)).encode() == {
                "name": "m",
                "deliver_policy": "all",
                "ack_policy": "explicit",
                "ack_wait": wait,
                "filter_subjects": tuple(filters),
                "replay_policy": "instant",
                "max_ack_pending": 1,
                "inactive_threshold": wait,
                "num_replicas": 0,
                "priority_policy": "pinned_client",
                "priority_timeout": wait,
                "priority_groups": ("m" if format == "v0.1" else "PCG",),
            }
            # The shortest pin, and the default.
            assert consumer_config(found, "m", Options(ack_wait=0.5)).priority_timeout == (1 if wait < 6e9 else 6)
            assert consumer_config(found, "m", Options()).ack_wait == (5 if wait < 6e9 else 6)

    asyncio.run(run())


def test_a_static_members_consumer_is_durable_and_does_not_go_away(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(StaticConfig(max_members=2, filters=("a.*",), members=("m",)))
            config = consumer_config(await stage.groups.get(stage.stream, "g"), "m", Options()).encode()
            assert (config["name"], config["durable_name"]) == ("g-m", "g-m")
            assert config["filter_subjects"] == ("0.a.*", "1.a.*")
            assert "inactive_threshold" not in config

    asyncio.run(run())


def test_the_format_of_a_static_group_of_javas_can_be_said_until_its_consumers_tell(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            name = stage.stream = await stage.partitioned_stream(2)
            bucket = stage.groups.bucket("static")
            await bucket.ensure(1)
            await bucket.put(f"{name}.g", b'{"max_members":2,"filter":">","members":["m"]}', 0)
            # Go v0.1 would have written the same.
            assert (await stage.groups.get(name, "g")).config.format == "v0.1"
            found = await stage.groups.get(name, "g", format="java")
            assert found.config.priority_group("m") == "PCG"
            assert found.config.partition_filters("m") == ("0.>", "1.>")
            assert consumer_config(found, "m", Options(ack_wait=2)).ack_wait == 2
            stage.join("a", "m", format="java")
            await stage.publish(20)
            await stage.until_all_handled()
            check_order(stage)
            config = (await stage.groups.consumers.info(name, "g-m")).config
            assert (config["priority_groups"], config["ack_wait"]) == (["PCG"], 1_000_000_000)
            # Now its consumer tells, and nobody may say otherwise.
            assert (await stage.groups.get(name, "g")).config.format == "java"
            with pytest.raises(InvalidConfig, match=f"the static group {name}.g is in the format java, not v0.1"):
                await stage.groups.get(name, "g", format="v0.1")
            await stage.groups.create(name, "h", StaticConfig(max_members=2))
            with pytest.raises(InvalidConfig, match="is in the format current, not java"):
                await stage.groups.get(name, "h", format="java")

    asyncio.run(run())


def test_filters_of_several_kinds_in_one_group(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            filters = tuple(PartitioningFilter(f"{stage.stream}.k{n}.>") for n in range(2))
            mapping = (MemberMapping("m", (0, 1)),)
            config = ElasticConfig(max_members=2, partitioning_filters=filters, member_mappings=mapping)
            await stage.create(config)
            stage.join("a", "m")  # With Go this member would never get a consumer.
            await stage.until(lambda: not stage._tasks["a"][1].done())
            async with asyncio.timeout(5):
                while await stage.groups.active_members(stage.stream, "g") != ("m",):
                    await asyncio.sleep(0.02)

    asyncio.run(run())

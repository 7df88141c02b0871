"""Derived streams on a real nats-server: what they inherit, and when they come and go."""

import asyncio

import pytest

from echelon.brokers.nats import NatsBroker
from echelon.errors import NotPartitionable, StreamNotFound
from echelon.group.config import Stream
from echelon.keys import SubjectKey, TokensKey
from echelon.local import NatsServer
from echelon.testing.contract.harness import name
from tests.brokers.nats.harness import call, make_stream


def test_a_derived_stream_inherits_its_origins_limits(nats_server: NatsServer) -> None:
    stream_name, group = name("stream"), name("group")
    limits = {
        "max_age": 3600 * 10**9,
        "max_bytes": 10_000_000,
        "max_msgs": 5000,
        "max_msg_size": 4096,
        "storage": "memory",
    }

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.*"], allow_direct=False, **limits)
        async with NatsBroker(nats_server.url) as broker:
            await broker.prepare(group, Stream(stream_name, 6, TokensKey(f"{stream_name}.*", (1,)), "derived"))
        config = (await call(nats_server.url, f"STREAM.INFO.ECHELON-{group}"))["config"]
        assert {limit: config[limit] for limit in limits} == limits
        assert config["allow_direct"] is True
        assert config["sources"] == [
            {
                "name": stream_name,
                "subject_transforms": [
                    {"src": f"{stream_name}.*", "dest": f"{{{{Partition(6,1)}}}}.{stream_name}.{{{{Wildcard(1)}}}}"}
                ],
            }
        ]

    asyncio.run(run())


def test_a_derived_stream_is_made_once_and_not_changed(nats_server: NatsServer) -> None:
    stream_name, group = name("stream"), name("group")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.>"])
        described = Stream(stream_name, 6, SubjectKey(f"{stream_name}.>"), "derived")
        async with NatsBroker(nats_server.url) as broker:
            made = await broker.prepare(group, described)
            origin = (await call(nats_server.url, f"STREAM.INFO.{stream_name}"))["config"]
            await call(nats_server.url, f"STREAM.UPDATE.{stream_name}", {**origin, "max_age": 10**12})
            assert await broker.prepare(group, described) == made
            for other in (
                Stream(stream_name, 7, SubjectKey(f"{stream_name}.>"), "derived"),
                Stream(stream_name, 6, SubjectKey(f"{stream_name}.a.>"), "derived"),
            ):
                with pytest.raises(NotPartitionable, match="with another key or number of partitions"):
                    await broker.prepare(group, other)

    asyncio.run(run())


def test_a_stream_that_is_in_the_way_of_a_derived_one_is_left_alone(nats_server: NatsServer) -> None:
    stream_name, group = name("stream"), name("group")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.>"])
        await make_stream(nats_server.url, f"ECHELON-{group}", [f"{group}.>"])
        async with NatsBroker(nats_server.url) as broker:
            with pytest.raises(NotPartitionable, match=f"ECHELON-{group} is in the way"):
                await broker.prepare(group, Stream(stream_name, 6, SubjectKey(f"{stream_name}.>"), "derived"))
            await broker.create_log(group)
            await broker.delete_log(group)
        await call(nats_server.url, f"STREAM.INFO.ECHELON-{group}")

    asyncio.run(run())


def test_the_derived_streams_of_a_group_go_with_it_and_those_of_others_stay(nats_server: NatsServer) -> None:
    first, second = name("stream"), name("stream")
    group = name("group")

    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            for each in (first, second):
                await make_stream(nats_server.url, each, [f"{each}.>"])
                for owner in (group, f"{group}-2"):
                    await broker.prepare(owner, Stream(each, 3, SubjectKey(f"{each}.>"), "derived"))
            await broker.create_log(group)
            mine = {f"ECHELON-{group}", f"ECHELON-{group}+{second}"}
            others = {f"ECHELON-{group}-2", f"ECHELON-{group}-2+{second}", first, second}
            assert mine | others <= set((await call(nats_server.url, "STREAM.NAMES"))["streams"])
            await broker.delete_log(group)
            left = set((await call(nats_server.url, "STREAM.NAMES"))["streams"])
            assert others <= left
            assert not mine & left
            with pytest.raises(StreamNotFound):
                await broker.reader(group, Stream(first, 3, SubjectKey(f"{first}.>"), "derived"))

    asyncio.run(run())

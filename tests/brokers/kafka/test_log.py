"""The topic that is a group's log."""

import asyncio

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it exports
    AdminClient,
    ConfigResource,
)

from echelon.brokers.kafka.admin import Admin, Topic
from echelon.brokers.kafka.feed import PlaceLost
from echelon.errors import LogBroken, Unreachable
from echelon.testing.contract.harness import closing, name, take
from tests.brokers.harnesses import KafkaHarness, result


async def config(admin: AdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = await result(admin.describe_configs([resource])[resource])
    return {key: entry.value for key, entry in entries.items()}


def test_the_broker_deletes_nothing_of_it_by_itself(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        group = name("group")
        stream = await kafka_harness.create_stream(name("topic"), 3)
        async with kafka_harness.connect() as broker:
            await broker.create_log(group, (stream,))
        found = await config(kafka_harness.admin, f"__echelon.{group}")
        wanted = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "message.timestamp.type": "LogAppendTime",
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": "1",
        }
        assert {key: found[key] for key in wanted} == wanted
        topic = kafka_harness.admin.list_topics(f"__echelon.{group}", timeout=10).topics[f"__echelon.{group}"]
        assert [len(partition.replicas) for partition in topic.partitions.values()] == [1]

    asyncio.run(scenario())


def test_records_of_other_producers_are_entries_like_any_other(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        group = name("group")
        async with kafka_harness.connect() as broker:
            log = await broker.create_log(group)
            await log.append(b"ours")
            kafka_harness.producer.produce(
                f"__echelon.{group}", b"foreign", b"key", headers={"a": b"b"}, timestamp=1000
            )
            kafka_harness.producer.produce(f"__echelon.{group}", None, b"tombstone")
            assert kafka_harness.producer.flush(30) == 0
            last = await log.append(b"ours again")
            async with closing(log.follow(0)) as entries:
                got = await take(entries, last + 1)
            assert got == await log.read(0, last + 1)
        assert [entry.data for entry in got] == [b"ours", b"foreign", b"", b"ours again"]
        # The broker's time, not the producer's.
        assert [entry.time for entry in got] == sorted(entry.time for entry in got)
        assert got[1].time > 1_600_000_000_000

    asyncio.run(scenario())


def test_a_follower_that_loses_its_place_waits_for_a_broker_that_is_away_just_then(
    kafka_harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker that said that the place is lost is gone before it can be asked whether the log is still the same."""
    ask = Admin.topic
    refused = 0

    async def away(*_: object) -> Topic:
        nonlocal refused
        refused += 1
        raise Unreachable("the broker is away")

    async def scenario() -> None:
        async with kafka_harness.connect() as broker:
            log = await broker.create_log(name("group"))
            first = await log.append(b"before")
            async with closing(log.follow(first)) as entries:
                assert [entry.data for entry in await take(entries, 1)] == [b"before"]
                [feed] = broker._connection._feeds
                monkeypatch.setattr(Admin, "topic", away)
                waiting = asyncio.create_task(take(entries, 1))
                feed._lanes[0].fail(PlaceLost("it is gone"))
                while not refused:
                    await asyncio.sleep(0.01)
                monkeypatch.setattr(Admin, "topic", ask)
                last = await log.append(b"after")
                assert [(entry.sequence, entry.data) for entry in await waiting] == [(last, b"after")]

    asyncio.run(scenario())


def test_a_topic_of_several_partitions_is_no_log(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        group = name("group")
        await kafka_harness.create_stream(f"__echelon.{group}", 2)
        async with kafka_harness.connect() as broker:
            with pytest.raises(LogBroken, match="2 partitions"):
                await broker.log(group)
            await broker.delete_log(group)

    asyncio.run(scenario())


def test_only_logs_are_groups(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        topic = name("topic")
        await kafka_harness.create_stream(topic, 1)
        async with kafka_harness.connect() as broker:
            assert topic not in await broker.groups()

    asyncio.run(scenario())

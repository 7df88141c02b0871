"""Where a new group begins: what lies before is never handled, and everything after it is."""

import asyncio

import nats
import pytest
from confluent_kafka import Consumer, TopicPartition

from echelon.errors import GroupNotFound
from echelon.members.admin import Committed, create_group
from tests.brokers.nats.harness import NatsHarness
from tests.members.stage import Stage, scene


async def consume_some(stage: Stage) -> dict[str, int]:
    """Have an ordinary consumer of the broker's own go through part of the stream; where it stands, by partition."""
    if isinstance(stage.harness, NatsHarness):
        client = await nats.connect(stage.url)
        pulling = await client.jetstream().pull_subscribe(f"{stage.stream.name}.*", durable="old")
        for message in await pulling.fetch(70):
            await message.ack_sync()
        await client.close()
        return dict.fromkeys(("0", "1", "2"), 71)
    settings = {"bootstrap.servers": stage.url.removeprefix("kafka://"), "group.id": f"old-{stage.group}"}
    positions = {"0": 10, "1": 20, "2": 0}
    offsets = [TopicPartition(stage.stream.name, int(name), at) for name, at in positions.items() if at]

    def commit() -> None:
        consumer = Consumer(settings)
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()

    await asyncio.to_thread(commit)
    return positions


@scene
async def test_a_group_goes_on_where_an_ordinary_consumer_stood(stage: Stage) -> None:
    if isinstance(stage.harness, NatsHarness):
        stage.harness.partitioning = "computed"
    await stage.make_stream(3)
    await stage.publish(200)
    stood = await consume_some(stage)
    name = "old" if isinstance(stage.harness, NatsHarness) else f"old-{stage.group}"
    await stage.make_group(Committed(name), members=("a",))
    assert {p.name: p.position for p in stage.world.partitions.values()} == stood

    before = {
        message.data.decode()
        for partition, messages in (await stage.stored()).items()
        for message in messages
        if message.sequence < stood[partition]
    }
    assert before
    stage.sent = {key: [data for data in sent if data not in before] for key, sent in stage.sent.items()}
    await stage.launch_seated("a", "a")
    lines = await stage.until_all_handled()
    assert not before & {line.data for line in lines}
    stage.check("at_least_once")


@scene
async def test_a_group_begins_at_the_end_at_a_time_or_not_where_nobody_stood(stage: Stage) -> None:
    if isinstance(stage.harness, NatsHarness):
        stage.harness.partitioning = "computed"
    await stage.make_stream(2)
    await stage.publish(100)
    await asyncio.sleep(0.05)
    stored = await stage.stored()
    old = max(message.time for messages in stored.values() for message in messages)
    ends = {name: max(message.sequence for message in messages) + 1 for name, messages in stored.items()}
    await stage.publish(100)
    first = {
        name: min(message.sequence for message in messages if message.sequence >= ends[name])
        for name, messages in (await stage.stored()).items()
    }
    world = await create_group(stage.broker, f"{stage.group}-t", [stage.stream], start=old + 1)
    assert {p.name: p.position for p in world.partitions.values()} == first
    world = await create_group(stage.broker, f"{stage.group}-l", [stage.stream], start="latest")
    reader = await stage.broker.reader(stage.group, stage.stream)
    bounds = (await reader.info()).bounds
    assert {p.name: p.position for p in world.partitions.values()} == {str(n): b.end for n, b in bounds.items()}
    with pytest.raises(GroupNotFound, match="nobody"):
        await create_group(stage.broker, f"{stage.group}-n", [stage.stream], start=Committed("nobody"))

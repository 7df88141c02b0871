"""Streams with numbered messages, and their readers."""

import asyncio

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.reader import NatsReader
from echelon.group.config import Partitioning, Stream
from echelon.model import Message
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name
from tests.brokers.nats.harness import NatsHarness

WAYS: tuple[Partitioning, ...] = ("token", "derived", "computed")


async def opened(harness: NatsHarness, broker: NatsBroker, partitions: int, count: int, size: int = 20) -> NatsReader:
    """A reader of a new stream with `count` numbered messages of a hundred keys."""
    return (await filled(harness, broker, partitions, count, size))[0]


async def filled(
    harness: NatsHarness, broker: NatsBroker, partitions: int, count: int, size: int = 20
) -> tuple[NatsReader, Stream, str]:
    """The same, with the stream as it was prepared, and the name of the stream that is read for it."""
    described = await harness.create_stream(name("stream"), partitions)
    await harness.publish(described, [Sent(f"{n % 100}", b"%d " % n + b"x" * size) for n in range(count)])
    group = name("group")
    stream = await broker.prepare(group, described)
    reader = await broker.reader(group, stream)
    while (await reader.info()).bounds[0].end <= count:
        await asyncio.sleep(0.02)
    return reader, stream, f"ECHELON-{group}" if stream.partitioning == "derived" else stream.name


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.data.split()[0]) for message in messages]

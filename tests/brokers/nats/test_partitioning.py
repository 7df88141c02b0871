"""The three ways to partition a stream on a real nats-server, and that all agree with it."""

import asyncio
import random

import nats
import pytest

from echelon.brokers.base import Reader
from echelon.brokers.nats import NatsBroker
from echelon.errors import GroupNotFound, NotPartitionable
from echelon.group.config import Partitioning, Stream
from echelon.keys import HeaderKey, Key, SubjectKey, TokensKey, nats_partition
from echelon.local import NatsServer
from echelon.model import Message
from echelon.testing.contract.harness import name, whole
from tests.brokers.nats.harness import call, make_stream


async def publish(url: str, messages: list[tuple[str, bytes, dict[str, str] | None]]) -> None:
    client = await nats.connect(url)
    js = client.jetstream(timeout=30, publish_async_max_pending=20_000)
    await asyncio.gather(
        *[await js.publish_async(subject, data, headers=headers) for subject, data, headers in messages]
    )
    await client.close()


def random_subjects(count: int, prefix: str, tokens: int) -> list[str]:
    chance = random.Random(11)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+:/|~äß漢🙂"
    return [
        ".".join([prefix, *("".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(tokens))])
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("wildcards", "partitions"), [((), 12), ((1,), 12), ((3,), 7), ((2, 1), 64), ((1, 2, 3), 257), ((3, 1), 1)]
)
def test_ten_thousand_random_subjects_fall_where_the_server_puts_them(
    nats_server: NatsServer, wildcards: tuple[int, ...], partitions: int
) -> None:
    """The server's own transform, read by its tokens, and our computing must give every message the same partition."""
    stream_name = name("stream")
    subjects = random_subjects(10_000, stream_name, 3)
    key: Key = TokensKey(f"{stream_name}.*.*.*", wildcards) if wildcards else SubjectKey(f"{stream_name}.*.*.*")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.>"])
        await publish(nats_server.url, [(subject, b"%d" % n, None) for n, subject in enumerate(subjects)])
        contents: dict[Partitioning, dict[bytes, tuple[str, str, bytes | None]]] = {}
        for partitioning in ("derived", "computed"):
            async with NatsBroker(nats_server.url) as broker:
                stream = await broker.prepare(stream_name, Stream(stream_name, partitions, key, partitioning))
                reader = await broker.reader(stream_name, stream)
                content = await everything(reader, 10_000)
            contents[partitioning] = {m.data: (m.partition, m.subject, m.key) for m in content}
        assert contents["derived"] == contents["computed"]
        assert {data: subject for data, (_, subject, _) in contents["computed"].items()} == {
            b"%d" % n: subject for n, subject in enumerate(subjects)
        }
        await call(nats_server.url, f"STREAM.DELETE.ECHELON-{stream_name}")

    asyncio.run(run())


async def everything(reader: Reader, count: int) -> list[Message]:
    """All messages, with as few requests as can be when there are thousands of partitions."""
    while True:
        info = await reader.info()
        if info.bounds[0].end > count:
            break
        await asyncio.sleep(0.02)

    async def read(partition: int) -> list[Message]:
        bounds = info.bounds[partition]
        return [message async for messages in reader.read(partition, bounds.first, bounds.end) for message in messages]

    found = []
    for first in range(0, len(info.bounds), 256):
        for messages in await asyncio.gather(*map(read, range(len(info.bounds))[first : first + 256])):
            found += messages
    return found


def test_a_stream_that_the_server_partitions_agrees_with_our_computing(nats_server: NatsServer) -> None:
    """The partition token that the server's transform has put there is what we would have computed."""
    stream_name = name("stream")

    async def run() -> None:
        transform = {
            "src": f"{stream_name}.*.*",
            "dest": f"{{{{Partition(5,2)}}}}.{stream_name}.{{{{Wildcard(1)}}}}.{{{{Wildcard(2)}}}}",
        }
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.*.*"], subject_transform=transform)
        await publish(nats_server.url, [(f"{stream_name}.{n}.{n % 17}", b"%d" % n, None) for n in range(500)])
        key = TokensKey(f"{stream_name}.*.*", (2,))
        async with NatsBroker(nats_server.url) as broker:
            stream = await broker.prepare("group", Stream(stream_name, 5, key, "token"))
            content = await whole(await broker.reader("group", stream), 500)
        for partition, messages in content.items():
            assert messages
            for message in messages:
                n = int(message.data)
                assert message.subject == f"{stream_name}.{n}.{n % 17}"
                assert message.key == b"%d" % (n % 17)
                assert nats_partition(message.key, 5) == partition

    asyncio.run(run())


def test_numbers_that_publishers_put_before_their_subjects(nats_server: NatsServer) -> None:
    stream_name = name("stream")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{n}.{stream_name}.>" for n in range(3)])
        await publish(nats_server.url, [(f"{n % 3}.{stream_name}.a.{n}", b"%d" % n, None) for n in range(90)])
        async with NatsBroker(nats_server.url) as broker:
            stream = await broker.prepare("g", Stream(stream_name, 3, SubjectKey(f"{stream_name}.>"), "token"))
            content = await whole(await broker.reader("g", stream), 90)
        for partition, messages in content.items():
            assert [int(message.data) for message in messages] == list(range(partition, 90, 3))
            assert [message.subject for message in messages] == [
                f"{stream_name}.a.{n}" for n in range(partition, 90, 3)
            ]

    asyncio.run(run())


def test_keys_from_a_header(nats_server: NatsServer) -> None:
    stream_name = name("stream")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.*"])
        sent: list[tuple[str, bytes, dict[str, str] | None]] = [
            (f"{stream_name}.{n % 3}", b"%d" % n, {"Other": "x", "Customer": f"c{n % 10}"} if n % 11 else None)
            for n in range(300)
        ]
        await publish(nats_server.url, sent)
        async with NatsBroker(nats_server.url) as broker:
            stream = await broker.prepare(
                "g", Stream(stream_name, 4, HeaderKey("Customer", f"{stream_name}.*"), "computed")
            )
            reader = await broker.reader("g", stream)
            content = await whole(reader, 300)
            tail = reader.tail(0, 1)
            first = await anext(tail)
            await tail.aclose()
        assert first == content[0][: len(first)]
        by_key: dict[bytes | None, list[int]] = {}
        for messages in content.values():
            for message in messages:
                by_key.setdefault(message.key, []).append(int(message.data))
        expected: dict[bytes | None, list[int]] = {}
        for n, (_, _, headers) in enumerate(sent):
            expected.setdefault(headers["Customer"].encode() if headers else b"", []).append(n)
        assert by_key == expected
        assert sum(bool(messages) for messages in content.values()) > 1

    asyncio.run(run())


def test_only_what_the_filter_lets_through_is_in_the_group(nats_server: NatsServer) -> None:
    stream_name = name("stream")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.>"])
        subjects = [f"{stream_name}.{kind}.{n}" for n in range(50) for kind in ("order", "refund")]
        await publish(nats_server.url, [(subject, subject.encode(), None) for subject in subjects])
        for partitioning in ("computed", "derived"):
            async with NatsBroker(nats_server.url) as broker:
                described = Stream(stream_name, 3, TokensKey(f"{stream_name}.order.*", (1,)), partitioning)
                stream = await broker.prepare(stream_name, described)
                content = await whole(await broker.reader(stream_name, stream), 50)
            data = sorted(message.data for messages in content.values() for message in messages)
            assert data == sorted(subject.encode() for subject in subjects if ".order." in subject)
        await call(nats_server.url, f"STREAM.DELETE.ECHELON-{stream_name}")

    asyncio.run(run())


def test_where_a_durable_consumer_stands(nats_server: NatsServer) -> None:
    stream_name = name("stream")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.*"])
        await publish(nats_server.url, [(f"{stream_name}.a", b"%d" % n, None) for n in range(10)])
        client = await nats.connect(nats_server.url)
        subscription = await client.jetstream().pull_subscribe(f"{stream_name}.*", "billing", stream=stream_name)
        for message in await subscription.fetch(4):
            await message.ack_sync()
        await client.close()
        computed = Stream(stream_name, 3, TokensKey(f"{stream_name}.*", (1,)), "computed")
        async with NatsBroker(nats_server.url) as broker:
            assert await broker.committed("billing", computed) == {0: 5, 1: 5, 2: 5}
            with pytest.raises(GroupNotFound, match="has no consumer nobody"):
                await broker.committed("nobody", computed)
            with pytest.raises(NotPartitionable, match="counts in sequences of"):
                await broker.committed("billing", Stream(stream_name, 3, computed.key, "derived"))

    asyncio.run(run())

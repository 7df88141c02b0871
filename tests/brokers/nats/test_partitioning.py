"""The three ways to partition a stream on a real nats-server, which of them it bears, and that all agree with it."""

import asyncio
import random
from collections.abc import Mapping
from itertools import product
from typing import Any

import nats
import pytest

from echelon.brokers.base import Reader
from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.subjects import covers, overlap
from echelon.errors import GroupNotFound, InvalidConfig, NotPartitionable, StreamNotFound
from echelon.group.config import Partitioning, Stream
from echelon.keys import HeaderKey, Key, RecordKey, SubjectKey, TokensKey, matches, nats_partition
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


REFUSED: list[tuple[Mapping[str, Any], Key, Partitioning, int, str, str]] = [
    ({}, RecordKey(), "computed", 3, "have no key of their own", "tokens of the subject"),
    ({}, SubjectKey("NAME.>"), "native", 3, "has no partitions of its own", "Use 'computed'"),
    (
        {},
        HeaderKey("Customer", "NAME.>"),
        "derived",
        3,
        "cannot partition NAME by the header Customer",
        "Use 'computed'",
    ),
    ({}, HeaderKey("Customer", "NAME.>"), "token", 3, "cannot partition NAME by the header Customer", "Use 'computed'"),
    ({}, SubjectKey("NAME.>"), "token", 3, "NAME.> .* does not begin with a partition", "Use 'derived'"),
    (
        {"subjects": ["0.NAME.>", "3.NAME.>"]},
        SubjectKey("NAME.>"),
        "token",
        3,
        "3.NAME.> .* does not begin with a partition",
        "Use 'derived'",
    ),
    (
        {"subjects": ["0.NAME.>", "x.NAME.>"]},
        SubjectKey("NAME.>"),
        "token",
        3,
        "x.NAME.> .* does not begin with a partition",
        "Use 'derived'",
    ),
    (
        {"subject_transform": {"src": "NAME.*", "dest": "all.NAME.{{Wildcard(1)}}"}},
        TokensKey("NAME.*", (1,)),
        "token",
        3,
        "does not begin with a partition",
        "Begin it with",
    ),
    (
        {"subject_transform": {"src": "NAME.*", "dest": "{{Partition(4,1)}}.NAME.{{Wildcard(1)}}"}},
        TokensKey("NAME.*", (1,)),
        "token",
        3,
        r"partitioned by \{\{Partition\(4,1\)\}\}",
        "Give the group the same",
    ),
    (
        {"subject_transform": {"src": "NAME.*", "dest": "{{Partition(3,1)}}.NAME.{{Wildcard(1)}}"}},
        SubjectKey("NAME.*"),
        "token",
        3,
        r"partitioned by \{\{Partition\(3,1\)\}\}",
        "Give the group the same",
    ),
    ({"allow_direct": False}, SubjectKey("NAME.>"), "computed", 3, "does not answer direct gets", "--allow-direct"),
    (
        {"allow_direct": False, "subjects": ["0.NAME.>"]},
        SubjectKey("NAME.>"),
        "token",
        1,
        "does not answer direct gets",
        "--allow-direct",
    ),
    (
        {"retention": "workqueue"},
        SubjectKey("NAME.>"),
        "computed",
        3,
        "deletes what its consumers have acknowledged",
        "retention 'limits'",
    ),
    (
        {"retention": "interest"},
        SubjectKey("NAME.>"),
        "derived",
        3,
        "deletes what its consumers have acknowledged",
        "retention 'limits'",
    ),
    (
        {},
        SubjectKey("elsewhere.>"),
        "derived",
        3,
        "no subject of the stream NAME matches elsewhere.>",
        "It takes NAME.>",
    ),
    ({}, TokensKey("elsewhere.*", (1,)), "computed", 3, "no subject of the stream NAME matches", "It takes NAME.>"),
]


@pytest.mark.parametrize(("config", "key", "partitioning", "partitions", "reason", "way_out"), REFUSED)
def test_what_cannot_be_partitioned_is_refused_with_the_reason_and_the_way_out(
    nats_server: NatsServer,
    config: dict[str, Any],
    key: Key,
    partitioning: Partitioning,
    partitions: int,
    reason: str,
    way_out: str,
) -> None:
    stream_name = name("stream")

    def named(value: Any) -> Any:  # noqa: ANN401 - what JSON has
        if isinstance(value, str):
            return value.replace("NAME", stream_name)
        if isinstance(value, dict):
            return {name: named(each) for name, each in value.items()}
        return [named(each) for each in value] if isinstance(value, list) else value

    if not isinstance(key, RecordKey):
        key = type(key)(**{field: named(getattr(key, field)) for field in key.__struct_fields__})

    async def run() -> None:
        subjects = named(config.get("subjects", ["NAME.>"]))
        await make_stream(
            nats_server.url, stream_name, subjects, **{k: named(v) for k, v in config.items() if k != "subjects"}
        )
        group = name("group")
        async with NatsBroker(nats_server.url) as broker:
            with pytest.raises(NotPartitionable, match=named(reason)) as caught:
                await broker.prepare(group, Stream(stream_name, partitions, key, partitioning))
            assert named(way_out) in caught.value.remedy
        assert f"ECHELON-{group}" not in (await call(nats_server.url, "STREAM.NAMES"))["streams"]
        await call(nats_server.url, f"STREAM.DELETE.{stream_name}")

    asyncio.run(run())


@pytest.mark.parametrize("partitions", [0, 4097])
def test_numbers_of_partitions_that_cannot_be(nats_server: NatsServer, partitions: int) -> None:
    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            with pytest.raises(InvalidConfig, match=f"has {partitions} partitions"):
                await broker.prepare("g", Stream("any", partitions))

    asyncio.run(run())


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


PATTERNS = ["a", "a.b", "*", ">", "a.*", "*.b", "a.>", "*.*", "a.*.c", "*.>", "a.b.c", "b.>", "*.b.*"]
SUBJECTS = [".".join(words) for n in (1, 2, 3, 4) for words in product("abc", repeat=n)]


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_comparing_filters_means_comparing_what_they_match(one: str, other: str) -> None:
    def set_of(pattern: str) -> set[str]:
        return {subject for subject in SUBJECTS if matches(pattern, subject)}

    assert overlap(one, other) == bool(set_of(one) & set_of(other))
    assert covers(one, other) == (set_of(other) <= set_of(one))

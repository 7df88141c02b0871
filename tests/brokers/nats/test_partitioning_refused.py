"""What cannot be partitioned on a real nats-server: it is refused with the reason and the way out."""

import asyncio
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.subjects import covers, overlap
from echelon.errors import InvalidConfig, NotPartitionable
from echelon.group.config import Partitioning, Stream
from echelon.keys import HeaderKey, Key, RecordKey, SubjectKey, TokensKey, matches
from echelon.local import NatsServer
from echelon.testing.contract.harness import name
from tests.brokers.nats.harness import call, make_stream

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


PATTERNS = ["a", "a.b", "*", ">", "a.*", "*.b", "a.>", "*.*", "a.*.c", "*.>", "a.b.c", "b.>", "*.b.*"]
SUBJECTS = [".".join(words) for n in (1, 2, 3, 4) for words in product("abc", repeat=n)]


@pytest.mark.parametrize("one", PATTERNS)
@pytest.mark.parametrize("other", PATTERNS)
def test_comparing_filters_means_comparing_what_they_match(one: str, other: str) -> None:
    def set_of(pattern: str) -> set[str]:
        return {subject for subject in SUBJECTS if matches(pattern, subject)}

    assert overlap(one, other) == bool(set_of(one) & set_of(other))
    assert covers(one, other) == (set_of(other) <= set_of(one))

"""Keys of messages, and partition numbers that are those of nats-server and of Kafka."""

import asyncio
import json
import random
import re
from collections.abc import Iterator

import msgspec
import nats
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, StorageType, StreamConfig, SubjectTransform

from echelon.errors import InvalidConfig, MissingComponent
from echelon.keys import (
    HeaderKey,
    Key,
    RecordKey,
    SubjectKey,
    TokensKey,
    check_key,
    extractor,
    fnv1a_32,
    kafka_partition,
    matches,
    murmur2,
    nats_partition,
    parse_key,
)
from echelon.local import NatsServer

tokens = st.text(st.characters(exclude_characters=".*>", exclude_categories=("Z", "C")), min_size=1, max_size=6)
subjects = st.lists(tokens, min_size=1, max_size=6).map(".".join)

# From Kafka's own UtilsTest.
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
# From the FNV reference's test_fnv.c.
FNV1A = {
    b"": 0x811C9DC5,
    b"a": 0xE40C292C,
    b"foobar": 0xBF9CF968,
    b"\x00": 0x050C5D1F,
    b"chongo was here!\n": 0xD49930D5,
}


@pytest.mark.parametrize(
    "key",
    [
        TokensKey("orders.*.*", (2, 1)),
        TokensKey("*.orders.>", (1,)),
        SubjectKey(),
        SubjectKey("orders.*"),
        HeaderKey("Customer-Id"),
        HeaderKey("Customer-Id", "orders.>"),
        RecordKey(),
    ],
)
def test_a_valid_key_is_accepted_and_survives_json(key: Key) -> None:
    check_key(key)
    assert msgspec.json.decode(msgspec.json.encode(key), type=Key) == key


def test_json_says_where_the_key_is_from() -> None:
    assert json.loads(msgspec.json.encode(TokensKey("a.*", (1,)))) == {
        "from": "tokens",
        "filter": "a.*",
        "wildcards": [1],
    }


@pytest.mark.parametrize(
    ("key", "mistake"),
    [
        (SubjectKey(""), "filter is empty"),
        (SubjectKey("orders..*"), "empty token"),
        (SubjectKey(".>"), "empty token"),
        (SubjectKey("orders.*."), "empty token"),
        (SubjectKey("orders. .*"), "white space"),
        (SubjectKey("orders.>.*"), "'>' is not the last token"),
        (SubjectKey("orders"), "matches a single subject"),
        (SubjectKey("orders.a*.b>"), "matches a single subject"),
        (TokensKey("orders", (1,)), "matches a single subject"),
        (TokensKey("orders.*", ()), "none of the wildcards"),
        (TokensKey("orders.*.*", (1, 2, 1)), "twice: 1, 2, 1"),
        (TokensKey("orders.*", (0,)), "wildcard 0 of 'orders.*', which has 1"),
        (TokensKey("orders.*.*", (1, 3)), "wildcard 3 of 'orders.*.*', which has 2"),
        (TokensKey("orders.>", (1,)), "wildcard 1 of 'orders.>', which has 0"),
        (HeaderKey(""), "header is empty"),
        (HeaderKey("Customer Id"), "'Customer Id' cannot name a header"),
        (HeaderKey("Customer:Id"), "'Customer:Id' cannot name a header"),
        (HeaderKey("Customer-Id", "orders"), "matches a single subject"),
    ],
)
def test_a_mistaken_key_is_refused_by_name(key: Key, mistake: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_key(key)
    assert mistake in str(refused.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("record", RecordKey()),
        ("subject", SubjectKey()),
        ("subject:a.>", SubjectKey("a.>")),
        ("header:user", HeaderKey("user")),
        ("header:user:a.*", HeaderKey("user", "a.*")),
        ("tokens:a.*.*:2,1", TokensKey("a.*.*", (2, 1))),
    ],
)
def test_keys_have_a_short_form(text: str, key: Key) -> None:
    assert parse_key(text) == key


@pytest.mark.parametrize("text", ["", "token:a", "tokens:a.*:x", "tokens:a.*:1,", "header", "record:a"])
def test_what_is_no_short_form_is_told(text: str) -> None:
    with pytest.raises(InvalidConfig, match=f"'{re.escape(text)}' is no key"):
        parse_key(text)


@pytest.mark.parametrize(
    ("filter", "subject", "expected"),
    [
        (">", "a", True),
        (">", "a.b.c", True),
        ("a.>", "a", False),
        ("a.>", "a.b", True),
        ("a.>", "b.a", False),
        ("a.>", "a.b.c", True),
        ("*", "a", True),
        ("*", "a.b", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("a.*.c", "a.b.c.d", False),
        ("a.*.>", "a.b", False),
        ("a.*.>", "a.b.c", True),
        ("a*.>", "ab.c", False),
    ],
)
def test_a_filter_takes_in_what_nats_says_it_does(filter: str, subject: str, expected: bool) -> None:
    assert matches(filter, subject) is expected


@given(st.data(), subjects)
def test_tokens_made_wildcards_match_and_give_the_key(data: st.DataObject, subject: str) -> None:
    parts = subject.split(".")
    stars = sorted(data.draw(st.sets(st.integers(0, len(parts) - 1), min_size=1)))
    wildcards = data.draw(st.permutations(range(1, len(stars) + 1)))[: data.draw(st.integers(1, len(stars)))]
    pattern = ".".join("*" if place in stars else part for place, part in enumerate(parts))
    if data.draw(st.booleans()):
        pattern, subject = f"{pattern}.>", f"{subject}.more.tokens"
    key = TokensKey(pattern, tuple(wildcards))
    check_key(key)
    assert matches(pattern, subject)
    expected = "".join(parts[stars[wildcard - 1]] for wildcard in wildcards).encode()
    assert extractor(key)(subject, (), b"not this") == expected


@given(subjects, st.binary(), st.binary())
def test_whole_subject_header_and_record_key(subject: str, value: bytes, record_key: bytes) -> None:
    headers = (("other", b"x"), ("id", value), ("id", b"second"))
    assert extractor(SubjectKey())(subject, headers, record_key) == subject.encode()
    assert extractor(HeaderKey("id"))(subject, headers, record_key) == value
    assert extractor(RecordKey())(subject, headers, record_key) == record_key


def test_messages_without_the_header_share_the_empty_key_and_records_without_key_have_none() -> None:
    assert extractor(HeaderKey("id"))("orders.1", (("ID", b"1"),), b"k") == b""
    assert extractor(RecordKey())("orders", (), None) is None


@pytest.mark.parametrize("data", MURMUR2)
def test_murmur2_is_that_of_kafka(data: bytes) -> None:
    assert murmur2(data) == MURMUR2[data]
    assert kafka_partition(data, 12) == (MURMUR2[data] & 0x7FFFFFFF) % 12


@given(st.binary(max_size=70))
def test_murmur2_is_that_of_kafka_written_byte_by_byte(data: bytes) -> None:
    def wrapped(value: int) -> int:
        return value % 2**32

    m = 0x5BD1E995
    h = wrapped(0x9747B28C ^ len(data))
    for i in range(len(data) // 4):
        k = sum(data[4 * i + j] << 8 * j for j in range(4))
        k = wrapped(k * m)
        k ^= k >> 24
        k = wrapped(k * m)
        h = wrapped(h * m) ^ k
    tail = len(data) - len(data) % 4
    if len(data) % 4 == 3:
        h ^= data[tail + 2] << 16
    if len(data) % 4 >= 2:
        h ^= data[tail + 1] << 8
    if len(data) % 4 >= 1:
        h = wrapped((h ^ data[tail]) * m)
    h ^= h >> 13
    h = wrapped(h * m)
    h ^= h >> 15
    assert murmur2(data) == (h if h < 2**31 else h - 2**32)


@pytest.mark.parametrize("data", FNV1A)
def test_fnv1a_is_that_of_its_reference(data: bytes) -> None:
    assert fnv1a_32(data) == FNV1A[data]


@given(st.binary(), st.integers(1, 4096))
def test_every_key_has_one_partition_in_range(key: bytes, partitions: int) -> None:
    assert nats_partition(key, partitions) == fnv1a_32(key) % partitions
    assert 0 <= nats_partition(key, partitions) < partitions
    assert 0 <= kafka_partition(key, partitions) < partitions


@pytest.fixture(scope="module")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    try:
        with NatsServer(tmp_path_factory.mktemp("nats")) as server:
            yield server.url
    except MissingComponent as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize(
    ("key", "transform"),
    [
        (TokensKey("in.*.*.>", (1,)), "{{{{Partition({n},1)}}}}.{{{{Wildcard(1)}}}}.{{{{Wildcard(2)}}}}.>"),
        (TokensKey("in.*.*.>", (2, 1)), "{{{{Partition({n},2,1)}}}}.{{{{Wildcard(1)}}}}.{{{{Wildcard(2)}}}}.>"),
        (SubjectKey("in.>"), "{{{{Partition({n})}}}}.>"),
    ],
)
@pytest.mark.parametrize("partitions", [1, 12, 1000])
def test_partitions_are_those_of_a_real_nats_server(
    nats_url: str, key: TokensKey | SubjectKey, transform: str, partitions: int
) -> None:
    letters = "abcdefghijklmnopqrstuvwxyzABCXYZ0123456789-_éß✓語"
    choice = random.Random(partitions)

    def subject() -> str:
        parts = ["".join(choice.choices(letters, k=choice.randint(1, 12))) for _ in range(choice.randint(3, 5))]
        return ".".join(["in", *parts])

    sent = [subject() for _ in range(300)]
    arrived = asyncio.run(_transformed(nats_url, key.filter, transform.format(n=partitions), sent))
    assert [subject for subject, _ in arrived] == sent
    extract = extractor(key)
    computed = [nats_partition(extract(subject, (), None) or b"", partitions) for subject in sent]
    assert [partition for _, partition in arrived] == computed


async def _transformed(url: str, source: str, destination: str, subjects: list[str]) -> list[tuple[str, int]]:
    """Each subject as it was published, with the partition that the server put in front of it."""
    async with await nats.connect(url) as client:
        js = client.jetstream()
        config = StreamConfig(
            name="IN",
            subjects=[source],
            storage=StorageType.MEMORY,
            subject_transform=SubjectTransform(src=source, dest=destination),
        )
        await js.add_stream(config)
        try:
            for subject in subjects:
                await client.publish(subject, subject.encode())
            consumer = await js.pull_subscribe(">", stream="IN", config=ConsumerConfig())
            messages: list[Msg] = []
            while len(messages) < len(subjects):
                messages += await consumer.fetch(len(subjects) - len(messages), timeout=10)
            return [(message.data.decode(), int(message.subject.partition(".")[0])) for message in messages]
        finally:
            await js.delete_stream("IN")

"""JetStream-native groups: shown and changed like others, as far as they have what is shown; the rest says so."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import nats
import pytest

from echelon.pcg import ElasticConfig, StaticConfig, open_groups
from echelon.pcg.config import Kind
from tests.brokers.nats.harness import call, make_stream
from tests.cli.place import ON_BOTH, Place

_MEMBER = """\
import asyncio, sys
from echelon.pcg import Member, Options, open_groups

def handle(message):
    if message.data == b"3":
        raise ValueError("told to fail")

async def run(url, stream, group, member):
    async with open_groups(url) as groups:
        options = Options(retries=0, on_failure="dead_letter")
        await Member(groups, stream, group, member, handle, options=options).run(signals=True)

asyncio.run(run(*sys.argv[1:]))
"""


def filled(place: Place, count: int, token: str = "") -> str:
    """A new stream; its subjects are STREAM.k0, STREAM.k1, … after the token; data and a header tell the number."""
    stream = f"N{uuid.uuid4().hex[:8]}"

    async def fill() -> None:
        await make_stream(place.url, stream, [f"{token}{stream}.*"])
        client = await nats.connect(place.url)
        for number in range(count):
            subject, headers = f"{token}{stream}.k{number % 4}", {"number": str(number)}
            await client.jetstream().publish(subject, b"%d" % number, headers=headers)
        await client.close()

    asyncio.run(fill())
    return stream


@pytest.fixture(scope="module")
def elastic(place: Place) -> str:
    """An elastic group with m1 and m2 over four partitions, in which nobody is."""
    return made(place, ElasticConfig(max_members=4, members=("m1", "m2")))


@pytest.fixture(scope="module")
def static(place: Place) -> str:
    """A static group over two partitions, in which nobody is."""
    return made(place, StaticConfig(max_members=2, members=("m1", "m2")))


def made(place: Place, config: ElasticConfig | StaticConfig) -> str:
    """A group `workers` on a stream of its own, as the command line calls it."""
    stream = f"N{uuid.uuid4().hex[:8]}"

    async def make() -> None:
        tokens = [""] if isinstance(config, ElasticConfig) else [f"{number}." for number in range(config.max_members)]
        await make_stream(place.url, stream, [f"{token}{stream}.*" for token in tokens])
        async with open_groups(place.url) as groups:
            await groups.create(stream, "workers", config)

    asyncio.run(make())
    return f"{stream}.workers"


@contextmanager
def member(place: Place, stream: str, group: str) -> Iterator[None]:
    """An instance of m1 at work, which leaves in order at the end."""
    with subprocess.Popen([sys.executable, "-c", _MEMBER, place.url, stream, group, "m1"]) as process:
        try:
            yield
            process.terminate()
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.fixture
def active(place: Place, elastic: str) -> Iterator[str]:
    """The elastic group, with an instance of m1 at work."""
    stream, _, group = elastic.partition(".")
    with member(place, stream, group):
        place.until(lambda: place.one("info", elastic)["active"] == 1)
        yield elastic


def test_native_groups_are_listed_with_their_kind(place: Place, elastic: str, static: str, quiet: str) -> None:
    rows = {row["group"]: row for row in place.rows("ls")}
    assert {group: rows[group]["kind"] for group in (elastic, static, quiet)} == {
        elastic: "elastic",
        static: "static",
        quiet: "echelon",
    }
    row = rows[elastic]
    assert row["streams"] == [elastic.partition(".")[0]]
    assert (row["state"], row["membership"], row["partitions"], row["seats"]) == ("empty", "listed", 4, 2)
    assert {elastic, static, quiet} <= set(place.echelon("ls", "-n").out.splitlines())
    assert [line[1] for line in place.table("ls") if line[0] == static] == ["static"]
    lines = place.echelon("top", "--count", "1", "-o", "json").out.splitlines()
    assert "elastic" in {json.loads(line)["kind"] for line in lines}


def test_a_native_group_at_work_is_shown(place: Place, active: str) -> None:
    info = place.one("info", active)
    assert (info["kind"], info["state"], info["members"], info["partitions"]) == ("elastic", "active", ["m1", "m2"], 4)
    assert info["consumed"] == active.replace(".", "-")
    assert place.shown("info", active)[0]["group"] == active
    members = place.shown("members", active)
    assert [(row["member"], row["role"], row["partitions"]) for row in members] == [
        ("m1", "active", 2),
        ("m2", "vacant", 2),
    ]
    assert place.table("members", active)[2][:2] == ["m2", "VACANT"]
    partitions = place.shown("partitions", active)
    assert [(row["partition"], row["member"], row["state"]) for row in partitions] == [
        ("0", "m1", "owned"),
        ("1", "m1", "owned"),
        ("2", "m2", "idle"),
        ("3", "m2", "idle"),
    ]
    assert place.shown("lag", active)[-1]["lag"] == 0
    assert place.echelon("step-down", active, "m1").err == "m1 steps down\n"
    assert "Did you mean m1?" in place.echelon("step-down", active, "m11", code=3).err


def test_a_native_group_is_made_and_its_messages_are_printed_and_count(place: Place) -> None:
    stream = filled(place, 12)
    group = f"{stream}.workers"
    words = ("create", group, "-p", "2", "--map", "m1=0,1", "--key", f"tokens:{stream}.*:1")
    [made] = place.rows(*words, "--set", "max_buffered_msgs=1000")
    assert (made["kind"], made["membership"], made["partitions"], made["seats"]) == ("elastic", "mapped", 2, 1)
    assert "another elastic group" in place.echelon(*words, code=4).err
    place.until(lambda: place.rows("lag", group)[-1]["lag"] == 12)
    assert place.echelon("join", group, code=2).err == f"error: say for which member of {group}\nAs --member NAME: m1\n"
    assert "Did you mean m1?" in place.echelon("join", group, "-m", "m11", code=3).err
    first = [line.split("  ") for line in place.echelon("join", group, "-m", "m1", "--count", "5").out.splitlines()]
    assert [line[1] for line in first] == ["1", "2", "3", "4", "5"]
    lines = place.echelon("lag", group, "--watch", "--every", "0.1", "--count", "2", "-o", "json").out.splitlines()
    assert [(row["partition"], row["lag"]) for row in map(json.loads, lines)] == [("0,1", 7), ("total", 7)] * 2
    second = place.echelon("join", group, "-m", "m1", "--count", "7", "-o", "json").out.splitlines()
    told = [(line[2], line[3]) for line in first] + [(row["key"], row["data"]) for row in map(json.loads, second)]
    assert told == [(f"k{number % 4}", str(number)) for number in range(12)]
    assert place.rows("lag", group)[-1]["lag"] == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["OTHER", "-p", "2"], 2, "would be a group over the stream"),
        ([], 2, "say how many partitions"),
        (["-p", "2", "--start", "earliest"], 7, "has no --start"),
        (["-p", "2", "--on-failure", "park"], 7, "has no --on-failure"),
        (["-p", "2", "--key", "header:user"], 2, "is made of the subject"),
        (["-p", "2", "--set", "retries=1"], 2, "'retries=1' is no setting"),
        (["-p", "2", "--set", "max_buffered_msgs=many"], 2, "it must be a number"),
        (["-p", "2", "--set", "max_buffered_msgs=true"], 2, "it must be a number"),
        (["-p", "2", "--set", "max_buffered_bytes=-5"], 2, "it must be a number"),
        (["-p", "4097"], 2, "4096"),
        (["-p", "2", "--static", "--key", "tokens:a.*:1"], 2, "its subjects carry the partition already"),
        (["-p", "2", "--map", "m1=x"], 2, "'x' is no partition"),
    ],
)
def test_mistakes_in_making_a_native_group_are_told(place: Place, words: list[str], code: int, told: str) -> None:
    assert told in place.echelon("create", "NOWHERE.workers", *words, code=code).err


def test_a_static_group_is_made(place: Place, static: str) -> None:
    stream = static.partition(".")[0]
    words = ("create", f"{stream}.others", stream, "--static", "-p", "2", "--members", "m1", "--key", "subject:a.*")
    assert place.rows(*words)[0]["kind"] == "static"
    assert place.one("info", f"{stream}.others")["subjects"] == ["a.*"]


def last_headers(place: Place, stream: str) -> dict[str, str]:
    """Those of the last message of a stream."""

    async def look() -> dict[str, str]:
        client = await nats.connect(place.url)
        try:
            state = (await client.jetstream().stream_info(stream)).state
            return (await client.jetstream().get_msg(stream, state.last_seq)).headers or {}
        finally:
            await client.close()

    return asyncio.run(look())


@pytest.mark.parametrize(("token", "option"), [("", []), ("0.", ["--static"])], ids=["elastic", "static"])
def test_dead_letters_of_a_native_group_are_listed_published_anew_and_skipped(
    place: Place, token: str, option: list[str]
) -> None:
    stream = filled(place, 8, token)
    group = f"{stream}.workers"
    place.echelon("create", group, "-p", "1", "--members", "m1", *option)
    with member(place, stream, "workers"):
        place.until(lambda: len(place.rows("dead", "list", group)) == 1)
        [row] = place.rows("dead", "list", group)
        assert (row["subject"], row["sequence"], row["attempts"]) == (f"{stream}.k3", 4, 1)
        assert "told to fail" in row["error"]
        assert f"{group} has no dead letter 999" in place.echelon("dead", "skip", group, "999", "-f", code=3).err
        place.echelon("dead", "retry", group, str(row["letter"]))
        place.until(lambda: [each["sequence"] for each in place.rows("dead", "list", group)] == [9])
        headers = last_headers(place, stream)
        assert (headers["number"], headers["echelon-retry-of"]) == ("3", "0@4")
        assert place.table("dead", "list", group)[1][3] == "9"
        place.echelon("dead", "skip", group, "--all", "--force")
        assert place.rows("dead", "list", group) == []


def test_members_and_mappings_of_an_elastic_group_are_changed(place: Place) -> None:
    group = made(place, ElasticConfig(max_members=4, members=("m1",)))
    assert place.echelon("member", "add", group, "m2", "m3").err == f"members of {group}: m1, m2, m3\n"
    assert "m2 is a member" in place.echelon("member", "add", group, "m2", code=2).err
    assert place.echelon("member", "drop", group, "m1", "m3").err == f"members of {group}: m2\n"
    assert "Did you mean m2?" in place.echelon("member", "drop", group, "m22", code=3).err
    assert "not mapped" in place.echelon("map", "clear", group, code=2).err
    place.echelon("map", "set", group, "a=0,1", "b=2,3")
    assert place.one("info", group)["mapping"] == {"a": [0, 1], "b": [2, 3]}
    assert "'x' is no partition" in place.echelon("map", "set", group, "a=x", code=2).err
    place.echelon("map", "clear", group)
    assert place.one("info", group)["mapping"] is None
    lonely = made(place, ElasticConfig(max_members=1, members=("m1",)))
    assert "nobody holds the seat of m1" in place.echelon("step-down", lonely, "m1", code=4).err


def test_a_native_group_is_deleted_only_when_that_is_confirmed(place: Place) -> None:
    group = made(place, StaticConfig(max_members=2, members=("m1", "m2")))
    place.echelon("rm", group, given="n\n", code=10)
    assert group in place.echelon("ls", "-n").out
    place.echelon("rm", group, "--force")
    assert group not in place.echelon("ls", "-n").out
    place.echelon("info", group, code=3)


@pytest.mark.parametrize("kind", ["static", "elastic"])
def test_a_native_group_whose_entry_cannot_be_read_is_deleted_with_its_work_queue(place: Place, kind: Kind) -> None:
    group = made(place, StaticConfig(max_members=2) if kind == "static" else ElasticConfig(max_members=2))
    stream = group.partition(".")[0]

    async def spoil() -> None:
        async with open_groups(place.url) as groups:
            bucket = groups.bucket(kind)
            assert await bucket.put(group, b'{"max_members": "two"}', await bucket.revision(group))

    asyncio.run(spoil())
    assert "cannot be read" in place.echelon("info", group, code=1).err
    assert "whose entry cannot be read" in place.echelon("rm", group, given="n\n", code=10).err
    place.echelon("info", group, code=1)
    place.echelon("rm", group, "--force")
    place.echelon("info", group, code=3)
    left = asyncio.run(call(place.url, "STREAM.NAMES"))["streams"]
    assert (stream in left, f"{stream}-workers" in left) == (True, False)


@pytest.mark.parametrize(
    "config",
    [
        StaticConfig(max_members=2, members=("m1",)),
        StaticConfig(max_members=2, members=("m1",), filters=(">",), format="v0.1"),
        ElasticConfig(max_members=2),
    ],
    ids=["static", "v0.1", "elastic"],
)
def test_a_native_group_whose_stream_is_gone_is_deleted(place: Place, config: StaticConfig | ElasticConfig) -> None:
    group = made(place, config)
    asyncio.run(call(place.url, f"STREAM.DELETE.{group.partition('.')[0]}"))
    place.echelon("rm", group, "--force")
    place.echelon("info", group, code=3)


def test_a_static_and_an_elastic_group_of_one_name_are_told_apart(place: Place) -> None:
    group = made(place, ElasticConfig(max_members=2, members=("m1",)))
    stream = group.partition(".")[0]
    assert "which is elastic" in place.echelon("create", group, "-p", "2", "--static", code=4).err
    place.echelon("info", f"static:{group}", code=3)

    async def make() -> None:
        async with open_groups(place.url) as groups:
            await groups.create(stream, "workers", StaticConfig(max_members=2, members=("s1",)))

    asyncio.run(make())
    for words in (("info", group), ("rm", group)):
        assert f"static:{group} or elastic:{group}" in place.echelon(*words, code=4).err
    listed = place.echelon("ls", "--names").out.splitlines()
    for kind, name in (("static", "s1"), ("elastic", "m1")):
        assert f"{kind}:{group}" in listed
        assert json.loads(place.echelon("top", f"{kind}:{group}", "--count", "1", "-o", "json").out)["kind"] == kind
        assert place.one("info", f"{kind}:{group}")["kind"] == kind
        assert [row["member"] for row in place.rows("members", f"{kind}:{group}")] == [name]
        assert "nobody holds the seat" in place.echelon("step-down", f"{kind}:{group}", name, code=4).err
    place.echelon("member", "add", f"elastic:{group}", "m2")
    place.echelon("member", "add", f"static:{group}", "m2", code=7)
    place.echelon("rm", f"static:{group}", "--force")
    assert place.one("info", group)["members"] == ["m1", "m2"]
    place.echelon("info", f"plastic:{group}", code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["history", "GROUP"],
        ["why", "GROUP", "0"],
        ["events", "GROUP"],
        ["cut", "take", "GROUP"],
        ["cut", "list", "GROUP"],
        ["reset", "GROUP", "--to-latest"],
        ["pause", "GROUP"],
        ["resume", "GROUP"],
        ["parked", "list", "GROUP"],
        ["audit", "GROUP", "--delta", "table"],
    ],
    ids=" ".join,
)
def test_what_a_native_group_lacks_is_told(place: Place, elastic: str, words: list[str]) -> None:
    failed = place.echelon(*(elastic if word == "GROUP" else word for word in words), code=7)
    assert failed.err.startswith(f"error: {elastic} names a JetStream-native group: these have no log, so no ")


def test_the_members_of_a_static_group_never_change(place: Place, static: str) -> None:
    for words in (("member", "add", static, "m3"), ("member", "drop", static, "m1"), ("map", "set", static, "m1=0,1")):
        assert "its members never change" in place.echelon(*words, code=7).err


def test_a_mistyped_native_group_is_suggested(place: Place, elastic: str) -> None:
    assert f"Did you mean {elastic}" in place.echelon("info", f"{elastic}s", code=3).err


@ON_BOTH
def test_a_native_group_that_is_not_there_is_told(place: Place) -> None:
    assert "there is no group no.such" in place.echelon("members", "no.such", code=3).err
    failed = place.echelon("create", "no.such", "such", *([] if place.is_kafka else ["-p", "2"]), code=2).err
    assert ("'no.such' cannot name a group" in failed) == place.is_kafka

"""JetStream-native groups: shown and changed like others, as far as they have what is shown; the rest says so."""

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from echelon.pcg import ElasticConfig, StaticConfig, open_groups
from tests.brokers.nats.harness import make_stream
from tests.cli.place import ON_BOTH, Place

_MEMBER = """\
import asyncio, sys
from echelon.pcg import Member, open_groups

async def run(url, stream, group, member):
    async with open_groups(url) as groups:
        await Member(groups, stream, group, member, lambda message: None).run(signals=True)

asyncio.run(run(*sys.argv[1:]))
"""


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


@pytest.fixture
def active(place: Place, elastic: str) -> Iterator[str]:
    """The elastic group, with an instance of m1 at work."""
    stream, _, group = elastic.partition(".")
    with subprocess.Popen([sys.executable, "-c", _MEMBER, place.url, stream, group, "m1"]) as process:
        place.until(lambda: place.one("info", elastic)["active"] == 1)
        yield elastic
        process.terminate()
        assert process.wait(20) == 0


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
    assert place.table("info", active)[0] == ["group", active]
    members = place.rows("members", active)
    assert [(row["member"], row["role"], row["partitions"]) for row in members] == [
        ("m1", "active", 2),
        ("m2", "vacant", 2),
    ]
    assert place.table("members", active)[2][:2] == ["m2", "VACANT"]
    partitions = place.rows("partitions", active)
    assert [(row["partition"], row["member"], row["state"]) for row in partitions] == [
        ("0", "m1", "owned"),
        ("1", "m1", "owned"),
        ("2", "m2", "idle"),
        ("3", "m2", "idle"),
    ]
    assert place.rows("lag", active)[-1]["lag"] == 0
    assert place.echelon("step-down", active, "m1").err == "m1 steps down\n"
    assert "Did you mean m1?" in place.echelon("step-down", active, "m11", code=3).err


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
    assert place.echelon("step-down", made(place, ElasticConfig(max_members=1, members=("m1",))), "m1", code=3)


def test_a_native_group_is_deleted_only_when_that_is_confirmed(place: Place) -> None:
    group = made(place, StaticConfig(max_members=2, members=("m1", "m2")))
    place.echelon("rm", group, given="n\n", code=10)
    assert group in place.echelon("ls", "-n").out
    place.echelon("rm", group, "--force")
    assert group not in place.echelon("ls", "-n").out
    place.echelon("info", group, code=3)


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
        ["dead", "list", "GROUP"],
        ["join", "GROUP"],
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

"""`ls`, `info`, `create`, `rm` on real brokers."""

import csv
import json

import pytest

from tests.cli.place import ON_BOTH, Place


@ON_BOTH
def test_groups_are_listed(place: Place, crew: str) -> None:
    [row] = [row for row in place.rows("ls") if row["group"] == crew]
    stream = row.pop("streams")
    assert len(stream) == 1
    assert row == {
        "group": crew,
        "kind": "echelon",
        "membership": "listed",
        "state": "active",
        "partitions": 4,
        "idle": 0,
        "seats": 2,
        "active": 2,
        "standby": 1,
        "pending": row["pending"],
    }
    table = place.table("ls")
    assert table[0][:4] == ["GROUP", "KIND", "MEMBERSHIP", "STATE"]
    assert [line[3] for line in table if line[0] == crew] == ["active"]
    rows = list(csv.DictReader(place.echelon("ls", "-o", "csv").out.splitlines()))
    assert [row["state"] for row in rows if row["group"] == crew] == ["active"]
    assert crew in place.echelon("ls", "--names").out.splitlines()
    assert {"group": crew} in json.loads(place.echelon("list", "-n", "-o", "json").out)


@ON_BOTH
def test_a_group_is_shown(place: Place, crew: str) -> None:
    info = place.one("info", crew)
    assert (info["group"], info["state"], info["delivery"], info["interval"]) == (crew, "active", "at_least_once", 0.4)
    assert (info["members"], info["active"], info["standby"], info["lag"]) == (["m1", "m2"], 2, 1, 0)
    assert [stream["partitions"] for stream in info["streams"]] == [4]
    lines = dict(line.split("  ", 1) for line in place.echelon("info", crew).out.splitlines())
    assert lines["state"].strip() == "active"


def test_a_name_that_is_mistyped_is_suggested(place: Place, crew: str) -> None:
    mistyped = crew[:-1] + ("0" if crew[-1] != "0" else "1")
    for words in (("info", mistyped), ("members", mistyped), ("pause", mistyped), ("why", mistyped, "0")):
        err = place.echelon(*words, code=3).err
        assert err.splitlines()[0] == f"error: there is no group {mistyped}"
        assert f"Did you mean {crew}" in err


@ON_BOTH
def test_making_a_group_again_does_nothing_unless_it_differs(place: Place) -> None:
    stream = place.stream()
    words = ["create", f"again-{stream.name}", stream.name, "--start", "earliest"]
    words += [] if place.is_kafka else ["-p", "4", "--key", f"subject:{stream.name}.*"]
    if place.is_kafka:
        assert "partitions of its own" in place.echelon(*words, "-p", "9", code=2).err
    [made] = place.rows(*words, "--members", "m1,m2")
    assert (made["state"], made["seats"], made["partitions"]) == ("empty", 2, 4)
    assert place.shown(*words, "--members", "m1,m2") == [made]
    assert "with other settings: members" in place.echelon(*words, "--members", "m1", code=4).err


def test_a_group_with_every_choice(place: Place) -> None:
    stream = place.stream()
    place.publish(stream, 8)
    words = ["create", f"choice-{stream.name}", stream.name, "--map", "a=0,1", "--map", "b=2,3", "--interval", "1m"]
    words += ["--delivery", "at_least_once", "--on-failure", "park", "--set", "retries=0", "--set", "backoff=[1,2]"]
    words += ["--set", "out_of_range=earliest", "--start", "1h"]
    words += [] if place.is_kafka else ["-p", "4", "--key", f"tokens:{stream.name}.*:1", "--partitioning", "computed"]
    place.echelon(*words)
    info = place.one("info", f"choice-{stream.name}")
    assert (info["membership"], info["mapping"]) == ("mapped", {"a": ["0", "1"], "b": ["2", "3"]})
    assert (info["interval"], info["on_failure"], info["retries"], info["backoff"]) == (60.0, "park", 0, [1.0, 2.0])
    assert info["lag"] > 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["g", "no-such-stream", "-p", "2"], 3, "no-such-stream"),
        (["bad name", "STREAM"], 2, "'bad name' cannot name a group"),
        (["g", "STREAM"], 2, "no partitions of its own"),
        (["g", "STREAM", "-p", "2", "--members", "a,b,a"], 2, "the member a is named twice"),
        (["g", "STREAM", "-p", "2", "--key", "tokens:other.*:1"], 2, "no subject of the stream"),
        (["g", "STREAM", "-p", "2", "--key", "colour"], 2, "'colour' is no key"),
        (["g", "STREAM", "-p", "2", "--interval", "soon"], 2, "'soon' is no duration"),
        (["g", "STREAM", "-p", "2", "--set", "colour=red"], 2, "'colour=red' is no setting"),
        (["g", "STREAM", "-p", "2", "--map", "m1"], 2, "'m1' maps no member"),
        (["g", "STREAM", "-p", "2", "--members", "a b"], 2, "'a b' cannot name a member"),
        (["g", "STREAM", "-p", "2", "--start", "yesterdayish"], 2, "'yesterdayish' is no time"),
        (["g", "STREAM", "-p", "2", "--start", "committed:nobody"], 3, "nobody"),
        (["g", "-p", "2"], 2, "say which streams"),
        (["g", "STREAM", "-p", "2", "--static"], 2, "only a JetStream-native group is static"),
    ],
)
def test_mistakes_in_making_a_group_are_told(place: Place, quiet: str, words: list[str], code: int, told: str) -> None:
    stream = place.one("info", quiet)["streams"][0]["name"]
    failed = place.echelon("create", *(stream if word == "STREAM" else word for word in words), code=code)
    assert told in failed.err
    assert "Traceback" not in failed.err


def test_a_mistake_in_making_a_group_leaves_no_stream_behind(place: Place) -> None:
    stream = place.stream()
    how = ("--partitioning", "derived", "--key", f"tokens:{stream.name}.*:1")
    wrong = place.echelon("create", "left", stream.name, *how, "-p", "4", "--interval", "10m", code=2)
    assert "interval is 600 s" in wrong.err
    place.echelon("create", "left", stream.name, *how, "-p", "8")
    place.echelon("rm", "left", "--force")


@ON_BOTH
def test_a_group_is_deleted_only_when_that_is_confirmed(place: Place) -> None:
    group = place.group()
    assert place.echelon("rm", group, given="n\n", code=10).err.endswith("nothing was done\n")
    assert "--force" in place.echelon("rm", group, given="", code=10).err
    assert group in place.echelon("ls", "-n").out
    place.echelon("rm", group, given="y\n")
    assert group not in place.echelon("ls", "-n").out
    place.echelon("delete", group, "--force", code=3)


def test_members_stop_when_their_group_is_deleted(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    place.launch(group, f"{group}-1", "m1")
    place.until_seated(group, m1=f"{group}-1")
    place.echelon("rm", group, "-f")
    assert place.processes.pop(f"{group}-1").wait(10) == 1

"""`pause`, `resume`, `cut`, `reset` on real brokers."""

import json
from pathlib import Path

import pytest

from tests.cli.place import ON_BOTH, Place


@pytest.fixture(scope="module")
def filled(place: Place) -> str:
    """A group of this module's own, in which nobody is; 40 messages are there."""
    stream = place.stream()
    group = place.group(stream, "--members", "m1")
    place.publish(stream, 40)
    place.until(lambda: place.one("info", group)["lag"] == 40)
    return group


def positions(place: Place, group: str) -> dict[str, int]:
    return {row["partition"]: row["position"] for row in place.rows("partitions", group)}


@ON_BOTH
def test_a_group_is_paused_and_resumed_and_takes_no_cut_meanwhile(place: Place, filled: str) -> None:
    group = filled
    place.echelon("pause", group)
    info = place.one("info", group)
    assert (info["state"], info["paused_until"]) == ("paused", None)
    assert {row["state"] for row in place.rows("partitions", group)} == {"paused"}
    assert f"{group} is paused" in place.echelon("cut", "take", group, code=4).err
    told = place.echelon("pause", group, "30m").err
    until = place.one("info", group)["paused_until"]
    assert told == f"{group} is paused until {until[:10]} {until[11:19]} UTC\n"
    assert place.echelon("resume", group).err == f"{group} goes on\n"
    assert place.echelon("resume", group).err == f"{group} was not paused\n"
    assert place.one("info", group)["state"] == "empty"
    assert "has passed" in place.echelon("pause", group, "2020-01-01", code=2).err


@ON_BOTH
def test_cuts_are_taken_listed_shown_and_retired(place: Place, crew: str) -> None:
    [taken] = place.rows("cut", "take", crew)
    assert (taken["kind"], taken["partitions"]) == ("asked", 4)
    cut = str(taken["cut"])
    assert place.rows("cut", "list", crew) == [taken]
    assert place.table("cut", "list", crew)[1][0] == cut
    parts = place.rows("cut", "show", crew, cut)
    assert {row["partition"]: row["position"] for row in parts} == positions(place, crew)
    head, *lines = place.table("cut", "show", crew, cut)
    assert head == ["PARTITION", "POSITION", "PARKED", "SAVED-BYTES"]
    assert [line[:2] for line in lines] == [[row["partition"], str(row["position"])] for row in parts]
    assert "There are" in place.echelon("cut", "show", crew, "1", code=3).err
    place.echelon("cut", "retire", crew, cut, given="n\n", code=10)
    place.echelon("cut", "retire", crew, cut, "--force")
    assert place.rows("cut", "list", crew) == []
    assert place.echelon("cut", "list", crew, "-o", "csv").out.startswith("cut,taken,")
    place.echelon("cut", "retire", crew, cut, "--force", code=3)


@ON_BOTH
def test_a_reset_is_shown_first_and_done_only_with_execute(place: Place, filled: str) -> None:
    group = filled
    before = positions(place, group)
    rows = place.rows("reset", group, "--to-latest")
    assert {row["partition"]: row["before"] for row in rows} == before
    assert all(row["after"] == row["end"] and row["change"] == row["after"] - row["before"] for row in rows)
    assert "add --execute" in place.echelon("reset", group, "--to-latest").err
    assert place.table("reset", group, "--to-latest")[0][:4] == ["PARTITION", "BEFORE", "AFTER", "CHANGE"]
    assert positions(place, group) == before
    place.echelon("reset", group, "--to-latest", "--execute")
    assert positions(place, group) == {row["partition"]: row["after"] for row in rows}
    assert place.one("info", group)["lag"] == 0


def test_a_reset_goes_to_every_place_there_is(place: Place, filled: str, tmp_path: Path) -> None:
    group = filled
    place.echelon("reset", group, "--to-earliest", "--execute")
    initial = positions(place, group)
    cut = str(place.rows("cut", "take", group)[0]["cut"])
    ends = {row["partition"]: row["end"] for row in place.rows("partitions", group)}
    place.echelon("reset", group, "--to-latest", "--execute", "-p", "1", "-p", "2")
    some = {**initial, "1": ends["1"], "2": ends["2"]}
    assert positions(place, group) == some
    file = tmp_path / "positions.csv"
    file.write_text(place.echelon("partitions", group, "-o", "csv").out)

    def after(*words: str) -> dict[str, int]:
        return {row["partition"]: row["after"] for row in place.rows("reset", group, *words, "--execute")}

    assert after("--to-initial") == initial
    assert after("--from-file", str(file)) == some
    assert after("--to-cut", cut) == initial
    assert after("--to-time", "0s") == ends
    after("--to-time", "1h")
    assert place.one("info", group)["lag"] == 40
    assert after("--shift-by", "-1000000") == initial
    assert after("--shift-by", "1", "-p", "0") == {"0": initial["0"] + 1}
    assert positions(place, group) == {**initial, "0": initial["0"] + 1}
    assert after("--shift-by", "1000000") == ends
    file.write_text(json.dumps({"0": initial["0"]}))
    assert after("--from-file", str(file)) == {"0": initial["0"]}
    assert positions(place, group) == {**ends, "0": initial["0"]}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 2, "say where to"),
        (["--to-latest", "--to-earliest"], 2, "say where to, once"),
        (["--to-cut", "7"], 3, "has no cut 7"),
        (["--to-latest", "-p", "9"], 3, "no partition 9"),
        (["--to-time", "later"], 2, "'later' is no time"),
        (["--from-file", "nowhere.csv"], 2, "nowhere.csv cannot be read"),
        (["--from-file", "POSITIONS"], 2, "not 1000000"),
        (["--from-file", "POSITIONS", "-p", "1"], 2, "no position for partition 1"),
        (["--from-file", "PROSE"], 2, "holds no positions"),
    ],
)
def test_mistakes_in_a_reset_are_told_and_change_nothing(
    place: Place, quiet: str, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    for name, text in (("POSITIONS", '{"0": 1000000}'), ("PROSE", "once upon a time")):
        (tmp_path / name).write_text(text)
    before = positions(place, quiet)
    given = [str(tmp_path / word) if word.isupper() else word for word in words]
    assert told in place.echelon("reset", quiet, *given, "--execute", code=code).err
    assert positions(place, quiet) == before


def test_a_reset_of_an_exactly_once_group_says_what_becomes_of_the_output(place: Place) -> None:
    stream = place.stream()
    place.publish(stream, 8)
    group = place.group(stream, "--members", "m1", "--delivery", "exactly_once")
    initial = positions(place, group)
    place.until(lambda: place.one("info", group)["lag"] == 8)
    place.echelon("reset", group, "--to-latest", "--execute")
    assert not place.rows("history", group)[-1]["what"].endswith("keeps what it has")
    place.echelon("reset", group, "--to-initial", "--keep-output", "--execute")
    assert place.rows("history", group)[-1]["what"].endswith("; the sink keeps what it has")
    assert positions(place, group) == initial


def test_only_an_exactly_once_group_has_an_output_to_keep(place: Place, quiet: str) -> None:
    before = positions(place, quiet)
    failed = place.echelon("reset", quiet, "--to-latest", "--keep-output", "--execute", code=2)
    assert failed.err.startswith(f"error: {quiet} delivers at_least_once")
    assert positions(place, quiet) == before

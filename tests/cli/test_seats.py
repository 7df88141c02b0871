"""`members`, `member`, `map`, `step-down` on real brokers."""

import os

from tests.cli.place import ON_BOTH, Place


@ON_BOTH
def test_seats_and_stand_bys_are_shown(place: Place, crew: str) -> None:
    rows = place.rows("members", crew)
    assert [(row["member"], row["role"], row["state"], row["name"]) for row in rows] == [
        ("m1", "active", "fresh", "web-1"),
        ("m2", "active", "fresh", "web-2"),
        (None, "standby", "fresh", "spare"),
    ]
    assert [row["pid"] for row in rows] == [place.processes[row["name"]].pid for row in rows]
    assert {row["host"] for row in rows} == {os.uname().nodename}
    assert [row["partitions"] for row in rows] == [2, 2, 0]
    assert all(row["since"].endswith("Z") for row in rows)
    assert all(row["seen_seconds"] < 5 for row in rows)
    assert [row["epoch"] is None for row in rows] == [False, False, True]
    table = place.table("members", crew)
    assert table[0][:4] == ["MEMBER", "ROLE", "STATE", "NAME"]
    assert [line[:4] for line in table[1:]] == [
        ["m1", "active", "fresh", "web-1"],
        ["m2", "active", "fresh", "web-2"],
        ["-", "standby", "fresh", "spare"],
    ]


def test_a_seat_that_nobody_holds_stands_out(place: Place, quiet: str) -> None:
    assert place.table("members", quiet)[1][:2] == ["m1", "VACANT"]
    assert {line[1] for line in place.table("partitions", quiet)[1:]} == {"IDLE"}


def test_nobody_steps_down_from_a_seat_that_nobody_holds(place: Place, quiet: str) -> None:
    failed = place.echelon("step-down", quiet, "m1", code=4).err
    assert failed == f"error: nobody holds the seat of m1 in {quiet}\nSee: echelon members {quiet}\n"


@ON_BOTH
def test_members_are_added_and_dropped(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    assert place.echelon("member", "add", group, "m2", "m3").err == f"members of {group}: m1, m2, m3\n"
    assert "m2 is a member" in place.echelon("member", "add", group, "m2", code=2).err
    place.echelon("member", "drop", group, "m1", "m3")
    assert [row["member"] for row in place.rows("members", group)] == ["m2"]
    failed = place.echelon("member", "drop", group, "m22", code=3).err
    assert failed == f"error: {group} has no member m22\nDid you mean m2?\n"


def test_an_auto_group_has_no_list_of_members(place: Place) -> None:
    assert "it is auto" in place.echelon("member", "add", place.group(), "m1", code=2).err


@ON_BOTH
def test_a_mapping_is_set_and_cleared(place: Place) -> None:
    group = place.group(None, "--members", "m1,m2")
    place.echelon("map", "set", group, "m1=0", "m2=1,2,3")
    assert place.one("info", group)["mapping"] == {"m1": ["0"], "m2": ["1", "2", "3"]}
    assert [row["member"] for row in place.rows("partitions", group)] == ["m1", "m2", "m2", "m2"]
    assert "3" in place.echelon("map", "set", group, "m1=0,1,2", code=2).err
    place.echelon("map", "clear", group)
    info = place.one("info", group)
    assert (info["membership"], info["members"], info["mapping"]) == ("listed", ["m1", "m2"], None)
    assert "not mapped" in place.echelon("map", "clear", group, code=2).err


@ON_BOTH
def test_a_seat_steps_down_and_the_stand_by_takes_it(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    place.launch(group, f"{group}-a", "m1")
    place.until_seated(group, m1=f"{group}-a")
    place.launch(group, f"{group}-b", "m1")
    place.until(lambda: place.one("info", group)["standby"] == 1)
    assert "Did you mean m1?" in place.echelon("step-down", group, "m11", code=3).err
    assert place.echelon("step-down", group, "m1").err == f"{group}-a steps down\n"
    place.until_seated(group, m1=f"{group}-b")
    assert f"had {group}-a (" in place.echelon("why", group, "0").out
    place.kill(f"{group}-a")
    place.kill(f"{group}-b")


def test_an_instance_is_named_by_enough_of_its_id(place: Place) -> None:
    group = place.group()
    place.launch(group, f"{group}-a")
    place.until(lambda: [row["state"] for row in place.rows("members", group)] == ["fresh"])
    [row] = place.rows("members", group)
    assert "an empty word names nobody" in place.echelon("step-down", group, "", code=2).err
    for word in (row["instance"][:1], row["instance"][:3]):
        place.echelon("step-down", group, word, code=3)
    assert place.echelon("step-down", group, row["instance"][:4]).err == f"{group}-a steps down\n"
    place.kill(f"{group}-a")

"""`parked` and `dead` on real brokers: a handler gives up on two messages, and an administrator decides."""

from tests.cli.failing import BY_KEY, failing
from tests.cli.place import ON_BOTH, Place


def handled(place: Place, group: str) -> dict[str, list[str]]:
    """The data of what was handled, by key, in order."""
    lines = place.handled(group)
    return {key: [line.data for line in lines if line.key == key] for key in BY_KEY}


@ON_BOTH
def test_a_parked_key_is_tried_again_and_one_is_passed_over_only_when_that_is_confirmed(place: Place) -> None:
    group = failing(place, "park", times=2)
    place.until(lambda: len(place.rows("parked", "list", group)) == 2 and place.one("info", group)["lag"] == 0)
    rows = place.rows("parked", "list", group)
    assert {(row["key"], row["asked"]) for row in rows} == {("k3", None), ("k4", None)}
    assert {line[1] for line in place.table("parked", "list", group)[1:]} == {"k3", "k4"}
    assert "the reset forgets them" in place.echelon("reset", group, "--to-latest").err
    assert place.echelon("parked", "retry", group, code=2).err.startswith("error: say which keys")
    assert "Did you mean k3" in place.echelon("parked", "retry", group, "--key", "k33", code=3).err
    assert "There are 0 to 3" in place.echelon("parked", "retry", group, "--all", "-p", "99", code=3).err
    place.echelon("parked", "retry", group, "--key", "k3")
    place.until(lambda: [row["key"] for row in place.rows("parked", "list", group)] == ["k4"])
    place.echelon("parked", "skip", group, "--all", given="n\n", code=10)
    assert len(place.rows("parked", "list", group)) == 1
    place.echelon("parked", "skip", group, "--all", "--force")
    place.until(lambda: place.rows("parked", "list", group) == [])
    assert place.echelon("parked", "list", group).err == f"no key of {group} is parked\n"
    place.until(lambda: handled(place, group) == {**BY_KEY, "k4": []})
    place.kill(f"{group}-a")


@ON_BOTH
def test_a_dead_letter_is_published_anew_and_one_is_forgotten_only_when_that_is_confirmed(place: Place) -> None:
    group = failing(place, "dead_letter", times=2)
    place.until(lambda: len(place.rows("dead", "list", group)) == 2 and place.one("info", group)["lag"] == 0)
    rows = {row["key"]: row for row in place.rows("dead", "list", group)}
    assert rows.keys() == {"k3", "k4"}
    assert {(row["attempts"], row["size"]) for row in rows.values()} == {(1, 1)}
    assert all("told to fail" in row["error"] for row in rows.values())
    letter = str(rows["k3"]["letter"])
    assert letter in {line[0] for line in place.table("dead", "list", group)[1:]}
    assert "no dead letter 999" in place.echelon("dead", "retry", group, "999", code=3).err
    assert place.echelon("dead", "retry", group, code=2).err.startswith("error: say which dead letters")
    place.echelon("dead", "retry", group, letter)
    assert [row["key"] for row in place.rows("dead", "list", group)] == ["k4"]
    place.echelon("dead", "skip", group, "--all", given="n\n", code=10)
    assert len(place.rows("dead", "list", group)) == 1
    place.echelon("dead", "skip", group, "--all", "-f")
    assert place.rows("dead", "list", group) == []
    assert place.echelon("dead", "list", group).err == f"{group} has no dead letters\n"
    # What is published anew comes after what its key has had since.
    place.until(lambda: handled(place, group) == {**BY_KEY, "k3": ["11", "19", "3"], "k4": ["12", "20"]})
    place.kill(f"{group}-a")

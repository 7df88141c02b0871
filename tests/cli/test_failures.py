"""`parked` and `dead` on real brokers: a handler gives up on a message, and an administrator decides."""

from tests.cli.place import ON_BOTH, Place


def failing(place: Place, on_failure: str, *, times: int) -> str:
    """A group whose member fails at the message `3`, which has the key k3, so many times; 24 messages are there."""
    stream = place.stream()
    group = place.group(stream, "--on-failure", on_failure, "--set", "retries=0")
    place.publish(stream, 24)
    place.launch(group, f"{group}-a", fail="3", failures=times)
    return group


@ON_BOTH
def test_a_parked_key_is_listed_and_tried_again(place: Place) -> None:
    group = failing(place, "park", times=1)
    place.until(lambda: len(place.rows("parked", "list", group)) == 1 and place.one("info", group)["lag"] == 0)
    [row] = place.rows("parked", "list", group)
    assert (row["key"], row["asked"]) == ("k3", None)
    assert place.table("parked", "list", group)[1][:2] == [row["partition"], "k3"]
    assert place.echelon("parked", "retry", group, code=2).err.startswith("error: say which keys")
    assert "Did you mean k3?" in place.echelon("parked", "retry", group, "--key", "k33", code=3).err
    place.echelon("parked", "retry", group, "--key", "k3")
    place.until(lambda: place.rows("parked", "list", group) == [])
    place.kill(f"{group}-a")


def test_a_parked_key_is_skipped_only_when_that_is_confirmed(place: Place) -> None:
    group = failing(place, "park", times=100)
    place.until(lambda: len(place.rows("parked", "list", group)) == 1)
    place.echelon("parked", "skip", group, "--all", given="n\n", code=10)
    place.echelon("parked", "skip", group, "--all", "--force")
    place.until(lambda: place.rows("parked", "list", group) == [])
    place.kill(f"{group}-a")


@ON_BOTH
def test_a_dead_letter_is_listed_and_published_anew(place: Place) -> None:
    group = failing(place, "dead_letter", times=1)
    place.until(lambda: len(place.rows("dead", "list", group)) == 1 and place.one("info", group)["lag"] == 0)
    [row] = place.rows("dead", "list", group)
    assert (row["key"], row["attempts"], row["size"]) == ("k3", 1, 1)
    assert "told to fail" in row["error"]
    assert place.table("dead", "list", group)[1][0] == str(row["letter"])
    assert "no dead letter 999" in place.echelon("dead", "retry", group, "999", code=3).err
    assert place.echelon("dead", "retry", group, code=2).err.startswith("error: say which dead letters")
    place.echelon("dead", "retry", group, str(row["letter"]))
    assert place.rows("dead", "list", group) == []
    place.until(lambda: [line.data for line in place.handled(group)].count("3") == 1)
    assert {line.key for line in place.handled(group) if line.data == "3"} == {"k3"}
    place.kill(f"{group}-a")


def test_a_dead_letter_is_skipped_only_when_that_is_confirmed(place: Place) -> None:
    group = failing(place, "dead_letter", times=100)
    place.until(lambda: len(place.rows("dead", "list", group)) == 1)
    place.echelon("dead", "skip", group, "--all", given="n\n", code=10)
    place.echelon("dead", "skip", group, "--all", "-f")
    assert place.rows("dead", "list", group) == []
    assert place.echelon("dead", "list", group).err == f"{group} has no dead letters\n"
    place.kill(f"{group}-a")

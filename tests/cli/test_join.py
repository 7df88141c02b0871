"""`join` on real brokers: what it prints counts as processed, exactly that."""

import csv
import json
import signal

from tests.cli.place import ON_BOTH, Place


@ON_BOTH
def test_messages_are_printed_and_count(place: Place) -> None:
    stream = place.stream()
    group = place.group(stream, "--members", "m1")
    place.publish(stream, 40)
    place.until(lambda: place.one("info", group)["lag"] == 40)
    told = place.echelon("join", group, "--member", "m1", "--name", "me", "--count", "15", "-o", "json").out
    first = [json.loads(line) for line in told.splitlines()]
    assert len(first) == 15
    assert place.one("info", group)["lag"] == 25
    told = place.echelon("join", group, "--count", "5", "-o", "csv").out
    first += csv.DictReader(told.splitlines())
    words = [line.split("  ") for line in place.echelon("join", group, "--count", "20").out.splitlines()]
    data = [row["data"] for row in first] + [word[3] for word in words]
    assert sorted(data, key=int) == [str(number) for number in range(40)]
    for key in (f"k{number}" for number in range(8)):
        mine = [int(row["data"]) for row in first if row["key"] == key]
        mine += [int(word[3]) for word in words if word[2] == key]
        assert mine == sorted(mine)
    assert "Did you mean m1?" in place.echelon("join", group, "-m", "m11", code=3).err
    assert "Leave out -m" in place.echelon("join", place.group(stream), "-m", "m1", code=2).err


def test_a_signal_ends_it_in_order(place: Place) -> None:
    stream = place.stream()
    group = place.group(stream, "--members", "m1")
    with place.started("join", group) as joined:
        place.publish(stream, 8)
        assert joined.stdout is not None
        lines = [joined.stdout.readline().decode() for _ in range(8)]
        assert sorted(line.split("  ")[3].strip() for line in lines) == [str(number) for number in range(8)]
        joined.send_signal(signal.SIGTERM)
        assert joined.wait(20) == 0
    assert place.rows("members", group)[0]["role"] == "vacant"


def test_when_nobody_reads_what_it_prints_it_leaves_its_seat(place: Place) -> None:
    stream = place.stream()
    group = place.group(stream, "--members", "m1")
    with place.started("join", group) as joined:
        place.publish(stream, 8)
        assert joined.stdout is not None
        assert joined.stdout.readline()
        joined.stdout.close()
        place.publish(stream, 8)
        assert joined.wait(20) == 0
    assert place.rows("members", group)[0]["role"] == "vacant"

"""`events`, `history`, `why` on real brokers."""

import csv
import json
import re
import signal
from datetime import UTC, datetime

from tests.cli.place import ON_BOTH, Place


@ON_BOTH
def test_after_a_kill_why_names_the_record_and_the_reason(place: Place) -> None:
    kill_and_ask(place, apart=False)


def test_after_a_kill_on_another_machine_why_names_the_record_and_the_reason(place: Place) -> None:
    kill_and_ask(place, apart=True)


def kill_and_ask(place: Place, *, apart: bool) -> None:
    """Kill the holder of a seat for which another stands by, and ask why that one has its partition now."""
    group = place.group(None, "--members", "m1")
    first, second = f"{group}-a", f"{group}-b"
    place.launch(group, first, "m1", apart=apart)
    place.until_seated(group, m1=first)
    place.launch(group, second, "m1", apart=apart)
    place.until(lambda: place.one("info", group)["standby"] == 1)
    before = datetime.now(UTC)
    place.kill(first)
    place.until_seated(group, m1=second)
    events = place.rows("events", group)
    [moved, *_] = [row for row in events if row["kind"] == "partition_moved"]
    lost = [row["details"]["reason"] for row in events if row["kind"] == "seat_lost"]
    assert lost == ["timeout" if apart else "gone"]
    place.kill(second)
    assert all(len(line) <= 120 for line in place.echelon("events", group).out.splitlines())
    assert re.fullmatch(rf"0 at \d+: m1 \({first} \w+\) -> m1 \({second} \w+\)", moved["what"])

    answer = place.one("why", group, "0")
    assert (answer["member"], answer["name"]) == ("m1", second)
    [row] = [row for row in place.rows("history", group) if row["sequence"] == answer["sequence"]]
    assert (row["record"], row["by"].split()[0], row["counted"]) == ("claim", second, True)
    sentence = place.echelon("why", group, "0").out
    assert sentence.startswith(f"Partition 0 went from m1 ({first} ")
    assert f"to m1 ({second} " in sentence
    assert f"by record {row['sequence']} (a claim)" in sentence
    if apart:
        silence = re.search(r"was stale, it had written nothing for (\d+\.\d) s \(the limit is 0\.8 s\)", sentence)
        assert silence is not None, sentence
        assert 0.8 <= float(silence[1]) < 10
    else:
        assert f"the process of {first} (" in sentence
        assert f"was gone, as {second} (" in sentence
    earlier = place.one("why", group, "0", "--at", before.isoformat())
    assert earlier["name"] == first


@ON_BOTH
def test_the_history_tells_records_in_words(place: Place, crew: str) -> None:
    rows = place.rows("history", crew)
    assert rows[0]["record"] == "configure"
    assert rows[0]["what"].endswith("seats: m1, m2")
    assert not {"heartbeat", "advance", "snapshot"} & {row["record"] for row in rows}
    claims = [(row["by"].split()[0], row["what"]) for row in rows if row["record"] == "claim" and row["counted"]]
    assert ("web-1", "the seat of m1") in claims
    assert ("web-2", "the seat of m2") in claims
    assert sorted(row["by"].split()[0] for row in rows if row["record"] == "join") == ["spare", "web-1", "web-2"]
    assert [row["sequence"] for row in rows] == sorted(row["sequence"] for row in rows)
    assert place.table("history", crew)[0][:4] == ["SEQUENCE", "TIME", "RECORD", "BY"]
    assert "heartbeat" in {row["record"] for row in place.rows("history", crew, "--all")}
    assert place.rows("history", crew, "--since", "0s") == []


@ON_BOTH
def test_the_history_of_a_partition_tells_its_owners(place: Place, crew: str) -> None:
    rows = place.rows("history", crew, "--partition", "0")
    assert {row["partition"] for row in rows} == {"0"}
    assert {row["change"] for row in rows} <= {"moving", "lost", "gained"}, "nobody has reset it"
    last = [row for row in rows if row["change"] == "gained"][-1]
    assert last["name"] == place.one("why", crew, "0")["name"]
    assert "no partition 9" in place.echelon("history", crew, "-p", "9", code=3).err
    assert place.echelon("why", crew, "9", code=3).err == "error: there is no partition 9\nThere are 0 to 3\n"
    assert place.table("history", crew, "-p", "0")[0] == ["SEQUENCE", "TIME", "CHANGE", "MEMBER", "POSITION", "CAUSE"]


@ON_BOTH
def test_events_are_told(place: Place, crew: str) -> None:
    rows = place.rows("events", crew)
    taken = {row["details"]["member"]: row for row in rows if row["kind"] == "seat_taken"}
    assert taken.keys() == {"m1", "m2"}
    assert taken["m1"]["what"] == f"m1 (web-1 {taken['m1']['details']['instance'][:6]})"
    assert len({row["id"] for row in rows}) == len(rows)
    assert {row["kind"] for row in place.rows("events", crew, "--kind", "seat_taken")} == {"seat_taken"}
    assert "Did you mean seat_taken" in place.echelon("events", crew, "--kind", "seat_take", code=2).err
    assert "Say --follow" in place.echelon("events", crew, "--count", "1", code=2).err
    assert place.table("events", crew)[0] == ["SEQUENCE", "TIME", "KIND", "WHAT"]
    [line, *_] = csv.DictReader(place.echelon("events", crew, "-o", "csv").out.splitlines())
    assert json.loads(line["details"]) == rows[0]["details"]


def test_of_a_group_that_fell_silent_nothing_is_told_without_saying_so(place: Place) -> None:
    group = place.group(None, "--members", "m1")
    place.launch(group, f"{group}-a", "m1")
    place.until(lambda: {row["state"] for row in place.rows("partitions", group)} == {"owned"})
    place.kill(f"{group}-a")
    place.until(lambda: place.one("info", group)["state"] == "silent")
    for words in (("why", group, "0"), ("lag", group), ("members", group), ("partitions", group)):
        assert f"{group} is silent" in place.echelon(*words).err
    assert "Start a member" in place.echelon("cut", "take", group, code=4).err
    assert "is silent" not in place.echelon("why", group, "0", "--at", "0s").err


def test_of_events_that_are_followed_without_a_time_only_those_come_that_are_new(place: Place) -> None:
    group = place.group()
    place.echelon("pause", group)
    with place.started("events", group, "--follow", "--count", "1", "-o", "json") as followed:
        while followed.poll() is None:
            place.echelon("resume", group)
            place.echelon("pause", group)
        assert followed.returncode == 0
        assert followed.stdout is not None
        [told] = map(json.loads, followed.stdout)
    [first, *_] = place.rows("events", group, "--kind", "group_paused")
    assert told["sequence"] > first["sequence"]


@ON_BOTH
def test_events_are_followed_as_they_come_when_an_instance_of_an_auto_group_steps_down_and_when_all_are_silent(
    place: Place,
) -> None:
    group = place.group()
    name = f"{group}-a"
    with place.started("events", group, "--follow", "--since", "1m", "-o", "json") as followed:
        assert followed.stdout is not None
        place.launch(group, name)
        place.until(lambda: {row["state"] for row in place.rows("partitions", group)} == {"owned"})
        assert "Did you mean" in place.echelon("step-down", group, f"{name}a", code=3).err
        assert place.echelon("sd", group, name).err == f"{name} steps down\n"
        place.until(lambda: place.rows("members", group)[0]["role"] != "active")
        place.kill(name)
        events = [json.loads(followed.stdout.readline())]
        while events[-1]["kind"] != "group_silent":
            events.append(json.loads(followed.stdout.readline()))
        followed.send_signal(signal.SIGINT)
        assert followed.wait(10) == 130
    seats = [event for event in events if event["kind"].startswith("seat_")]
    told = [(event["kind"], event["details"].get("reason")) for event in seats]
    assert told[:2] == [("seat_taken", None), ("seat_lost", "admin")]
    assert events[0]["what"].split()[0] == name

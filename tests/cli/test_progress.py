"""`partitions`, `lag`, `top` on real brokers."""

import json

from tests.cli.place import Place


def test_partitions_are_shown_with_owner_and_progress(place: Place, crew: str) -> None:
    rows = place.rows("partitions", crew)
    assert [row["partition"] for row in rows] == ["0", "1", "2", "3"]
    assert {row["state"] for row in rows} == {"owned"}
    assert {row["owner"].split()[0] for row in rows} == {"web-1", "web-2"}
    for row in rows:
        assert (row["lag"], row["lag_seconds"], row["parked"]) == (0, 0.0, 0)
        assert row["epoch"] > 0
    assert any(row["last_progress"] is not None for row in rows)
    if place.is_kafka:
        assert sum(row["position"] for row in rows) == 40
        assert all(row["position"] == row["end"] for row in rows)
    table = place.table("partitions", crew)
    assert table[0][:6] == ["PARTITION", "STATE", "MEMBER", "OWNER", "EPOCH", "POSITION"]
    assert [line[0] for line in table[1:]] == ["0", "1", "2", "3"]


def test_lag_is_told_in_messages_and_seconds(place: Place, quiet: str) -> None:
    *rows, total = place.rows("lag", quiet)
    assert [row["partition"] for row in rows] == ["0", "1", "2", "3"]
    assert sum(row["lag"] for row in rows) == 40
    assert (total["partition"], total["lag"]) == ("total", 40)
    assert 0 < total["lag_seconds"] == max(row["lag_seconds"] for row in rows) < 600
    assert all(row["lag_seconds"] == 0 for row in rows if row["lag"] == 0)
    assert place.table("lag", quiet)[-1][0] == "total"


def test_lag_is_watched(place: Place, crew: str) -> None:
    lines = place.echelon("lag", crew, "--watch", "--every", "0.1", "--count", "2", "-o", "json").out.splitlines()
    assert [json.loads(line)["partition"] for line in lines] == ["0", "1", "2", "3", "total"] * 2
    assert place.echelon("lag", crew, "-w", "--every", "0.1", "--count", "2").out.count("PARTITION") == 2


def test_top_shows_groups_at_work_with_their_rates(place: Place) -> None:
    stream = place.stream()
    group = place.group(stream)
    place.launch(group, f"{group}-a")
    place.until(lambda: {row["state"] for row in place.rows("partitions", group)} == {"owned"})
    lines = place.echelon("top", group, "--every", "0.1", "--count", "2", "-o", "json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["group"], first["state"], first["active"], first["rate"]) == (group, "active", 1, None)
    assert second["rate"] == 0.0
    assert place.table("top", group, "--count", "1")[0][:3] == ["GROUP", "KIND", "STATE"]
    place.kill(f"{group}-a")


def test_a_group_that_fell_silent_stands_out(place: Place) -> None:
    group = place.group()
    place.launch(group, f"{group}-a")
    place.until(lambda: {row["state"] for row in place.rows("partitions", group)} == {"owned"})
    place.kill(f"{group}-a")
    place.until(lambda: place.one("info", group)["state"] == "silent")
    done = place.echelon("partitions", group)
    assert "IDLE" in done.out
    assert f"{group} is silent: nobody has written to its log for" in done.err
    assert [row["state"] for row in place.rows("members", group)] == ["silent"]
    assert [line[3] for line in place.table("ls") if line[0] == group] == ["SILENT"]

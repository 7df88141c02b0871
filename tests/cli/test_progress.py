"""`partitions`, `lag`, `top` on real brokers."""

import csv
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from echelon.local import NatsServer
from tests.brokers.nats.harness import NatsHarness
from tests.cli.place import ON_BOTH, Place


@ON_BOTH
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


@ON_BOTH
def test_lag_is_told_in_messages_and_seconds(place: Place, quiet: str) -> None:
    *rows, total = place.rows("lag", quiet)
    assert [row["partition"] for row in rows] == ["0", "1", "2", "3"]
    assert sum(row["lag"] for row in rows) == 40
    assert (total["partition"], total["lag"]) == ("total", 40)
    assert 0 <= total["lag_seconds"] == max(row["lag_seconds"] for row in rows) < 600
    assert all(row["lag_seconds"] == 0 for row in rows if row["lag"] == 0)
    assert place.table("lag", quiet)[-1][0] == "total"


@ON_BOTH
def test_lag_is_watched(place: Place, crew: str) -> None:
    lines = place.echelon("lag", crew, "--watch", "--every", "0.1", "--count", "2", "-o", "json").out.splitlines()
    assert [json.loads(line)["partition"] for line in lines] == ["0", "1", "2", "3", "total"] * 2
    assert place.echelon("lag", crew, "-w", "--every", "0.1", "--count", "2").out.count("PARTITION") == 2
    told = place.echelon("lag", crew, "-w", "--every", "0.1", "--count", "2", "-o", "csv").out.splitlines()
    assert [row["partition"] for row in csv.DictReader(told)] == ["0", "1", "2", "3", "total"] * 2


@ON_BOTH
def test_top_shows_groups_at_work_with_their_rates(place: Place) -> None:
    stream = place.stream()
    group = place.group(stream)
    place.launch(group, f"{group}-a")
    place.until(lambda: {row["state"] for row in place.rows("partitions", group)} == {"owned"})
    with place.started("top", group, "--every", "0.1", "-o", "json") as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert (first["group"], first["state"], first["active"], first["rate"]) == (group, "active", 1, None)
        assert second["rate"] == 0.0
        place.publish(stream, 40)
        while (row := json.loads(process.stdout.readline()))["rate"] == 0.0:
            pass
        assert row["rate"] > 0
    assert place.table("top", group, "--count", "1")[0][:3] == ["GROUP", "KIND", "STATE"]
    place.kill(f"{group}-a")


def test_top_of_a_group_that_is_not_there_is_told(place: Place, quiet: str) -> None:
    assert f"Did you mean {quiet}" in place.echelon("top", f"{quiet}x", code=3).err


def drawn(lines: int, *words: str) -> list[str]:
    """The screens that a command draws one over the other, on a terminal with so many lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
    # Without LINES, which would win, and which readline sets behind Python's back for the processes that it starts.
    environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    command = [sys.executable, "-m", "echelon.cli", *words]
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        assert process.wait(30) == 0
    told = os.read(ours, 100_000).decode()
    os.close(ours)
    first, *screens = told.split("\x1b[H")
    assert first == ""
    return screens


@pytest.mark.parametrize("colours", [True, False])
def test_top_is_drawn_over_what_was_there_on_a_terminal(place: Place, quiet: str, colours: bool) -> None:
    words = ["--broker", place.url, "top", quiet, "--every", "0.1", "--count", "3"]
    screens = drawn(24, *words, *([] if colours else ["--no-color"]))
    assert len(screens) == 3
    for screen in screens:
        head, row = screen.removeprefix("\x1b[?7l").removesuffix("\x1b[J\x1b[?7h").splitlines()
        assert head.startswith("GROUP")
        assert row.startswith(quiet)
        assert head.endswith("\x1b[K")
        assert row.endswith("\x1b[K")
        assert ("\x1b[33m" in row) == colours  # The group is empty.


def test_a_table_that_is_taller_than_the_terminal_is_cropped(place: Place, quiet: str) -> None:
    words = ["--broker", place.url, "lag", quiet, "--watch", "--every", "0.1", "--count", "2"]
    for screen in drawn(5, *words):
        assert screen.count("\n") == 4  # On the line after the last the cursor stands.
        head, row, cropped, total = screen.splitlines()[:4]
        assert head.removeprefix("\x1b[?7l").startswith("PARTITION")
        assert (row.split()[0], total.split()[0]) == ("0", "total")
        assert cropped.startswith("(3 rows more)")


def test_lag_is_exact_where_readers_compute_the_partition(nats_server: NatsServer, place: Place) -> None:
    """The server counts the messages of all partitions together there."""
    computed = Place(NatsHarness(nats_server, "computed"), nats_server.url, place.folder)
    stream = computed.stream()
    group = f"computed-{stream.name}"
    computed.publish(stream, 40, keys=7)
    key = f"tokens:{stream.name}.*:1"
    words = ("create", group, stream.name, "-p", "4", "--key", key, "--start", "earliest")
    computed.echelon(*words, "--members", "m1", "--interval", "0.4s")
    *rows, total = computed.rows("lag", group)
    told = computed.echelon("join", group, "--count", "40", "-o", "json").out.splitlines()
    joined = [json.loads(line)["partition"] for line in told]
    assert {row["partition"]: row["lag"] for row in rows} == {str(n): joined.count(str(n)) for n in range(4)}
    assert total["lag"] == 40
    assert computed.rows("lag", group)[-1]["lag"] == 0


def test_lag_is_estimated_by_the_share_of_a_partition_when_much_waits(nats_server: NatsServer, place: Place) -> None:
    computed = Place(NatsHarness(nats_server, "computed"), nats_server.url, place.folder)
    stream = computed.stream()
    group = f"computed-{stream.name}"
    computed.publish(stream, 5000, keys=1000)
    key = f"tokens:{stream.name}.*:1"
    computed.echelon("create", group, stream.name, "-p", "4", "--key", key, "--start", "earliest")
    *rows, total = computed.rows("lag", group)
    assert total["lag"] == pytest.approx(5000, abs=4)
    assert all(1000 < row["lag"] < 1500 for row in rows), rows


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

"""What a pipeline shows of its progress, on a terminal and elsewhere."""

import io
from itertools import count

import pytest

from echelon.group.advisories import SeatLost, SeatTaken
from echelon.members.events import Fenced, PartitionEnded
from echelon.spark.progress import Progress
from echelon.spark.query import Batch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def played(stream: io.StringIO) -> str:
    """Two batches in a row, of a seat that is left then."""
    progress = Progress(stream)
    progress.stage("waiting for the seat")
    progress.instance("i1")
    progress.event(SeatTaken(sequence=4, time=4, member="m1", instance="i1"))
    progress.batch(Batch(7, 1_000, 500))
    progress.batch(Batch(8, 500, 0))
    progress.event(Fenced())
    progress.stage("draining")
    progress.event(PartitionEnded("1", 5))
    progress.event(SeatLost(sequence=9, time=9, member="m2", instance="i2", reason="left"))
    progress.event(SeatLost(sequence=10, time=10, member="m1", instance="i1", reason="left"))
    progress.close()
    return stream.getvalue()


FIRST = "batch 7: 1,000 rows, 2,000 rows/s, 500 ms; 1,000 in all"
SECOND = "batch 8: 500 rows, 0 rows/s, 0 ms; 1,500 in all"
BEFORE = ["waiting for the seat", "the seat of m1 is taken"]
AFTER = [
    "fenced: this instance cannot see its own records, and waits",
    "draining",
    "the seat of m2 is vacant: its holder left",
    "left the seat of m1",
]


def test_a_terminal_has_one_line_that_changes_below_all_others() -> None:
    lines = played(Terminal()).split("\r\x1b[2K")
    assert lines[:3] == ["", *(f"{line}\n" for line in BEFORE)]
    assert lines[3:5] == [FIRST, SECOND]
    assert lines[5:] == [*(f"{line}\n{SECOND}" for line in AFTER[:-1]), f"{AFTER[-1]}\n{SECOND}\n"]


def test_elsewhere_lines_are_plain_and_few_and_the_last_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.spark.progress.time.monotonic", lambda: 1_000.0)
    assert played(io.StringIO()).splitlines() == [*BEFORE, FIRST, *AFTER, SECOND]


def test_elsewhere_no_line_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(1_000.0, 10.0)
    monkeypatch.setattr("echelon.spark.progress.time.monotonic", lambda: next(clock))
    assert played(io.StringIO()).splitlines() == [*BEFORE, FIRST, SECOND, *AFTER]

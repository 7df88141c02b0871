"""What a pipeline shows of its progress, on a terminal and elsewhere."""

import io

import pytest

from echelon.members.events import Fenced, PartitionEnded, PartitionStarted
from echelon.spark.progress import Progress
from echelon.spark.query import Batch


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def played(stream: io.StringIO) -> str:
    """Two batches in a row, of a seat that has one partition left."""
    progress = Progress(stream)
    progress.stage("waiting for the seat")
    for name in ("0", "1"):
        progress.event(PartitionStarted(name, 5, 1))
    progress.batch(Batch(7, 1_000, 500), {"0": 30, "1": 4})
    progress.event(PartitionEnded("1", 5))
    progress.batch(Batch(8, 500, 0), {"0": 2})
    progress.event(Fenced())
    progress.close()
    return stream.getvalue()


FIRST = "batch 7: 1,000 rows, 2,000 rows/s, 500 ms, 34 waiting in 2 partitions"
SECOND = "batch 8: 1,500 rows, 0 rows/s, 0 ms, 2 waiting in 1 partitions"


def test_a_terminal_has_one_line_that_changes() -> None:
    lines = played(Terminal()).split("\r\x1b[2K")
    assert lines[1:4] == ["waiting for the seat\n", FIRST, SECOND]
    assert lines[4].startswith("fenced: ")


def test_elsewhere_lines_are_plain_and_few_and_the_last_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echelon.spark.progress.time.monotonic", lambda: 1_000.0)
    first, second, third, last = played(io.StringIO()).splitlines()
    assert (first, second, last) == ("waiting for the seat", FIRST, SECOND)
    assert third.startswith("fenced: ")

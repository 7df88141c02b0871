"""How a pipeline goes, for people: one line that changes on a terminal, plain lines otherwise."""

import sys
import time
from typing import Final, TextIO

from echelon.group.advisories import Advisory, SeatLost, SeatTaken
from echelon.members.events import Event, Fenced, PartitionEnded, PartitionStarted
from echelon.spark.query import Batch

_EVERY: Final = 5.0
"""Seconds between two plain lines."""

_REASONS: Final = {
    "timeout": "its holder has fallen silent",
    "admin": "its holder was asked to step down",
    "left": "its holder left",
    "gone": "its holder's process has ended",
    "preempted": "a better one came",
}


class Progress:
    """Writes how a pipeline goes to `stream`. Not for several threads."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._rows = 0
        self._began = time.monotonic()
        self._last = 0.0
        self._line = ""
        self._partitions: set[str] = set()

    def stage(self, name: str) -> None:
        """Something begins that takes a while."""
        self._say(name)

    def event(self, event: Event) -> None:
        """Something happened to the seat."""
        match event:
            case PartitionStarted(partition=name):
                self._partitions.add(name)
            case PartitionEnded(partition=name):
                self._partitions.discard(name)
            case Fenced():
                self._say("fenced: this instance cannot see its own records, and waits")
            case SeatTaken(member=member):
                self._say(f"the seat of {member} is taken")
            case SeatLost(member=member, reason=reason):
                self._say(f"the seat of {member} is vacant: {_REASONS[reason]}")
            case Advisory():
                pass

    def batch(self, batch: Batch, lag: dict[str, int]) -> None:
        """A batch has ended."""
        self._rows += batch.rows
        now = time.monotonic()
        rate = batch.rows * 1000 / batch.duration if batch.duration else 0.0
        self._line = (
            f"batch {batch.id}: {self._rows:,} rows, {rate:,.0f} rows/s, {batch.duration} ms, "
            f"{sum(lag.values()):,} waiting in {len(self._partitions)} partitions"
        )
        if self._live:
            print(f"\r\x1b[2K{self._line}", end="", file=self._stream, flush=True)
        elif now - self._last >= _EVERY:
            self._last = now
            print(self._line, file=self._stream, flush=True)

    def close(self) -> None:
        """The pipeline has ended: the last line stays."""
        if self._line:
            print("" if self._live else self._line, file=self._stream, flush=True)

    def _say(self, words: str) -> None:
        start = "\r\x1b[2K" if self._live else ""
        print(f"{start}{words}", file=self._stream, flush=True)

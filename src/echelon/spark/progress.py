"""How a pipeline goes, for people: one line that changes on a terminal, plain lines otherwise."""

import sys
import time
from typing import Final, TextIO

from echelon.group.advisories import SeatLost, SeatTaken
from echelon.members.events import Event, Fenced
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
        self._instance = ""
        self._rows = 0
        self._last = 0.0
        self._line = ""
        self._is_shown = True

    def stage(self, name: str) -> None:
        """Something begins that takes a while."""
        self._say(name)

    def instance(self, id: str) -> None:
        """Which instance this is: what happens to its own seat is told in other words."""
        self._instance = id

    def event(self, event: Event) -> None:
        """Something happened to the group."""
        match event:
            case Fenced():
                self._say("fenced: this instance cannot see its own records, and waits")
            case SeatTaken(member=member):
                self._say(f"the seat of {member} is taken")
            case SeatLost(member=member, instance=self._instance, reason="left"):
                self._say(f"left the seat of {member}")
            case SeatLost(member=member, reason=reason):
                self._say(f"the seat of {member} is vacant: {_REASONS[reason]}")
            case _:
                pass

    def batch(self, batch: Batch) -> None:
        """A batch has ended."""
        self._rows += batch.rows
        now = time.monotonic()
        rate = batch.rows * 1000 / batch.duration if batch.duration else 0.0
        self._line = (
            f"batch {batch.id}: {batch.rows:,} rows, {rate:,.0f} rows/s, {batch.duration} ms; {self._rows:,} in all"
        )
        self._is_shown = self._live or now - self._last >= _EVERY
        if self._live:
            print(f"\r\x1b[2K{self._line}", end="", file=self._stream, flush=True)
        elif self._is_shown:
            self._last = now
            print(self._line, file=self._stream, flush=True)

    def close(self) -> None:
        """The pipeline has ended: the last line is there, and stays."""
        if self._live and self._line:
            print(file=self._stream, flush=True)
        elif not self._is_shown:
            print(self._line, file=self._stream, flush=True)

    def _say(self, words: str) -> None:
        """A line of its own; on a terminal the one that changes is below it."""
        said = f"\r\x1b[2K{words}\n{self._line}" if self._live else f"{words}\n"
        print(said, end="", file=self._stream, flush=True)

"""Processes that outlive the program which started them: start, recognise again, signal.

A process is known by its pid and its start time together, so that a recycled pid is never taken for it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

_PROC = Path("/proc")


class Process(Struct, frozen=True):
    """A process on this machine. `started` is opaque: equal for as long as it is the same process."""

    pid: int
    started: str

    def alive(self) -> bool:
        """Whether it still runs (a paused process does)."""
        seen = _look(self.pid)
        if seen is None or seen.started != self.started:
            return False
        if seen.ended:
            _reap(self.pid)
        return not seen.ended

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process is gone."""
        if self.alive():
            os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait until it is gone; False if it still runs after that time."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


def spawn(command: Sequence[str], log: Path) -> Process:
    """Start a command in a session of its own, with its output appended to `log`."""
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        tuple(command),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGPIPE],
    )
    seen = _look(pid)
    return Process(pid, seen.started if seen else "")


class _Seen(NamedTuple):
    started: str
    ended: bool


def _look(pid: int) -> _Seen | None:
    """The process that has the pid now, if any; it stays visible after its end until its parent takes note."""
    if (_PROC / "self/stat").exists():
        try:
            stat = (_PROC / str(pid) / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        # The second field, the program's name in brackets, may hold spaces and brackets itself.
        fields = stat.rpartition(")")[2].split()
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        state, threads, ticks = fields[0], int(fields[17]), fields[19]
        # While another of its threads is ending, files and ports are still held.
        return _Seen(f"{ticks} ticks after boot {boot}", ended=state == "Z" and threads <= 1)
    ps = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    status, _, started = ps.stdout.strip().partition(" ")
    return _Seen(started.strip(), ended=status.startswith("Z")) if started else None


def _reap(pid: int) -> None:
    # If another program started it, that program takes note.
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)

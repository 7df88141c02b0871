"""Where this process runs, and the proof that another one on the same machine is gone."""

import os
from pathlib import Path

from msgspec import Struct

from echelon.group.records import Machine


def this_machine(*others: int) -> Machine | None:
    """The process as `join` tells it, with `others` that work for it; None where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
        processes = tuple((pid, _look(pid).started) for pid in (os.getpid(), *others))
    except OSError:
        return None
    return Machine(boot, namespace, processes, os.uname().nodename)


def is_gone(other: Machine, here: Machine) -> bool:
    """Whether all processes of an instance are surely gone. False where that cannot be known."""
    if (other.boot, other.namespace) != (here.boot, here.namespace):
        return False
    return bool(other.processes) and all(_is_gone(pid, started) for pid, started in other.processes)


def any_gone(own: Machine) -> bool:
    """Whether one of the processes of an instance of this machine is gone."""
    return any(_is_gone(pid, started) for pid, started in own.processes)


def _is_gone(pid: int, started: int) -> bool:
    try:
        found = _look(pid)
    except OSError:
        return not _exists(pid)
    return found.started != started or not found.runs


class _Process(Struct, frozen=True):
    started: int
    """In clock ticks since boot."""
    runs: bool
    """Whether it is more than remains. The main thread may have ended, and others go on."""


def _look(pid: int) -> _Process:
    """A process as the system shows it. Raises OSError if there is none, or it may not be seen."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return _Process(started, runs=state not in "ZX" or threads > 1)


def _exists(pid: int) -> bool:
    """Whether there is a process of this id, though it may not be seen: a system can hide those of other users."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True

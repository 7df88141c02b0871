"""Where this process runs, and the proof that another one on the same machine is gone."""

import os
from pathlib import Path

from echelon.group.records import Machine


def this_machine() -> Machine | None:
    """The process as `join` tells it; None where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    started = _started(os.getpid())
    return None if started is None else Machine(boot, namespace, ((os.getpid(), started),))


def is_gone(other: Machine, here: Machine) -> bool:
    """Whether all processes of an instance are surely gone. False where that cannot be known."""
    if (other.boot, other.namespace) != (here.boot, here.namespace):
        return False
    return all(_started(pid) != started for pid, started in other.processes)


def _started(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None if there is no such process, or only its remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], int(fields[19])
    return None if state in "ZX" else started

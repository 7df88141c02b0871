"""Processes are recognised by pid and start time, so that nobody else's process is ever signalled."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from echelon.local.process import Process, spawn

_SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = spawn(_SLEEP, tmp_path / "log")
    yield process
    process.signal(signal.SIGKILL)
    assert process.wait(5)


def test_a_killed_process_is_gone(sleeper: Process) -> None:
    assert sleeper.alive()
    sleeper.signal(signal.SIGKILL)
    assert sleeper.wait(5)
    assert not sleeper.alive()


def test_a_paused_process_is_alive(sleeper: Process) -> None:
    sleeper.signal(signal.SIGSTOP)
    assert not sleeper.wait(0.2)


def test_a_recycled_pid_is_not_the_process_and_gets_no_signal(sleeper: Process) -> None:
    former = Process(sleeper.pid, "some time before")
    assert not former.alive()
    former.signal(signal.SIGKILL)
    assert not sleeper.wait(0.2)


def test_a_recycled_pid_keeps_its_exit_code_for_its_own_parent() -> None:
    with subprocess.Popen((sys.executable, "-c", "raise SystemExit(7)")) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not Process(child.pid, "some time before").alive()
    assert child.returncode == 7


def test_the_output_is_appended_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    code = "import sys; print('out', flush=True); print('err', file=sys.stderr)"
    assert spawn((sys.executable, "-c", code), log).wait(10)
    assert log.read_text() == "before\nout\nerr\n"

"""Proof that a process on this machine is gone, with real processes; and nothing without proof."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec import structs

from echelon.group.records import Machine, Profile
from echelon.group.world import Instance, World
from echelon.members import machine as machine_module
from echelon.members import neighbours as neighbours_module
from echelon.members.machine import is_gone, this_machine
from echelon.members.neighbours import Neighbours
from tests.members.stage import state_of
from tests.members.waiting import play, until

# The main thread ends by itself (and not the process) by the system call `exit`, while another one goes on.
_HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(flush=True)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"""


@pytest.fixture
def here() -> Machine:
    found = this_machine()
    if found is None:
        pytest.skip("this system does not tell about processes in /proc")
    return found


@contextmanager
def running(code: str = "print(flush=True); input()") -> Iterator[subprocess.Popen[bytes]]:
    """A Python process that has begun."""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def machine_of(here: Machine, *processes: subprocess.Popen[bytes]) -> Machine:
    """What these processes would tell of themselves."""
    told = tuple((process.pid, started(process.pid)) for process in processes)
    return structs.replace(here, processes=told)


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_this_process_is_there(here: Machine) -> None:
    assert here.processes == ((os.getpid(), started(os.getpid())),)
    assert not is_gone(here, here)


def test_a_killed_process_is_gone_also_before_its_parent_has_noticed(here: Machine) -> None:
    with running() as process:
        there = machine_of(here, process)
        assert not is_gone(there, here)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert state_of(Path(f"/proc/{process.pid}")) == "Z"
        assert is_gone(there, here)
        process.wait()
        assert is_gone(there, here)


def test_a_process_whose_main_thread_has_ended_is_there_while_another_thread_goes_on(here: Machine) -> None:
    with running(_HEADLESS) as process:
        there = machine_of(here, process)

        async def body() -> None:
            await until(lambda: state_of(Path(f"/proc/{process.pid}")) == "Z")

        play(body)
        assert not is_gone(there, here)


def test_another_process_with_the_same_id_is_no_proof_to_the_contrary(here: Machine) -> None:
    with running() as process:
        there = machine_of(here, process)
        former = structs.replace(there, processes=((process.pid, there.processes[0][1] - 1),))
        assert is_gone(former, here)


@pytest.mark.parametrize("other", ["boot", "namespace"])
def test_what_runs_elsewhere_is_never_known_to_be_gone(here: Machine, other: str) -> None:
    gone = structs.replace(here, processes=((1 << 22, 1),))
    assert is_gone(gone, here)
    assert not is_gone(structs.replace(gone, **{other: "another"}), here)


def test_an_instance_that_names_no_process_is_never_known_to_be_gone(here: Machine) -> None:
    assert not is_gone(structs.replace(here, processes=()), here)


def test_a_process_that_may_not_be_looked_at_is_not_known_to_be_gone(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running() as process:
        there = machine_of(here, process)
        monkeypatch.setattr(machine_module, "Path", lambda _: Path("/proc/hidden"))
        assert not is_gone(there, here)
        process.kill()
        process.wait()
        assert is_gone(there, here)


def world_of(machine: Machine | None) -> World:
    world = World()
    world.instances["other"] = Instance("other", Profile("other", machine=machine), None, 1, 1, 1, 1)
    return world


def test_an_instance_is_gone_when_all_its_processes_are_and_that_is_said_once(here: Machine) -> None:
    async def body() -> None:
        told: list[str] = []
        neighbours = Neighbours(here, told.append)
        with running() as driver, running() as worker:
            world = world_of(machine_of(here, driver, worker))
            neighbours.look(world, "me")
            driver.kill()
            driver.wait()
            await asyncio.sleep(0.05)
            neighbours.look(world, "me")
            assert not told
            worker.kill()
            await until(lambda: bool(told))
            neighbours.look(world, "me")
            await asyncio.sleep(0.05)
            assert told == ["other"]
        neighbours.close()
        assert not neighbours._watched

    play(body)


def test_a_process_that_was_gone_before_it_was_seen_is_said_to_be_gone(here: Machine) -> None:
    async def body() -> None:
        told: list[str] = []
        with running() as process:
            there = machine_of(here, process)
        neighbours = Neighbours(here, told.append)
        neighbours.look(world_of(there), "me")
        assert told == ["other"]
        neighbours.look(World(), "me")
        neighbours.close()

    play(body)


def test_a_process_that_ended_does_not_keep_this_one_busy(here: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        neighbours = Neighbours(here, lambda _: None)
        with running() as driver, running() as worker:
            neighbours.look(world_of(machine_of(here, driver, worker)), "me")
            driver.kill()
            driver.wait()
            looks = 0

            def count(other: Machine, here: Machine) -> bool:
                nonlocal looks
                looks += 1
                return is_gone(other, here)

            monkeypatch.setattr(neighbours_module, "is_gone", count)
            await asyncio.sleep(0.1)
            assert looks <= 1
        neighbours.close()

    play(body)

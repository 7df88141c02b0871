"""A stage on which Spark applications are members too."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from tests.members.stage import Stage
from tests.spark.jvm import quick_java
from tests.spark.seats.process import Cast, doom_of


class SparkStage(Stage):
    """A group whose members are Spark applications, Python processes, or both."""

    def launch_spark(self, name: str, member: str | None = None, **options: object) -> None:
        """Start a Spark application; the options are those of `Cast`."""
        told = {
            "url": self.url,
            "group": self.group,
            "name": name,
            "member": member,
            "stream": msgspec.to_builtins(self.stream),
            "output": str(self._output),
            "folder": str(self._folder),
            "delivery": self.delivery,
        }
        cast = msgspec.convert({**told, **options}, Cast)
        command = [sys.executable, "-m", "tests.spark.seats.process", msgspec.json.encode(cast).decode()]
        environment = {**os.environ, **quick_java()}
        with self._errors(name).open("wb") as errors:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=errors, stdout=errors)

    def doom(self, name: str) -> None:
        """Have an application that was spared die, at its moment of a batch."""
        doom_of(self._folder, name).touch()

    async def crash_holder(self) -> str:
        """Once the holder of m1 has processed something, have it die at its moment; who takes over."""
        await self.until_further(20)
        holder = self.holders()["m1"]
        self.doom(holder)
        assert await self.ended(holder, 60) == -signal.SIGKILL
        await self.until_world(lambda _: self.holders().get("m1") not in (None, holder))
        return self.holders()["m1"]

    async def until_further(self, messages: int) -> None:
        """Wait until the group has reported so many more messages of some partition."""

        def total() -> int:
            return max(partition.position for partition in self.world.partitions.values())

        least = total() + messages
        await self.until_world(lambda _: total() >= least)

    def queries(self, name: str) -> tuple[int, int]:
        """How often an application's query has begun, and has ended."""
        said = self.errors(name)
        return said.count(f"the query {self.group} begins"), said.count(f"the query {self.group} has ended")

    def jvm(self, name: str) -> int:
        """The process id of an application's JVM."""
        return next(pid for pid in children(self.processes[name].pid) if "java" in command_of(pid))

    def workers(self, name: str) -> list[int]:
        """The process ids of the Python processes that an application's tasks run in."""
        forking = [pid for pid in children(self.jvm(name)) if "daemon" in command_of(pid)]
        return [worker for pid in forking for worker in children(pid)]

    @property
    def folder(self) -> Path:
        """Where the application keeps its checkpoint and its table."""
        return self._folder


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # A thread may end meanwhile.
            found += map(int, (task / "children").read_text().split())
    return found


def command_of(pid: int) -> str:
    """How a process was called; nothing once it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""

"""A stage on which Spark applications are members too."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.members.stage import Stage
from tests.spark.seats.process import Cast

# A JVM that is to live for a minute starts sooner without its second compiler.
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx700m"


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
        environment = {**os.environ, "JDK_JAVA_OPTIONS": _JAVA}
        with self._errors(name).open("wb") as errors:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=errors, stdout=errors)

    def jvm(self, name: str) -> int:
        """The process id of an application's JVM."""
        return next(pid for pid in children(self.processes[name].pid) if "java" in command_of(pid))

    def workers(self, name: str) -> list[int]:
        """The process ids of the Python processes that an application's tasks run in."""
        return [pid for pid in descendants(self.jvm(name)) if "pyspark.daemon" in command_of(pid)]

    @property
    def folder(self) -> Path:
        """Where the application keeps its checkpoint and its table."""
        return self._folder


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def command_of(pid: int) -> str:
    """How a process was called."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()

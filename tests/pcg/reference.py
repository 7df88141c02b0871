"""The reference in Go: its `cg` command, built from the module proxy, or another one that `ECHELON_TEST_CG` names."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from echelon.errors import MissingComponent
from echelon.pcg.config import Format

MODULE: Final = "github.com/synadia-io/orbit.go/pcgroups"
VERSION: Final = "v0.1.0"
_TOOLS: Final = f'//go:build tools\n\npackage tools\n\nimport _ "{MODULE}/cg"\n'
_MESSAGE: Final = re.compile(r"\[(\S+)\] subject=(\S+), seq=(\d+), pinnedID=(\S*)\. Processing")


class GoLine(msgspec.Struct, frozen=True):
    """A message that a Go instance was given."""

    name: str
    key: str
    sequence: int
    at: float


def build(folder: Path) -> Path:
    """The `cg` command. Blocks. Raises MissingComponent without Go, or if the module cannot be had."""
    named = os.environ.get("ECHELON_TEST_CG")
    if named:
        return Path(named)
    if shutil.which("go") is None:
        raise MissingComponent("there is no Go to build the reference with", remedy="Install Go 1.24 or later")
    (folder / "go.mod").write_text(f"module reference\n\ngo 1.23.7\n\nrequire {MODULE} {VERSION}\n")
    (folder / "tools.go").write_text(_TOOLS)
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "cg", f"{MODULE}/cg"]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MissingComponent(f"the reference cannot be built: {done.stderr[-500:]}")
    return folder / "cg"


class Reference:
    """Runs `cg` against one server."""

    def __init__(self, program: Path, url: str, folder: Path) -> None:
        self.program = program
        context = folder / "nats" / "context"
        context.mkdir(parents=True)
        (context / "test.json").write_text(json.dumps({"url": url}))
        (folder / "nats" / "context.txt").write_text("test")
        self.environment = {**os.environ, "XDG_CONFIG_HOME": str(folder)}
        self.format: Format = "current" if "--filter" in self.run("elastic", "create", "--help") else "v0.1"

    @property
    def ack_wait(self) -> float:
        """What its `consume` uses, in seconds."""
        return 2.0 if self.format == "current" else 6.0

    def run(self, *arguments: str, given: str = "") -> str:
        """Run a command to its end. Fails if that is not a good one. Blocks."""
        done = subprocess.run(
            [self.program, *arguments], env=self.environment, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or "--help" in arguments, (arguments, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def create_elastic(self, stream: str, group: str, partitions: int, filter: str, *wildcards: int) -> None:
        keys = list(map(str, wildcards))
        if self.format == "v0.1":
            self.run("elastic", "create", stream, group, str(partitions), filter, *keys)
        else:
            self.run(
                "elastic", "create", stream, group, str(partitions), "--filter", filter, given=f"{' '.join(keys)}\n"
            )

    def create_static(self, stream: str, group: str, partitions: int, *members: str) -> None:
        rest = [">", *members] if self.format == "v0.1" else list(members)
        self.run("static", "create", "balanced", stream, group, str(partitions), *rest)

    @contextmanager
    def consume(
        self, kind: str, stream: str, group: str, member: str, name: str, sleep: str = "0s"
    ) -> "Iterator[GoInstance]":
        command = [str(self.program), kind, "consume", stream, group, member, "--sleep", sleep]
        instance = GoInstance(name, command, self.environment)
        try:
            yield instance
        finally:
            instance.kill()


class GoInstance:
    """An instance in Go. `lines` are the messages that it was given, in order."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.lines: list[GoLine] = []
        self.output = ""
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        # It ends the line of a message only when that is acknowledged.
        file, rest = self._process.stdout.fileno(), ""
        while data := os.read(file, 65536):
            now = time.monotonic()
            self.output += data.decode()
            rest += data.decode()
            for found in _MESSAGE.finditer(rest):
                _, subject, sequence, _ = found.groups()
                self.lines.append(GoLine(self.name, subject.rpartition(".")[2], int(sequence), now))
                last = found.end()
            if _MESSAGE.search(rest):
                rest = rest[last:]

    def kill(self) -> None:
        """Take it away at once."""
        self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._end()

    def wait(self, seconds: float) -> str:
        """Wait until it ends by itself, and return all that it wrote."""
        self._process.wait(seconds)
        self._end()
        return self.output

    def _end(self) -> None:
        self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

"""Where the commands are tried: a real broker, the commands in this process, and members as real processes."""

import asyncio
import json
import logging
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from echelon.cli.app import app
from echelon.group.config import Stream
from echelon.testing.contract import Harness, Sent
from tests.cli.forms import shown
from tests.members.process import Cast, Line

ON_BOTH = pytest.mark.parametrize("place", ["nats", "kafka"], indirect=True, scope="session")
"""For one test of each command. All the ways of using it are tried on NATS, where they take a fraction of the time."""


class Done(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code."""

    out: str
    err: str
    code: int


def invoke(*words: str, code: int = 0, given: str | None = None) -> Done:
    """Run a command in this process. A traceback, or another exit code than expected, is a failure."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        result = CliRunner().invoke(app, words, input=given, catch_exceptions=False)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert result.exit_code == code, f"{words}: {result.exit_code}\n{result.stdout}\n{result.stderr}"
    return Done(result.stdout, result.stderr, result.exit_code)


class Place:
    """A broker with its commands. Names of groups and streams on it are new each time."""

    def __init__(self, harness: Harness, url: str, folder: Path) -> None:
        self.url = url
        self.harness = harness
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.folder = folder

    @property
    def is_kafka(self) -> bool:
        return self.url.startswith("kafka")

    def echelon(self, *words: str, code: int = 0, given: str | None = None) -> Done:
        """Run a command on this broker."""
        return invoke("--broker", self.url, *words, code=code, given=given)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """What a command shows as JSON."""
        found: list[dict[str, Any]] = json.loads(self.echelon(*words, "-o", "json").out)
        return found

    def one(self, *words: str) -> dict[str, Any]:
        """What a command shows of one thing, as JSON."""
        found: dict[str, Any] = json.loads(self.echelon(*words, "-o", "json").out)
        return found

    def shown(self, *words: str, anew: bool = False) -> list[dict[str, Any]]:
        """The same, if it also shows that as a table and as CSV; with `anew` it makes something new each time."""
        return shown(lambda *all_words: self.echelon(*all_words).out, *words, anew=anew)

    def table(self, *words: str) -> list[list[str]]:
        """What a command shows as a table; cells are what is between two spaces or more."""
        lines = self.echelon(*words).out.splitlines()
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]

    def stream(self, partitions: int = 4) -> Stream:
        """A new stream."""
        return asyncio.run(self.harness.create_stream(f"S{uuid.uuid4().hex[:8]}", partitions))

    def publish(self, stream: Stream, count: int, keys: int = 8) -> None:
        """Messages with keys k0, k1, …; the data tell their number."""
        sent = [Sent(f"k{number % keys}", f"{number}".encode()) for number in range(count)]
        asyncio.run(self.harness.publish(stream, sent))

    def group(self, stream: Stream | None = None, *words: str) -> str:
        """A new group over a stream, made by the command."""
        stream = stream or self.stream()
        name = f"g{uuid.uuid4().hex[:8]}"
        how = [] if self.is_kafka else ["-p", str(stream.partitions), "--partitioning", "derived"]
        how += [] if self.is_kafka else ["--key", f"tokens:{stream.name}.*:1"]
        self.echelon("create", name, stream.name, *how, "--interval", "0.4s", "--start", "earliest", *words)
        return name

    def launch(self, group: str, name: str, member: str | None = None, **options: object) -> None:
        """Start a member as a process; the options are those of `Cast`."""
        output = str(self.folder / f"{group}.lines")
        told = {"url": self.url, "group": group, "name": name, "output": output, "member": member}
        cast = msgspec.json.encode(msgspec.convert({**told, **options}, Cast)).decode()
        command = [sys.executable, "-m", "tests.members.process", cast]
        with (self.folder / f"{name}.errors").open("wb") as errors:
            self.processes[name] = subprocess.Popen(command, env=os.environ, stderr=errors)

    def handled(self, group: str) -> list[Line]:
        """What the processes of a group have handled."""
        file = self.folder / f"{group}.lines"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [msgspec.json.decode(line, type=Line) for line in lines]

    @contextmanager
    def started(self, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A command as a process of its own."""
        command = [sys.executable, "-m", "echelon.cli", "--broker", self.url, *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.processes[name].kill()
        self.processes[name].wait()

    def end(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        self.processes.clear()

    def until(self, holds: Callable[[], bool], seconds: float = 30.0) -> None:
        """Wait until something holds."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, f"not in {seconds} s"
            time.sleep(0.05)

    def until_seated(self, group: str, **holders: str) -> None:
        """Wait until the seats are held like this, and all partitions are owned."""

        def holds() -> bool:
            found = {row["member"]: row["name"] for row in self.rows("members", group) if row["role"] == "active"}
            return found == holders and {row["state"] for row in self.rows("partitions", group)} == {"owned"}

        self.until(holds)

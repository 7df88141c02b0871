"""What the tests with real processes share: a group on a real broker, processes on it, and what they handled."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from echelon.brokers.base import Broker
from echelon.group.config import Stream
from echelon.members.admin import Admin, create_group
from echelon.testing.contract import Harness, Sent
from tests.members.process import Cast, Line


class Stage:
    """One group on a broker, the processes that are its members, and every line that they wrote."""

    def __init__(self, harness: Harness, url: str, folder: Path, group: str) -> None:
        self.harness = harness
        self.url = url
        self.group = group
        self.output = folder / "lines"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.stream = Stream("", 0)
        self._count = 0

    async def prepare(self, broker: Broker, partitions: int = 6, **options: object) -> None:
        """Make the stream and the group."""
        self.stream = await self.harness.create_stream(f"S{self.group}", partitions)
        await create_group(broker, self.group, [self.stream], start="earliest", **{"interval": 0.5, **options})

    async def publish(self, count: int, keys: int = 40) -> None:
        """Publish messages that are numbered within their key."""
        messages: list[Sent] = []
        for number in range(count):
            key = f"k{number % keys}"
            data = f"{key}:{len(self.sent[key])}"
            self.sent[key].append(data)
            messages.append(Sent(key, data.encode()))
        await self.harness.publish(self.stream, messages)
        self._count += count

    def launch(self, name: str, member: str | None = None, **options: object) -> subprocess.Popen[bytes]:
        """Start a process; the options are those of `Cast`."""
        told = {"url": self.url, "group": self.group, "name": name, "output": str(self.output), "member": member}
        cast = msgspec.convert({**told, **options}, Cast)
        command = [sys.executable, "-m", "tests.members.process", msgspec.json.encode(cast).decode()]
        self.processes[name] = subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "default"})
        return self.processes[name]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a process a signal."""
        self.processes[name].send_signal(number)

    def lines(self) -> list[Line]:
        """Everything that was handled, in the order in which it was written."""
        text = self.output.read_bytes() if self.output.exists() else b""
        return [msgspec.json.decode(line, type=Line) for line in text.splitlines()]

    async def until(self, holds: Callable[[list[Line]], bool], seconds: float = 30.0) -> list[Line]:
        """Wait until what was handled is as asked for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            lines = self.lines()
            if holds(lines):
                return lines
            await asyncio.sleep(0.02)
        raise AssertionError(f"not in {seconds} s; {len(self.lines())} lines of {self._count}\n{self._report()}")

    async def until_all_handled(self, seconds: float = 30.0) -> list[Line]:
        """Wait until every message was handled."""
        everything = {data for sent in self.sent.values() for data in sent}
        return await self.until(lambda lines: {line.data for line in lines} >= everything, seconds)

    def _report(self) -> str:
        events = Path(f"{self.output}.events")
        states = {name: process.poll() for name, process in self.processes.items()}
        return f"{states}\n{events.read_text() if events.exists() else ''}"

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.kill()
            process.wait()

    def check(self, *, twice: bool = False, lost: bool = False) -> None:
        """Every message is there once, in the order of its key. `twice`: a run may be repeated; `lost`: left out."""
        handled: dict[str, list[str]] = defaultdict(list)
        for line in self.lines():
            handled[line.key].append(line.data)
        for key, sent in self.sent.items():
            got = handled.pop(key, [])
            if not lost:
                assert set(got) >= set(sent), f"{key}: lost {sorted(set(sent) - set(got))[:5]}"
            if not twice:
                assert len(set(got)) == len(got), f"{key}: handled twice: {duplicates(got)[:5]}"
            first = list(dict.fromkeys(got))
            assert first == sorted(first, key=number_of), f"{key}: out of order: {first[:20]}"
            check_repeats(key, got)
        assert not handled, f"nobody sent {list(handled)[:5]}"
        self.check_exclusion()

    def check_exclusion(self) -> None:
        """No two processes handled messages of one partition at the same time."""
        spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for line in self.lines():
            spans[line.partition].append((line.begun, line.ended, line.name))
        for partition, found in spans.items():
            found.sort()
            last: dict[str, float] = {}
            for begun, ended, name in found:
                others = [other for other, end in last.items() if other != name and end > begun]
                assert not others, f"partition {partition}: {name} and {others[0]} at the same time"
                last[name] = max(last.get(name, 0.0), ended)


def number_of(data: str) -> int:
    """A message's number within its key."""
    return int(data.rpartition(":")[2])


def duplicates(items: Sequence[str]) -> list[str]:
    """What is there more than once."""
    return [item for item in dict.fromkeys(items) if items.count(item) > 1]


def check_repeats(key: str, got: Sequence[str]) -> None:
    """What is repeated begins again somewhere and then goes on in order, without leaving anything out."""
    reached = -1
    previous = -1
    for data in got:
        number = number_of(data)
        assert number <= reached + 1, f"{key}: {number} comes before {reached + 1}"
        assert number <= previous + 1 or number == reached + 1, f"{key}: {number} follows {previous}"
        reached, previous = max(reached, number), number


async def with_admin(broker: Broker, group: str) -> Admin:
    """An administrator, not yet entered."""
    return Admin(await broker.log(group), group)

"""What the tests with real processes share: a group on a real broker, processes on it, and what they handled."""

import asyncio
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import ParamSpec, Self

import msgspec

from echelon.brokers.base import Broker, Writer
from echelon.brokers.connect import open_broker
from echelon.errors import StreamNotFound, Unreachable
from echelon.group.config import Delivery, Stream
from echelon.group.world import World
from echelon.members.admin import Admin, Start, create_group
from echelon.model import Message
from echelon.testing.contract import Harness, Sent
from echelon.testing.contract.harness import whole
from tests.members.checks import Frozen, Guarantee, check_exclusion, check_order, check_places, order_of
from tests.members.process import Cast, Line, Told
from tests.members.waiting import until

P = ParamSpec("P")

# What a process that is in order never says.
_COMPLAINTS = re.compile(r"Traceback|never retrieved|never awaited|Exception in|\w+Warning|Task was destroyed")


class Stage:
    """One group on a broker, the processes that are its members, and every line that they wrote."""

    broker: Broker
    admin: Admin
    stream: Stream

    def __init__(self, harness: Harness, url: str, folder: Path, group: str) -> None:
        self.harness = harness
        self.url = url
        self.group = group
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sent: dict[str, list[str]] = defaultdict(list)
        self.frozen: list[Frozen] = []
        self._folder = folder
        self._open = AsyncExitStack()
        self._lines: list[Line] = []
        self._read = 0
        self._sending = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self.broker = await self._open.enter_async_context(open_broker(self.url))
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        await self._open.aclose()

    async def prepare(self, partitions: int = 6, start: Start = "earliest", **options: object) -> None:
        """Make the stream and the group, and an administrator of it."""
        await self.make_stream(partitions)
        await self.make_group(start, **options)

    async def make_stream(self, partitions: int) -> None:
        """Make the stream."""
        self.stream = await self.harness.create_stream(f"S{self.group}", partitions)

    async def make_group(self, start: Start = "earliest", **options: object) -> None:
        """Make a group over the stream, and an administrator of it."""
        await self._create_group(start, {"interval": 0.4, **options})
        self.admin = await self._open.enter_async_context(Admin(await self.broker.log(self.group), self.group))

    async def _create_group(self, start: Start, options: dict[str, object]) -> None:
        while True:
            try:
                await create_group(self.broker, self.group, [self.stream], start=start, **options)
            except StreamNotFound:  # Kafka lets a topic's creator wait, but not until everybody knows the topic.
                await asyncio.sleep(0.05)
            else:
                return

    @property
    def world(self) -> World:
        return self.admin.world

    @property
    def delivery(self) -> Delivery:
        assert self.world.config is not None
        return self.world.config.delivery

    # What is sent

    async def publish(self, count: int, keys: int = 40) -> None:
        """Publish messages that are numbered within their key."""
        async with self._sending:
            messages: list[Sent] = []
            for number in range(count):
                key = f"k{number % keys}"
                data = f"{key}:{len(self.sent[key])}"
                self.sent[key].append(data)
                messages.append(Sent(key, data.encode()))
            await self._send(messages)

    async def _send(self, messages: Sequence[Sent]) -> None:
        await self.harness.publish(self.stream, messages)

    @asynccontextmanager
    async def load(self, every: float = 0.05, count: int = 20, keys: int = 40) -> AsyncIterator[None]:
        """Publish messages all the time."""
        over = asyncio.Event()

        async def send() -> None:
            while not over.is_set():
                await self.publish(count, keys)
                await asyncio.sleep(every)

        sending = asyncio.ensure_future(send())
        try:
            yield
        finally:
            over.set()
            await sending

    async def stored(self) -> dict[str, list[Message]]:
        """Every message that was sent, as the broker holds it, by partition."""
        reader = await self.broker.reader(self.group, self.stream)
        held = await whole(reader, sum(map(len, self.sent.values())))
        return {str(number): messages for number, messages in held.items()}

    # Processes

    def launch(self, name: str, member: str | None = None, **options: object) -> None:
        """Start a process; the options are those of `Cast`."""
        told = {"url": self.url, "group": self.group, "name": name, "output": str(self._output), "member": member}
        cast = msgspec.convert({**told, **options}, Cast)
        command = [sys.executable, "-m", "tests.members.process", msgspec.json.encode(cast).decode()]
        environment = {**os.environ, "PYTHONWARNINGS": "default"}
        with self._errors(name).open("wb") as errors:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=errors)

    async def launch_seated(self, name: str, member: str | None = None, **options: object) -> None:
        """Start a process, and wait until it sits."""
        self.launch(name, member, **options)
        await self.until_seated(name)

    async def until_seated(self, *names: str, seconds: float = 30.0) -> None:
        """Wait until processes of these names hold seats."""
        await self.until_world(lambda _: set(names) <= set(self.holders().values()), seconds)

    async def until_joined(self, *names: str, seconds: float = 30.0) -> None:
        """Wait until processes of these names have joined."""
        await self.until_world(lambda world: set(names) <= {i.profile.name for i in world.instances.values()}, seconds)

    def holders(self) -> dict[str, str]:
        """The names of the processes that hold seats, by member."""
        seated = {member: self.world.holder(member) for member in self.world.seats}
        return {member: holder.profile.name for member, holder in seated.items() if holder is not None}

    def owners(self) -> dict[str, str]:
        """The names of the processes that own partitions, by partition."""
        names = {instance.id: instance.profile.name for instance in self.world.instances.values()}
        return {p.name: names[p.owner] for p in self.world.partitions.values() if p.owner is not None}

    def epochs(self) -> dict[str, int]:
        """The epochs of the partitions."""
        return {partition.name: partition.epoch for partition in self.world.partitions.values()}

    def kill(self, name: str) -> float:
        """Kill a process; when that was."""
        killed = time.monotonic()
        self.processes[name].kill()
        return killed

    async def suspend(self, name: str, seconds: float) -> Frozen:
        """Suspend a process for so long."""
        process = self.processes[name]
        process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{process.pid}/task")
        await until(lambda: all(state_of(thread) == "T" for thread in threads.iterdir()))
        begin = time.monotonic()
        await asyncio.sleep(seconds)
        self.frozen.append(Frozen(name, begin, time.monotonic()))
        process.send_signal(signal.SIGCONT)
        return self.frozen[-1]

    async def ended(self, name: str, seconds: float = 20.0) -> int:
        """Wait until a process has ended; its exit code."""
        process = self.processes[name]
        await until(lambda: process.poll() is not None, seconds)
        assert process.returncode is not None
        return process.returncode

    async def drain(self, *names: str) -> None:
        """Have processes end in order."""
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        for name in names:
            assert await self.ended(name) == 0, self.report()

    def alive(self) -> list[str]:
        """The names of the processes that run."""
        return [name for name, process in self.processes.items() if process.poll() is None]

    def errors(self, name: str) -> str:
        """What a process said."""
        return self._errors(name).read_text()

    async def until_told(self, name: str, words: str, seconds: float = 30.0) -> None:
        """Wait until a process has said this."""
        await until(lambda: words in self.errors(name), seconds)

    # What was handled

    def lines(self) -> list[Line]:
        """Everything that was handled, in the order in which it was written."""
        if self._output.exists():
            with self._output.open("rb") as file:
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
            self._read += len(whole) + len(end)
            self._lines += [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]
        return self._lines

    def told(self, *kinds: str, name: str | None = None) -> list[Told]:
        """What the members of all processes, or of one, told of these kinds."""
        file = Path(f"{self._output}.told")
        lines = file.read_bytes().splitlines() if file.exists() else []
        told = [msgspec.json.decode(line, type=Told) for line in lines]
        return [each for each in told if each.kind in kinds and name in (None, each.name)]

    async def until_more(self, count: int) -> None:
        """Wait until so many more messages were handled than now."""
        least = len(self.lines()) + count
        await self.until(lambda lines: len(lines) >= least)

    async def until(self, holds: Callable[[list[Line]], bool], seconds: float = 30.0) -> list[Line]:
        """Wait until what was handled is as asked for."""
        try:
            await until(lambda: holds(self.lines()), seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None
        return self.lines()

    async def until_world(self, holds: Callable[[World], bool], seconds: float = 30.0) -> World:
        """Wait until the world is as asked for."""
        try:
            await until(lambda: holds(self.world), seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.report()}") from None
        return self.world

    async def until_all_handled(self, seconds: float = 30.0) -> list[Line]:
        """Wait until every message was handled."""
        left = {data for sent in self.sent.values() for data in sent}
        seen = 0

        def holds(lines: list[Line]) -> bool:
            nonlocal seen
            left.difference_update(line.data for line in lines[seen:])
            seen = len(lines)
            return not left

        return await self.until(holds, seconds)

    async def until_handled_by(self, name: str, count: int = 1, since: float = 0.0) -> Line:
        """Wait until a process has begun so many messages since some time; the first of them."""

        def found() -> list[Line]:
            return [line for line in self.lines() if line.name == name and line.begun > since]

        await self.until(lambda _: len(found()) >= count)
        return min(found(), key=lambda line: line.begun)

    def check(self, guarantee: Guarantee, *, loud: tuple[str, ...] = ()) -> None:
        """All that was handled is as the guarantee has it. Processes complained of nothing, besides `loud` ones."""
        lines = self.lines()
        if guarantee == "once" and self.told("Fenced"):
            # The machine was too busy for somebody's heartbeats.
            guarantee = "at_most_once" if self.delivery == "at_most_once" else "at_least_once"
        check_order(lines, self.sent, guarantee)
        check_places(lines)
        check_exclusion(lines, self.frozen)
        self.check_quiet(loud=loud)

    def check_quiet(self, *, loud: tuple[str, ...] = ()) -> None:
        """Processes complained of nothing, besides `loud` ones."""
        for name in self.processes.keys() - set(loud):
            found = _COMPLAINTS.search(self.errors(name))
            assert not found, f"{name} said:\n{self.errors(name)[-5000:]}"

    @property
    def _output(self) -> Path:
        return self._folder / "lines"

    def _errors(self, name: str) -> Path:
        return self._folder / f"{name}.errors"

    def report(self) -> str:
        """How things stand, for whoever has to find out what went wrong."""
        return "\n".join(self._describe())

    def _describe(self) -> Iterator[str]:
        yield f"{len(self.lines())} lines of {sum(map(len, self.sent.values()))} messages"
        yield f"seats {self.holders()}, partitions {self.owners()}"
        for name, process in self.processes.items():
            handled = sum(line.name == name for line in self.lines())
            yield f"{name}: exit {process.poll()}, {handled} handled; {self.errors(name)[-2000:]}"


class PatientStage(Stage):
    """Publishes message after message, each until it is stored, so that an outage neither loses nor mixes any.

    This is for NATS; Kafka's producer does so by itself.
    """

    async def _send(self, messages: Sequence[Sent]) -> None:
        writer = await self.broker.writer()
        for sent in messages:
            await self._store(writer, self.harness.subject(self.stream, sent.key), sent.data)

    @staticmethod
    async def _store(writer: Writer, subject: str, data: bytes) -> None:
        while True:
            try:
                await writer.write(subject, data, id=data.decode())
            except Unreachable:
                await asyncio.sleep(0.05)
            else:
                return


def scene(test: Callable[P, Awaitable[None]], seconds: float = 110) -> Callable[P, None]:
    """A test that is a coroutine on a stage, run in a loop of its own; it fails if it does not end."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        stage = next(value for value in named.values() if isinstance(value, Stage))

        async def limited() -> None:
            async with asyncio.timeout(seconds), stage:
                await test(*arguments, **named)

        asyncio.run(limited())

    return run


def state_of(task: Path) -> str:
    """The state of a thread or process, by its folder in /proc."""
    return (task / "stat").read_text().rpartition(")")[2].split()[0]


def by_partition(lines: list[Line]) -> dict[str, list[Line]]:
    """What was handled of each partition, in the order in which it was begun."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=order_of):
        found[line.partition].append(line)
    return found

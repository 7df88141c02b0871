"""Groups on a real nats-server, members in this process and in others, and what they did, message by message."""

import asyncio
import itertools
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import nats
import nats.js.errors
from nats.js import JetStreamContext

from echelon.model import Message
from echelon.pcg import ElasticConfig, Groups, Member, Options, PartitioningFilter, open_groups
from echelon.pcg.config import Format, StaticConfig
from tests.brokers.nats.harness import make_stream
from tests.pcg.process import Cast, Line

ROOT = Path(__file__).parents[2]
KINDS = ["elastic", "static"]
PARTITIONS = 4


class Stage:
    """A stream `<name>` with the subjects `<name>.<key>`, messages that count up by key, and who handled them."""

    def __init__(self, url: str, groups: Groups, folder: Path, stream: str) -> None:
        self.url = url
        self.groups = groups
        self.folder = folder
        self.stream = stream
        self.group = "g"
        self.sent: defaultdict[str, int] = defaultdict(int)
        self.handled: list[Line] = []
        self.told: list[tuple[str, str]] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._tasks: dict[str, tuple[Member, asyncio.Task[None]]] = {}

    def elastic(self, partitions: int = 6, *members: str, **fields: object) -> ElasticConfig:
        filters = (PartitioningFilter(f"{self.stream}.*", (1,)),)
        config = ElasticConfig(max_members=partitions, partitioning_filters=filters, members=members)
        return msgspec.structs.replace(config, **fields)

    async def create(self, config: ElasticConfig | StaticConfig) -> None:
        await self.groups.create(self.stream, self.group, config)

    async def partitioned_stream(self, partitions: int) -> str:
        """Another stream, whose subjects begin with the partition number."""
        name = f"T{self.stream}"
        transform = {"src": f"{name}.*", "dest": f"{{{{Partition({partitions},1)}}}}.{name}.{{{{Wildcard(1)}}}}"}
        await make_stream(self.url, name, [f"{name}.*"], subject_transform=transform)
        return name

    async def publish(self, count: int, keys: int = 12) -> None:
        """So many messages, round robin over the keys."""
        client = await nats.connect(self.url)
        js = client.jetstream(timeout=20)
        for n in range(count):
            key = f"k{n % keys}"
            await js.publish(f"{self.stream}.{key}", str(self.sent[key]).encode())
            self.sent[key] += 1
        await client.close()

    @asynccontextmanager
    async def publishing(self, rate: float = 200, keys: int = 12) -> AsyncGenerator[None, None]:
        """Messages at a steady rate while the block runs, each stored once, also if the server goes away."""
        stopped = asyncio.Event()

        async def go_on() -> None:
            client = await nats.connect(self.url, reconnect_time_wait=0.1)
            js = client.jetstream(timeout=1)
            began = time.monotonic()
            for n in itertools.count():
                if stopped.is_set():
                    break
                key = f"k{n % keys}"
                while not await self._store(js, key):
                    await asyncio.sleep(0.1)
                self.sent[key] += 1
                await asyncio.sleep(max(0.0, began + n / rate - time.monotonic()))
            await client.close()

        task = asyncio.ensure_future(go_on())
        try:
            yield
        finally:
            stopped.set()
            await task

    async def _store(self, js: JetStreamContext, key: str) -> bool:
        """Publish the next message of a key; False if whether it was stored is not known."""
        number = str(self.sent[key])
        try:
            await js.publish(f"{self.stream}.{key}", number.encode(), headers={"Nats-Msg-Id": f"{key}-{number}"})
        except (nats.errors.Error, nats.js.errors.Error, OSError):
            return False
        return True

    def join(
        self,
        name: str,
        member: str,
        *,
        options: Options | None = None,
        handler: Callable[[Message], object] | None = None,
        groups: Groups | None = None,
        format: Format | None = None,
    ) -> Member:
        """An instance in this process."""

        async def handle(message: Message) -> None:
            began = time.monotonic()
            result = handler(message) if handler else None
            if asyncio.iscoroutine(result):
                await result
            self.handled.append(line(name, message, began))

        chosen = msgspec.structs.replace(
            options or Options(ack_wait=1.0),
            on_activated=lambda: self.told.append((name, "active")),
            on_deactivated=lambda: self.told.append((name, "inactive")),
        )
        made = Member(groups or self.groups, self.stream, self.group, member, handle, format=format, options=chosen)
        self._tasks[name] = made, asyncio.ensure_future(made.run())
        return made

    async def leave(self, name: str) -> None:
        """Drain an instance of this process, and raise what it ended with."""
        member, task = self._tasks.pop(name)
        member.drain()
        async with asyncio.timeout(20):
            await task

    async def end_of(self, name: str) -> None:
        """Wait until an instance of this process ends by itself."""
        async with asyncio.timeout(20):
            await self._tasks.pop(name)[1]

    def launch(self, name: str, member: str, **fields: object) -> "subprocess.Popen[bytes]":
        """An instance in a process of its own."""
        output = str(self.folder / "lines")
        cast = Cast(self.url, self.stream, self.group, name, member, output)
        json = msgspec.json.encode(msgspec.structs.replace(cast, **fields)).decode()
        process = subprocess.Popen([sys.executable, "-m", "tests.pcg.process", json], cwd=ROOT)
        self.processes[name] = process
        return process

    def lines(self) -> list[Line]:
        """Everything that was handled, by whomever, in the order of the ends."""
        file = self.folder / "lines"
        *texts, _ = file.read_bytes().split(b"\n") if file.exists() else [b""]  # The last one may not be whole yet.
        lines = [msgspec.json.decode(text, type=Line) for text in texts]
        return sorted([*lines, *self.handled], key=lambda each: each.ended)

    async def until(self, is_so: Callable[[], bool], seconds: float = 30) -> None:
        async with asyncio.timeout(seconds):
            while not is_so():
                await asyncio.sleep(0.02)

    async def until_handled_by(self, *names: str, after: float = 0.0, seconds: float = 30) -> float:
        """When one of these instances first handled a message that it was given after a moment."""
        found: list[float] = []

        def look() -> bool:
            found[:] = [each.ended for each in self.lines() if each.name in names and each.began > after]
            return bool(found)

        await self.until(look, seconds)
        return found[0]

    async def until_waiting(self, member: str, count: int) -> None:
        """Wait until so many requests wait at a member's consumer, where each of its instances has one."""
        found = await self.groups.get(self.stream, "g")
        async with asyncio.timeout(30):
            while (await self.groups.consumers.info(found.consumed, found.consumer(member))).num_waiting < count:
                await asyncio.sleep(0.02)

    async def until_all_handled(self, seconds: float = 30) -> None:
        def is_so() -> bool:
            seen = {(each.key, each.number) for each in self.lines()}
            return all((key, n) in seen for key, count in self.sent.items() for n in range(count))

        await self.until(is_so, seconds)

    async def close(self) -> None:
        for member, task in self._tasks.values():
            member.stop()
            await asyncio.wait({task}, timeout=10)
            task.cancel()
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


async def create(stage: Stage, kind: str, *members: str) -> None:
    """A group of that kind."""
    if kind == "static":
        stage.stream = await stage.partitioned_stream(PARTITIONS)
        await stage.create(StaticConfig(max_members=PARTITIONS, members=members))
    else:
        await stage.create(stage.elastic(PARTITIONS, *members))


async def pair(stage: Stage, **fields: object) -> tuple[str, str]:
    """Two instances of the member `m` in processes of their own: who is active, and who stands by."""
    for name in ("a", "b"):
        stage.launch(name, "m", **fields)
    await stage.until(lambda: bool(stage.lines()))
    await stage.until_waiting("m", 2)
    active = stage.lines()[-1].name
    return active, "b" if active == "a" else "a"


def line(name: str, message: Message, began: float) -> Line:
    key = message.subject.rpartition(".")[2]
    return Line(
        name, message.partition, message.sequence, message.subject, key, int(message.data), began, time.monotonic()
    )


def check_order(
    stage: Stage, *, repeats: int = 0, back: Mapping[str, int] | None = None, begun: bool = False
) -> list[Line]:
    """Every message was handled; by key in order and one at a time; at most `repeats` more than once.

    What comes again may come only as the repetition of a message that nothing of its key has passed; or, if the
    messages of its key are set `back`, not more than so many. With `begun` it is the beginnings that must be in order:
    a handler that was suspended ends when it ends.
    """
    lines = sorted(stage.lines(), key=lambda each: each.began) if begun else stage.lines()
    by_key: defaultdict[str, list[Line]] = defaultdict(list)
    for each in lines:
        by_key[each.key].append(each)
    repeated = 0
    for key, count in stage.sent.items():
        expected = passed = 0
        most = max((back or {}).get(key, 1), 1)
        previous: Line | None = None
        for each in by_key[key]:
            assert expected - most <= each.number <= expected, (key, [(x.name, x.number) for x in by_key[key]])
            again = each.number < expected
            repeated += each.number < passed
            expected = each.number + 1
            passed = max(passed, expected)
            if previous is not None and not begun and not again:
                assert each.began >= previous.ended, (key, previous, each)
            previous = each
        assert expected == count, (key, expected, count)
    assert repeated <= repeats, f"{repeated} came more than once"
    return lines


def handled_by(lines: Sequence[Line]) -> dict[str, set[str]]:
    """The partitions of which each instance handled messages."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for each in lines:
        found[each.name].add(each.partition)
    return dict(found)


@asynccontextmanager
async def staged(url: str, folder: Path) -> AsyncGenerator[Stage, None]:
    """A stage with its stream."""
    stream = f"S{uuid.uuid4().hex[:8]}"
    await make_stream(url, stream, [f"{stream}.*"])
    async with open_groups(url) as groups:
        stage = Stage(url, groups, folder, stream)
        try:
            yield stage
        finally:
            await stage.close()

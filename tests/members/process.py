"""A real process that is a member: handles messages by appending a line for each to a file.

Run as `python -m tests.members.process <json>`; the JSON is a `Cast`. A line says what was handled, by whom, under
which epoch, and when, by a clock that all processes of this machine share. What the member tells its application
goes to a second file.
"""

import asyncio
import logging
import os
import signal
import sys
import time
from collections import Counter
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from echelon.brokers.connect import open_broker
from echelon.group.records import Profile
from echelon.members.events import Event, PartitionStarted
from echelon.members.handlers import Handler
from echelon.members.iterate import messages
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.members.sync import consume, join
from echelon.model import Message

if TYPE_CHECKING:
    from tests.members.sinks.harnesses import SinkHarness


class Results(msgspec.Struct, frozen=True):
    """Where results go, exactly once."""

    kind: str
    address: str
    name: str

    def harness(self) -> "SinkHarness":
        from tests.members.sinks.harnesses import make_harness

        return make_harness(self.kind, self.address, self.name)


class Cast(msgspec.Struct, frozen=True):
    """What a process is to be."""

    url: str
    group: str
    name: str
    output: str
    member: str | None = None
    called: str = ""
    """The name that it joins under, if it is another one."""
    priority: int = 0
    min_pending: int | None = None
    waits: bool = False
    """The handler is a coroutine function."""
    slow: float = 0.0
    """Seconds that handling a message takes."""
    lanes: int = 16
    batch: bool = False
    way: Literal["member", "join", "messages", "consume"] = "member"
    """How it takes messages."""
    results: Results | None = None
    saves: bool = False
    """Keep with a cut how many messages of each partition were handled, and go on from there after a reset."""
    apart: bool = False
    """Behave as on a machine of its own: others cannot see when it is gone, nor can it."""
    fail: str = ""
    """Handling a message with these data fails."""
    failures: int = 1_000_000
    """How often."""
    hang: str = ""
    """Handling a message with these data never ends, whoever cancels it."""


class Line(msgspec.Struct, frozen=True):
    """One message, handled."""

    name: str
    partition: str
    sequence: int
    key: str
    data: str
    epoch: int
    """0 where the process is not told: it iterates."""
    called: float
    """When its handler was called; a handler of batches begins with most messages later."""
    begun: float
    ended: float


class Told(msgspec.Struct, frozen=True):
    """Something that a member told its application; or that the handling of a message was begun which takes long."""

    at: float
    name: str
    kind: str
    about: dict[str, Any]


class Work:
    """What the process does with messages."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        # One write for each line, so that processes do not mix theirs and a kill loses none that was handled.
        self._lines = os.open(cast.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._told = os.open(f"{cast.output}.told", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._failed: Counter[str] = Counter()
        self._handled: Counter[str] = Counter()
        self._results = cast.results.harness() if cast.results is not None else None

    def handler(self) -> Handler:
        if self._results is not None:
            return self.handle_with_result
        if self._cast.batch:
            return self.handle_all
        return self.handle_waiting if self._cast.waits else self.handle

    def handle(self, message: Message, epoch: int, called: float | None = None) -> None:
        begun = self._begin(message)
        time.sleep(self._cast.slow)
        while message.data.decode() == self._cast.hang:
            time.sleep(1)
        self._end(message, epoch, called or begun, begun)

    async def handle_waiting(self, message: Message, epoch: int) -> None:
        begun = self._begin(message)
        await asyncio.sleep(self._cast.slow)
        while message.data.decode() == self._cast.hang:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        self._end(message, epoch, begun, begun)

    def handle_all(self, messages: list[Message], epoch: int) -> None:
        called = time.monotonic()
        for message in messages:
            self.handle(message, epoch, called)

    def handle_with_result(self, message: Message, target: object) -> None:
        """What happened is told by the results alone: most that is handled may be undone."""
        assert self._results is not None
        time.sleep(self._cast.slow)
        self._results.write(target, message.partition, message.sequence)

    def options(self) -> Options:
        cast = self._cast
        return Options(
            lanes=cast.lanes,
            batch=cast.batch,
            batch_size=20 if self._results is not None else 1000,
            sink=self._results.sink() if self._results is not None else None,
            save=self.save if cast.saves else None,
            neighbours=not cast.apart,
        )

    def save(self, partition: str) -> bytes:
        return str(self._handled[partition]).encode()

    def _begin(self, message: Message) -> float:
        if self._cast.slow >= 0.5 or message.data.decode() == self._cast.hang:
            self._write("Begun", {"data": message.data.decode()})
        return time.monotonic()

    def _end(self, message: Message, epoch: int, called: float, begun: float) -> None:
        name, data = self._cast.name, message.data.decode()
        if data == self._cast.fail and self._failed[data] < self._cast.failures:
            self._failed[data] += 1
            raise ValueError("told to fail")
        key = (message.key or b"").decode()
        line = Line(name, message.partition, message.sequence, key, data, epoch, called, begun, time.monotonic())
        os.write(self._lines, msgspec.json.encode(line) + b"\n")
        self._handled[message.partition] += 1

    def tell(self, event: Event) -> None:
        if isinstance(event, PartitionStarted) and event.state is not None:
            self._handled[event.partition] = int(event.state)
        self._write(type(event).__name__, msgspec.structs.asdict(event))

    def _write(self, kind: str, about: dict[str, Any]) -> None:
        told = Told(time.monotonic(), self._cast.name, kind, about)
        os.write(self._told, msgspec.json.encode(told) + b"\n")


async def sit(cast: Cast, work: Work, profile: Profile) -> None:
    """Be the member until drained."""
    async with open_broker(cast.url) as broker:
        if cast.way == "messages":
            taken = messages(broker, cast.group, profile, options=work.options(), signals=True)
            async with aclosing(taken):
                async for message in taken:
                    await work.handle_waiting(message, 0)
        else:
            handler, options = work.handler(), work.options()
            member = Member(broker, cast.group, handler, profile, options=options, on_event=work.tell)
            await member.run(signals=True)


def iterate(cast: Cast, work: Work, profile: Profile) -> None:
    """Take messages in a plain loop, until SIGTERM, which leaves it wherever it is."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with closing(consume(cast.url, cast.group, profile, options=work.options())) as taken:
        for message in taken:
            work.handle(message, 0)


def play(cast: Cast) -> None:
    """Be what was asked for."""
    work = Work(cast)
    profile = Profile(cast.called or cast.name, cast.member, cast.priority, cast.min_pending)
    if cast.way == "consume":
        iterate(cast, work, profile)
    elif cast.way == "join":
        join(cast.url, cast.group, work.handler(), profile, options=work.options(), on_event=work.tell)
    else:
        asyncio.run(sit(cast, work, profile))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    play(msgspec.json.decode(sys.argv[1], type=Cast))

"""What an instance works with, as whoever sits in the group sees it: Python handlers, or a Spark query."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from echelon.brokers.base import StreamInfo
from echelon.group.config import Config, Stream
from echelon.group.own import Run
from echelon.group.world import World
from echelon.members.counters import Counters


class Work(Protocol):
    """The work on one partition. All methods are called in the event loop's thread and do not block."""

    @property
    def run(self) -> Run:
        """The run as `decide` sees it."""
        ...

    def start(self, *, idle: bool) -> None:
        """Take messages from where the run, or its sink, stands. `idle`: only find out where that is."""
        ...

    def stop(self, *, cancel: bool) -> None:
        """Take no more messages. `cancel`: cancel what was begun; else let it end."""
        ...

    def update(self) -> None:
        """Bring the run up to date with what was done."""
        ...

    def count(self) -> int:
        """Messages handled since this was last asked."""
        ...


class Workbench(Protocol):
    """What an instance works with: a `Desk` of Python handlers, or a Spark query."""

    @property
    def workers(self) -> Mapping[str, Work]:
        """The partitions that run."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why the instance cannot go on: a partition cannot, or what it works with is gone."""
        ...

    @property
    def counters(self) -> Counters:
        """What was done so far."""
        ...

    def opened(self, config: Config) -> AbstractAsyncContextManager[object]:
        """Check that it fits the group, and open what it needs. Raises InvalidConfig. Leaving it stops everything."""
        ...

    async def start(self, world: World, name: str, *, idle: bool) -> Work:
        """Start a partition where the world has it."""
        ...

    def forget(self, name: str) -> bool:
        """Nothing of the partition runs any more. Returns whether it was worked on."""
        ...

    def heard(self, world: World) -> None:
        """Something was read."""
        ...

    def save(self, name: str) -> bytes | None:
        """What is to be kept of a partition that has drained for a cut."""
        ...

    async def info(self, stream: Stream) -> StreamInfo:
        """What a stream holds now."""
        ...

    async def look_at_backlog(self) -> None:
        """Ask how much waits in each partition that is worked on."""
        ...

"""The event loop and the broker connections of this process, kept for all that it reads.

Spark gives a worker process one task after the other, and a query's driver-side reader a process of its own. A
connection for each task would cost more than the task. The loop runs in a thread; callers block.
"""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import wait
from typing import Any, TypeVar

from msgspec import Struct

from echelon.brokers.base import Broker, Reader
from echelon.brokers.connect import open_broker
from echelon.group.config import Stream

T = TypeVar("T")


class Access(Struct, frozen=True):
    """How a broker is reached. The options may hold credentials, and so may the URL: neither is shown."""

    url: str
    options: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return "Access(...)"


class Where(Struct, frozen=True):
    """A stream and how it is read: as the group `group` partitions it; `alone` if that is over this one stream."""

    access: Access
    group: str
    stream: Stream
    alone: bool = True


class _Kept:
    """The loop of this process, and what is open on it."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, as a forked process must: it has neither its parent's thread nor its connections."""
        self.lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.brokers: dict[Access, asyncio.Task[Broker]] = {}
        self.readers: dict[Where, Reader] = {}

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which is started when it is first needed."""
        with self.lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="echelon", daemon=True).start()
            return self._loop


_kept = _Kept()
os.register_at_fork(after_in_child=_kept.forget)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop of this process and wait for what it returns or raises."""
    return asyncio.run_coroutine_threadsafe(work, _kept.loop).result()


def iterate(items: AsyncGenerator[T, None]) -> Iterator[T]:
    """The items, each of them made while the caller uses the one before. Closing the iterator closes `items`."""
    loop = _kept.loop
    following = asyncio.run_coroutine_threadsafe(_next(items), loop)
    try:
        while found := following.result():
            following = asyncio.run_coroutine_threadsafe(_next(items), loop)
            yield found[0]
    finally:
        wait([following])  # A generator cannot be closed while it runs.
        run(items.aclose())


async def broker(access: Access) -> Broker:
    """The open connection to a broker; opened if there is none yet. To be called on the loop.

    Raises InvalidConfig, MissingComponent, Unreachable, Denied.
    """
    opening = _kept.brokers.get(access)
    if opening is None or (opening.done() and (opening.cancelled() or opening.exception())):
        opening = _kept.brokers[access] = asyncio.create_task(_open(access))
    return await asyncio.shield(opening)


async def reader(where: Where) -> Reader:
    """The reader of a stream, made if there is none yet. To be called on the loop. Raises StreamNotFound too."""
    if where not in _kept.readers:
        opened = await broker(where.access)
        _kept.readers[where] = await opened.reader(where.group, where.stream, alone=where.alone)
    return _kept.readers[where]


async def _next(items: AsyncGenerator[T, None]) -> tuple[T] | None:
    async for item in items:
        return (item,)
    return None


async def _open(access: Access) -> Broker:
    return await open_broker(access.url, **dict(access.options)).__aenter__()

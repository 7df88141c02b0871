"""What the suite needs of a broker besides the broker itself, and what its tests share."""

import asyncio
import functools
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct, field

from echelon.brokers.base import Broker, Log, Reader
from echelon.errors import Unreachable
from echelon.group.config import Stream
from echelon.model import Message

T = TypeVar("T")

# How long anything may take that is bound to happen; a restart of a real server is the longest of it.
SECONDS: Final = 60.0


class Sent(Struct, frozen=True):
    """A message to publish."""

    key: str
    data: bytes
    headers: dict[str, str] = field(default_factory=dict)


class Harness(Protocol):
    """A server to test against. Names of streams and groups are letters, digits and dashes."""

    def connect(self, *, timeout: float = 5.0) -> Broker:
        """A new connection, not yet entered. A request that takes longer than `timeout` seconds is unreachable."""
        ...

    async def create_stream(self, name: str, partitions: int) -> Stream:
        """Make an empty data stream, and describe it as a user would to `Broker.prepare`."""
        ...

    async def delete_stream(self, stream: Stream) -> None:
        """Delete a data stream; it is gone when this returns."""
        ...

    async def publish(self, stream: Stream, messages: Sequence[Sent]) -> None:
        """Store the messages in this order, each in the partition of its key."""
        ...

    async def truncate(self, group: str, stream: Stream, partition: int, before: int) -> None:
        """Delete the messages below `before` from a partition of the stream, as `group` reads it."""
        ...

    def subject(self, stream: Stream, key: str) -> str:
        """The subject (or topic) on which `publish` sends a message of this key."""
        ...

    async def stop(self) -> None:
        """Take the server away; nobody answers when this returns."""
        ...

    async def start(self) -> None:
        """Bring a stopped server back, with all that it had stored."""
        ...


def scenario(test: Callable[[Any, Harness], Awaitable[None]]) -> Callable[[Any, Harness], None]:
    """A test that is a coroutine, run in a loop of its own; it fails if it does not end."""

    @functools.wraps(test)
    def run(self: object, harness: Harness) -> None:
        async def limited() -> None:
            async with asyncio.timeout(2 * SECONDS):
                await test(self, harness)

        asyncio.run(limited())

    return run


def name(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


@asynccontextmanager
async def closing(iterator: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the iterator in the end, as whoever stops following must."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


async def take(iterator: AsyncIterator[list[T]], count: int) -> list[T]:
    """The next items of an iterator of lists, at least `count`, and what came in the same list."""
    items: list[T] = []
    async with asyncio.timeout(SECONDS):
        while len(items) < count:
            more = await anext(iterator)
            assert more, "an empty list was given"
            items += more
    return items


async def read_all(reader: Reader, partition: int, start: int, end: int) -> list[Message]:
    """The messages of a range, in one list."""
    messages: list[Message] = []
    async for more in reader.read(partition, start, end):
        assert more, "an empty list was given"
        messages += more
    return messages


async def whole(reader: Reader, count: int) -> dict[int, list[Message]]:
    """All that a stream holds, by partition, once it holds `count` messages (a derived stream fills by and by)."""
    async with asyncio.timeout(SECONDS):
        while True:
            held = (await reader.info()).bounds
            content = {number: await read_all(reader, number, each.first, each.end) for number, each in held.items()}
            if sum(map(len, content.values())) >= count:
                return content
            await asyncio.sleep(0.02)


async def again(ask: Callable[[], Awaitable[T]]) -> T:
    """What a request gives, asked until it is answered: the server may still be coming back."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await ask()
            except Unreachable:
                await asyncio.sleep(0.05)


async def append_again(log: Log, data: bytes) -> int:
    """Append until it is answered."""
    return await again(lambda: log.append(data))

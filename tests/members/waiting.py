"""Waiting for a condition, however busy the machine is."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager


async def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until the condition holds; fails if it does not in time."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not in {seconds} s"
        await asyncio.sleep(0.002)


def play(body: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine in a loop of its own; fails if it does not end."""

    async def limited() -> None:
        async with asyncio.timeout(60):
            await body()

    asyncio.run(limited())


class Lateness:
    """How late this machine lets a process that only sleeps wake up."""

    def __init__(self) -> None:
        self.worst = 0.0

    def allow(self, seconds: float) -> float:
        """A limit for what takes several processes so long on a machine that has nothing else to do."""
        return seconds + 10 * self.worst


@asynccontextmanager
async def lateness() -> AsyncIterator[Lateness]:
    """Measure it meanwhile."""
    found = Lateness()

    async def measure() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.005)
            found.worst = max(found.worst, time.monotonic() - begun - 0.005)

    measuring = asyncio.ensure_future(measure())
    try:
        yield found
    finally:
        measuring.cancel()

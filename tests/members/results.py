"""What an exactly-once group has left in its sink, beside what was sent."""

import asyncio

from tests.members.sinks.harnesses import SinkHarness
from tests.members.stage import Stage


async def count_of(harness: SinkHarness) -> int:
    """How many results there are."""
    return sum(map(len, (await harness.results()).values()))


async def until_results(harness: SinkHarness, count: int) -> None:
    """Wait until there are so many."""
    while await count_of(harness) < count:
        await asyncio.sleep(0.05)


async def until_more_results(harness: SinkHarness, count: int) -> None:
    """Wait until there are so many more than now."""
    await until_results(harness, await count_of(harness) + count)


async def check_results(stage: Stage, harness: SinkHarness) -> None:
    """Wait until every message has its result; it has one, each partition's are in order, and the position is there."""
    expected = {name: [m.sequence for m in messages] for name, messages in (await stage.stored()).items() if messages}
    await until_results(harness, sum(map(len, expected.values())))
    await stage.drain(*stage.alive())
    await stage.until_world(lambda _: not stage.owners())
    assert await harness.results() == expected
    assert {p.name: p.position for p in stage.world.partitions.values() if p.name in expected} == {
        name: sequences[-1] + 1 for name, sequences in expected.items()
    }

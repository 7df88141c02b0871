"""A member in this process that is stopped or drained in the middle of a message, and what it has counted."""

import asyncio

from echelon.brokers.connect import open_broker
from echelon.group.records import Profile
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message
from tests.members.stage import Stage, scene


class Attempts:
    """A handler that takes half a second, and fails at first at the second message."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    async def handle(self, message: Message) -> None:
        self.begun.append(message.sequence)
        if len(self.ended) == 1 and self.begun.count(message.sequence) == 1:
            raise ValueError("not yet")
        await asyncio.sleep(0.5)
        self.ended.append(message.sequence)

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.begun) < count:
                await asyncio.sleep(0.01)


@scene
async def test_who_is_stopped_cancels_what_it_does_and_who_drains_ends_it(stage: Stage) -> None:
    await stage.prepare(partitions=1, members=("m",), backoff=(0.05, 0.05))
    await stage.publish(5, keys=1)
    first = stage.world.partitions["0"].position
    async with open_broker(stage.url) as broker:
        attempts = Attempts()
        member = Member(broker, stage.group, attempts.handle, Profile("one", "m"), options=Options())
        running = asyncio.ensure_future(member.run())
        await attempts.until_begun(1)
        member.stop()
        await running
        assert (len(attempts.begun), attempts.ended) == (1, [])
        await stage.until_world(lambda world: not world.instances)
        assert stage.world.partitions["0"].position == first

        attempts = Attempts()
        member = Member(broker, stage.group, attempts.handle, Profile("two", "m"), options=Options())
        running = asyncio.ensure_future(member.run())
        await attempts.until_begun(4)  # The first, the second twice, and the third.
        assert member.counters.partitions == 1
        member.drain()
        await running
        assert len(attempts.ended) == 3
        await stage.until_world(lambda world: not world.instances)
        assert stage.world.partitions["0"].position == attempts.ended[-1] + 1
    counters = member.counters
    assert (counters.messages, counters.retries, counters.fenced, counters.partitions) == (3, 1, 0, 0)
    assert 0.1 < counters.last_drain == counters.longest_drain < 5

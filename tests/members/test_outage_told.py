"""What a member says of an outage: that it began, and that it is over."""

import asyncio

import pytest

from echelon.brokers.memory import MemoryBroker, MemoryServer
from echelon.group.config import Stream
from echelon.group.records import Profile
from echelon.members.admin import create_group
from echelon.members.member import Member
from echelon.model import Message
from tests.members.waiting import play, until


async def _handle(_message: Message) -> None:
    """Nothing is published."""


def test_an_outage_is_told_once_and_not_with_each_record(caplog: pytest.LogCaptureFixture) -> None:
    def told(words: str) -> int:
        return sum(words in record.getMessage() for record in caplog.records)

    async def body() -> None:
        server = MemoryServer.named("told")
        server.create_stream("s")
        async with MemoryBroker("memory://told") as broker:
            await create_group(broker, "g", [Stream("s", 1)], interval=0.1)
            member = Member(broker, "g", _handle, Profile("a"))
            running = asyncio.ensure_future(member.run())
            await until(lambda: member.counters.partitions == 1)
            server.stop()
            await until(lambda: told("are not stored") > 0)
            await asyncio.sleep(0.5)
            server.start()
            await until(lambda: told("are stored again") > 0)
            member.drain()
            await running

    play(body)
    assert (told("are not stored"), told("are stored again")) == (1, 1)

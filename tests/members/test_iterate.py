"""An async loop over messages that is cancelled while it waits for the next one."""

import asyncio

import pytest

from echelon.brokers.memory import MemoryBroker
from echelon.group.config import Stream
from echelon.group.records import Profile
from echelon.keys import SubjectKey
from echelon.members.admin import create_group
from echelon.members.iterate import messages
from tests.members.waiting import play, until


def test_a_loop_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    async def body() -> None:
        async with MemoryBroker("memory://iterate") as broker:
            broker.server.create_stream("s")
            await create_group(broker, "group", [Stream("s", 1, SubjectKey())], start="earliest", interval=0.1)
            await (await broker.writer()).write("s", b"first")
            before = asyncio.all_tasks()
            loop = messages(broker, "group", Profile("me"))
            assert (await anext(loop)).data == b"first"
            waiting = asyncio.ensure_future(anext(loop))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(lambda: asyncio.all_tasks() == before)

    play(body)

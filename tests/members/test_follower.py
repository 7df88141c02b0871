"""The follower on a log in memory: it keeps up, notices that the ground has changed, and says clearly why it ends."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from echelon.brokers.memory import MemoryBroker, MemoryServer
from echelon.errors import EchelonError, GroupNotFound, UnknownVersion
from echelon.group.config import Stream
from echelon.group.records import VERSION, Configure, Newer, decode, encode
from echelon.members.admin import Admin, create_group
from echelon.members.follower import Follower
from tests.members.waiting import play, until


class Followed:
    """A group in memory, and a follower of its log."""

    def __init__(
        self, server: MemoryServer, broker: MemoryBroker, group: str, follower: Follower, admin: Admin
    ) -> None:
        self.server = server
        self.broker = broker
        self.group = group
        self.follower = follower
        self.admin = admin
        self.voids = 0
        self.running = asyncio.ensure_future(follower.run())

    async def outcome(self) -> EchelonError:
        """What ended the follower."""
        async with asyncio.timeout(30):
            with pytest.raises(EchelonError) as caught:
                await self.running
        return caught.value


@asynccontextmanager
async def followed() -> AsyncIterator[Followed]:
    name = uuid.uuid4().hex
    server = MemoryServer.named(name)
    server.create_stream("data")
    group = f"group-{name}"
    async with MemoryBroker(f"memory://{name}") as broker:
        await create_group(broker, group, [Stream("data", 2)], members=("a",), interval=0.1)
        log = await broker.log(group)
        holder: list[Followed] = []

        def void() -> None:
            holder[0].voids += 1

        follower = Follower(log, on_void=void)
        await follower.open()
        async with Admin(log, group) as admin:
            made = Followed(server, broker, group, follower, admin)
            holder.append(made)
            try:
                yield made
            finally:
                made.running.cancel()
                with suppress(asyncio.CancelledError, EchelonError):
                    await made.running


def test_it_has_the_world_of_whoever_wrote() -> None:
    async def body() -> None:
        async with followed() as on:
            await on.admin.pause()
            await until(lambda: on.follower.world.paused is not None)
            await asyncio.sleep(0.3)
            assert on.follower.world == on.admin.world
            assert on.voids == 0

    play(body)


def test_a_log_whose_tail_was_replaced_is_read_anew() -> None:
    async def body() -> None:
        async with followed() as on:
            await on.admin.pause()
            await until(lambda: on.follower.world.paused is not None)
            tape = on.server.logs[on.group]
            tape._items.pop()
            await until(lambda: on.voids == 1)
            assert on.follower.world.paused is None

    play(body)


def test_an_outage_is_waited_for() -> None:
    async def body() -> None:
        async with followed() as on:
            on.server.stop()
            await asyncio.sleep(0.3)
            on.server.start()
            await on.admin.pause()
            await until(lambda: on.follower.world.paused is not None)
            assert on.voids == 0

    play(body)


def test_the_error_is_plain_when_the_log_is_removed() -> None:
    async def body() -> None:
        async with followed() as on:
            await on.broker.delete_log(on.group)
            assert isinstance(await on.outcome(), GroupNotFound)

    play(body)


def test_the_error_is_plain_when_the_group_goes_on_in_a_newer_version() -> None:
    async def body() -> None:
        async with followed() as on:
            world = on.follower.world
            assert world.config is not None
            record = Configure(
                group=world.identity,
                sender="future",
                counter=1,
                read=world.sequence,
                replaces=world.configured,
                config=world.config,
                version=VERSION + 1,
            )
            assert isinstance(decode(encode(record)), Newer)
            await (await on.broker.log(on.group)).append(encode(record), admin=True)
            assert isinstance(await on.outcome(), UnknownVersion)

    play(body)

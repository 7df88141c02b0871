"""Real logs that are not as a group left them: their newest records are lost, or somebody else has written to them."""

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable

import pytest

from echelon.brokers.connect import open_broker
from echelon.group.records import Pause, encode
from echelon.local import KafkaServer, NatsServer
from echelon.members.admin import Admin, create_group
from echelon.members.follower import Follower
from echelon.testing.contract import Harness
from echelon.testing.contract.harness import append_again
from tests.brokers.harnesses import KafkaHarness
from tests.brokers.nats.harness import NatsHarness, call
from tests.members.stage import Stage, scene
from tests.members.waiting import until

Losing = Callable[[int], Awaitable[None]]


@pytest.fixture(params=["nats", "kafka"])
def losing(request: pytest.FixtureRequest) -> tuple[Harness, str, Losing]:
    """A broker, its URL, and how the log of the group `lost-tail` loses what it has from a sequence on."""
    if request.param == "nats":
        nats: NatsServer = request.getfixturevalue("nats_server")

        async def delete(sequence: int) -> None:
            await call(nats.url, "STREAM.MSG.DELETE.ECHELON", {"seq": sequence})

        return NatsHarness(nats, "computed"), nats.url, delete
    kafka: KafkaServer = request.getfixturevalue("kafka_servers")()

    async def crash(sequence: int) -> None:
        """Like a machine that loses power: what was not on its disk yet is gone."""
        await asyncio.to_thread(kafka.kill)
        truncate(kafka, sequence)
        await asyncio.to_thread(kafka.start)

    return KafkaHarness(kafka), kafka.url, crash


def truncate(server: KafkaServer, sequence: int) -> None:
    with (server.data / f"logs/__echelon.lost-tail-0/{0:020}.log").open("r+b") as file:
        while True:
            begin = file.tell()
            offset, size = struct.unpack(">qi", file.read(12))
            if offset == sequence:
                file.truncate(begin)
                return
            file.seek(size, os.SEEK_CUR)


def test_a_pause_that_the_log_has_lost_is_not_in_the_world_any_more(losing: tuple[Harness, str, Losing]) -> None:
    harness, url, lose = losing

    async def scenario() -> None:
        stream = await harness.create_stream("lost-tail", 2)
        voids: list[bool] = []
        async with open_broker(url) as broker:
            await create_group(broker, "lost-tail", [stream], members=("a",), interval=0.2)
            log = await broker.log("lost-tail")
            follower = Follower(log, on_void=lambda: voids.append(True))
            await follower.open()
            running = asyncio.ensure_future(follower.run())
            async with Admin(log, "lost-tail") as admin:
                await admin.pause()
            await until(lambda: follower.world.paused is not None)
            await asyncio.sleep(0.5)
            assert not voids
            await lose(follower.last.sequence)
            for _ in range(3):
                await append_again(log, b"what others write in its place")
            await until(lambda: bool(voids))
            assert follower.world.paused is None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


@scene
async def test_what_does_not_belong_to_the_group_is_passed_over_which_a_member_says_once(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a",))
    await stage.launch_seated("a", "a")
    log = await stage.broker.log(stage.group)
    foreign = encode(Pause(group="another", sender="somebody", counter=1, read=stage.world.sequence))
    await stage.publish(100)
    for data in (b"\xff not a record", b"", b"{}", foreign):
        last = await log.append(data)
    await stage.until_world(lambda world: world.sequence > last)
    await stage.publish(100)
    await stage.until_all_handled()
    assert stage.world.paused is None
    assert stage.errors("a").count("is no record") == 1
    stage.check("once")
    await stage.drain("a")

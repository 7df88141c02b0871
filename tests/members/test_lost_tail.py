"""A real log that lost its newest records: whoever had read them notices, and goes on from what is there."""

import asyncio

from echelon.brokers.nats import NatsBroker
from echelon.local import NatsServer
from echelon.members.admin import Admin, create_group
from echelon.members.follower import Follower
from tests.brokers.nats.harness import NatsHarness, call
from tests.members.waiting import until


def test_a_pause_that_the_log_has_lost_is_not_in_the_world_any_more(nats_server: NatsServer) -> None:
    async def scenario() -> None:
        harness = NatsHarness(nats_server, "computed")
        stream = await harness.create_stream("lost-tail", 2)
        voids: list[bool] = []
        async with NatsBroker(nats_server.url) as broker:
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
            await call(nats_server.url, "STREAM.MSG.DELETE.ECHELON", {"seq": follower.last.sequence})
            await until(lambda: bool(voids))
            assert follower.world.paused is None
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())

"""How long an instance takes itself for the active one, when the server answers late."""

import asyncio
from typing import cast

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_consumers import ConsumerInfo, Consumers, PriorityGroupState
from echelon.members.clock import now
from echelon.members.counters import Counters
from echelon.pcg.lease import Lease
from echelon.pcg.seat import Seat

PIN = 2.0


class LateAnswers:
    """Says who is pinned, a tenth of the pin's timeout late."""

    async def info(self, stream: str, name: str) -> ConsumerInfo:
        await asyncio.sleep(PIN / 10)
        group = PriorityGroupState(group="PCG", pinned_client_id="mine")
        return ConsumerInfo(name=name, created=stream, config={}, priority_groups=[group])


class HalfOld:
    """A pull that made its last request half of the pin's timeout ago, whenever it is looked at."""

    pin = "mine"

    @property
    def asked(self) -> float:
        return now() - PIN * 1000 / 2

    def renew(self) -> None:
        raise AssertionError("it is not late")


def test_a_healthy_instance_does_not_lapse_when_the_server_answers_late() -> None:
    counters, told = Counters(), list[bool]()
    seat = Seat("S", "m", "PCG", PIN, PIN, 1, 0, "", "static")
    lease = Lease(cast("Consumers", LateAnswers()), seat, counters, lambda *, active: told.append(active))

    async def run() -> None:
        keeping = asyncio.ensure_future(lease.keep(cast("Pull", HalfOld()), lambda: None))
        await lease.granted()
        for _ in range(150):
            assert lease.holds
            await asyncio.sleep(PIN / 200)
        keeping.cancel()

    asyncio.run(run())
    assert (told, counters.fenced) == ([True], 0)

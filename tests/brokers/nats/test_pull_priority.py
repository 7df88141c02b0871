"""Priority groups on a real nats-server: overflow, pinned clients, priorities, and what the server tells of them."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_advisories import Pinned, Unpinned, pin_advisories
from echelon.brokers.nats.pull_consumers import Consumers, connect
from echelon.brokers.nats.pull_request import PullRequest
from echelon.local import NatsServer
from tests.brokers.nats.test_pull import numbers, publish, scene, take

OVERFLOW = {"priority_policy": "overflow", "priority_groups": ("jobs",), "ack_wait": 30.0}
PINNED = {"priority_policy": "pinned_client", "priority_groups": ("jobs",), "priority_timeout": 0.6}


def request(**fields: int) -> PullRequest:
    return PullRequest(batch=100, expires=5, group="jobs", **fields)


class Client:
    """A client of the consumer `c` over a connection of its own, and what it was told."""

    def __init__(self, consumers: Consumers, stream: str, expires: float) -> None:
        self.told: list[str] = []
        self.pull = Pull(
            consumers,
            stream,
            "c",
            PullRequest(batch=100, expires=expires, group="jobs"),
            on_pinned=lambda pin: self.told.append(f"pinned {pin}"),
            on_unpinned=lambda pin: self.told.append(f"unpinned {pin}"),
        )


@asynccontextmanager
async def client(url: str, stream: str, expires: float = 0.25) -> AsyncGenerator[Client, None]:
    async with connect(url) as consumers:
        made = Client(consumers, stream, expires)
        async with made.pull:
            yield made


def test_overflow_serves_above_either_threshold_and_not_below_both(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, **OVERFLOW) as (consumers, stream),
            Pull(consumers, stream, "c", request(min_pending=4, min_ack_pending=2)) as pull,
        ):
            await publish(nats_server.url, stream, range(3))
            assert await pull.take(0.2) == []
            await publish(nats_server.url, stream, [3])
            # Four wait, so one is served; then three wait, and one is not acknowledged: below both thresholds.
            assert numbers(await take(pull, 1)) == [0]
            assert await pull.take(0.2) == []
            async with Pull(consumers, stream, "c", PullRequest(batch=1, expires=5, group="jobs")) as other:
                assert numbers(await take(other, 1)) == [1]
            # Two are not acknowledged, so the rest is served, however little waits.
            assert numbers(await take(pull, 2)) == [2, 3]

    asyncio.run(run())


def test_unconditional_requests_come_first_while_no_threshold_is_reached(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, max_ack_pending=1, **OVERFLOW) as (consumers, stream),
            Pull(consumers, stream, "c", request(min_pending=10)) as spare,
            Pull(consumers, stream, "c", request()) as usual,
        ):
            await publish(nats_server.url, stream, range(6))
            for n in range(6):
                [message] = await take(usual, 1)
                assert int(message.data) == n
                message.ack()
            assert await spare.take(0.1) == []
            await usual.close()
            await publish(nats_server.url, stream, range(6, 16))
            assert numbers(await take(spare, 1)) == [6]

    asyncio.run(run())


def test_once_its_threshold_is_reached_a_conditional_request_takes_turns(nats_server: NatsServer) -> None:
    """ADR-42 would have it wait for unconditional ones; nats-server up to 2.15 does not do so."""

    async def run() -> None:
        async with (
            scene(nats_server.url, max_ack_pending=1, **OVERFLOW) as (consumers, stream),
            Pull(consumers, stream, "c", request(min_pending=1)) as spare,
            Pull(consumers, stream, "c", request()) as usual,
        ):
            await publish(nats_server.url, stream, range(4))
            for n in range(4):
                [message] = await take((spare, usual)[n % 2], 1)
                assert int(message.data) == n
                message.ack()

    asyncio.run(run())


def test_prioritized_serves_the_lowest_number_first(nats_server: NatsServer) -> None:
    async def run() -> None:
        policy = {"priority_policy": "prioritized", "priority_groups": ("jobs",)}
        async with (
            scene(nats_server.url, **policy) as (consumers, stream),
            Pull(consumers, stream, "c", request(priority=5)) as last,
            Pull(consumers, stream, "c", request(priority=1)) as first,
            Pull(consumers, stream, "c", request(priority=3)) as second,
        ):
            await asyncio.sleep(0.1)
            await publish(nats_server.url, stream, range(4))
            assert numbers(await take(first, 4)) == [0, 1, 2, 3]
            await first.close()
            await publish(nats_server.url, stream, range(4, 8))
            assert numbers(await take(second, 4)) == [4, 5, 6, 7]
            assert await last.take(0.1) == []

    asyncio.run(run())


def test_one_client_is_pinned_gets_everything_and_keeps_the_pin_by_asking(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, **{**PINNED, "priority_timeout": 1.5}) as (consumers, stream),
            client(nats_server.url, stream) as one,
            client(nats_server.url, stream) as two,
        ):
            for n in range(0, 30, 10):
                await publish(nats_server.url, stream, range(n, n + 10))
                for message in (got := await take(one.pull, 10)):
                    message.ack()
                assert numbers(got) == list(range(n, n + 10))
                assert {message.pin for message in got} == {one.pull.pin}
                await asyncio.sleep(0.7)  # In all longer than the pin's timeout, but it has asked meanwhile.
            assert one.told == [f"pinned {one.pull.pin}"]
            assert (two.told, two.pull.pin, await two.pull.take(0)) == ([], "", [])
            state = (await consumers.info(stream, "c")).priority_groups
            assert state is not None
            assert (state[0].group, state[0].pinned_client_id) == ("jobs", one.pull.pin)
            assert state[0].pinned_ts.startswith("20")

    asyncio.run(run())


def test_a_pinned_client_that_asks_no_more_loses_the_pin_after_the_timeout(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, **PINNED) as (_, stream),
            client(nats_server.url, stream, expires=10) as one,
            client(nats_server.url, stream, expires=10) as two,
            pin_advisories(one.pull._connection, stream, "c") as advisories,
        ):
            await publish(nats_server.url, stream, range(5))
            for message in await take(one.pull, 5):
                message.ack()
            # It has a request that does not expire for long, and makes no other.
            pinned, began = one.pull.pin, time.monotonic()
            await publish(nats_server.url, stream, [5])
            [message] = await take(one.pull, 1)
            message.ack()
            await asyncio.sleep(0.8)
            await publish(nats_server.url, stream, [6])
            [message] = await take(two.pull, 1)
            message.ack()
            assert int(message.data) == 6
            assert time.monotonic() - began < 3
            assert two.told == [f"pinned {two.pull.pin}"]
            await publish(nats_server.url, stream, [7])
            assert numbers(await take(two.pull, 1)) == [7]
            async with asyncio.timeout(5):
                told = [await advisories.get() for _ in range(3)]
                while len(one.told) < 2:  # Its waiting request was refused with 423.
                    await asyncio.sleep(0.01)
            assert told[0] == Pinned(stream, "c", "jobs", pinned, told[0].id, told[0].timestamp, "$G")
            assert told[1] == Unpinned(stream, "c", "jobs", "timeout", told[1].id, told[1].timestamp, "$G")
            assert isinstance(told[2], Pinned)
            assert told[2].pinned_id == two.pull.pin
            assert one.told == [f"pinned {pinned}", f"unpinned {pinned}"]
            assert one.pull.pin == ""

    asyncio.run(run())


def test_an_administrator_takes_the_pin_away_and_the_client_asks_again_at_once(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, **{**PINNED, "priority_timeout": 60.0}) as (consumers, stream),
            client(nats_server.url, stream, expires=30) as one,
            client(nats_server.url, stream, expires=30) as two,
            pin_advisories(consumers.connection, stream) as advisories,
        ):
            await publish(nats_server.url, stream, [0])
            [message] = await take(one.pull, 1)
            await message.double_ack()
            first = one.pull.pin
            await consumers.unpin(stream, "c", "jobs")
            assert (await consumers.info(stream, "c")).pinned == ""
            await publish(nats_server.url, stream, [1, 2])
            for message in (got := await take(two.pull, 2)):
                await message.double_ack()
            assert numbers(got) == [1, 2]
            assert one.told == [f"pinned {first}", f"unpinned {first}"]
            # It has a request without id with the server by now, and so is next when the other is unpinned.
            await consumers.unpin(stream, "c", "jobs")
            await publish(nats_server.url, stream, [3])
            assert numbers(await take(one.pull, 1, seconds=2)) == [3]
            async with asyncio.timeout(5):
                told = [await advisories.get() for _ in range(5)]
            assert [type(each) for each in told] == [Pinned, Unpinned, Pinned, Unpinned, Pinned]
            assert {each.reason for each in told if isinstance(each, Unpinned)} == {"admin"}

    asyncio.run(run())


def test_a_new_request_under_an_old_pin_is_refused_at_once(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with (
            scene(nats_server.url, **{**PINNED, "priority_timeout": 60.0}) as (_, stream),
            client(nats_server.url, stream, expires=30) as one,
        ):
            await publish(nats_server.url, stream, [0])
            [message] = await take(one.pull, 1)
            message.ack()
            one.pull.pin = "an-old-one"
            one.pull.renew()
            async with asyncio.timeout(5):
                while len(one.told) < 2:
                    await asyncio.sleep(0.01)
            assert one.told[1] == "unpinned an-old-one"
            assert one.pull.pin == ""

    asyncio.run(run())

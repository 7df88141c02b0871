"""What a pull does when its requests may be lost: it asks whether the consumer is there, and begins anew."""

import asyncio
import time

import nats
import pytest
from nats.aio.msg import Msg

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_consumers import ConsumerInfo, Consumers
from echelon.brokers.nats.pull_request import PullRequest
from echelon.errors import ConsumerNotFound
from echelon.local import NatsServer
from tests.brokers.nats.test_pull import numbers, publish, scene, take


def answer_late(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[None]:
    """Let who asks for a consumer wait for so long; returns one item for each time that it was asked for."""
    info, asked = Consumers.info, list[None]()

    async def late(consumers: Consumers, stream: str, name: str) -> ConsumerInfo:
        asked.append(None)
        await asyncio.sleep(seconds)
        return await info(consumers, stream, name)

    monkeypatch.setattr(Consumers, "info", late)
    return asked


@pytest.mark.parametrize("late", [0.0, 0.3])
def test_a_request_that_the_server_drops_is_made_again_when_heartbeats_are_missed(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    async def run() -> None:
        # Who asks for heartbeats is not told that too many requests wait.
        async with scene(nats_server.url, max_waiting=1) as (consumers, stream):
            client = await nats.connect(nats_server.url)
            subject, asked = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", []

            async def note(request: Msg) -> None:
                asked.append(request.reply)

            await client.subscribe(subject, cb=note)
            other = await client.subscribe(client.new_inbox())
            await client.publish(subject, b'{"batch":1,"expires":60000000000}', reply=other.subject)
            while not (await consumers.info(stream, "c")).num_waiting:  # It has arrived, and goes first.
                await asyncio.sleep(0.01)
            changes: list[None] = []
            consumers.connection.listeners.add(lambda: changes.append(None))
            answer_late(monkeypatch, late)
            async with Pull(consumers, stream, "c", PullRequest(expires=30, heartbeat=0.1)) as pull:
                async with asyncio.timeout(10):
                    while len(asked) < 3:  # The other one, and twice its own.
                        assert await pull.take(0.1) == []
                await other.unsubscribe()
                await publish(nats_server.url, stream, range(3))
                assert numbers(await take(pull, 3)) == [0, 1, 2]
            await client.close()
            assert not changes, "the connection was lost"

    asyncio.run(run())


def test_that_a_consumer_is_gone_is_told_however_late_the_answer_comes(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_late(monkeypatch, 0.2)

    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream), Pull(consumers, stream, "other") as pull:
            async with asyncio.timeout(10):
                with pytest.raises(ConsumerNotFound):
                    while True:
                        assert await pull.take(0.05) == []
                        await asyncio.sleep(0.3)  # The answer comes while nobody waits for it.

    asyncio.run(run())


@pytest.mark.parametrize("seconds", [0.0, 0.2])
def test_a_pull_is_closed_while_it_is_in_doubt(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    answer_late(monkeypatch, 0.1)

    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            before = asyncio.all_tasks()
            async with Pull(consumers, stream, "other") as pull:
                assert await pull.take(0.05) == []
                await asyncio.sleep(seconds)  # Before the answer has come, or after it.
            assert await pull.take(0.05) == []
            assert asyncio.all_tasks() == before

    asyncio.run(run())


def test_an_event_loop_that_stood_still_has_missed_no_heartbeats(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answer_late(monkeypatch, 0.0)

    async def run() -> None:
        async with (
            scene(nats_server.url) as (consumers, stream),
            Pull(consumers, stream, "c", PullRequest(expires=30, heartbeat=0.5)) as pull,
        ):
            taking = asyncio.ensure_future(pull.take(10))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(time.sleep, 1.3)
            await asyncio.sleep(1.5)
            await publish(nats_server.url, stream, [1])
            assert numbers(await taking) == [1]
            assert pull._count == 1
        assert not asked

    asyncio.run(run())

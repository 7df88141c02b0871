"""Pulling without end from a real nats-server: overlapping requests, acks, lost connections, consumers that vanish."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import nats
import pytest

from echelon.brokers.nats.pull import Pull
from echelon.brokers.nats.pull_config import ConsumerConfig
from echelon.brokers.nats.pull_consumers import Consumers, connect
from echelon.brokers.nats.pull_message import Pulled
from echelon.brokers.nats.pull_request import PullRequest
from echelon.errors import ConsumerNotFound, InvalidConfig, StreamNotFound, Unreachable
from echelon.local import NatsServer
from echelon.testing.contract.harness import name
from tests.brokers.nats.harness import call, make_stream
from tests.servers import NatsServers


async def publish(url: str, stream: str, data: Sequence[int], headers: dict[str, str] | None = None) -> None:
    client = await nats.connect(url)
    js = client.jetstream()
    for each in data:
        await js.publish(f"{stream}.{each % 3}", str(each).encode(), headers=headers)
    await client.close()


async def take(pull: Pull, count: int, seconds: float = 10.0) -> list[Pulled]:
    """So many messages, or fewer if no more come."""
    got: list[Pulled] = []
    async with asyncio.timeout(seconds):
        while len(got) < count:
            got += await pull.take(1.0)
    return got


def numbers(messages: Sequence[Pulled]) -> list[int]:
    return [int(message.data) for message in messages]


@asynccontextmanager
async def scene(url: str, **config: object) -> AsyncGenerator[tuple[Consumers, str], None]:
    """A stream with the durable consumer `c`."""
    stream = name("S")
    await make_stream(url, stream, [f"{stream}.*"])
    async with connect(url) as consumers:
        settings = {"name": "c", "durable": True, "ack_wait": 1.0, **config}
        await consumers.create(stream, ConsumerConfig(**settings))  # type: ignore[arg-type]  # as the test has it
        yield consumers, stream


def test_requests_overlap_so_that_everything_comes_once_and_in_order(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            await publish(nats_server.url, stream, range(300))
            async with Pull(consumers, stream, "c", PullRequest(batch=20, expires=5)) as pull:
                got = []
                async for message in pull:
                    message.ack()
                    got.append(message)
                    if len(got) == 300:
                        break
                assert pull._outstanding <= 20
            assert numbers(got) == list(range(300))
            assert [message.sequence for message in got] == list(range(1, 301))
            assert [message.number for message in got] == list(range(1, 301))
            assert [message.pending for message in got] == list(range(299, -1, -1))
            assert {message.deliveries for message in got} == {1}
            assert {message.subject.decode() for message in got} == {f"{stream}.{n}" for n in range(3)}

    asyncio.run(run())


def test_no_more_than_a_batch_is_held_that_was_not_taken(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            await publish(nats_server.url, stream, range(50))
            async with Pull(consumers, stream, "c", PullRequest(batch=10, expires=5)) as pull:
                await asyncio.sleep(0.3)
                assert (await consumers.info(stream, "c")).num_ack_pending == 10
                assert numbers(await pull.take(1)) == list(range(10))

    asyncio.run(run())


def test_requests_that_expire_are_made_again(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            async with Pull(consumers, stream, "c", PullRequest(expires=0.2)) as pull:
                assert await pull.take(0.7) == []
                await publish(nats_server.url, stream, [1])
                assert numbers(await take(pull, 1)) == [1]
            assert (await consumers.info(stream, "c")).num_waiting <= 1

    asyncio.run(run())


def test_acks_in_their_five_ways(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            await publish(nats_server.url, stream, range(5), {"From": "here"})
            async with Pull(consumers, stream, "c", PullRequest(batch=5, expires=5)) as pull:
                done, sure, late, slow, never = await take(pull, 5)
                assert ("From", b"here") in done.headers
                done.ack()
                await sure.double_ack()
                never.term("cannot be read")
                late.nak(0.3)
                again = await take(pull, 1)
                assert [(int(each.data), each.deliveries) for each in again] == [(2, 2)]
                again[0].nak()
                [third] = await take(pull, 1, seconds=0.5)
                assert (int(third.data), third.deliveries) == (2, 3)
                third.ack()
                for _ in range(3):  # Longer than the ack wait.
                    slow.in_progress()
                    assert await pull.take(0.6) == []
                await slow.double_ack()
                info = await consumers.info(stream, "c")
                assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 5)

    asyncio.run(run())


def test_a_double_ack_without_a_consumer_fails(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream):
            await publish(nats_server.url, stream, [1])
            async with Pull(consumers, stream, "c") as pull:
                [message] = await take(pull, 1)
                await consumers.delete(stream, "c")
                with pytest.raises(ConsumerNotFound, match="is not there any more"):
                    await message.double_ack()

    asyncio.run(run())


@pytest.mark.parametrize("what", ["consumer", "stream"])
def test_what_is_deleted_while_it_is_pulled_from_ends_the_pull(nats_server: NatsServer, what: str) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream), Pull(consumers, stream, "c") as pull:
            assert await pull.take(0.1) == []
            await call(
                nats_server.url, f"CONSUMER.DELETE.{stream}.c" if what == "consumer" else f"STREAM.DELETE.{stream}"
            )
            with pytest.raises((ConsumerNotFound, StreamNotFound)):
                await pull.take(5)

    asyncio.run(run())


def test_a_consumer_that_never_was_there_is_missed(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream), Pull(consumers, stream, "other") as pull:
            with pytest.raises(ConsumerNotFound):
                await pull.take(5)

    asyncio.run(run())


def test_a_refused_request_ends_the_pull(nats_server: NatsServer) -> None:
    async def run() -> None:
        overflow = {"priority_policy": "overflow", "priority_groups": ("jobs",)}
        async with scene(nats_server.url, **overflow) as (consumers, stream):
            async with Pull(consumers, stream, "c") as pull:
                with pytest.raises(InvalidConfig, match="Priority Group missing"):
                    await pull.take(5)
            async with Pull(consumers, stream, "c", PullRequest(group="others")) as pull:
                with pytest.raises(InvalidConfig, match="Invalid Priority Group"):
                    await pull.take(5)

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["restart", "kill", "freeze"])
def test_pulling_goes_on_when_the_server_was_away(nats_servers: NatsServers, fault: str) -> None:
    server = nats_servers()

    async def run() -> None:
        async with scene(server.url) as (consumers, stream):
            await publish(server.url, stream, range(5))
            async with Pull(consumers, stream, "c", PullRequest(batch=10, expires=2, heartbeat=0.2)) as pull:
                first = await take(pull, 5)
                for message in first:
                    await message.double_ack()
                if fault == "freeze":
                    server.pause()
                    assert await pull.take(1.0) == []
                    server.resume()
                else:
                    await asyncio.to_thread(server.restart if fault == "restart" else server.kill)
                    await asyncio.to_thread(server.start)
                await publish(server.url, stream, range(5, 10))
                seen: list[int] = []
                async with asyncio.timeout(15):
                    while 9 not in seen:
                        for message in await pull.take(1.0):
                            seen.append(int(message.data))
                            message.ack()
                # A server that is killed may not have written down all acks.
                assert [n for n in seen if n >= 5 or fault != "kill"] == list(range(5, 10))
                assert seen == sorted(seen)

    asyncio.run(run())


def test_a_closed_connection_ends_the_pull(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url) as (consumers, stream), Pull(consumers, stream, "c") as pull:
            await consumers.connection.close()
            with pytest.raises(Unreachable, match="closed"):
                await pull.take(5)

    asyncio.run(run())


def test_after_close_the_server_delivers_nothing_more(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with scene(nats_server.url, max_ack_pending=1) as (consumers, stream):
            await publish(nats_server.url, stream, range(3))
            async with Pull(consumers, stream, "c") as pull:
                [message] = await take(pull, 1)
            # Closed before it is acknowledged: the next message must not go to somebody who does not listen.
            await message.double_ack()
            info = await consumers.info(stream, "c")
            assert (info.num_ack_pending, info.delivered.stream_seq) == (0, 1)

    asyncio.run(run())

"""How fast a member handles messages, beside plain loops over the same brokers' own clients.

One process, 12 partitions, messages of 150 bytes, at least once, strict order, a handler that does nothing and is
called for every message; the figures of one broker are taken in turns.
"""

import asyncio
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import nats
from confluent_kafka import Consumer, TopicPartition
from nats.js.api import ConsumerConfig

import read_nats
from echelon.brokers.connect import open_broker
from echelon.group.config import Stream
from echelon.group.records import Profile
from echelon.keys import RecordKey
from echelon.local import KafkaServer, NatsServer
from echelon.members.admin import create_group
from echelon.members.member import Member
from echelon.members.options import Options
from echelon.model import Message
from read_kafka import MESSAGES, PARTITIONS, fill
from reading import peak
from report import Row, main, row

ROUNDS = 3
PEER_MESSAGES = 50_000  # a peer this much slower is measured on fewer
MEMORY = 250.0  # MiB that a member may take over the whole backlog


def handle(_message: Message) -> None:
    """Do nothing."""


def handle_all(_messages: list[Message]) -> None:
    """Do nothing."""


def work(url: str, stream: Stream, handler: Callable[..., None], options: Options, count: int) -> tuple[float, float]:
    """Messages a second from the first to the last of a backlog, and the most MiB that the process took."""

    async def run() -> float:
        group = f"g{uuid.uuid4().hex[:8]}"
        async with open_broker(url) as broker:
            await create_group(broker, group, [stream], start="earliest", members=("m",))
            member = Member(broker, group, handler, Profile("bench", "m"), options=options)
            sitting = asyncio.ensure_future(member.run())
            await reach(member, 1)
            began, before = time.perf_counter(), member.counters.messages
            await reach(member, count)
            seconds = time.perf_counter() - began
            member.drain()
            await sitting
        return (count - before) / seconds

    rate = asyncio.run(run())
    return rate, peak()


async def reach(member: Member, count: int) -> None:
    """Wait until so many messages were handled."""
    while member.counters.messages < count:  # noqa: ASYNC110 - the counters tell nobody
        await asyncio.sleep(0.005)


def consume(servers: str, topic: str) -> float:
    """Messages a second of a bare loop that reads each message and calls the handler."""
    config = {"bootstrap.servers": servers, "group.id": "peer", "enable.auto.commit": "false"}
    consumer = Consumer(config)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count = 0
    began = 0.0
    while count < MESSAGES:
        messages = consumer.consume(1000, 1.0)
        began = began or time.perf_counter()
        for message in messages:
            handle((message.key(), message.value(), message.partition(), message.offset()))  # type: ignore[arg-type]  # as below
        count += len(messages)
    rate = MESSAGES / (time.perf_counter() - began)
    consumer.close()
    return rate


def apart(*arguments: object) -> tuple[float, float]:
    """`work` in a process of its own, so that its memory is its own too."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def kafka() -> list[Row]:
    """All figures on Kafka."""
    with tempfile.TemporaryDirectory() as folder, KafkaServer(Path(folder)) as server:
        servers = server.url.removeprefix("kafka://")
        fill(servers, "many", PARTITIONS)
        stream = Stream("many", PARTITIONS, RecordKey(), "native")
        bare, single, batched, memory = [], [], [], []
        for _ in range(ROUNDS):
            bare.append(consume(servers, "many"))
            rate, taken = apart(server.url, stream, handle, Options(), MESSAGES)
            single.append(rate)
            memory.append(taken)
            batched.append(apart(server.url, stream, handle_all, Options(batch=True), MESSAGES)[0])
    peer, middle = "consume(1000) and a call for each", statistics.median
    return [
        row("Kafka, a message at a time", middle(single), "messages/s", peer_name=peer, peer=middle(bare), target=0.8),
        row("Kafka, batches", middle(batched), "messages/s", peer_name=peer, peer=middle(bare), target=0.8),
        row("Kafka, memory", max(memory), "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
    ]


async def fetch_and_ack(url: str) -> float:
    """Messages a second of a plain nats-py loop that fetches, calls the handler and acks."""
    client = await nats.connect(url)
    pulling = await client.jetstream().pull_subscribe(">", stream="many", config=ConsumerConfig())
    count, began = 0, time.perf_counter()
    while count < PEER_MESSAGES:
        for message in await pulling.fetch(1000, timeout=5):
            handle(message)  # type: ignore[arg-type]  # it does nothing
            await message.ack()
            count += 1
    rate = count / (time.perf_counter() - began)
    await client.close()
    return rate


def handle_slowly(milliseconds: float, _message: Message) -> None:
    """Take a while, as a call of another service would."""
    time.sleep(milliseconds / 1000)


def grow(url: str, stream: Stream) -> list[Row]:
    """How throughput grows with lanes, for handlers that take longer and longer."""
    rows: list[Row] = []
    for milliseconds in (0.2, 1.0, 5.0):
        handler, count = partial(handle_slowly, milliseconds), min(10_000, int(8_000 / milliseconds))
        rates = {lanes: apart(url, stream, handler, Options(lanes=lanes), count)[0] for lanes in (1, 4, 16)}
        name = f"NATS, handlers of {milliseconds:g} ms"
        rows += [
            row(f"{name}, {lanes} lanes", rates[lanes], "messages/s", peer_name="1 lane", peer=rates[1], target=least)
            for lanes, least in ((4, 2), (16, 5 if milliseconds >= 1 else 2))
        ]
    return rows


def on_nats() -> list[Row]:
    """All figures on NATS."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
        read_nats.fill(server.port)
        stream = read_nats.STREAM
        plain, single, batched, memory = [], [], [], []
        for _ in range(ROUNDS):
            plain.append(asyncio.run(fetch_and_ack(server.url)))
            rate, taken = apart(server.url, stream, handle, Options(), MESSAGES)
            single.append(rate)
            memory.append(taken)
            batched.append(apart(server.url, stream, handle_all, Options(batch=True), MESSAGES)[0])
        growth = grow(server.url, stream)
    peer, middle = "nats-py fetch and ack", statistics.median
    return [
        row("NATS, a message at a time", middle(single), "messages/s", peer_name=peer, peer=middle(plain), target=5),
        row("NATS, batches", middle(batched), "messages/s", peer_name=peer, peer=middle(plain), target=5),
        row("NATS, memory", max(memory), "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
        *growth,
    ]


def run() -> list[Row]:
    """All rows."""
    return [*on_nats(), *kafka()]


if __name__ == "__main__":
    main(run)

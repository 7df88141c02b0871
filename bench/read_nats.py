"""Reading a range of a real JetStream beside nats-py's `fetch` and a bare socket, and the latency of a group's log."""

import asyncio
import socket
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from pathlib import Path

import msgspec
import nats
from nats.js.api import AckPolicy, ConsumerConfig

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.reader import NatsReader
from echelon.group.config import Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from report import Row, main, row

MESSAGES = 1_000_000
BYTES = 150
PARTITIONS = 12
ROUNDS = 3
PEER_MESSAGES = 100_000  # a peer this much slower is measured on fewer
ACK_EVERY = 5_000
FOLLOWERS = 20
RECORDS = 200
MEMORY = 64.0  # MiB that reading may take, of a stream that holds more than twice as much
STREAM = Stream("many", PARTITIONS, TokensKey("data.*", (1,)), "token")

Measure = Callable[[NatsReader, int, int, int], Awaitable[int]]


def fill(port: int) -> None:
    """Make a stream whose subjects carry the partition, and fill it.

    Of every so many messages the last is acknowledged.
    """
    subjects = [f"{number}.data.*" for number in range(PARTITIONS)]
    config = msgspec.json.encode({"name": "many", "subjects": subjects, "allow_direct": True, "storage": "file"})
    data = b"x" * BYTES
    with socket.create_connection(("127.0.0.1", port)) as bare, bare.makefile("rb") as lines:

        def send(commands: bytes) -> None:
            bare.sendall(commands)
            while not lines.readline().startswith(b"MSG inbox"):
                pass

        bare.sendall(b'CONNECT {"verbose":false}\r\nSUB inbox 1\r\n')
        send(b"PUB $JS.API.STREAM.CREATE.many inbox %d\r\n%b\r\n" % (len(config), config))
        for start in range(0, MESSAGES, ACK_EVERY):
            numbers = range(start, start + ACK_EVERY)
            names = [b"%d.data.%d" % (number % PARTITIONS, number % 10_000) for number in numbers]
            names[-1] += b" inbox"
            send(b"".join(b"PUB %b %d\r\n%b\r\n" % (name, BYTES, data) for name in names))


async def fetch(url: str) -> float:
    """Messages a second of nats-py's `fetch`, without acks."""
    client = await nats.connect(url)
    js = client.jetstream()
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    pulling = await js.pull_subscribe(">", stream="many", config=config)
    count, began = 0, time.perf_counter()
    while count < PEER_MESSAGES:
        count += len(await pulling.fetch(2000, timeout=5))
    rate = count / (time.perf_counter() - began)
    await client.close()
    return rate


def receive(port: int) -> float:
    """Messages a second of a bare socket that asks for batches and only receives them."""
    with socket.create_connection(("127.0.0.1", port)) as bare:
        bare.sendall(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB inbox 1\r\nPING\r\n')
        pending, asked, began = b"", 1, time.perf_counter()
        while asked <= MESSAGES:
            body = msgspec.json.encode({"seq": asked, "batch": 10_000, "max_bytes": 1 << 30, "next_by_subj": ">"})
            bare.sendall(b"PUB $JS.API.DIRECT.GET.many inbox %d\r\n%b\r\n" % (len(body), body))
            asked += 10_000
            pending = b""
            while b"204 EOB" not in pending:
                pending = pending[-64:] + bare.recv(1 << 18)
        return MESSAGES / (time.perf_counter() - began)


async def read_messages(reader: NatsReader, partition: int, start: int, end: int) -> int:
    """Read a range into messages; how many there were."""
    return sum([len(messages) async for messages in reader.read(partition, start, end)])


async def read_batches(reader: NatsReader, partition: int, start: int, end: int) -> int:
    """Read a range into Arrow record batches; how many rows there were."""
    return sum([batch.num_rows async for batch in reader.read_arrow(partition, start, end)])


async def read(url: str, measure: Measure) -> float:
    """Messages a second that one connection gives of all partitions, read side by side."""
    async with NatsBroker(url) as broker:
        reader = await broker.reader("bench", await broker.prepare("bench", STREAM))
        bounds = (await reader.info()).bounds
        began = time.perf_counter()
        counts = await asyncio.gather(*(measure(reader, n, held.first, held.end) for n, held in bounds.items()))
        seconds = time.perf_counter() - began
    if sum(counts) != MESSAGES:
        raise AssertionError(counts)
    return MESSAGES / seconds


def memory(url: str) -> float:
    """MiB by which a process grows that reads everything."""
    import echelon.brokers.arrow  # noqa: F401  (what it takes itself does not count)

    before = peak()
    asyncio.run(read(url, read_batches))
    return peak() - before


def peak() -> float:
    """The most MiB that this process has taken so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def latency(url: str) -> float:
    """Median milliseconds from an append until every follower, each with a connection of its own, has the record."""
    arrivals: dict[int, list[float]] = defaultdict(list)
    everywhere = asyncio.Event()

    async def follow() -> None:
        async with NatsBroker(url) as broker:
            async for entries in (await broker.log("latency")).follow(0):
                for entry in entries:
                    arrivals[entry.sequence].append(time.perf_counter())
                    if len(arrivals[entry.sequence]) == FOLLOWERS:
                        everywhere.set()

    async with NatsBroker(url) as broker:
        log = await broker.create_log("latency")
        tasks = [asyncio.ensure_future(follow()) for _ in range(FOLLOWERS)]
        spans = []
        for _ in range(RECORDS):
            everywhere.clear()
            began = time.perf_counter()
            sequence = await log.append(b"x" * 200)
            await everywhere.wait()
            spans.append(max(arrivals[sequence]) - began)
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return statistics.median(spans[10:]) * 1000


def run() -> list[Row]:
    """All rows; the best of a few rounds, in which ours and the peers' take turns."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
        fill(server.port)
        fetched = bare = messages = batches = 0.0
        for _ in range(ROUNDS):
            fetched = max(fetched, asyncio.run(fetch(server.url)))
            bare = max(bare, receive(server.port))
            messages = max(messages, asyncio.run(read(server.url, read_messages)))
            batches = max(batches, asyncio.run(read(server.url, read_batches)))
        with get_context("spawn").Pool(1) as pool:
            growth = pool.apply(memory, (server.url,))
        milliseconds = asyncio.run(latency(server.url))
    peer, only = "nats-py fetch, no acks", "bare socket, only received"
    return [
        row("NATS range into Arrow", batches, "messages/s", peer_name=peer, peer=fetched, target=6),
        row("NATS range into messages", messages, "messages/s", peer_name=peer, peer=fetched, target=6),
        row("NATS range into Arrow", batches, "messages/s", peer_name=only, peer=bare, target=0),
        row("NATS range into messages", messages, "messages/s", peer_name=only, peer=bare, target=0),
        row("NATS range, memory", growth, "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
        row(f"NATS log to {FOLLOWERS} followers", milliseconds, "ms", peer_name="bound", peer=5, less_is_better=True),
    ]


if __name__ == "__main__":
    main(run)

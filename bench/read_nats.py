"""Reading a range of a real JetStream beside nats-py's `fetch` and a bare socket, and the latency of a group's log."""

import asyncio
import socket
import tempfile
import time
from pathlib import Path

import msgspec
import nats
from nats.js.api import AckPolicy, ConsumerConfig

from echelon.group.config import Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from reading import FOLLOWERS, growth, latency, rate, read_batches, read_messages
from report import Row, main, row

MESSAGES = 1_000_000
BYTES = 150
PARTITIONS = 12
FIRST = -(-MESSAGES // PARTITIONS)  # messages in the first partition
ROUNDS = 3
PEER_MESSAGES = 100_000  # a peer this much slower is measured on fewer
PEER_BATCH = 5_000  # of 200 to 10,000, the one with which it is fastest
ACK_EVERY = 5_000
MEMORY = 64.0  # MiB that reading may take, of a stream that holds three times as much
STREAM = Stream("many", PARTITIONS, TokensKey("data.*", (1,)), "token")


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
        count += len(await pulling.fetch(PEER_BATCH, timeout=5))
    seconds = time.perf_counter() - began
    await client.close()
    return count / seconds


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


def run() -> list[Row]:
    """All rows; the best of a few rounds, in which ours and the peers' take turns."""
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder)) as server:
        fill(server.port)
        fetched = bare = messages = batches = alone = 0.0
        for _ in range(ROUNDS):
            fetched = max(fetched, asyncio.run(fetch(server.url)))
            bare = max(bare, receive(server.port))
            messages = max(messages, rate(server.url, STREAM, read_messages, MESSAGES, at_once=True))
            batches = max(batches, rate(server.url, STREAM, read_batches, MESSAGES, at_once=True))
            alone = max(alone, rate(server.url, STREAM, read_batches, FIRST, at_once=False, partitions=1))
        taken = growth(server.url, STREAM, MESSAGES, at_once=True)
        milliseconds = latency(server.url)
    peer, only = "nats-py fetch, no acks", "bare socket, only received"
    return [
        row("NATS range into Arrow", batches, "messages/s", peer_name=peer, peer=fetched, target=6),
        row("NATS range into messages", messages, "messages/s", peer_name=peer, peer=fetched, target=6),
        row("NATS range of one partition into Arrow", alone, "messages/s", peer_name=peer, peer=fetched, target=2),
        row("NATS range into Arrow", batches, "messages/s", peer_name=only, peer=bare, target=0),
        row("NATS range into messages", messages, "messages/s", peer_name=only, peer=bare, target=0),
        row("NATS range, memory", taken, "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
        row(f"NATS log to {FOLLOWERS} followers", milliseconds, "ms", peer_name="bound", peer=5, less_is_better=True),
    ]


if __name__ == "__main__":
    main(run)

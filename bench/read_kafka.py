"""Reading a range of a real Kafka beside confluent-kafka's bare `consume`, and the latency of a group's log."""

import asyncio
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.kafka.reader import KafkaReader
from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.local import KafkaServer
from report import Row, main, row

MESSAGES = 1_000_000
BYTES = 150
PARTITIONS = 12
ROUNDS = 3
FOLLOWERS = 20
RECORDS = 200
MEMORY = 96.0  # MiB that reading may take, whatever the range; this one would take twice as much at once

Measure = Callable[[KafkaReader, int, int, int], Awaitable[int]]


def fill(servers: str, topic: str, partitions: int) -> None:
    """Make a topic with all the messages, as evenly over the partitions as their keys are."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=10)[topic].result()
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "queue.buffering.max.messages": 200_000,
        }
    )
    data = b"x" * BYTES
    for n in range(MESSAGES):
        if n % 1000 == 0:
            while len(producer) > 100_000:
                producer.poll(0.01)
        producer.produce(topic, data, b"%d" % (n % 10_000))
    producer.flush()


def consume(servers: str, topic: str, **properties: str) -> float:
    """Messages a second of a consumer that does nothing with them."""
    config = {"bootstrap.servers": servers, "group.id": "peer", "enable.auto.commit": "false", **properties}
    consumer = Consumer(config)
    began = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    count = 0
    while count < MESSAGES:
        count += len(consumer.consume(1000, 1.0))
    seconds = time.perf_counter() - began
    consumer.close()
    return MESSAGES / seconds


async def read_messages(reader: KafkaReader, partition: int, start: int, end: int) -> int:
    """Read a range into messages; how many there were."""
    return sum([len(messages) async for messages in reader.read(partition, start, end)])


async def read_batches(reader: KafkaReader, partition: int, start: int, end: int) -> int:
    """Read a range into Arrow record batches; how many rows there were."""
    return sum([batch.num_rows async for batch in reader.read_arrow(partition, start, end)])


def read(url: str, topic: str, measure: Measure) -> float:
    """Messages a second that a reader gives of all partitions, one after the other."""

    async def run() -> float:
        async with KafkaBroker(url) as broker:
            stream = await broker.prepare("bench", Stream(topic, 0, RecordKey(), "native"))
            reader = await broker.reader("bench", stream)
            began = time.perf_counter()
            bounds = (await reader.info()).bounds
            counts = [await measure(reader, number, held.first, held.end) for number, held in bounds.items()]
            seconds = time.perf_counter() - began
        assert sum(counts) == MESSAGES, counts
        return MESSAGES / seconds

    return asyncio.run(run())


def memory(url: str, topic: str) -> float:
    """MiB by which a process grows that reads all partitions, one after the other."""

    async def run() -> None:
        async with KafkaBroker(url) as broker:
            stream = await broker.prepare("bench", Stream(topic, 0, RecordKey(), "native"))
            reader = await broker.reader("bench", stream)
            for number, held in (await reader.info()).bounds.items():
                await read_batches(reader, number, held.first, held.end)

    import echelon.brokers.arrow  # noqa: F401  (what it takes itself does not count)

    before = peak()
    asyncio.run(run())
    return peak() - before


def peak() -> float:
    """The most MiB that this process has taken so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def latency(url: str) -> float:
    """Median milliseconds from an append until every follower, each with its own consumer, has the record."""

    async def run() -> float:
        async with KafkaBroker(url) as broker:
            log = await broker.create_log("latency")
            arrivals: dict[int, list[float]] = defaultdict(list)
            everywhere = asyncio.Event()

            async def follow() -> None:
                async for entries in log.follow(0):
                    for entry in entries:
                        arrivals[entry.sequence].append(time.perf_counter())
                        if len(arrivals[entry.sequence]) == FOLLOWERS:
                            everywhere.set()

            following = [asyncio.create_task(follow()) for _ in range(FOLLOWERS)]
            spans = []
            for _ in range(RECORDS):
                everywhere.clear()
                began = time.perf_counter()
                sequence = await log.append(b"x" * 200)
                await everywhere.wait()
                spans.append(max(arrivals[sequence]) - began)
                await asyncio.sleep(0.01)
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        return statistics.median(spans) * 1000

    return asyncio.run(run())


def run() -> list[Row]:
    """All rows; the best of a few rounds, in which ours and the peer's take turns."""
    with tempfile.TemporaryDirectory() as folder, KafkaServer(Path(folder)) as server:
        servers = server.url.removeprefix("kafka://")
        fill(servers, "many", PARTITIONS)
        fill(servers, "one", 1)
        plain = tuned = messages = batches = 0.0
        for _ in range(ROUNDS):
            plain = max(plain, consume(servers, "many"))
            tuned = max(tuned, consume(servers, "many", **{"fetch.queue.backoff.ms": "5"}))
            messages = max(messages, read(server.url, "many", read_messages))
            batches = max(batches, read(server.url, "many", read_batches))
        with get_context("spawn").Pool(1) as pool:
            growth = pool.apply(memory, (server.url, "one"))
        milliseconds = latency(server.url)
    peer, same = "consume(1000)", "consume(1000), our fetch settings"
    return [
        row("Kafka range into messages", messages, "messages/s", peer_name=peer, peer=plain),
        row("Kafka range into Arrow", batches, "messages/s", peer_name=peer, peer=plain),
        row("Kafka range into messages", messages, "messages/s", peer_name=same, peer=tuned, target=0.5),
        row("Kafka range into Arrow", batches, "messages/s", peer_name=same, peer=tuned, target=0.33),
        row("Kafka range, memory", growth, "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
        row(f"Kafka log to {FOLLOWERS} followers", milliseconds, "ms", peer_name="bound", peer=15, less_is_better=True),
    ]


if __name__ == "__main__":
    main(run)

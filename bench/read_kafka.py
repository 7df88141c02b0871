"""Reading a range of a real Kafka beside confluent-kafka's bare `consume`, and the latency of a group's log."""

import tempfile
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.local import KafkaServer
from reading import FOLLOWERS, growth, latency, rate, read_batches, read_messages
from report import Row, main, row

MESSAGES = 1_000_000
BYTES = 150
PARTITIONS = 12
ROUNDS = 3
MEMORY = 96.0  # MiB that reading may take, whatever the range; this one would take twice as much at once


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


def topic(name: str) -> Stream:
    """A topic as a stream."""
    return Stream(name, 0, RecordKey(), "native")


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
            messages = max(messages, rate(server.url, topic("many"), read_messages, MESSAGES, at_once=False))
            batches = max(batches, rate(server.url, topic("many"), read_batches, MESSAGES, at_once=False))
        taken = growth(server.url, topic("one"), MESSAGES, at_once=False)
        milliseconds = latency(server.url)
    peer, same = "consume(1000)", "consume(1000), our fetch settings"
    return [
        row("Kafka range into messages", messages, "messages/s", peer_name=peer, peer=plain),
        row("Kafka range into Arrow", batches, "messages/s", peer_name=peer, peer=plain),
        row("Kafka range into messages", messages, "messages/s", peer_name=same, peer=tuned, target=0.4),
        row("Kafka range into Arrow", batches, "messages/s", peer_name=same, peer=tuned, target=0.33),
        row("Kafka range, memory", taken, "MiB", peer_name="bound", peer=MEMORY, less_is_better=True),
        row(f"Kafka log to {FOLLOWERS} followers", milliseconds, "ms", peer_name="bound", peer=15, less_is_better=True),
    ]


if __name__ == "__main__":
    main(run)

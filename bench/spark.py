"""NATS and Kafka into Spark's `noop`, beside a naive Python source and Spark's own connector; the cost of a batch."""

import asyncio
import importlib.util
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import nats
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from nats.js.api import AckPolicy, ConsumerConfig
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import read_nats
import spark_failover
from echelon.local import KafkaServer, NatsServer
from echelon.local.java import find_java
from echelon.spark.session import build_session
from echelon.spark.source import COLUMNS
from report import Row, main, row

MESSAGES = read_nats.MESSAGES
PARTITIONS = read_nats.PARTITIONS
BYTES = read_nats.BYTES
ROUNDS = 3
PEER_MESSAGES = 120_000  # a peer this much slower is measured on fewer
BATCHES = 40
ROWS = 20
TOPIC = "many"
# Maven Central has no later ones of the first two. Taken alone: what they depend on is in PySpark, or not needed.
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


class NaiveSource(DataSource):
    """What one writes first: a pull consumer for each partition, `fetch`, and a tuple for each message."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "naive"

    def schema(self) -> str:
        """The same columns as ours."""
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader."""
        return NaiveReader(self.options["url"])


class NaiveReader(DataSourceReader):
    """Reads as many messages of each partition as its share of `PEER_MESSAGES` is."""

    def __init__(self, url: str) -> None:
        self._url = url

    def partitions(self) -> Sequence[InputPartition]:
        """One for each partition."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """The rows, as they come."""
        loop = asyncio.new_event_loop()
        client = loop.run_until_complete(nats.connect(self._url))
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        subscribing = client.jetstream().pull_subscribe(f"{partition.value}.data.*", stream="many", config=config)
        pulling = loop.run_until_complete(subscribing)
        count = 0
        while count < PEER_MESSAGES // PARTITIONS:
            for message in loop.run_until_complete(pulling.fetch(1000, timeout=5)):
                token, _, subject = message.subject.partition(".")
                metadata = message.metadata
                headers = list((message.headers or {}).items())
                key = subject.encode()
                yield token, metadata.sequence.stream, subject, key, headers, message.data, metadata.timestamp
                count += 1
        loop.run_until_complete(client.close())


def connector_jars(folder: Path) -> list[str]:
    """The jars of Spark's own Kafka connector, resolved by the Ivy that PySpark ships and then kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echelon" / "spark-kafka-connector"
    if not cache.exists():
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        ivy = next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
        wanted = "".join(
            f'<dependency org="{o}" name="{n}" rev="{r}" conf="*->default" transitive="false"/>'
            for o, n, r in CONNECTOR
        )
        info = '<info organisation="echelon" module="bench"/>'
        (folder / "ivy.xml").write_text(
            f'<ivy-module version="2.0">{info}<dependencies>{wanted}</dependencies></ivy-module>'
        )
        pattern = f"{folder}/jars/[artifact]-[revision].[ext]"
        command = [find_java(), "-jar", str(ivy), "-ivy", f"{folder}/ivy.xml", "-cache", f"{folder}/ivy"]
        subprocess.run([*command, "-retrieve", pattern], check=True, stdout=subprocess.DEVNULL)
        cache.parent.mkdir(parents=True, exist_ok=True)
        (folder / "jars").rename(cache)
    return sorted(map(str, cache.glob("*.jar")))


def fill_kafka(servers: str) -> None:
    """Make a topic like the stream that `read_nats.fill` makes."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": MESSAGES, "linger.ms": 20})
    data = b"x" * BYTES
    for number in range(MESSAGES):
        producer.produce(TOPIC, data, b"%d" % (number % 10_000), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(60):
        raise AssertionError("the topic could not be filled")


def rate(frame: DataFrame, messages: int) -> float:
    """Rows a second into `noop`."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return messages / (time.perf_counter() - began)


def check(frame: DataFrame, messages: int) -> None:
    """Fail unless a frame has all rows."""
    if frame.count() != messages:
        raise AssertionError(f"of {messages} messages {frame.count()} were read")


def batch_cost(frame: DataFrame) -> float:
    """Median milliseconds of a micro-batch into `noop`, of those after the first few."""
    with tempfile.TemporaryDirectory() as checkpoint:
        query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            spans: list[float] = []
            while len(spans) < BATCHES:
                time.sleep(0.5)
                if query.exception():
                    raise AssertionError(query.exception())
                done = [p for p in query.recentProgress if "addBatch" in p.durationMs]
                spans = [float(progress.durationMs["triggerExecution"]) for progress in done]
        finally:
            query.stop()
    return statistics.median(spans[10:])


def measure_nats(spark: SparkSession, url: str) -> list[Row]:
    """Throughput from NATS."""
    options = {"partitions": str(PARTITIONS), "partitioning": "token", "key": "tokens:data.*:1"}
    ours = spark.read.format("echelon").options(broker=url, stream="many", **options).load()
    naive = spark.read.format("naive").options(url=url).load()
    check(ours, MESSAGES)
    best = peer = 0.0
    for _ in range(ROUNDS):
        best = max(best, rate(ours, MESSAGES))
        peer = max(peer, rate(naive, PEER_MESSAGES))
    name = "nats-py fetch, a tuple for each message"
    return [row("NATS into Spark noop", best, "rows/s", peer_name=name, peer=peer, target=5)]


def measure_kafka(spark: SparkSession, server: KafkaServer) -> list[Row]:
    """Throughput from Kafka."""
    ours = spark.read.format("echelon").options(broker=server.url, stream=TOPIC).load()
    servers = {"kafka.bootstrap.servers": server.url.removeprefix("kafka://"), "subscribe": TOPIC}
    theirs = spark.read.format("kafka").options(**servers, includeHeaders="true").load()
    columns = ("partition", "offset", "topic", "key", "headers", "value", "timestamp")
    theirs = theirs.select(*columns)
    check(ours, MESSAGES)
    best = peer = 0.0
    for _ in range(ROUNDS):
        best = max(best, rate(ours, MESSAGES))
        peer = max(peer, rate(theirs, MESSAGES))
    return [
        row("Kafka into Spark noop", best, "rows/s", peer_name="Spark's own Kafka connector", peer=peer, target=1.5)
    ]


def measure_batches(spark: SparkSession, url: str) -> list[Row]:
    """What a micro-batch costs, beside that of the smallest source that Spark has."""

    def ours(options: Mapping[str, str]) -> float:
        source = spark.readStream.format("echelon").options(broker=url, stream="many", startingPositions="earliest")
        return batch_cost(source.options(**options, maxMessagesPerTrigger=str(ROWS)).load())

    generated = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=ROWS, numPartitions=1).load()
    least = batch_cost(generated)
    small = ours({"key": "subject"})
    empty = ours({"key": "subject:*.data.nothing"})
    peer = "Spark's rate-micro-batch into noop"
    return [
        row(f"micro-batch of {ROWS} rows", small, "ms", peer_name=peer, peer=least, target=0.4, less_is_better=True),
        row("micro-batch without rows", empty, "ms", peer_name=peer, peer=least, target=0.4, less_is_better=True),
    ]


def run() -> list[Row]:
    """All rows; the best of a few rounds, in which ours and the peers' take turns."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"spark.jars": ",".join(connector_jars(Path(folder))), "spark.log.level": "OFF"}
        spark = build_session("bench", master="local[2]", settings=settings)
        spark.dataSource.register(NaiveSource)
        try:
            with NatsServer(Path(folder) / "nats") as server:
                read_nats.fill(server.port)
                rows = measure_nats(spark, server.url) + measure_batches(spark, server.url)
            with KafkaServer(Path(folder) / "kafka") as kafka:
                fill_kafka(kafka.url.removeprefix("kafka://"))
                rows += measure_kafka(spark, kafka)
        finally:
            spark.stop()
    return rows + spark_failover.run()


if __name__ == "__main__":
    main(run)

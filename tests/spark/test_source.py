"""The format `echelon` in real queries of a real Spark."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.cimpl import NewTopic
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.streaming.query import StreamingQuery

from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.local import NatsServer
from echelon.members.admin import create_group
from echelon.spark.order import in_order
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name, read_all
from tests.brokers.harnesses import KafkaHarness, result
from tests.brokers.nats.harness import NatsHarness
from tests.servers import KafkaServers
from tests.spark.places import Place, by_partition


class Collected:
    """What a query gave to `foreachBatch`, batch by batch; it fails in the batch `fails_in`, after it has the rows."""

    def __init__(self, frame: DataFrame, checkpoint: Path) -> None:
        self.frame = frame
        self.checkpoint = str(checkpoint)
        self.batches: dict[int, list[pa.Table]] = {}
        self.fails_in = -1

    def start(self, *, now: bool = True) -> StreamingQuery:
        writer = self.frame.writeStream.option("checkpointLocation", self.checkpoint).foreachBatch(self._take)
        return writer.trigger(availableNow=True).start() if now else writer.start()

    def run(self) -> None:
        """Read what is there, and end."""
        query = self.start()
        assert query.awaitTermination(60)

    def rows(self) -> list[pa.RecordBatch]:
        """The rows of all batches, each batch as it was given last."""
        return [batch for tries in self.batches.values() for batch in tries[-1].to_batches()]

    def _take(self, frame: DataFrame, number: int) -> None:
        self.batches.setdefault(number, []).append(frame.toArrow())
        if number == self.fails_in:
            raise RuntimeError("the sink failed")


def stream(spark: SparkSession, place: Place, **options: str) -> DataFrame:
    given = {**place.options, "startingPositions": "earliest", **options}
    return spark.readStream.format("echelon").options(**given).load()


def test_a_batch_has_every_message_once_and_a_task_for_each_partition(spark: SparkSession, place: Place) -> None:
    assert spark.read.format("echelon").options(**place.options).load().count() == 0
    place.send(2000)
    frame = spark.read.format("echelon").options(**place.options).load()
    table = frame.withColumn("task", spark_partition_id()).toArrow()
    place.check(table.drop(["task"]).to_batches())
    tasks = {(row["partition"], row["task"]) for row in table.select(["partition", "task"]).to_pylist()}
    is_computed = place.stream.partitioning == "computed"
    assert len({task for _, task in tasks}) == (1 if is_computed else place.partitions)
    assert len(tasks) == place.partitions
    place.send(10)
    assert frame.count() == 2000, "a frame is planned once"


def test_a_query_replays_a_batch_that_failed_and_goes_on_from_its_checkpoint(
    spark: SparkSession, place: Place, tmp_path: Path
) -> None:
    place.send(900)
    collected = Collected(stream(spark, place, maxMessagesPerTrigger="300"), tmp_path)
    collected.fails_in = 1
    with pytest.raises(Exception, match="the sink failed"):
        collected.run()
    collected.fails_in = -1
    place.send(100)
    collected.run()
    first, second = collected.batches[1]
    assert first.equals(second)
    assert [len(tries) for tries in collected.batches.values()] == [1, 2, 1, 1]
    assert all(tries[-1].num_rows <= 300 for tries in collected.batches.values())
    place.check(collected.rows())


def test_a_query_that_runs_on_gets_what_comes_and_tells_how_far_it_is(
    spark: SparkSession, computed: Place, tmp_path: Path
) -> None:
    collected = Collected(stream(spark, computed), tmp_path)
    query = collected.start(now=False)
    try:
        for _ in range(3):
            computed.send(50)
            query.processAllAvailable()
            computed.check(collected.rows())
        progress = query.lastProgress
        assert progress is not None
        assert progress.sources[0].latestOffset == progress.sources[0].endOffset
    finally:
        query.stop()


def test_readers_compute_partitions_in_parallel_and_order_is_restored(
    spark: SparkSession, computed: Place, tmp_path: Path
) -> None:
    computed.send(20_000)
    read = spark.read.format("echelon").options(**computed.options, tasks="2").load()
    assert read.rdd.getNumPartitions() == 2
    collected = Collected(in_order(stream(spark, computed, tasks="2")), tmp_path)
    collected.frame = collected.frame.withColumn("task", spark_partition_id())
    collected.run()
    (streamed,) = collected.batches[0]
    for table in (streamed, in_order(read).withColumn("task", spark_partition_id()).toArrow()):
        computed.check(table.drop(["task"]).to_batches())
        tasks = {(row["partition"], row["task"]) for row in table.select(["partition", "task"]).to_pylist()}
        assert len(tasks) == computed.partitions


def test_a_group_over_several_streams_is_read_from_where_it_began(spark: SparkSession, nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "derived")
    places = [Place(harness, nats_server.url, 2) for _ in range(2)]
    group = name("several")

    async def make() -> None:
        async with harness.connect() as broker:
            await create_group(broker, group, [place.stream for place in places], start="earliest")

    asyncio.run(make())
    for place in places:
        place.send(300)
    expected = {
        f"{place.stream.name}/{partition}": numbers for place in places for partition, numbers in place.sent.items()
    }
    found: dict[str, list[int]] = {}
    for _ in range(100):  # The derived streams take a moment.
        frame = spark.read.format("echelon").options(broker=nats_server.url, group=group).load()
        rows: list[dict[str, Any]] = frame.select("partition", "sequence", "data").toArrow().to_pylist()
        found = by_partition(rows)
        if sum(map(len, found.values())) == 600:
            break
    assert found == expected


def test_the_gaps_of_a_compacted_topic_are_no_loss(
    spark: SparkSession, kafka_servers: KafkaServers, tmp_path: Path
) -> None:
    harness = KafkaHarness(kafka_servers(properties={"log.cleaner.backoff.ms": "200"}))
    topic = name("compacted")
    config = {"cleanup.policy": "compact", "segment.ms": "100", "max.compaction.lag.ms": "100"}

    async def fill() -> None:
        await result(harness.admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic])
        described = Stream(topic, 1, RecordKey(), "native")
        for n in range(50):
            await harness.publish(described, [Sent("same", f"{n}".encode()), Sent(f"{n}", b"kept")])
        async with harness.connect() as broker, asyncio.timeout(60):
            reader = await broker.reader("group", described)
            same = 50
            while same > 1:
                await asyncio.sleep(0.2)
                await harness.publish(described, [Sent("roll", b"")])
                messages = await read_all(reader, 0, 0, (await reader.info()).bounds[0].end)
                same = sum(message.key == b"same" for message in messages)

    asyncio.run(fill())
    options = {"broker": harness.server.url, "stream": topic, "startingPositions": "earliest"}
    frame = spark.readStream.format("echelon").options(**options, maxMessagesPerTrigger="7").load()
    collected = Collected(frame, tmp_path)
    collected.run()
    rows = [row for batch in collected.rows() for row in batch.to_pylist() if row["key"] != b"roll"]
    assert [row["key"] for row in rows if row["data"] == b"kept"] == [f"{n}".encode() for n in range(50)]
    assert [row["data"] for row in rows if row["key"] == b"same"] == [b"49"]
    assert [row["sequence"] for row in rows] == sorted({row["sequence"] for row in rows})


def test_what_is_wrong_is_said_when_the_frame_is_made_and_no_secret_is_shown(
    spark: SparkSession, computed: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = {"broker.user": "me", "broker.password": "hunter2"}
    with pytest.raises(AnalysisException, match="'maxoffsets' is no option of the format echelon") as caught:
        spark.readStream.format("echelon").options(**computed.options, **secret, maxOffsets="1").load()
    assert "hunter2" not in str(caught.value)
    frame = spark.read.format("echelon").options(**computed.options, **secret).load()
    with pytest.raises(Exception, match=r"Denied|StreamNotFound|Unreachable") as refused:
        spark.read.format("echelon").options(**{**computed.options, "stream": "none"}, **secret).load().collect()
    frame.explain("extended")
    assert "hunter2" not in str(refused.value) + capfd.readouterr().out

"""What is special about streams as targets."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from echelon.errors import InvalidConfig, TooLarge
from echelon.spark.sinks.base import Part
from echelon.spark.sinks.kafka import KafkaBatchSink
from tests.members.sinks.harnesses import KafkaHarness
from tests.spark.sinks.conftest import new_harness
from tests.spark.sinks.harnesses import BatchHarness, Seat


@pytest.fixture
def kafka(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> BatchHarness:
    return new_harness(request, "kafka", spark, tmp_path)


@pytest.fixture
def nats(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> BatchHarness:
    return new_harness(request, "nats", spark, tmp_path)


def test_key_headers_and_topic_of_a_row_arrive(kafka: BatchHarness) -> None:
    frame = kafka.spark.sql(
        f"SELECT '0' partition, 7L sequence, '{kafka.name}' subject, 'k' key, map('a', 'b') headers, X'00ff' data"
    )

    async def scenario() -> None:
        async with KafkaBatchSink(kafka.address) as sink:
            seat = Seat(kafka, sink, 5)
            await seat.open(7)
            assert await seat.write(8, frame=frame)

    asyncio.run(scenario())
    [message] = KafkaHarness(kafka.address, kafka.name).read(kafka.name, 1)
    assert (message.key(), message.value()) == (b"k", b"\x00\xff")
    assert message.headers() == [("a", b"b"), ("Echelon-Origin", b"0:7")]


def test_a_part_that_is_refused_does_not_undo_the_others(nats: BatchHarness) -> None:
    async def scenario() -> None:
        async with nats.sink() as mine, nats.sink() as yours:
            seat, other = Seat(nats, mine, 5, "01"), Seat(nats, yours, 9, "0")
            await seat.open()
            await other.open()
            assert not await seat.write(2)
            assert await nats.results() == {"1": [0, 1]}
            assert await seat.open() == [None, 2]

    asyncio.run(scenario())


def test_more_results_than_a_batch_on_nats_can_hold_are_refused(nats: BatchHarness) -> None:
    async def scenario() -> None:
        async with nats.sink() as sink:
            seat = Seat(nats, sink, 5)
            await seat.open()
            with pytest.raises(TooLarge):
                await seat.write(1000)
            assert await seat.open() == [0]
            assert await seat.write(900)
        assert await nats.results() == {"0": list(range(900))}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("sequence, data", "no column partition"),
        ("cast(null as string) partition, data", "a result has no partition"),
        ("partition, sequence as data", "neither binary nor a string"),
        ("partition, data, 'k' as key", "have no key"),
        ("partition, data, 'elsewhere' as subject", "does not take elsewhere"),
    ],
)
def test_rows_that_cannot_be_sent_are_refused(nats: BatchHarness, columns: str, said: str) -> None:
    frame = nats.frame({"0": [0]}).selectExpr(*columns.split(", "))

    async def scenario() -> None:
        sink = nats.sink()
        if "elsewhere" in columns:
            sink._target = None  # type: ignore[attr-defined]  # as if it was made without
        async with sink:
            await sink.open(nats.place(), epoch=5, reset=0, position=0, keep=False)
            with pytest.raises(InvalidConfig, match=said):
                await asyncio.to_thread(sink.write, frame, [Part(nats.place(), 5, 0, 1)])
        assert await nats.results() == {}

    asyncio.run(scenario())

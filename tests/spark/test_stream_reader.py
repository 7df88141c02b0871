"""The stream reader as Spark calls it, but without Spark: where batches end, and what is done about lost messages."""

import asyncio
import json
import pickle
import threading
import time
from itertools import pairwise

import pyarrow as pa
import pytest
from confluent_kafka.cimpl import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from echelon.errors import InvalidConfig, OutOfRange, Unreachable
from echelon.local import KafkaServer
from echelon.spark.offsets import Offset, from_offset
from echelon.spark.options import parse
from echelon.spark.ranges import read_slice
from echelon.spark.stream_reader import StreamReader
from tests.brokers.harnesses import KafkaHarness
from tests.brokers.nats.harness import NatsHarness
from tests.servers import NatsServers
from tests.spark.places import Place, by_partition

ALL = ReadAllAvailable()


def reader_of(place: Place, **options: str) -> StreamReader:
    return StreamReader(parse({**place.options, "startingPositions": "earliest", **options}))


def next_of(reader: StreamReader, start: Offset, limit: ReadLimit = ALL) -> Offset:
    """The next offset, by way of JSON as Spark has it."""
    end: Offset = json.loads(json.dumps(reader.latestOffset(json.loads(json.dumps(start)), limit)))
    return end


def read(reader: StreamReader, start: Offset, end: Offset) -> list[pa.RecordBatch]:
    return [batch for part in reader.partitions(start, end) for batch in read_slice(part)]


def test_batches_within_a_limit_are_all_there_is_and_read_again_the_same(place: Place) -> None:
    place.send(1000)
    reader = reader_of(place, maxMessagesPerTrigger="150")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(150)
    offsets = [reader.initialOffset()]
    assert offsets == [reader.initialOffset()]
    while offsets[-1] != (end := next_of(reader, offsets[-1], limit)):
        offsets.append(end)
    assert len(offsets) == 8
    batches = [read(reader, start, end) for start, end in pairwise(offsets)]
    assert all(sum(batch.num_rows for batch in some) <= 150 for some in batches)
    place.check(batch for some in batches for batch in some)
    # Another process, which has only the offsets.
    again = pickle.loads(pickle.dumps(reader))  # noqa: S301 - it is our own
    assert [read(again, start, end) for start, end in pairwise(offsets)] == batches
    assert reader.reportLatestOffset() == offsets[-1]


def test_a_limit_of_bytes_is_kept_about(place: Place) -> None:
    place.send(1000)
    reader = reader_of(place, maxBytesPerTrigger="4000")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(4000)
    start = reader.initialOffset()
    batches = read(reader, start, next_of(reader, start, limit))
    size = sum(batch.column(name).nbytes for batch in batches for name in ("key", "headers", "data"))
    assert 2000 < size < 6000


def test_nothing_new_gives_the_same_offset_after_a_while(place: Place) -> None:
    place.send(10)
    reader = reader_of(place, startingPositions="latest")
    start = reader.initialOffset()
    began = time.monotonic()
    assert next_of(reader, start) == start
    assert 0.3 < time.monotonic() - began < 3
    assert reader.partitions(start, start) == []


def test_a_message_that_comes_ends_the_waiting(place: Place) -> None:
    reader = reader_of(place, startingPositions="latest")
    start = reader.initialOffset()
    sending = threading.Timer(0.1, place.send, [1])
    sending.start()
    began, end = time.monotonic(), start
    while end == start and time.monotonic() < began + 30:
        end = next_of(reader, start)
    sending.join()
    place.check(read(reader, start, end))


def test_with_available_now_later_messages_are_left(place: Place) -> None:
    place.send(100)
    reader = reader_of(place)
    reader.prepareForTriggerAvailableNow()
    sent = {name: list(numbers) for name, numbers in place.sent.items()}
    place.send(100)
    start = reader.initialOffset()
    end = next_of(reader, start)
    rows = [row for batch in read(reader, start, end) for row in batch.to_pylist()]
    assert by_partition(rows) == sent
    assert next_of(reader, end) == end


def test_a_time_is_a_starting_position(place: Place) -> None:
    place.send(50)
    time.sleep(0.05)
    now = int(time.time() * 1000)
    time.sleep(0.05)
    place.sent.clear()
    place.send(70)
    reader = reader_of(place, startingPositions=str(now))
    start = reader.initialOffset()
    place.check(read(reader, start, next_of(reader, start)))


def test_a_stream_made_anew_fails_the_query_with_the_reason(place: Place) -> None:
    place.send(100)
    reader = reader_of(place)
    start = reader.initialOffset()
    end = next_of(reader, start)
    place.make_anew()
    place.send(300)
    for again in (reader, reader_of(place)):
        with pytest.raises(OutOfRange, match=f"the stream {place.stream.name} was made anew. Start a query"):
            next_of(again, end)
        with pytest.raises(OutOfRange, match="was made anew"):
            again.partitions(start, end)


def test_a_stream_made_anew_is_read_from_its_beginning_if_loss_is_accepted(place: Place) -> None:
    place.send(100)
    reader = reader_of(place, failOnDataLoss="false")
    start = reader.initialOffset()
    end = next_of(reader, start)
    place.make_anew()
    place.send(50)
    assert reader.partitions(start, end) == []
    place.check(read(reader, end, next_of(reader, end)))


def test_deleted_messages_fail_the_query_unless_loss_is_accepted(place: Place) -> None:
    place.send(400)
    reader = reader_of(place)
    start = reader.initialOffset()
    place.truncate(20)
    with pytest.raises(OutOfRange, match="holds"):
        read(reader, start, next_of(reader, start))
    again = reader_of(place, failOnDataLoss="false")
    rows = [row for batch in read(again, start, next_of(again, start)) for row in batch.to_pylist()]
    assert {row["partition"] for row in rows} == set(place.sent)
    for name, numbers in by_partition(rows).items():
        assert numbers == place.sent[name][-len(numbers) :]
    assert min(row["sequence"] for row in rows) == 20


def test_a_position_beyond_the_end_is_an_error(place: Place) -> None:
    place.send(10)
    reader = reader_of(place)
    start = {**reader.initialOffset(), "1": 5000}
    with pytest.raises(OutOfRange, match=r"partition 1 of .* not 5000"):
        next_of(reader, start)


def test_a_checkpoint_of_other_partitions_is_refused(computed: Place) -> None:
    computed.send(10)
    start = reader_of(computed).initialOffset()
    with pytest.raises(InvalidConfig, match="positions of 4 partitions, and the query reads 5"):
        next_of(reader_of(computed, partitions="5"), start)


def test_partitions_that_a_topic_gains_are_read_from_their_first_message(kafka_server: KafkaServer) -> None:
    harness = KafkaHarness(kafka_server)
    place = Place(harness, kafka_server.url, 2)
    place.send(10)
    reader = reader_of(place)
    start = next_of(reader, reader.initialOffset())
    harness.admin.create_partitions([NewPartitions(place.stream.name, 3)])[place.stream.name].result(10)
    asyncio.run(harness.settle(place.stream.name, 3))
    producer = KafkaHarness(kafka_server).producer  # The other one does not know of it yet.
    producer.produce(place.stream.name, b"100", partition=2)
    assert producer.flush(10) == 0
    end, until = start, time.monotonic() + 30
    while end.get("2") != 1 and time.monotonic() < until:
        end = next_of(reader, start)
    rows = [row for batch in read(reader, start, end) for row in batch.to_pylist()]
    assert by_partition(rows) == {"2": [100]}
    assert from_offset(end) == {**from_offset(start), "2": 1}


def test_while_its_broker_is_away_a_query_waits(nats_servers: NatsServers) -> None:
    server = nats_servers()
    place = Place(NatsHarness(server, "computed"), server.url, 2)
    place.send(10)
    options = {"broker.timeout": "0.5"}
    reader = reader_of(place, **options)
    start = reader.initialOffset()
    server.kill()
    assert next_of(reader, start) == start
    with pytest.raises(Unreachable):
        reader_of(place, **options).initialOffset()
    server.start()
    end, until = start, time.monotonic() + 30
    while end == start and time.monotonic() < until:
        end = next_of(reader, start)
    place.check(read(reader, start, end))

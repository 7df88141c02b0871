"""Slices read without Spark, on real brokers."""

import pickle
from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pytest
from msgspec.structs import replace

from echelon.errors import OutOfRange, StreamNotFound, Unreachable
from echelon.local import NatsServer
from echelon.spark import process, ranges
from echelon.spark.batch_reader import BatchReader
from echelon.spark.options import parse
from echelon.spark.ranges import SPARK_SCHEMA, Range, Slice, read_slice, slices
from tests.brokers.nats.harness import NatsHarness
from tests.spark.places import Place, by_partition


def parts_of(place: Place, **options: str) -> list[Slice]:
    """What the tasks of a batch have, as they get it."""
    reader = BatchReader(parse({**place.options, **options}))
    return [pickle.loads(pickle.dumps(part)) for part in reader.partitions()]  # noqa: S301 - it is our own


def read(parts: Sequence[Slice]) -> list[pa.RecordBatch]:
    return [batch for part in parts for batch in read_slice(part)]


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few messages are divided among tasks as many are."""
    monkeypatch.setattr(ranges, "_LEAST", 100)


def test_every_message_of_a_stream_is_in_its_slices_once_and_in_order(place: Place) -> None:
    place.send(3000)
    parts = parts_of(place, tasks="3")
    assert len(parts) == (3 if place.stream.partitioning == "computed" else place.partitions)
    batches = read(parts)
    assert {batch.schema for batch in batches} == {SPARK_SCHEMA}
    place.check(batches)
    assert read(parts) == batches


def test_a_range_is_what_lies_in_it(place: Place) -> None:
    place.send(1000)
    parts = parts_of(place)
    where = parts[0].where
    rows = [row for batch in read(parts) for row in batch.to_pylist()]
    for number in range(place.partitions):
        own = [row for row in rows if row["partition"] == str(number)]
        begin, end = own[3]["sequence"], own[-3]["sequence"]
        part = Slice(where, (Range(str(number), number, begin, end),))
        found = [row for batch in read_slice(part) for row in batch.to_pylist()]
        assert [row["data"] for row in found] == [row["data"] for row in own[3:-3]]


def test_ranges_of_several_partitions_read_together_keep_their_own_bounds(computed: Place) -> None:
    computed.send(1000)
    where = parts_of(computed)[0].where
    wanted = [Range("0", 0, 1, 500), Range("2", 2, 300, 1001), Range("3", 3, 700, 700)]
    rows = [row for batch in read(slices(where, wanted, 4)) for row in batch.to_pylist()]
    # Of a stream that holds nothing else, message number n has the sequence n + 1.
    expected = {
        "0": [number for number in computed.sent["0"] if number + 1 < 500],
        "2": [number for number in computed.sent["2"] if number + 1 >= 300],
    }
    assert by_partition(rows) == expected


def test_an_empty_range_needs_no_task(place: Place) -> None:
    assert parts_of(place) == []
    place.send(10)
    assert parts_of(place, startingPositions="latest") == []


def test_a_read_that_is_given_up_leaves_the_connection_in_order(place: Place) -> None:
    place.send(3000)
    parts = parts_of(place)
    for part in parts:
        reading = read_slice(part)
        assert len(list(islice(reading, 1))) == 1
        del reading
    place.check(read(parts))


def test_a_range_that_was_deleted_is_an_error(place: Place) -> None:
    place.send(500)
    parts = parts_of(place)
    place.truncate(20)
    with pytest.raises(OutOfRange, match="holds"):
        read(parts)


def test_a_stream_made_anew_is_another_one(place: Place) -> None:
    place.send(100)
    parts = parts_of(place)
    place.make_anew()
    place.send(200)
    with pytest.raises(OutOfRange, match="made anew"):
        read(parts)


def test_a_broker_that_was_away_is_connected_to_when_it_is_back(nats_server: NatsServer) -> None:
    place = Place(NatsHarness(nats_server, "token"), nats_server.url, 2)
    place.send(10)
    (part, *_) = parts_of(place)
    nowhere = replace(part.where, access=process.Access("nats://127.0.0.1:1", (("timeout", "0.2"),)))
    with pytest.raises(Unreachable):
        read([Slice(nowhere, part.ranges)])
    with pytest.raises(StreamNotFound):
        read([Slice(replace(part.where, stream=replace(part.where.stream, name="none")), part.ranges)])
    assert read([part])

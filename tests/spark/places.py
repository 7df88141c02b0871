"""Streams on real brokers for tests of the source, and what must be read of them."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from echelon.brokers.base import Broker
from echelon.group.config import Stream
from echelon.keys import kafka_partition, nats_partition
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name

KEYS = 40


class Harness(Protocol):
    def connect(self) -> Broker: ...
    async def create_stream(self, name: str, partitions: int) -> Stream: ...
    async def delete_stream(self, stream: Stream) -> None: ...
    async def publish(self, stream: Stream, messages: Sequence[Sent]) -> None: ...
    async def truncate(self, group: str, stream: Stream, partition: int, before: int) -> None: ...


class Place:
    """A stream that is filled with numbered messages of many keys, and read as the options say.

    `sent` has the numbers by partition, in order.
    """

    def __init__(self, harness: Harness, url: str, partitions: int) -> None:
        self.harness = harness
        self.url = url
        self.partitions = partitions
        self.stream = asyncio.run(harness.create_stream(name("source"), partitions))
        self.sent: dict[str, list[int]] = defaultdict(list)
        self.count = 0

    @property
    def options(self) -> dict[str, str]:
        """The options of the format that name the stream."""
        found = {"broker": self.url, "stream": self.stream.name}
        if self.stream.partitioning != "native":
            key = f"tokens:{self.stream.name}.*:1"
            found |= {"partitioning": self.stream.partitioning, "partitions": str(self.partitions), "key": key}
        return found

    def send(self, count: int) -> None:
        """Store so many more messages."""
        numbers = range(self.count, self.count + count)
        messages = [Sent(f"k{n % KEYS}", f"{n}".encode(), {"number": f"{n}"}) for n in numbers]
        asyncio.run(self.harness.publish(self.stream, messages))
        for sent in messages:
            self.sent[self.partition(sent.key.encode())].append(int(sent.data))
        self.count += count

    def make_anew(self) -> None:
        """Delete the stream and make it again, empty."""
        asyncio.run(self.harness.delete_stream(self.stream))
        asyncio.run(self.harness.create_stream(self.stream.name, self.partitions))
        self.sent.clear()

    def truncate(self, before: int) -> None:
        """Delete the messages of all partitions below a sequence."""
        for number in range(self.partitions):
            asyncio.run(self.harness.truncate("", self.stream, number, before))

    def partition(self, key: bytes) -> str:
        """The name of a key's partition."""
        hashed = kafka_partition if self.stream.partitioning == "native" else nats_partition
        return str(hashed(key, self.partitions))

    def check(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Fail unless the rows are all that was sent, each once, and each partition's in order."""
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert by_partition(rows) == self.sent
        last: dict[str, int] = {}
        for row in rows:
            number, key = int(row["data"]), f"k{int(row['data']) % KEYS}".encode()
            assert (row["key"], row["partition"]) == (key, self.partition(key))
            assert [(each["name"], each["value"]) for each in row["headers"]] == [("number", b"%d" % number)]
            expected = (
                self.stream.name if self.stream.partitioning == "native" else f"{self.stream.name}.{key.decode()}"
            )
            assert row["subject"] == expected
            assert row["sequence"] > last.get(row["partition"], -1)
            last[row["partition"]] = row["sequence"]


def by_partition(rows: Iterable[dict[str, Any]]) -> dict[str, list[int]]:
    """The numbers that the rows hold, by partition and in their order."""
    found: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        found[row["partition"]].append(int(row["data"]))
    return found

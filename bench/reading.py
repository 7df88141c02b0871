"""What the benchmarks of reading measure on any broker, through the calls that members and Spark make."""

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from multiprocessing import get_context
from pathlib import Path

from echelon.brokers.base import Broker, Reader
from echelon.brokers.connect import open_broker
from echelon.group.config import Stream
from echelon.model import Message

FOLLOWERS = 20
RECORDS = 200

Read = Callable[[Reader, int, int, int], Awaitable[int]]


async def read_messages(reader: Reader, partition: int, start: int, end: int) -> int:
    """Read a range into messages; how many there were."""
    return sum([len(messages) async for messages in reader.read(partition, start, end)])


async def read_batches(reader: Reader, partition: int, start: int, end: int) -> int:
    """Read a range into Arrow record batches; how many rows there were."""
    return sum([batch.num_rows async for batch in reader.read_arrow(partition, start, end)])


def rate(url: str, stream: Stream, read: Read, messages: int, *, at_once: bool, partitions: int = 0) -> float:
    """Messages a second that one connection gives of a stream's partitions, or the first few, which hold so many.

    They are read side by side (`at_once`), or one after the other.
    """

    async def run() -> float:
        async with open_broker(url) as broker:
            prepared = await broker.prepare("bench", stream)
            reader = await broker.reader("bench", prepared)
            began = time.perf_counter()
            bounds = list((await reader.info()).bounds.items())[: partitions or None]
            reading = [read(reader, number, held.first, held.end) for number, held in bounds]
            counts = await asyncio.gather(*reading) if at_once else [await each for each in reading]
            seconds = time.perf_counter() - began
            if sum(counts) != messages:
                raise AssertionError(counts)
            return messages / seconds

    return asyncio.run(run())


def growth(url: str, stream: Stream, messages: int, *, at_once: bool) -> float:
    """MiB by which a new process grows, at most, while it reads all of a stream into Arrow."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(_grow, (url, stream, messages), {"at_once": at_once})


def _grow(url: str, stream: Stream, messages: int, *, at_once: bool) -> float:
    from echelon.brokers.arrow import from_messages

    from_messages([Message("0", 1, "", b"", (), b"", 0)])  # What Arrow itself takes does not count.
    before = peak()
    rate(url, stream, read_batches, messages, at_once=at_once)
    return peak() - before


def peak() -> float:
    """The most MiB that this process has taken so far."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def latency(url: str) -> float:
    """Median milliseconds from an append until every follower, each with a connection of its own, has the record."""
    return asyncio.run(_latency(url))


async def _latency(url: str) -> float:
    arrivals: dict[int, list[float]] = defaultdict(list)
    everywhere = asyncio.Event()

    async def follow(broker: Broker) -> None:
        async with broker:
            async for entries in (await broker.log("latency")).follow(0):
                for entry in entries:
                    arrivals[entry.sequence].append(time.perf_counter())
                    if len(arrivals[entry.sequence]) == FOLLOWERS:
                        everywhere.set()

    async with open_broker(url) as broker:
        log = await broker.create_log("latency")
        tasks = [asyncio.create_task(follow(open_broker(url))) for _ in range(FOLLOWERS)]
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
    return statistics.median(spans) * 1000

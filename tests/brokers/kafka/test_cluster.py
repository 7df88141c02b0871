"""Three brokers with replicated topics: a leader that dies or hangs takes nothing with it, and is not missed."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it exports
    AdminClient,
    PartitionMetadata,
)
from confluent_kafka.cimpl import NewTopic

from echelon.brokers.base import Reader
from echelon.brokers.kafka import KafkaBroker
from echelon.errors import Unreachable
from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.local import KafkaServer
from echelon.local.server import HOST, free_port
from echelon.model import Entry, Message
from echelon.testing.contract.harness import again, name, read_all
from tests.brokers.harnesses import result
from tests.servers import skip_if_missing

T = TypeVar("T", Entry, Message)

_OLD = 1500  # As many messages of 4 to 16 kB are more than a consumer fetches ahead.
_FAULTS = ((KafkaServer.kill, KafkaServer.start), (KafkaServer.pause, KafkaServer.resume))


class Cluster:
    """Three Kafkas, each a broker and a controller, by the number that each has in the cluster."""

    def __init__(self, folder: Path) -> None:
        ports: list[int] = []
        while len(ports) < 9:
            ports.append(free_port(ports))
        places = {1: ports[0:3], 2: ports[3:6], 3: ports[6:9]}
        voters = ",".join(f"{number}@{HOST}:{controller}" for number, (_, _, controller) in places.items())
        self.servers: dict[int, KafkaServer] = {}
        for number, (port, internal, controller) in places.items():
            listeners = f"CLIENT://{HOST}:{port},INTERNAL://{HOST}:{internal}"
            properties = {
                "node.id": f"{number}",
                "controller.quorum.voters": voters,
                "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
                "advertised.listeners": listeners,
            }
            identity = ("-t", "AAAAAAAAAAAAAAAAAAAAAQ")  # All have the same.
            self.servers[number] = KafkaServer(
                folder / f"{number}", port=port, properties=properties, format_options=identity
            )
        self.addresses = ",".join(f"{HOST}:{port}" for port, _, _ in places.values())

    def start(self) -> None:
        with ThreadPoolExecutor(3) as starting:  # None answers before it has found another.
            list(starting.map(KafkaServer.start, self.servers.values()))
        self._admin = AdminClient({"bootstrap.servers": self.addresses, "log_level": 0})
        while len(self._admin.list_topics(timeout=30).brokers) < 3:
            time.sleep(0.1)

    async def create_beside(self, topic: str, other: str) -> None:
        """Make a topic whose replicas are where those of `other` are, so that one broker leads both."""
        replicas = (await asyncio.to_thread(self._partition, other)).replicas
        new = NewTopic(topic, 1, replica_assignment=[replicas], config={"min.insync.replicas": "2"})
        await result(self._admin.create_topics([new], operation_timeout=10)[topic])
        await self.leader(topic)

    async def leader(self, topic: str) -> KafkaServer:
        """Who leads the topic's only partition, once all replicas are in sync."""
        while True:
            found = await asyncio.to_thread(self._partition, topic)
            if found.leader in self.servers and len(found.isrs) == 3:
                return self.servers[found.leader]
            await asyncio.sleep(0.1)

    def _partition(self, topic: str) -> PartitionMetadata:
        while True:
            with suppress(KeyError):  # Not every broker has heard of it yet.
                return self._admin.list_topics(topic, timeout=30).topics[topic].partitions[0]
            time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    with ExitStack() as stack:
        for server in made.servers.values():
            stack.callback(server.kill)
        with skip_if_missing():
            made.start()
        yield made


class Writing:
    """Writes numbers, one after the other, until told to stop. `stored` has what was acknowledged, by sequence."""

    def __init__(self, write: Callable[[bytes], Awaitable[int]]) -> None:
        self.stored: dict[int, bytes] = {}
        self._write = write
        self._is_over = False

    async def run(self) -> None:
        number = 0
        while not self._is_over:
            number += 1
            data = b"%d" % number
            try:
                self.stored[await self._write(data)] = data
            except Unreachable:
                continue
            await asyncio.sleep(0.005)

    def stop(self) -> None:
        self._is_over = True

    async def until_more(self, got: Sequence[Entry | Message]) -> None:
        """Wait until 50 more are stored, and received."""
        least = len(self.stored) + 50
        while len(self.stored) < least or not got or got[-1].sequence < max(self.stored):
            await asyncio.sleep(0.02)

    def check(self, got: Sequence[Entry | Message]) -> None:
        """All that was acknowledged is there, in order. What was given up is there at most once, in its place."""
        found = {each.sequence: each.data for each in got}
        assert list(found) == list(range(got[0].sequence, got[-1].sequence + 1))
        assert list(self.stored) == sorted(self.stored)
        assert {sequence: found.get(sequence) for sequence in self.stored} == self.stored
        numbers = [int(each.data) for each in got]
        assert numbers == sorted(set(numbers))


async def collect(lists: AsyncGenerator[list[T], None], got: list[T]) -> None:
    async with aclosing(lists):
        async for each in lists:
            got += each


async def begin(reader: Reader) -> tuple[AsyncGenerator[list[Message], None], list[Message]]:
    """Begin to read the old messages; also gives the first of them."""
    while True:
        reading = reader.read(0, 0, _OLD)
        with suppress(Unreachable):
            return reading, await anext(reading)


async def read_on(reader: Reader, reading: AsyncGenerator[list[Message], None], got: list[Message]) -> None:
    """Read the old messages to their end; when the broker cannot be reached, go on after what has come."""
    while len(got) < _OLD:
        with suppress(Unreachable):
            await collect(reading, got)
        reading = reader.read(0, len(got), _OLD)


def test_logs_tails_and_ranges_go_on_when_leaders_die_or_hang(cluster: Cluster) -> None:
    url, group, topic = f"kafka://{cluster.addresses}", name("group"), name("topic")
    old = [b"%d" % number * 4000 for number in range(_OLD)]

    async def run() -> None:
        async with KafkaBroker(url, timeout=60) as patient:
            await patient.create_log(group)
            await cluster.create_beside(topic, f"__echelon.{group}")
            stream = await patient.prepare(group, Stream(topic, 1, RecordKey(), "native"))
            writer = await patient.writer()
            assert await asyncio.gather(*(writer.write(topic, data) for data in old)) == list(range(_OLD))

        async with KafkaBroker(url, timeout=3) as one, KafkaBroker(url, timeout=3) as two:
            log, reader = await one.log(group), await one.reader(group, stream)
            entries: list[Entry] = []
            messages: list[Message] = []
            appending = Writing((await two.log(group)).append)
            writing = Writing(partial((await two.writer()).write, topic))
            async with asyncio.TaskGroup() as tasks:
                writers = [tasks.create_task(each.run()) for each in (appending, writing)]
                followers = [
                    tasks.create_task(collect(log.follow(0), entries)),
                    tasks.create_task(collect(reader.tail(0, _OLD), messages)),
                ]
                for leave, come_back in _FAULTS:
                    leader = await cluster.leader(topic)
                    assert leader is await cluster.leader(f"__echelon.{group}")
                    reading, ranged = await begin(reader)
                    await asyncio.to_thread(leave, leader)
                    async with asyncio.timeout(45):  # A client that is told nothing waits a minute for who hangs.
                        await asyncio.gather(
                            appending.until_more(entries),
                            writing.until_more(messages),
                            read_on(reader, reading, ranged),
                        )
                    await asyncio.to_thread(come_back, leader)
                    assert [message.data for message in ranged] == old
                await asyncio.gather(appending.until_more(entries), writing.until_more(messages))
                appending.stop()
                writing.stop()
                await asyncio.gather(*writers)
                end = (await again(log.bounds)).end
                place = (await again(reader.info)).bounds[0]
                while entries[-1].sequence < end - 1 or messages[-1].sequence < place.end - 1:
                    await asyncio.sleep(0.02)
                for task in followers:
                    task.cancel()
            assert entries == await again(partial(log.read, 0, end))
            assert messages == await again(partial(read_all, reader, 0, _OLD, place.end))
        appending.check(entries)
        writing.check(messages)

    asyncio.run(run())

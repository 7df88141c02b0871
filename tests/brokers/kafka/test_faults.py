"""A Kafka that is not there, hangs, is killed, cannot store, or does not permit; and logs that lost something."""

import asyncio
import re
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the client does not mark what it exports
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from echelon.brokers.base import Log
from echelon.brokers.kafka import KafkaBroker
from echelon.brokers.kafka.faults import fault
from echelon.errors import Denied, EchelonError, StorageFull, TooLarge, Unreachable
from echelon.local import KafkaServer
from echelon.model import Entry
from echelon.testing.contract.harness import again, append_again, closing, name, take
from tests.brokers.harnesses import KafkaHarness, result
from tests.certificates import Certificates
from tests.kafka_security import FORMAT_OPTIONS, kafka_security
from tests.servers import KafkaServers, skip_if_missing


@pytest.mark.parametrize("code", [-137, -164, -185, -195, -197])
def test_what_librdkafka_says_while_a_broker_restarts_passes(code: int) -> None:
    error = fault(KafkaError(code), "find a topic")
    assert isinstance(error, Unreachable), f"{KafkaError(code)} is taken for {error!r}"


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN, KafkaError.INVALID_TXN_STATE])
def test_what_kafka_says_while_another_producer_takes_an_id_over_passes(code: int) -> None:
    assert isinstance(fault(KafkaError(code), "commit"), Unreachable)


def test_nobody_listens() -> None:
    async def scenario() -> None:
        broker = KafkaBroker("kafka://alice:wonderland@127.0.0.1:1", timeout=1)
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1.*refused") as caught:
            await broker.__aenter__()
        assert "wonderland" not in str(caught.value)

    asyncio.run(scenario())


def test_a_property_that_librdkafka_does_not_know_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(EchelonError, match="colour"):
            await KafkaBroker("kafka://127.0.0.1:1", **{"kafka.colour": "red"}).__aenter__()

    asyncio.run(scenario())


def test_a_server_that_hangs_is_unreachable_and_then_goes_on(kafka_servers: KafkaServers) -> None:
    server = kafka_servers()

    async def scenario() -> None:
        async with KafkaBroker(server.url, timeout=2) as broker:
            log = await broker.create_log(name("group"))
            first = await log.append(b"before")
            async with closing(log.follow(first)) as entries:
                got = await take(entries, 1)
                server.pause()
                try:
                    began = asyncio.get_running_loop().time()
                    with pytest.raises(Unreachable):
                        await log.append(b"unknown")
                    assert asyncio.get_running_loop().time() - began < 5
                finally:
                    server.resume()
                last = await append_again(log, b"after")
                while got[-1].sequence < last:
                    got += await take(entries, 1)
            # What was given up is stored at most once, and not after what came later.
            await asyncio.sleep(2)
            end = (await again(log.bounds)).end
            assert await again(lambda: log.read(first, end)) == got
            assert [entry.data for entry in got] in ([b"before", b"after"], [b"before", b"unknown", b"after"])

    asyncio.run(scenario())


def test_a_process_that_asks_all_the_time_outlives_outages(kafka_servers: KafkaServers) -> None:
    server = kafka_servers()
    topic = name("topic")
    admin = AdminClient({"bootstrap.servers": server.url.removeprefix("kafka://"), "log_level": 0})
    asyncio.run(result(admin.create_topics([NewTopic(topic, 1, 1)])[topic]))
    command = [sys.executable, "-m", "tests.brokers.kafka.asking", server.url, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for seconds in (0.0, 2.5, 2.5):
                if seconds:
                    server.stop()
                    time.sleep(seconds)  # Longer than a request may take.
                    server.start()
                began, answered = time.monotonic(), 0
                while answered < 20:
                    line = process.stdout.readline()
                    assert line, f"it ended with {process.wait()}"
                    answered += float(line) > began
        finally:
            process.kill()


def test_what_was_acknowledged_survives_kills_of_the_server_in_order_and_once(kafka_servers: KafkaServers) -> None:
    server = kafka_servers()

    async def scenario() -> None:
        group = name("group")
        async with KafkaBroker(server.url) as one, KafkaBroker(server.url) as two:
            log = await one.create_log(group)
            acknowledged: list[dict[int, bytes]] = [{}, {}]
            async with closing(log.follow(0)) as entries:
                got: list[Entry] = []
                async with asyncio.TaskGroup() as tasks:
                    for records, broker in zip(acknowledged, (one, two), strict=True):
                        tasks.create_task(append_many(300, await broker.log(group), records))
                    for count in (100, 200):
                        while min(map(len, acknowledged)) < count:
                            got += await take(entries, 1)
                        await asyncio.to_thread(server.kill)
                        await asyncio.to_thread(server.start)
                last = await append_again(log, b"last")
                while got[-1].sequence < last:
                    got += await take(entries, 1)
            assert got == await again(lambda: log.read(0, last + 1))
        by_sequence = {entry.sequence: entry.data for entry in got}
        assert list(by_sequence) == sorted(by_sequence)
        for records in acknowledged:
            assert list(records) == sorted(records)
            assert {sequence: by_sequence.get(sequence) for sequence in records} == records

    asyncio.run(scenario())


async def append_many(count: int, log: Log, acknowledged: dict[int, bytes]) -> None:
    """Append until so many are acknowledged; notes them by sequence."""
    while len(acknowledged) < count:
        data = name("record").encode()
        try:
            acknowledged[await log.append(data)] = data
        except Unreachable:
            await asyncio.sleep(0.05)


@pytest.fixture
def many_folders(tmp_path: Path) -> Iterator[KafkaServer]:
    """A Kafka that goes on when one of its folders fails; its own metadata is apart."""
    folders = {"log.dirs": f"{tmp_path / 'logs'},{tmp_path / 'more'}", "metadata.log.dir": str(tmp_path / "meta")}
    server = KafkaServer(tmp_path, properties=folders)
    with skip_if_missing():
        server.start()
    yield server
    server.kill()


def test_a_log_whose_folder_takes_no_more_is_full_and_loses_nothing(many_folders: KafkaServer) -> None:
    server = many_folders

    async def scenario() -> None:
        async with KafkaBroker(server.url, timeout=3) as broker:
            group = name("group")
            log = await broker.create_log(group)
            data = [bytes([n]) * 900_000 for n in range(8)]
            sequences = [await log.append(each) for each in data]
            # No file may grow beyond that: to the broker this is a disk that cannot be written to.
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (11 << 20, resource.RLIM_INFINITY))
            with pytest.raises(StorageFull):
                await append_to_the_limit(log, sequences, data)
            with pytest.raises(StorageFull):
                await (await broker.writer()).write(f"__echelon.{group}", b"by the same way as data")
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            last = await append_again(log, b"there is room again")
            entries = {entry.sequence: entry.data for entry in await again(lambda: log.read(0, last + 1))}
            assert len(sequences) > 8
            assert [entries.get(sequence) for sequence in sequences] == data[: len(sequences)]
            assert list(entries.values())[-1] == b"there is room again"

    asyncio.run(scenario())


def test_a_kafka_whose_only_folder_fails_stops_which_is_told_and_nothing_is_lost(kafka_servers: KafkaServers) -> None:
    server = kafka_servers()

    async def scenario() -> None:
        async with KafkaBroker(server.url, timeout=3) as broker:
            log = await broker.create_log(name("group"))
            data = [bytes([n]) * 900_000 for n in range(8)]
            sequences = [await log.append(each) for each in data]
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (11 << 20, resource.RLIM_INFINITY))
            with pytest.raises(Unreachable, match=r"no broker answers at 127\.0\.0\.1:\d+.*log folders fail"):
                await append_to_the_limit(log, sequences, data)
            assert server.status() == "died"
            await asyncio.to_thread(server.start)
            last = await append_again(log, b"there is room again")
            entries = {entry.sequence: entry.data for entry in await again(lambda: log.read(0, last + 1))}
            assert len(sequences) > 8
            assert [entries.get(sequence) for sequence in sequences] == data[: len(sequences)]
            assert list(entries.values())[-1] == b"there is room again"

    asyncio.run(scenario())


async def append_to_the_limit(log: Log, sequences: list[int], data: list[bytes]) -> None:
    for n in range(8, 20):
        data.append(bytes([n]) * 900_000)
        sequences.append(await log.append(data[-1]))


def test_a_message_beyond_the_limit_of_its_topic_is_too_large(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        topic = name("small")
        new = NewTopic(topic, 1, 1, config={"max.message.bytes": "1000"})
        await result(kafka_harness.admin.create_topics([new])[topic])
        async with kafka_harness.connect() as broker:
            writer = await broker.writer()
            await writer.write(topic, b"x" * 100)
            with pytest.raises(TooLarge, match=topic):
                await writer.write(topic, b"x" * 2000)
            assert await writer.write(topic, b"x" * 100) == 1

    asyncio.run(scenario())


def test_a_follower_beyond_the_end_waits_for_its_position(kafka_harness: KafkaHarness) -> None:
    async def scenario() -> None:
        async with kafka_harness.connect() as broker:
            log = await broker.create_log(name("group"))
            await asyncio.gather(*(log.append(f"{n}".encode()) for n in range(10)))
            async with closing(log.follow(20)) as entries:
                waiting = asyncio.create_task(take(entries, 1))
                await asyncio.gather(*(log.append(f"{n}".encode()) for n in range(10, 20)))
                await asyncio.sleep(0.5)
                assert not waiting.done()
                await log.append(b"20")
                assert [(entry.sequence, entry.data) for entry in await waiting] == [(20, b"20")]

    asyncio.run(scenario())


def test_permissions_that_do_not_suffice_are_denied(kafka_servers: KafkaServers, certificates: Certificates) -> None:
    security = kafka_security("plain", certificates)
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # Who comes in by the internal listeners.
    }
    server = kafka_servers(properties={**security.properties, **authorizer}, format_options=FORMAT_OPTIONS)
    internal = re.search(r"INTERNAL://([^,]+)", (server.data / "server.properties").read_text())
    assert internal is not None
    admin = AdminClient({"bootstrap.servers": internal[1], "log_level": 0})
    group = name("group")

    def permission(operation: AclOperation) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC,
            f"__echelon.{group}",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )

    async def scenario() -> None:
        async with KafkaBroker(f"kafka://{internal[1]}") as owner:
            own = await owner.create_log(group)
            await own.append(b"there")
            options = {"user": security.user, "password": security.password, "sasl_mechanism": "PLAIN"}
            async with KafkaBroker(server.url, **options) as broker:
                await denied(lambda: broker.create_log(name("other")))
                read = permission(AclOperation.READ)
                for answer in admin.create_acls([read]).values():
                    await result(answer)
                log = await broker.log(group)
                async with closing(log.follow(0)) as entries:
                    assert [entry.data for entry in await take(entries, 1)] == [b"there"]
                    await denied(lambda: log.append(b"forged"))
                    assert (await own.bounds()).end == 1

    asyncio.run(scenario())


async def denied(request: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(Denied):
        await request()

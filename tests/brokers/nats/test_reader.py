"""Reading real streams: what the contract suite does not ask of every broker."""

import asyncio
from contextlib import aclosing
from unittest.mock import patch

import pytest

from echelon.brokers.nats import NatsBroker, windows
from echelon.errors import OutOfRange
from echelon.group.config import Partitioning, Stream
from echelon.keys import TokensKey
from echelon.local import NatsServer
from echelon.model import Message
from echelon.testing.contract import Sent
from echelon.testing.contract.harness import name, read_all, take, whole
from tests.brokers.nats.filled import WAYS, filled, numbers, opened
from tests.brokers.nats.harness import NatsHarness, call, make_stream
from tests.servers import NatsServers


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("together", [1, 2, 20])
def test_windows_that_meet_leave_nothing_out(nats_server: NatsServer, way: Partitioning, together: int) -> None:
    """One partition alone, a few, and all at once, so that windows are a partition's own, and shared."""
    harness = NatsHarness(nats_server, way)

    async def run() -> None:
        with patch.object(windows, "MESSAGES", 64):
            async with harness.connect() as broker:
                reader = await opened(harness, broker, 20, 3000)
                end = (await reader.info()).bounds[0].end
                found: list[int] = []
                for first in range(0, 20, together):
                    partitions = range(20)[first : first + together]
                    parts = await asyncio.gather(*(read_all(reader, p, 1, end) for p in partitions))
                    for part in parts:
                        assert [message.sequence for message in part] == sorted({m.sequence for m in part})
                        found += numbers(part)
        assert sorted(found) == list(range(3000))

    asyncio.run(run())


@pytest.mark.parametrize("way", WAYS)
def test_reading_a_large_range_goes_on_over_a_restart(nats_servers: NatsServers, way: Partitioning) -> None:
    server = nats_servers()
    harness = NatsHarness(server, way)

    async def run() -> None:
        with patch.object(windows, "MESSAGES", 500):
            async with harness.connect() as broker:
                reader = await opened(harness, broker, 1, 10_000, size=500)
                for lists in (reader.tail(0, 1), reader.read(0, 1, 10_001)):
                    got: list[Message] = []
                    restarting = None
                    async with aclosing(lists):
                        while len(got) < 10_000:
                            got += await take(lists, 1)
                            if len(got) > 1000 and restarting is None:
                                restarting = asyncio.create_task(asyncio.to_thread(server.restart))
                            await asyncio.sleep(0.01)
                    assert restarting is not None
                    await restarting
                    assert numbers(got) == list(range(10_000))

    asyncio.run(run())


@pytest.mark.parametrize("way", ["token", "computed"])
def test_messages_deleted_one_by_one_are_no_loss(nats_server: NatsServer, way: Partitioning) -> None:
    harness = NatsHarness(nats_server, way)

    async def run() -> None:
        async with harness.connect() as broker:
            reader, _, source = await filled(harness, broker, 3, 200)
            deleted = {0, *range(50, 120), 198}
            for n in sorted(deleted):
                await call(nats_server.url, f"STREAM.MSG.DELETE.{source}", {"seq": n + 1})
            bounds = (await reader.info()).bounds[0]
            assert (bounds.first, bounds.end) == (2, 201)
            parts = [await read_all(reader, partition, 2, 201) for partition in range(3)]
            assert sorted(n for part in parts for n in numbers(part)) == sorted(set(range(200)) - deleted)

    asyncio.run(run())


def test_a_stream_that_keeps_the_last_message_of_each_subject_is_read_from_anywhere(nats_server: NatsServer) -> None:
    stream_name = name("stream")
    harness = NatsHarness(nats_server, "computed")

    async def run() -> None:
        await make_stream(nats_server.url, stream_name, [f"{stream_name}.*"], max_msgs_per_subject=1)
        described = Stream(stream_name, 1, TokensKey(f"{stream_name}.*", (1,)), "computed")
        await harness.publish(described, [Sent(f"{n % 10}", b"%d" % n) for n in range(100)])
        async with harness.connect() as broker:
            reader = await broker.reader("group", await broker.prepare("group", described))
            assert numbers(await read_all(reader, 0, 1, 101)) == list(range(90, 100))

    asyncio.run(run())


@pytest.mark.parametrize("way", WAYS)
def test_what_is_deleted_while_a_range_is_read_is_told(nats_server: NatsServer, way: Partitioning) -> None:
    harness = NatsHarness(nats_server, way)

    async def run() -> None:
        with patch.object(windows, "MESSAGES", 100):
            async with harness.connect() as broker:
                reader, _, source = await filled(harness, broker, 1, 2000)
                async with aclosing(reader.read(0, 1, 2001)) as lists:
                    got = await anext(lists)
                    await call(nats_server.url, f"STREAM.PURGE.{source}", {"seq": 1500})
                    with pytest.raises(OutOfRange) as caught:
                        async for messages in lists:
                            got += messages
                assert numbers(got) == list(range(len(got)))
                assert len(got) < 1000
                assert (caught.value.first, caught.value.end) == (1500, 2001)
                assert caught.value.position == len(got) + 1

    asyncio.run(run())


def test_large_messages_are_read_in_small_lists(nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "computed")

    async def run() -> None:
        async with harness.connect() as broker:
            reader = await opened(harness, broker, 1, 40, size=900_000)
            got: list[Message] = []
            async with aclosing(reader.read(0, 1, 41)) as lists:
                async for messages in lists:
                    assert len(messages) <= 4
                    got += messages
            assert numbers(got) == list(range(40))

    asyncio.run(run())


def test_what_lies_ahead_is_counted_for_each_partition_that_the_server_knows(nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "token")

    async def run() -> None:
        async with harness.connect() as broker:
            reader = await opened(harness, broker, 5, 1000)
            content = await whole(reader, 1000)
            for partition, messages in content.items():
                for place in (0, len(messages) // 3, len(messages) - 1):
                    assert await reader.lag(partition, messages[place].sequence) == len(messages) - place
                assert await reader.lag(partition, messages[-1].sequence + 1) == 0

    asyncio.run(run())


def test_partitions_of_a_group_over_several_streams_are_named_after_them(nats_server: NatsServer) -> None:
    harness = NatsHarness(nats_server, "computed")

    async def run() -> None:
        async with harness.connect() as broker:
            described = await harness.create_stream(name("stream"), 2)
            await harness.publish(described, [Sent("a", b"")])
            reader = await broker.reader("group", await broker.prepare("group", described), alone=False)
            [message] = [message for part in (await whole(reader, 1)).values() for message in part]
            assert message.partition in {f"{described.name}/0", f"{described.name}/1"}

    asyncio.run(run())


def test_no_consumer_stays_behind_a_long_range(nats_servers: NatsServers) -> None:
    server = nats_servers()
    harness = NatsHarness(server, "computed")

    async def run() -> None:
        async with harness.connect() as broker:
            reader, _, source = await filled(harness, broker, 3, 40_000)
            async with aclosing(reader.read(0, 1, 40_001)) as lists:
                async for _ in lists:
                    pass
            details = await call(server.url, f"STREAM.INFO.{source}")
            assert details["state"]["consumer_count"] == 0

    asyncio.run(run())


def test_a_long_range_is_read_without_a_consumer_where_none_is_allowed(nats_servers: NatsServers) -> None:
    server = nats_servers(
        config="""authorization { users: [
            {user: admin, password: admin},
            {user: reader, password: reader,
             permissions: {publish: {deny: "$JS.API.CONSUMER.>"}, subscribe: "_INBOX.>"}}
        ] }"""
    )
    harness = NatsHarness(server, "computed")
    harness.url = f"nats://admin:admin@127.0.0.1:{server.port}"

    async def run() -> None:
        async with (
            harness.connect() as admin,
            NatsBroker(f"nats://reader:reader@127.0.0.1:{server.port}") as broker,
        ):
            _, stream, _ = await filled(harness, admin, 2, 40_000)
            reader = await broker.reader("group", stream)
            parts = await asyncio.gather(*(read_all(reader, partition, 1, 40_001) for partition in range(2)))
            assert sorted(n for part in parts for n in numbers(part)) == list(range(40_000))

    asyncio.run(run())


OTHER_ACCOUNT = """accounts {
  OWNER: {
    jetstream: enabled
    users: [ {user: owner, password: owner} ]
    exports: [ {service: "$JS.API.>", response: stream} ]
  }
  GUEST: {
    users: [ {user: guest, password: guest} ]
    imports: [ {service: {account: OWNER, subject: "$JS.API.>"}, to: "JS.owner.>"} ]
  }
}"""


@pytest.mark.parametrize(
    ("config", "user", "guest", "options"),
    [
        ("jetstream { domain: hub }", "", "", {"domain": "hub"}),
        (OTHER_ACCOUNT, "owner:owner@", "guest:guest@", {"api_prefix": "JS.owner"}),
    ],
    ids=["domain", "api_prefix"],
)
def test_a_long_range_is_read_under_another_prefix_of_the_api(
    nats_servers: NatsServers, config: str, user: str, guest: str, options: dict[str, str]
) -> None:
    server = nats_servers(config=config)
    harness = NatsHarness(server, "computed")
    harness.url = f"nats://{user}127.0.0.1:{server.port}"

    async def run() -> None:
        with patch.object(windows, "MESSAGES", 100):
            async with (
                harness.connect() as owner,
                NatsBroker(f"nats://{guest}127.0.0.1:{server.port}", **options) as broker,
            ):
                _, stream, _ = await filled(harness, owner, 2, 5000)
                reader = await broker.reader("group", stream)
                parts = await asyncio.gather(*(read_all(reader, partition, 1, 5001) for partition in range(2)))
                assert sorted(n for part in parts for n in numbers(part)) == list(range(5000))

    asyncio.run(run())


def test_headers_are_the_same_however_a_message_is_read(nats_servers: NatsServers) -> None:
    """By direct get and through a consumer, as it was published and from a derived stream."""
    server = nats_servers()

    async def run() -> None:
        found = {}
        for way in WAYS:
            harness = NatsHarness(server, way)
            async with harness.connect() as broker:
                described = await harness.create_stream(name("stream"), 1)
                sent = [
                    Sent(
                        "a",
                        b"%d" % n,
                        {"Number": f"{n}", "Nats-Stream": "forged", "Nats-Sequence": "7"} if n % 3 else {},
                    )
                    for n in range(2000)
                ]
                await harness.publish(described, sent)
                group = name("group")
                reader = await broker.reader(group, await broker.prepare(group, described))
                for size in (100, 5000):
                    with patch.object(windows, "MESSAGES", size):
                        content = await whole(reader, 2000)
                    found[way, size] = [(message.data, message.headers) for message in content[0]]
        expected = [
            (each.data, tuple((header, value.encode()) for header, value in each.headers.items())) for each in sent
        ]
        assert all(each == expected for each in found.values())

    asyncio.run(run())

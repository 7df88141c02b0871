"""What is particular to NATS: the stream has to be fit for it, and a batch has limits."""

import asyncio
import itertools
import random
from typing import Any

import nats
import pytest

from echelon.brokers.nats.connection import Connection
from echelon.brokers.nats.replies import Reply
from echelon.errors import BrokerError, InvalidConfig, StreamNotFound, TooLarge, Unreachable
from echelon.local import NatsServer
from echelon.members.sinks.nats import NatsSink
from tests.brokers.nats.harness import call, make_stream
from tests.members.sinks.harnesses import NatsHarness, NatsIdsHarness
from tests.members.sinks.owner import Owner
from tests.servers import NatsServers


@pytest.fixture
def harness(nats_server: NatsServer) -> NatsHarness:
    made = NatsHarness(nats_server.url, unique())
    asyncio.run(made.prepare())
    return made


def unique() -> str:
    return f"r{random.getrandbits(48):x}"


FIT: dict[str, Any] = {"allow_rollup_hdrs": True, "allow_atomic": True}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**FIT, "subjects": ["STREAM.*"]}, r"take echelon\.position\.STREAM\.>"),
        ({**FIT, "subjects": ["STREAM.*", "echelon.position.STREAM.*"]}, r"take echelon\.position\.STREAM\.>"),
        ({**FIT, "allow_rollup_hdrs": False}, "rollups"),
        ({**FIT, "deny_purge": True, "allow_rollup_hdrs": False}, "rollups"),
        ({**FIT, "allow_atomic": False}, "atomic"),
        ({**FIT, "retention": "interest"}, "limits"),
        ({**FIT, "retention": "workqueue"}, "limits"),
        ({}, "take .*; to allow rollups .*; to allow atomic"),
    ],
)
def test_a_stream_that_is_not_fit(nats_server: NatsServer, config: dict[str, Any], words: str) -> None:
    stream = unique()

    async def scenario() -> None:
        subjects = config.get("subjects", ["STREAM.*", "echelon.position.STREAM.>"] if config else ["STREAM.*"])
        named = [subject.replace("STREAM", stream) for subject in subjects]
        await make_stream(nats_server.url, stream, named, **{k: v for k, v in config.items() if k != "subjects"})
        with pytest.raises(InvalidConfig, match=words.replace("STREAM", stream)):
            await NatsSink(nats_server.url, stream).__aenter__()

    asyncio.run(scenario())


def test_a_stream_that_is_not_there(nats_server: NatsServer) -> None:
    with pytest.raises(StreamNotFound, match="nowhere"):
        asyncio.run(NatsSink(nats_server.url, "nowhere").__aenter__())


def test_credentials_are_in_no_error() -> None:
    async def scenario() -> None:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1") as caught:
            await NatsSink("nats://alice:wonderland@127.0.0.1:1", "results", timeout=1).__aenter__()
        assert "wonderland" not in f"{caught.value!r} {caught.value.__cause__!r}"

    asyncio.run(scenario())


def test_a_subject_of_another_stream_is_refused_when_it_is_sent(harness: NatsHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            await Owner(harness, sink, epoch=5).open()
            async with sink.transaction(harness.place(), epoch=5, begin=0) as transaction:
                with pytest.raises(InvalidConfig, match="does not take elsewhere"):
                    transaction.target.send("elsewhere", b"")

    asyncio.run(scenario())


def test_a_position_that_somebody_else_wrote_is_not_believed(harness: NatsHarness) -> None:
    async def scenario() -> None:
        client = await nats.connect(harness.address)
        await client.jetstream().publish(f"echelon.position.{harness.name}.{harness.name}.0", b'{"kept": 7}')
        await client.close()
        async with harness.sink() as sink:
            with pytest.raises(BrokerError, match="cannot be read"):
                await Owner(harness, sink, epoch=5).open()

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [10008, 10009])
def test_a_stream_that_has_no_leader_just_then_is_unreachable(
    harness: NatsHarness, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """So the owner tries again, instead of ending."""
    answer = b'{"error":{"code":503,"err_code":%d,"description":"JetStream system temporarily unavailable"}}' % number

    async def request(*_: object) -> Reply:
        return Reply(b"", answer)

    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            with monkeypatch.context() as patch:
                patch.setattr(Connection, "request", request)
                with pytest.raises(Unreachable, match="temporarily unavailable"):
                    await owner.open()
            assert await owner.open() == 0

    asyncio.run(scenario())


def test_a_batch_beyond_the_limit_leaves_nothing_and_one_at_the_limit_is_whole(harness: NatsHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            with pytest.raises(TooLarge, match="1000 results in one transaction"):
                await owner.commit(1000)
            assert await harness.results() == {}
            assert await owner.open() == 0
            assert await owner.commit(999)
        assert await harness.results() == {"0": list(range(999))}

    asyncio.run(scenario())


def test_more_members_commit_at_once_than_the_server_has_room_for_batches(nats_servers: NatsServers) -> None:
    server = nats_servers(config="jetstream { limits { batch { max_inflight_per_stream: 1 } } }")
    harness = NatsHarness(server.url, unique())
    partitions = [str(number) for number in range(8)]

    async def own(partition: str) -> None:
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5, where=harness.place(partition))
            await owner.open()
            assert await owner.work(1500, most=300)

    async def scenario() -> None:
        await harness.prepare()
        await asyncio.gather(*map(own, partitions))
        assert await harness.results() == {partition: list(range(1500)) for partition in partitions}

    asyncio.run(scenario())


def test_a_batch_is_stored_in_one_piece_and_only_the_last_position_stays(harness: NatsHarness) -> None:
    async def scenario() -> None:
        async with harness.sink() as sink:
            owners = [Owner(harness, sink, epoch=5, where=harness.place(partition)) for partition in "01234"]
            await asyncio.gather(*(owner.open() for owner in owners))
            assert all(await asyncio.gather(*(owner.work(60, most=9) for owner in owners)))
        prefix = f"echelon.position.{harness.name}.{harness.name}"
        details = await call(harness.address, f"STREAM.INFO.{harness.name}", {"subjects_filter": f"{prefix}.>"})
        assert details["state"]["subjects"] == {f"{prefix}.{partition}": 1 for partition in "01234"}
        places = await batch_places(harness, 300)
        for (sequence, number), (following, other) in itertools.pairwise(places):
            assert other in {number + 1, 1}
            assert following == sequence + 1 if other > 1 else following > sequence + 1

    asyncio.run(scenario())


async def batch_places(harness: NatsHarness, count: int) -> list[tuple[int, int]]:
    """Of every result, its sequence in the stream and its number in its batch."""
    client = await nats.connect(harness.address)
    subscription = await client.jetstream().subscribe(f"{harness.name}.*", ordered_consumer=True)
    messages = [await subscription.next_msg(5) for _ in range(count)]
    await client.close()
    return [(m.metadata.sequence.stream, int((m.headers or {})["Nats-Batch-Sequence"])) for m in messages]


def test_without_atomic_batches_a_transaction_may_be_as_large_as_it_likes(nats_server: NatsServer) -> None:
    harness = NatsIdsHarness(nats_server.url, unique())

    async def scenario() -> None:
        await harness.prepare()
        async with harness.sink() as sink:
            owner = Owner(harness, sink, epoch=5)
            await owner.open()
            assert await owner.commit(1700)
            assert await owner.commit(1702)
        assert await harness.results() == {"0": list(range(1702))}

    asyncio.run(scenario())


def test_without_atomic_batches_what_a_former_owner_left_does_not_stand_in_the_way_of_a_reset(
    nats_server: NatsServer,
) -> None:
    harness = NatsIdsHarness(nats_server.url, unique())

    async def scenario() -> None:
        await harness.prepare()
        async with harness.sink() as mine, harness.sink() as yours:
            former = Owner(harness, mine, epoch=5)
            await former.open()
            assert await former.commit(2)
            assert await Owner(harness, yours, epoch=9).open() == 2
            assert not await former.commit(4)  # Its results are there, and nobody has counted them.
            owner = Owner(harness, yours, epoch=12, reset=12)
            assert await owner.open(10) == 10
            assert await owner.commit(12)
        assert await harness.results() == {"0": [0, 1, 2, 3, 10, 11]}

    asyncio.run(scenario())

"""What members live on is deleted or reset under load, on a real nats-server: they go on, or say what to do."""

import asyncio
import time
from pathlib import Path

import nats
import pytest

from echelon.errors import GroupDeleted, GroupError
from echelon.local import NatsServer
from echelon.model import Message
from echelon.pcg import Member, Options, StaticConfig
from echelon.pcg.postgres import Cursor, PostgresLedger
from tests.brokers.nats.harness import call
from tests.pcg.stage import KINDS, PARTITIONS, check_order, create, pair, staged
from tests.postgres_server import PostgresServer


@pytest.mark.parametrize("kind", KINDS)
def test_the_consumer_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            found = await stage.groups.get(stage.stream, "g")
            async with stage.publishing():
                await pair(stage)
                for _ in range(3):
                    await stage.groups.consumers.delete(found.consumed, found.consumer("m"))
                    deleted = time.monotonic()
                    await stage.until_handled_by("a", "b", after=deleted, seconds=5)
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            check_order(stage, repeats=3)

    asyncio.run(run())


def test_the_work_queue_is_deleted(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m", "n")
            async with stage.publishing():
                await pair(stage)
                stage.launch("c", "n")
                await stage.until_handled_by("c")
                for _ in range(2):
                    await call(stage.url, f"STREAM.DELETE.{stage.stream}-g")
                    deleted = time.monotonic()
                    await stage.until_handled_by("c", after=deleted, seconds=5)
                    await stage.until_handled_by("a", "b", after=deleted, seconds=5)
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            # All of the stream comes again, but who was active has handled it.
            check_order(stage, repeats=4)
            assert (await call(stage.url, f"STREAM.INFO.{stage.stream}-g"))["config"]["retention"] == "workqueue"

    asyncio.run(run())


def test_the_work_queue_is_deleted_and_effects_are_to_be_had_once(
    nats_server: NatsServer, preparing_postgres: PostgresServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "elastic", "m")
            await stage.publish(10)
            options = Options(ack_wait=1, ledger=PostgresLedger(preparing_postgres.conninfo))
            seen: list[int] = []

            def handle(message: Message, _cursor: Cursor) -> None:
                seen.append(message.sequence)

            running = asyncio.ensure_future(Member(stage.groups, stage.stream, "g", "m", handle, options=options).run())
            await stage.until(lambda: len(seen) == 10)
            await call(stage.url, f"STREAM.DELETE.{stage.stream}-g")
            with pytest.raises(GroupError, match=r"nothing tells what has had its effect\. Delete the group"):
                await asyncio.wait_for(running, 10)
            assert seen == list(range(1, 11))

    asyncio.run(run())


def test_the_stream_is_deleted_and_made_anew(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run(kind: str) -> None:
        folder = tmp_path / kind
        folder.mkdir()
        async with staged(nats_server.url, folder) as stage:
            await create(stage, kind, "m")
            await stage.publish(60)
            stage.launch("a", "m")
            await stage.until_all_handled()
            config = (await call(stage.url, f"STREAM.INFO.{stage.stream}"))["config"]
            await call(stage.url, f"STREAM.DELETE.{stage.stream}")
            await asyncio.sleep(0.3)
            await call(stage.url, f"STREAM.CREATE.{stage.stream}", config)
            # It counts from 1 again: its messages are others, though they have the same sequences.
            async with stage.publishing():
                await stage.until(lambda: len(stage.lines()) > 200)
            await stage.until_all_handled()
            check_order(stage)

    async def both() -> None:
        # The server takes its time (some 10 s) until it sources from the new one.
        await asyncio.gather(*map(run, KINDS))

    asyncio.run(both())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", ["entry is deleted", "entry is purged", "bucket is deleted"])
def test_the_entry_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str, fault: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, kind, "m")
            config = (await stage.groups.get(stage.stream, "g")).config
            async with stage.publishing():
                stage.join("a", "m")
                await stage.until(lambda: len(stage.handled) > 50)
                client = await nats.connect(stage.url)
                store = await client.jetstream().key_value(f"{kind}-consumer-groups")
                if fault == "bucket is deleted":
                    await client.jetstream().delete_key_value(f"{kind}-consumer-groups")
                elif fault == "entry is purged":
                    await store.purge(f"{stage.stream}.g")
                else:
                    await store.delete(f"{stage.stream}.g")
                await client.close()
                with pytest.raises(GroupDeleted, match="create it as it was, and its members go on where they were"):
                    await stage.end_of("a")
                await stage.create(config)
                stage.join("b", "m")
                await stage.until(lambda: len(stage.handled) > 100)
            await stage.until_all_handled()
            check_order(stage, repeats=1)

    asyncio.run(run())


def test_a_static_group_that_is_another_ends_its_members_with_what_to_do(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            await stage.publish(20)
            stage.join("a", "m")
            await stage.until_all_handled()
            await stage.leave("a")
            bucket, key = stage.groups.bucket("static"), f"{stage.stream}.g"
            await bucket.delete(key, await bucket.revision(key))
            await stage.create(StaticConfig(max_members=PARTITIONS, members=("m", "n")))
            stage.join("b", "m")
            with pytest.raises(GroupError, match=r"the consumer g-m has other partitions\. Delete it if no instance"):
                await stage.end_of("b")

    asyncio.run(run())


def test_a_static_members_consumer_is_reset(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await create(stage, "static", "m")
            async with stage.publishing():
                stage.launch("a", "m")
                await stage.until(lambda: len(stage.lines()) > 100)
                await stage.groups.consumers.reset(stage.stream, "g-m", 31)
                reset = time.monotonic()
                await stage.until_handled_by("a", after=reset)
            await stage.until(lambda: stage.lines()[-1].sequence == sum(stage.sent.values()))
            sequences = [each.sequence for each in stage.lines()]
            again = sequences.index(31, 32)
            assert sequences == [*range(1, again + 1), *range(31, sum(stage.sent.values()) + 1)]
            # Also the message that was handled last: it is delivered as one whose acknowledgement was lost would be.
            last = sequences[-1]
            await stage.groups.consumers.reset(stage.stream, "g-m", last)
            await stage.until(lambda: len(stage.lines()) > len(sequences))
            assert [each.sequence for each in stage.lines()] == [*sequences, last]

    asyncio.run(run())

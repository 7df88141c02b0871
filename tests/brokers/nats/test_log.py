"""A group's log on a real nats-server: what the contract suite does not ask of every broker."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, suppress
from pathlib import Path

import nats
import pytest

from echelon.brokers.nats import NatsBroker
from echelon.brokers.nats.api import JetStream
from echelon.brokers.nats.batch import Batch
from echelon.errors import BrokerError, GroupNotFound, StorageFull, TooLarge, Unreachable
from echelon.local import NatsServer
from echelon.testing.contract.harness import append_again, name, take
from tests.brokers.nats.harness import call
from tests.servers import NatsServers


def test_the_stream_is_made_as_the_log_needs_it(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            await broker.create_log(name("group"))
        config = (await call(nats_server.url, "STREAM.INFO.ECHELON"))["config"]
        assert config["subjects"] == ["echelon.log.*", "echelon.log.*.*"]
        assert (config["storage"], config["discard"], config["allow_direct"]) == ("file", "new", True)
        assert config["max_age"] == 0
        assert {config[limit] for limit in ("max_msgs", "max_bytes", "max_msgs_per_subject", "max_msg_size")} == {-1}

    asyncio.run(run())


def test_members_and_administrators_write_to_subjects_of_their_own(nats_server: NatsServer) -> None:
    group = name("group")

    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log = await broker.create_log(group)
            await log.append(b"1")
            await log.append(b"2", admin=True)
        details = await call(nats_server.url, "STREAM.INFO.ECHELON", {"subjects_filter": f"echelon.log.{group}.*"})
        assert details["state"]["subjects"] == {f"echelon.log.{group}.member": 1, f"echelon.log.{group}.admin": 1}

    asyncio.run(run())


def test_another_stream_of_that_name_is_not_used(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        await call(server.url, "STREAM.CREATE.ECHELON", {"name": "ECHELON", "subjects": ["something.else"]})
        async with NatsBroker(server.url) as broker:
            with pytest.raises(BrokerError, match="ECHELON is not the one for the logs"):
                await broker.create_log("group")

    asyncio.run(run())


def test_what_a_foreigner_puts_into_the_log_is_read_as_it_is(nats_server: NatsServer) -> None:
    group = name("group")
    garbage = [b"", b"\x00\xff", b"{", b'{"type":"nonsense"}', b"\r\nPING\r\n", b"x" * 100_000]

    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log = await broker.create_log(group)
            first = await log.append(b"first")
            client = await nats.connect(nats_server.url)
            for data in garbage:
                await client.jetstream().publish(f"echelon.log.{group}.member", data, headers={"Nats-Sequence": "1"})
            await client.close()
            last = await log.append(b"last")
            expected = [b"first", *garbage, b"last"]
            assert [entry.data for entry in await log.read(first, last + 1)] == expected
            async with aclosing(log.follow(first)) as entries:
                assert [entry.data for entry in await take(entries, len(expected))] == expected

    asyncio.run(run())


def test_records_of_other_groups_make_gaps_that_are_no_loss(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log, other = await broker.create_log(name("group")), await broker.create_log(name("group"))
            sequences = []
            async with aclosing(log.follow(0)) as entries:
                for n in range(30):
                    await asyncio.gather(*(other.append(b"not yours") for _ in range(n % 5)))
                    sequences.append(await log.append(b"%d" % n))
                got = await take(entries, 30)
            assert [(entry.sequence, entry.data) for entry in got] == [(s, b"%d" % n) for n, s in enumerate(sequences)]
            assert sequences[-1] - sequences[0] > 50

    asyncio.run(run())


def test_appends_that_are_under_way_when_the_server_is_killed_are_stored_in_order_or_not_at_all(
    nats_servers: NatsServers,
) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            first = await log.append(b"first")
            answers: dict[int, int] = {}

            async def append(number: int) -> None:
                with suppress(Unreachable):
                    answers[number] = await log.append(b"%d" % number)

            tasks = []
            for number in range(4000):
                tasks.append(asyncio.create_task(append(number)))
                if number == 2000:
                    await asyncio.sleep(0)
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                if number % 100 == 0:
                    await asyncio.sleep(0.001)
            await asyncio.gather(*tasks)
            last = await append_again(log, b"last")
            entries = {entry.sequence: entry.data for entry in await log.read(first + 1, last)}
        stored = [int(data) for data in entries.values()]
        assert stored == sorted(set(stored)), "in the order of the calls, none twice"
        assert {sequence: b"%d" % number for number, sequence in answers.items()}.items() <= entries.items()
        assert len(answers) > 1000

    asyncio.run(run())


def test_followers_see_every_record_once_through_restarts_and_kills(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url) as one, NatsBroker(server.url) as two:
            log = await one.create_log("group")
            writing = await two.log("group")
            async with aclosing(log.follow(0)) as early:
                following = asyncio.create_task(take(early, 1))
                for round_ in range(4):
                    for n in range(50):
                        await append_again(writing, b"%d/%d" % (round_, n))
                    await asyncio.to_thread(server.kill if round_ % 2 else server.stop)
                    await asyncio.to_thread(server.start)
                last = await append_again(writing, b"last")
                got = await following
                while got[-1].sequence < last:
                    got += await take(early, 1)
            assert got == await log.read(0, last + 1)
        data = [entry.data for entry in got]
        acknowledged = [b"%d/%d" % (round_, n) for round_ in range(4) for n in range(50)]
        # One that was not answered is appended again, and may then be there twice.
        assert [each for n, each in enumerate(data) if each not in data[:n]] == [*acknowledged, b"last"]

    asyncio.run(run())


def test_a_frozen_server_is_unreachable_and_followers_go_on_afterwards(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url, timeout=1) as broker:
            log = await broker.create_log("group")
            async with aclosing(log.follow(0)) as entries:
                await log.append(b"before")
                assert [entry.data for entry in await take(entries, 1)] == [b"before"]
                server.pause()
                try:
                    with pytest.raises(Unreachable, match="did not answer within 1 s"):
                        await log.append(b"maybe")
                    waiting = asyncio.create_task(take(entries, 1))
                    await asyncio.sleep(3)
                finally:
                    server.resume()
                await append_again(log, b"after")
                data = [entry.data for entry in await waiting]
                while data[-1] != b"after":
                    data += [entry.data for entry in await take(entries, 1)]
                assert set(data) <= {b"maybe", b"after"}
                assert data == sorted(data, reverse=True), "in the order of the calls"

    asyncio.run(run())


FOLLOWER = """
import asyncio, sys
from echelon.brokers.nats import NatsBroker

async def main():
    async with NatsBroker(sys.argv[1]) as broker:
        async for entries in (await broker.log("group")).follow(0):
            for entry in entries:
                print(entry.sequence, entry.data.decode(), flush=True)

asyncio.run(main())
"""


def test_a_suspended_follower_goes_on_without_a_gap(nats_servers: NatsServers, tmp_path: Path) -> None:
    """It sleeps so long that the server takes it for dead, and closes its connection."""
    server = nats_servers(config='ping_interval: "500ms", ping_max: 1')
    output = tmp_path / "output"

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            with output.open("wb") as file:
                follower = subprocess.Popen([sys.executable, "-c", FOLLOWER, server.url], stdout=file)
            try:
                expected = []
                for n in range(300):
                    expected.append(f"{await log.append(b'%d' % n)} {n}")
                    if n == 50:
                        await _until(lambda: len(output.read_text().splitlines()) > 40)
                        os.kill(follower.pid, signal.SIGSTOP)
                    if n == 150:
                        await asyncio.sleep(4)
                        os.kill(follower.pid, signal.SIGCONT)
                await _until(lambda: len(output.read_text().splitlines()) >= 300)
                assert output.read_text().splitlines() == expected
            finally:
                follower.kill()
                follower.wait()

    asyncio.run(run())


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.05)


def test_a_log_that_is_trimmed_behind_a_follower_goes_on_for_it(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(b"%d" % n, admin=n % 2 == 0) for n in range(20)]
            async with aclosing(log.follow(sequences[0])) as entries:
                got = await take(entries, 20)
                await log.trim(sequences[-1])
                sequences.append(await log.append(b"20"))
                got += await take(entries, 1)
            assert [entry.sequence for entry in got] == sequences
            assert [entry.data for entry in await log.read(0, sequences[-1] + 1)] == [b"19", b"20"]

    asyncio.run(run())


def test_what_a_replica_still_holds_of_a_lost_tail_is_not_read(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica answers as the stream was before its last messages were deleted."""

    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log = await broker.create_log(name("group"))
            sequences = [await log.append(b"%d" % n) for n in range(5)]
            stale = await log._get(sequences[0])

            async def get(*_: object) -> Batch:
                return stale

            monkeypatch.setattr(JetStream, "get", get)
            whole = await log.read(sequences[0], sequences[-1] + 1)
            assert [entry.sequence for entry in whole] == sequences
            for lost in sequences[3:]:
                await call(nats_server.url, "STREAM.MSG.DELETE.ECHELON", {"seq": lost})
            await log.append(b"in their place")
            assert await log.read(sequences[0], sequences[-1] + 1) == whole[:3]

    asyncio.run(run())


def test_what_is_appended_to_a_deleted_log_makes_no_group_and_is_not_in_the_next_one(nats_server: NatsServer) -> None:
    group = name("group")

    async def run() -> None:
        async with NatsBroker(nats_server.url) as broker:
            log = await broker.create_log(group)
            await log.append(b"old")
            await broker.delete_log(group)
            with pytest.raises(GroupNotFound):
                await log.append(b"late")
            assert group not in await broker.groups()
            with pytest.raises(GroupNotFound):
                await broker.log(group)
            new = await broker.create_log(group)
            sequence = await new.append(b"new")
            assert [entry.data for entry in await new.read(0, sequence + 1)] == [b"new"]

    asyncio.run(run())


def test_two_who_make_the_same_group_at_once_get_one_log(nats_server: NatsServer) -> None:
    async def run() -> None:
        async with NatsBroker(nats_server.url) as one, NatsBroker(nats_server.url) as two:
            for _ in range(20):
                group = name("group")

                async def create_and_append(broker: NatsBroker, data: bytes, group: str = group) -> int:
                    return await (await broker.create_log(group)).append(data)

                made = await asyncio.gather(create_and_append(one, b"one"), create_and_append(two, b"two"))
                entries = await (await one.log(group)).read(0, max(made) + 1)
                assert sorted(entry.sequence for entry in entries) == sorted(made)

    asyncio.run(run())


def test_a_full_server_stores_nothing_says_so_and_goes_on_when_there_is_room(nats_servers: NatsServers) -> None:
    server = nats_servers(config="jetstream { max_file_store: 2MB }")

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            sequences: list[int] = []
            with pytest.raises(StorageFull) as caught:
                while len(sequences) < 100:
                    sequences += [await log.append(b"%d" % len(sequences) * 50_000)]
            assert caught.value.remedy
            assert len(sequences) > 5
            entries = await log.read(0, sequences[-1] + 100)
            assert [entry.sequence for entry in entries] == sequences
            await log.trim(sequences[-1])
            sequences = [sequences[-1], await log.append(b"again")]
            assert [entry.sequence for entry in await log.read(0, sequences[-1] + 1)] == sequences

    asyncio.run(run())


def test_a_limit_on_the_stream_refuses_new_records_and_keeps_the_old(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            config = (await call(server.url, "STREAM.INFO.ECHELON"))["config"]
            await call(server.url, "STREAM.UPDATE.ECHELON", {**config, "max_msgs": 5, "max_msg_size": 1000})
            sequences = [await log.append(b"%d" % n) for n in range(4)]
            with pytest.raises(TooLarge):
                await log.append(b"x" * 2000)
            with pytest.raises(StorageFull, match="maximum messages exceeded"):
                await log.append(b"one too many")
            assert [entry.sequence for entry in await log.read(0, 100)] == sequences

    asyncio.run(run())


def test_a_record_of_the_largest_size_is_stored_and_a_larger_one_is_refused(nats_servers: NatsServers) -> None:
    server = nats_servers(config="max_payload: 5000")

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            sequence = await log.append(b"x" * 5000)
            with pytest.raises(TooLarge, match="the server takes 5000"):
                await log.append(b"x" * 5001)
            writer = await broker.writer()
            with pytest.raises(TooLarge):
                await writer.write("echelon.log.group.member", b"x" * 4983, headers={"A": "b"})
            assert await writer.write("echelon.log.group.member", b"x" * 4982, headers={"A": "b"}) == sequence + 1

    asyncio.run(run())


def test_a_stream_that_was_deleted_under_a_log_is_no_group_any_more(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            assert await broker.groups() == []
            log = await broker.create_log("group")
            await log.append(b"1")
            async with aclosing(log.follow(0)) as entries:
                await take(entries, 1)
                await call(server.url, "STREAM.DELETE.ECHELON")
                with pytest.raises(GroupNotFound):
                    await take(entries, 1)
            with pytest.raises(GroupNotFound):
                await log.append(b"2")
            with pytest.raises(GroupNotFound):
                await log.bounds()
            assert await broker.groups() == []

    asyncio.run(run())


def test_followers_leave_no_consumers_behind(nats_servers: NatsServers) -> None:
    server = nats_servers()

    async def run() -> None:
        async with NatsBroker(server.url) as broker:
            log = await broker.create_log("group")
            await log.append(b"1")
            for _ in range(5):
                async with aclosing(log.follow(0)) as entries:
                    await take(entries, 1)
            async with asyncio.timeout(5):
                while (await call(server.url, "STREAM.INFO.ECHELON"))["state"]["consumer_count"]:
                    await asyncio.sleep(0.05)

    asyncio.run(run())

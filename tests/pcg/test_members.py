"""Members of groups on a real nats-server: order, stand-by, callbacks, membership, failures, and ends of all kinds."""

import asyncio
import base64
import time
from collections import Counter
from functools import partial
from pathlib import Path

import nats
import pytest

from echelon.errors import GroupDeleted, GroupError, GroupNotFound, InvalidConfig
from echelon.local import NatsServer
from echelon.members.handlers import understand
from echelon.model import Message
from echelon.pcg import ElasticConfig, Member, MemberMapping, Options, StaticConfig, open_groups
from echelon.pcg.config import Kind
from echelon.pcg.options import check_options
from tests.brokers.nats.harness import call
from tests.pcg.stage import check_order, handled_by, staged


def ignore(_message: Message) -> None:
    pass


def print_both(_message: Message, _epoch: int) -> None:
    pass


def test_an_elastic_group_is_consumed_in_order_and_its_handlers_see_plain_subjects(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(6, "m1", "m2"))
            await stage.publish(200)
            stage.join("a", "m1")
            stage.join("b", "m2")
            await stage.until_all_handled()
            lines = check_order(stage)
            assert handled_by(lines) == {"a": {"0", "1", "2"}, "b": {"3", "4", "5"}}
            assert {each.subject for each in lines} == {f"{stage.stream}.{key}" for key in stage.sent}
            assert sorted(stage.told) == [("a", "active"), ("b", "active")]
            await stage.leave("a")
            await stage.leave("b")
            assert sorted(stage.told[2:]) == [("a", "inactive"), ("b", "inactive")]

    asyncio.run(run())


def test_a_static_group_is_consumed_in_order(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            name = stage.stream = await stage.partitioned_stream(4)
            await stage.create(StaticConfig(max_members=4, members=("m1", "m2")))
            await stage.publish(100)
            stage.join("a", "m1")
            stage.join("b", "m2")
            await stage.until_all_handled()
            assert handled_by(check_order(stage)) == {"a": {"0", "1"}, "b": {"2", "3"}}
            assert await stage.groups.active_members(name, "g") == ("m1", "m2")
            await stage.leave("b")
            await asyncio.sleep(0.1)
            assert await stage.groups.is_in_membership_and_active(name, "g", "m1") == (True, True)
            assert await stage.groups.is_in_membership_and_active(name, "g", "m2") == (True, False)
            with pytest.raises(InvalidConfig, match=r"has no member m3\. Use one of m1, m2"):
                await Member(stage.groups, name, "g", "m3", ignore).run()
            # Who comes back goes on where the consumer is.
            await stage.publish(50)
            stage.join("c", "m2")
            await stage.until_all_handled()
            check_order(stage)

    asyncio.run(run())


def test_one_instance_is_active_and_the_other_takes_over_at_once_when_it_leaves(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            options = Options(ack_wait=5)
            stage.join("a", "m", options=options)
            await stage.publish(10)
            await stage.until_all_handled()
            stage.join("b", "m", options=options)
            async with stage.publishing():
                await asyncio.sleep(0.5)
                left = time.monotonic()
                await stage.leave("a")
                assert await stage.until_handled_by("b", after=left) - left < 1  # Not after the ack wait.
            await stage.until_all_handled()
            check_order(stage)
            assert stage.told == [("a", "active"), ("a", "inactive"), ("b", "active")]

    asyncio.run(run())


def test_an_only_instance_that_is_told_to_step_down_goes_on_at_once(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            await stage.publish(1200)
            # What it drops unanswered when it loses the pin would come again only after that long.
            stage.join("a", "m", options=Options(ack_wait=5.0), handler=lambda _: asyncio.sleep(0.0005))

            def has_handled(count: int) -> bool:
                return len(stage.handled) >= count

            for _ in range(4):
                await stage.until(partial(has_handled, len(stage.handled) + 100), 4)
                await stage.groups.step_down(stage.stream, "g", "m")
            await stage.until_all_handled()
            check_order(stage, repeats=4)

    asyncio.run(run())


def test_an_instance_asks_no_more_often_than_it_must_to_keep_its_pin(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            stage.join("a", "m", options=Options(ack_wait=1.0))
            async with stage.publishing(rate=20):
                await stage.until(lambda: stage.told == [("a", "active")])
                client = await nats.connect(stage.url)
                asked = await client.subscribe(f"$JS.API.CONSUMER.MSG.NEXT.{stage.stream}-g.m")
                began = time.monotonic()
                await asyncio.sleep(2.5)
                # Whoever would take over has to wait until the pin's timeout is over since the last request.
                assert asked.pending_msgs <= (time.monotonic() - began) / 0.5 + 1
                await client.close()
            await stage.until_all_handled()
            check_order(stage)

    asyncio.run(run())


def test_two_members_in_one_process_do_not_keep_each_other_waiting(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m1", "m2"))
            await stage.publish(3000)
            for name in ("m1", "m2"):
                stage.join(name, name)
            await stage.until(lambda: len(stage.handled) > 1000)
            shares = Counter(each.name for each in stage.handled[200:1000])
            assert min(shares.values()) > 200, shares
            await stage.until_all_handled()
            check_order(stage)

    asyncio.run(run())


def test_step_down_hands_over_to_the_instance_that_stands_by(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage, open_groups(stage.url) as other:
            await stage.create(stage.elastic(4, "m"))
            options = Options(ack_wait=5)
            async with stage.publishing():
                stage.join("a", "m", options=options)
                await stage.until_handled_by("a")
                stage.join("b", "m", options=options, groups=other)
                await asyncio.sleep(0.3)
                for name in ("b", "a", "b"):
                    asked = time.monotonic()
                    await stage.groups.step_down(stage.stream, "g", "m")
                    assert await stage.until_handled_by(name, after=asked) - asked < 2
                    await asyncio.sleep(0.3)
            await stage.until_all_handled()
            check_order(stage)
            await stage.leave("b")
            assert [each for each in stage.told if each[1] == "active"] == [
                (name, "active") for name in ("a", "b", "a", "b")
            ]

    asyncio.run(run())


def test_members_come_and_go_under_load_and_order_is_kept(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(6))
            for name in ("m1", "m2", "m3"):
                stage.join(name, name)
            async with stage.publishing():
                await stage.groups.add_members(stage.stream, "g", ["m1"])
                await stage.until_handled_by("m1")
                for members, change in (
                    (("m1", "m2"), stage.groups.add_members(stage.stream, "g", ["m2"])),
                    (("m1", "m2", "m3"), stage.groups.add_members(stage.stream, "g", ["m3"])),
                    (("m2", "m3"), stage.groups.drop_members(stage.stream, "g", ["m1"])),
                ):
                    assert await change == members
                    changed = time.monotonic()
                    await asyncio.gather(*(stage.until_handled_by(member, after=changed) for member in members))
                    await asyncio.sleep(0.5)
                    assert await stage.groups.active_members(stage.stream, "g") == members
                mapping = [MemberMapping("m1", (5, 0)), MemberMapping("m3", (1, 2, 3, 4))]
                await stage.groups.set_mappings(stage.stream, "g", mapping)
                changed = time.monotonic()
                await asyncio.gather(*(stage.until_handled_by(member, after=changed) for member in ("m1", "m3")))
                await asyncio.sleep(1)
            await stage.until_all_handled()
            lines = check_order(stage)
            late = [each for each in lines if each.began > lines[-1].ended - 0.5]
            assert handled_by(late) == {"m1": {"0", "5"}, "m3": {"1", "2", "3", "4"}}

    asyncio.run(run())


def test_a_member_that_keeps_its_partitions_goes_on_undisturbed(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            mapping = [MemberMapping("m1", (0, 1, 2)), MemberMapping("m2", (3, 4, 5))]
            await stage.create(stage.elastic(6, member_mappings=tuple(mapping)))
            for name in ("m1", "m2", "m3"):
                stage.join(name, name)
            async with stage.publishing():
                await stage.until_handled_by("m1")
                made = (await stage.groups.consumers.info(f"{stage.stream}-g", "m1")).created
                mapping[1:] = [MemberMapping("m3", (3, 4, 5))]
                await stage.groups.set_mappings(stage.stream, "g", mapping)
                await stage.until_handled_by("m3")
            await stage.until_all_handled()
            check_order(stage)
            assert (await stage.groups.consumers.info(f"{stage.stream}-g", "m1")).created == made
            assert ("m1", "inactive") not in stage.told

    asyncio.run(run())


def test_several_messages_under_way_are_handled_side_by_side_and_in_order_by_key(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            await stage.publish(240)
            began = time.monotonic()
            options = Options(ack_wait=1, max_ack_pending=100, lanes=12)
            stage.join("a", "m", options=options, handler=lambda _: asyncio.sleep(0.02))
            await stage.until_all_handled()
            assert time.monotonic() - began < 0.02 * 240 / 2
            lines = check_order(stage)
            assert len(lines) == 240
            async with asyncio.timeout(5):
                while (await stage.groups.consumers.info(f"{stage.stream}-g", "m")).num_ack_pending:
                    await asyncio.sleep(0.02)

    asyncio.run(run())


@pytest.mark.parametrize("max_ack_pending", [1, 10])
def test_a_handler_that_takes_longer_than_the_ack_wait_is_not_called_twice(
    nats_server: NatsServer, tmp_path: Path, max_ack_pending: int
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m"))
            options = Options(ack_wait=0.6, max_ack_pending=max_ack_pending)
            for name in ("a", "b"):
                stage.join(name, "m", options=options, handler=lambda each: asyncio.sleep(1.3 * (each.data == b"0")))
            await stage.publish(2, keys=1)
            await stage.until_all_handled()
            check_order(stage)

    asyncio.run(run())


@pytest.mark.parametrize("max_ack_pending", [1, 10])
def test_a_message_that_fails_is_retried_and_then_becomes_a_dead_letter(
    nats_server: NatsServer, tmp_path: Path, max_ack_pending: int
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            calls: list[int] = []

            def handle(message: Message) -> None:
                calls.append(message.sequence)
                if message.data == b"1" and message.subject.endswith("k0"):
                    raise ValueError("cannot be read")

            options = Options(
                ack_wait=1, max_ack_pending=max_ack_pending, retries=2, backoff=(0.01, 0.02), on_failure="dead_letter"
            )
            member = stage.join("a", "m", options=options, handler=handle)
            await stage.publish(9, keys=3)
            await stage.until(lambda: len(stage.handled) == 8)
            async with asyncio.timeout(5):
                while (await stage.groups.consumers.info(f"{stage.stream}-g", "m")).num_ack_pending:
                    await asyncio.sleep(0.02)
            failed = next(sequence for sequence in calls if calls.count(sequence) > 1)
            assert calls.count(failed) == 3
            assert (member.counters.retries, member.counters.dead_letters) == (2, 1)
            assert member.counters.messages == 9
            subject = f"echelon.dead.{stage.stream}-g"
            letter = await call(stage.url, "STREAM.MSG.GET.ECHELON_DEAD", {"last_by_subj": subject})
            headers = base64.b64decode(letter["message"]["hdrs"]).decode()
            assert base64.b64decode(letter["message"]["data"]) == b"1"
            assert f"echelon-sequence: {failed}" in headers
            assert f"echelon-subject: {stage.stream}.k0" in headers
            assert "cannot be read" in headers

    asyncio.run(run())


@pytest.mark.parametrize("max_ack_pending", [1, 10])
def test_a_message_that_fails_for_good_ends_the_instance_and_is_not_passed(
    nats_server: NatsServer, tmp_path: Path, max_ack_pending: int
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))

            def handle(message: Message) -> None:
                if message.data == b"3":
                    raise ValueError("cannot be read")

            options = Options(ack_wait=1, max_ack_pending=max_ack_pending, retries=1, backoff=(0.01, 0.01))
            stage.join("a", "m", options=options, handler=handle)
            await stage.publish(6, keys=1)
            with pytest.raises(ValueError, match="cannot be read"):
                await stage.end_of("a")
            assert [each.number for each in stage.handled] == [0, 1, 2]
            stage.join("b", "m", options=options)
            await stage.until_all_handled()
            if max_ack_pending == 1:
                check_order(stage)
            # The server may give what was under way to the next instance in another order.
            assert sorted(each.number for each in stage.handled) == list(range(6))

    asyncio.run(run())


def test_a_member_may_join_before_it_is_one(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            with pytest.raises(GroupNotFound):
                await Member(stage.groups, stage.stream, "g", "m", ignore).run()
            await stage.create(stage.elastic(2))
            stage.join("a", "m")
            await stage.publish(10)
            await asyncio.sleep(0.3)
            assert stage.lines() == []
            await stage.groups.add_members(stage.stream, "g", ["m"])
            await stage.until_all_handled(3)
            check_order(stage)
            await stage.groups.drop_members(stage.stream, "g", ["m"])
            await stage.until(lambda: stage.told == [("a", "active"), ("a", "inactive")])
            assert await stage.groups.active_members(stage.stream, "g") == ()

    asyncio.run(run())


@pytest.mark.parametrize("kind", ["elastic", "static"])
def test_instances_end_when_their_group_is_deleted(nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = stage.elastic(2, "m") if kind == "elastic" else StaticConfig(max_members=2, members=("m",))
            await stage.create(config)
            stage.join("a", "m")
            await asyncio.sleep(0.3)
            await stage.groups.delete(stage.stream, "g")
            with pytest.raises(GroupDeleted):
                await stage.end_of("a")
            assert await stage.groups.list(stage.stream) == []
            assert [name for name in await stage.groups.consumers.streams() if name == f"{stage.stream}-g"] == []
            assert await stage.groups.consumers.consumers(stage.stream) == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("elastic", b'{"max_members":3,"partitioning_filters":null,"members":["m"]}'),
        ("elastic", b'{"max_members":2,"partitioning_filters":null,"max_buffered_msg":5,"members":["m"]}'),
        ("static", b'{"max_members":2,"members":["m","n"]}'),
        ("static", b'{"max_members":2,"filters":["a.>"],"members":["m"]}'),
    ],
)
def test_instances_end_when_something_changes_that_must_not(
    nats_server: NatsServer, tmp_path: Path, kind: Kind, change: bytes
) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            config = ElasticConfig if kind == "elastic" else StaticConfig
            await stage.create(config(max_members=2, members=("m",)))
            stage.join("a", "m")
            await asyncio.sleep(0.2)
            bucket, key = stage.groups.bucket(kind), f"{stage.stream}.g"
            assert await bucket.put(key, change, await bucket.revision(key))
            with pytest.raises(GroupError, match=r"changed in a way that is not allowed\. Stop all its instances"):
                await stage.end_of("a")

    asyncio.run(run())


def test_who_is_in_the_membership_and_who_is_active_are_told_apart(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(4, "m1", "m2"))
            member = stage.join("a", "m1", handler=lambda _: asyncio.sleep(0.2))
            await stage.publish(12)
            await stage.until(lambda: bool(stage.handled))
            told = [
                await stage.groups.is_in_membership_and_active(stage.stream, "g", name) for name in ("m1", "m2", "m3")
            ]
            # In Go all are active as soon as one is.
            assert told == [(True, True), (True, False), (False, False)]
            assert (member.counters.partitions, member.counters.messages) == (2, len(stage.handled))
            await asyncio.sleep(0.05)
            await stage.leave("a")
            assert 0 < member.counters.last_drain < 1
            assert member.counters.partitions == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(ack_wait=0.01), "ack_wait is 0.01 s"),
        (Options(max_ack_pending=0), "max_ack_pending is 0"),
        (Options(lanes=0), "lanes is 0"),
        (Options(retries=-1), "retries is -1"),
    ],
)
def test_options_out_of_range_are_refused(options: Options, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_options(options, understand(ignore))
    with pytest.raises(InvalidConfig, match="no epochs"):
        check_options(Options(), understand(print_both))

"""Members of groups on a real nats-server: order, messages that are slow or fail, and options."""

import asyncio
import base64
import time
from collections import Counter
from pathlib import Path

import pytest

from echelon.errors import InvalidConfig
from echelon.local import NatsServer
from echelon.members.handlers import understand
from echelon.model import Message
from echelon.pcg import Member, Options, StaticConfig
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


def test_a_message_whose_handler_others_have_cancelled_is_retried(nats_server: NatsServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with staged(nats_server.url, tmp_path) as stage:
            await stage.create(stage.elastic(2, "m"))
            calls: list[bytes] = []

            async def handle(message: Message) -> None:
                calls.append(message.data)
                if message.data == b"3" and calls.count(b"3") == 1:
                    await cancelled

            cancelled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            stage.join("a", "m", options=Options(ack_wait=1, backoff=(0.01, 0.01)), handler=handle)
            await stage.publish(6, keys=1)
            await stage.until_all_handled()
            assert calls == [b"0", b"1", b"2", b"3", b"3", b"4", b"5"]
            check_order(stage)

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

"""Priority groups are checked before anything is sent, and what the server refuses has a name."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from echelon.brokers.nats.pull_config import ConsumerConfig, check_priority, check_priority_change
from echelon.brokers.nats.pull_consumers import connect
from echelon.brokers.nats.pull_request import PullRequest, check_request
from echelon.errors import ConsumerExists, ConsumerNotFound, FilterTaken, InvalidConfig, InvalidPriority, StreamNotFound
from echelon.local import NatsServer
from echelon.testing.contract.harness import name
from tests.brokers.nats.harness import call, make_stream

PINNED = ConsumerConfig(
    name="c", durable=True, priority_policy="pinned_client", priority_groups=("jobs",), priority_timeout=2
)


@pytest.mark.parametrize("group", ["a", "A-Z_0/9=", "x" * 16])
@pytest.mark.parametrize("policy", ["overflow", "pinned_client", "prioritized"])
def test_allowed_groups_and_policies(group: str, policy: str) -> None:
    check_priority(ConsumerConfig(name="c", priority_policy=policy, priority_groups=(group,)))
    check_priority(ConsumerConfig(name="c", durable=True))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"priority_groups": ("",)}, "cannot name a priority group"),
        ({"priority_groups": ("x" * 17,)}, "cannot name a priority group"),
        ({"priority_groups": ("a.b",)}, "cannot name a priority group"),
        ({"priority_groups": ("a b",)}, "cannot name a priority group"),
        ({"priority_groups": ()}, "has 0 priority groups. Give exactly one"),
        ({"priority_groups": ("a", "b")}, "has 2 priority groups. Give exactly one"),
        ({"priority_policy": "sometimes"}, "'sometimes', which is not known"),
        ({"priority_policy": ""}, "has no priority policy"),
        ({"ack_policy": "all"}, "acks are not explicit"),
        ({"ack_policy": "none"}, "acks are not explicit"),
        ({"deliver_subject": "there"}, "push consumer"),
        ({"priority_timeout": -1.0}, "priority timeout of -1 s"),
        ({"priority_policy": "overflow"}, "priority timeout of 2 s with the policy overflow"),
    ],
)
def test_what_is_wrong_with_a_priority_group_is_said(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPriority, match=words):
        check_priority(replace(PINNED, **change))


@pytest.mark.parametrize(
    ("old", "change", "words"),
    [
        ({"priority_policy": "overflow", "priority_groups": ["jobs"]}, {}, "'overflow'; it cannot become 'pinned_cl"),
        ({}, {}, "'none'; it cannot become 'pinned_client'"),
        (
            {"priority_policy": "pinned_client", "priority_groups": ["jobs"]},
            {"priority_policy": "", "priority_groups": (), "priority_timeout": 0.0},
            "it cannot become 'none'",
        ),
        ({"priority_policy": "pinned_client", "priority_groups": ["others"]}, {}, "is others; it cannot change"),
    ],
)
def test_a_priority_group_changes_only_its_timeout(old: dict[str, Any], change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidPriority, match=words):
        check_priority_change(old, replace(PINNED, **change))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (PullRequest(batch=0), "for 0 messages"),
        (PullRequest(expires=0), "expires after 0 s"),
        (PullRequest(expires=1, heartbeat=0.6), "two heartbeats"),
        (PullRequest(group="no spaces"), "cannot name a priority group"),
        (PullRequest(min_pending=1), "names no priority group"),
        (PullRequest(group="g", min_ack_pending=-1), "at least 1"),
        (PullRequest(group="g", priority=10), "must be 0 to 9"),
    ],
)
def test_requests_that_the_server_would_not_take_are_not_made(request_: PullRequest, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_request(request_)


def test_create_finds_an_equal_consumer_and_refuses_another(nats_server: NatsServer) -> None:
    async def run() -> None:
        stream = name("S")
        await make_stream(nats_server.url, stream, [f"{stream}.*"])
        async with connect(nats_server.url) as consumers:
            made = await consumers.create(stream, PINNED)
            assert (await consumers.create(stream, PINNED)).created == made.created
            with pytest.raises(ConsumerExists, match=f"the consumer c of the stream {stream}"):
                await consumers.create(stream, replace(PINNED, max_ack_pending=7))
            assert [each.name for each in await consumers.consumers(stream)] == ["c"]
            await consumers.delete(stream, "c")
            for action in (consumers.delete, consumers.info):
                with pytest.raises(ConsumerNotFound):
                    await action(stream, "c")
            with pytest.raises(StreamNotFound):
                await consumers.info("nowhere", "c")

    asyncio.run(run())


def test_update_changes_the_pin_timeout_and_nothing_else_of_the_group(nats_server: NatsServer) -> None:
    async def run() -> None:
        stream = name("S")
        await make_stream(nats_server.url, stream, [f"{stream}.*"])
        async with connect(nats_server.url) as consumers:
            with pytest.raises(ConsumerNotFound):
                await consumers.update(stream, PINNED)
            await consumers.create(stream, PINNED)
            changed = await consumers.update(stream, replace(PINNED, priority_timeout=9))
            assert changed.config["priority_timeout"] == 9_000_000_000
            with pytest.raises(InvalidPriority, match="cannot become 'overflow'"):
                await consumers.update(stream, replace(PINNED, priority_policy="overflow", priority_timeout=0))
            with pytest.raises(InvalidPriority, match="cannot become 'none'"):
                await consumers.update(stream, ConsumerConfig(name="c", durable=True))
            with pytest.raises(InvalidPriority, match="cannot change"):
                await consumers.update(stream, replace(PINNED, priority_groups=("others",)))
            assert (await consumers.info(stream, "c")).config["priority_timeout"] == 9_000_000_000

    asyncio.run(run())


def test_refusals_of_the_server_have_names(nats_server: NatsServer) -> None:
    async def run() -> None:
        stream = name("S")
        await make_stream(nats_server.url, stream, [f"{stream}.*"], retention="workqueue")
        async with connect(nats_server.url) as consumers:
            await consumers.create(stream, ConsumerConfig(name="a", filter_subjects=(f"{stream}.1", f"{stream}.2")))
            with pytest.raises(FilterTaken, match="another consumer has one of its filters"):
                await consumers.create(stream, ConsumerConfig(name="b", filter_subjects=(f"{stream}.2",)))
            with pytest.raises(InvalidConfig, match="filters cannot overlap"):
                await consumers.create(stream, ConsumerConfig(name="b", filter_subjects=(f"{stream}.3", f"{stream}.*")))
            with pytest.raises(InvalidPriority, match="priority group does not exist"):
                await consumers.unpin(stream, "a", "nobody")
            with pytest.raises(InvalidPriority, match="at least one PriorityGroup"):
                config = ConsumerConfig(name="b", filter_subjects=(f"{stream}.3",), priority_policy="overflow")
                await consumers._put(stream, config, "create")
        assert (await call(nats_server.url, f"CONSUMER.NAMES.{stream}"))["consumers"] == ["a"]

    asyncio.run(run())

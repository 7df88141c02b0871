"""Handlers that raise or hang, groups that go away, positions that are not there: a clear end, and nothing lost."""

from typing import Literal

import pytest

from echelon.group.config import Stream
from echelon.keys import RecordKey, SubjectKey
from echelon.model import Message
from echelon.testing.contract.harness import whole
from tests.members.stage import Stage, scene

INTERVAL = 0.4
BACKOFF = (0.2, 0.4)


def key_in_partition_of(stage: Stage, key: str) -> set[str]:
    """Other keys in the partition of this one."""
    partition = next(line.partition for line in stage.lines() if line.key == key)
    return {line.key for line in stage.lines() if line.partition == partition} - {key}


@scene
async def test_a_message_that_fails_is_retried_while_only_its_key_waits(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a",), retries=5, backoff=(0.5, 0.5))
    await stage.launch_seated("a", "a", fail="k3:2", failures=2)
    await stage.publish(400, keys=20)
    lines = await stage.until_all_handled()
    failed = next(line for line in lines if line.data == "k3:2")
    mates = key_in_partition_of(stage, "k3")
    overtaken = [line.key for line in lines if line.sequence > failed.sequence and line.ended < failed.begun]
    assert set(overtaken) >= mates
    assert "k3" not in overtaken
    assert stage.errors("a").count("told to fail") == 2
    stage.check("once")


@scene
async def test_a_message_that_fails_for_good_ends_the_process_with_a_clear_error_and_its_stand_by_goes_on_there(
    stage: Stage,
) -> None:
    await stage.prepare(partitions=2, members=("a",), interval=INTERVAL, retries=2, backoff=BACKOFF)
    await stage.launch_seated("faulty", "a", fail="k3:2")
    stage.launch("sound", "a")
    await stage.until_joined("sound")
    await stage.publish(400, keys=20)
    assert await stage.ended("faulty") == 1
    assert stage.errors("faulty").rstrip().endswith("ValueError: told to fail")
    assert "of partition" in stage.errors("faulty")
    await stage.until_all_handled()
    assert not any(line.data == "k3:2" for line in stage.lines() if line.name == "faulty")
    stage.check("at_least_once", loud=("faulty",))


@scene
async def test_a_message_that_fails_for_good_becomes_a_dead_letter_and_its_key_goes_on(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a",), on_failure="dead_letter", retries=1, backoff=BACKOFF)
    await stage.launch_seated("a", "a", fail="k3:2")
    await stage.publish(200, keys=20)
    stage.sent["k3"].remove("k3:2")
    await stage.until_all_handled()
    assert {p.name: p.parked for p in stage.world.partitions.values()} == {"0": {}, "1": {}}
    assert not any(line.data == "k3:2" for line in stage.lines())
    assert [line.data for line in stage.lines() if line.key == "k3"] == stage.sent["k3"]
    (letter,) = await dead_letters(stage)
    assert letter.data == b"k3:2"
    headers = dict(letter.headers)
    assert headers["echelon-group"] == stage.group.encode()
    assert headers["echelon-attempts"] == b"2"
    assert headers["echelon-error"] == b"ValueError('told to fail')"


async def dead_letters(stage: Stage) -> list[Message]:
    """What was buried of the group."""
    subject = stage.broker.dead_letters(stage.group)
    if stage.url.startswith("nats"):
        stream = Stream("ECHELON_DEAD", 1, SubjectKey(subject))
    else:
        stream = Stream(subject, 1, RecordKey(), "native")
    return (await whole(await stage.broker.reader(stage.group, stream), 1))[0]


@scene
async def test_a_parked_key_waits_apart_over_a_failover_and_is_handled_in_order_once_it_is_called(
    stage: Stage,
) -> None:
    await stage.prepare(partitions=2, members=("a",), on_failure="park", retries=1, backoff=BACKOFF)
    await stage.launch_seated("faulty", "a", fail="k3:2")
    await stage.publish(200, keys=20)
    parked = await stage.until_world(lambda world: any(p.parked for p in world.partitions.values()))
    (partition,) = [p.name for p in parked.partitions.values() if p.parked]
    stage.launch("sound", "a")
    await stage.until_joined("sound")
    await stage.drain("faulty")
    await stage.until_seated("sound")
    await stage.publish(200, keys=20)
    others = {data for key, sent in stage.sent.items() if key != "k3" for data in sent}
    await stage.until(lambda lines: {line.data for line in lines} >= others)
    assert [line.data for line in stage.lines() if line.key == "k3"] == ["k3:0", "k3:1"]
    await stage.admin.unpark(partition, ["k3"])
    await stage.publish(20, keys=20)
    await stage.until_all_handled()
    await stage.until_world(lambda world: not world.partitions[partition].parked)
    stage.check("once")


@pytest.mark.parametrize("waits", [False, True], ids=["plain", "async"])
@scene
async def test_a_process_whose_handler_hangs_and_ignores_cancellation_exits_and_the_stand_by_goes_on(
    stage: Stage, waits: bool
) -> None:
    await stage.prepare(partitions=2, members=("a",), interval=INTERVAL, drain_time=0.5)
    await stage.launch_seated("hanging", "a", hang="k3:2", waits=waits)
    stage.launch("sound", "a", waits=waits)
    await stage.until_joined("sound")
    await stage.publish(200, keys=20)
    await stage.until(lambda _: bool(stage.told("Begun", name="hanging")))
    await stage.admin.step_down("a")
    assert await stage.ended("hanging") == 75
    assert "does not end though it was cancelled" in stage.errors("hanging")
    await stage.until_all_handled()
    (hung,) = [line for line in stage.lines() if line.data == "k3:2"]
    assert hung.name == "sound"
    stage.check("at_least_once")


@scene
async def test_all_members_end_with_a_clear_error_when_the_group_is_deleted(stage: Stage) -> None:
    await stage.prepare(members=("a",))
    await stage.launch_seated("first", "a", slow=0.002)
    stage.launch("second", "a")
    await stage.until_joined("second")
    await stage.publish(2000)
    await stage.until_more(50)
    await stage.admin.delete()
    await stage.broker.delete_log(stage.group)
    for name in ("first", "second"):
        assert await stage.ended(name) == 1
        # Whoever reads slowly finds no log any more.
        last = stage.errors(name).rstrip().splitlines()[-1]
        assert f"the group {stage.group} was deleted" in last or f"there is no group {stage.group}" in last


@scene
async def test_a_process_ends_with_a_clear_error_if_there_is_no_such_group(stage: Stage) -> None:
    stage.launch("lost", "a")
    assert await stage.ended("lost") == 1
    assert f"there is no group {stage.group}" in stage.errors("lost").rstrip().splitlines()[-1]


async def truncate(stage: Stage, policy: Literal["fail", "earliest"]) -> int:
    """A group with messages that were deleted before anybody processed them; the first sequence that is there."""
    await stage.prepare(partitions=1, members=("a",), out_of_range=policy)
    await stage.publish(200)
    first = (await stage.stored())["0"][80].sequence
    await stage.harness.truncate(stage.group, stage.stream, 0, first)
    return first


@scene
async def test_messages_that_were_deleted_unprocessed_end_the_process_with_an_error_that_names_the_partition(
    stage: Stage,
) -> None:
    first = await truncate(stage, "fail")
    stage.launch("a", "a")
    assert await stage.ended("a") == 1
    last = stage.errors("a").rstrip().splitlines()[-1]
    assert "OutOfRange: partition 0 of" in last
    assert str(first) in last
    assert "Reset the group" in last
    assert not stage.lines()


@scene
async def test_messages_that_were_deleted_unprocessed_are_passed_over_and_that_is_said_if_the_group_chose_so(
    stage: Stage,
) -> None:
    first = await truncate(stage, "earliest")
    await stage.launch_seated("a", "a")
    lines = await stage.until(lambda lines: len(lines) >= 120)
    assert min(line.sequence for line in lines) == first
    assert f"going on at {first}" in stage.errors("a")
    for key, sent in stage.sent.items():
        stage.sent[key] = [data for data in sent if data in {line.data for line in lines}]
    await stage.until_world(lambda world: world.partitions["0"].position == first + 120)

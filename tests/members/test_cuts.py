"""Cuts and resets between real processes, under load: consistent, and everything after the cut is handled again."""

import asyncio
import time
from base64 import b64decode
from collections import defaultdict
from collections.abc import Mapping

from echelon.group.world import Cut
from tests.members.process import Line
from tests.members.stage import Stage, by_partition, scene


async def start(stage: Stage, *names: str) -> None:
    for name in names:
        stage.launch(name, name, slow=0.002)
    await stage.until_world(lambda world: len(stage.owners()) == len(world.partitions))


def check_consistent(lines: list[Line], cut: Cut) -> None:
    """When the cut was complete, all that lies before it had been handled, and nothing beyond it had begun.

    A partition goes on when its owner has read that the cut is complete. So everything that was begun before the last
    partition's pause lies before the cut, and all of that had ended.
    """
    pauses: dict[str, tuple[float, float]] = {}
    for name, handled in by_partition(lines).items():
        position = cut.parts[name].position
        before = [line for line in handled if line.sequence < position]
        after = [line for line in handled if line.sequence >= position]
        assert before, f"partition {name} was not yet at work"
        assert after, f"partition {name} did not go on"
        pauses[name] = (max(line.ended for line in before), min(line.begun for line in after))
        sequences = sorted({line.sequence for line in before})
        assert len(sequences) == len(before), "nothing was repeated"
    drained = max(end for end, _ in pauses.values())
    resumed = min(begin for _, begin in pauses.values())
    assert drained < resumed, "all partitions had drained before any went on"


@scene
async def test_a_cut_under_load_is_consistent_and_consumption_goes_on(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"))
    await start(stage, "a", "b")
    async with stage.load():
        await stage.until(lambda lines: {line.partition for line in lines} == set(stage.epochs()))
        cut = await stage.admin.cut()
        await stage.until_more(200)
    await stage.until_all_handled()
    check_consistent(stage.lines(), cut)
    stage.check("once")


def check_replayed(stage: Stage, positions: Mapping[str, int]) -> None:
    """After the last reset every partition was handled again from its position on, each message once and in order."""
    for name, lines in by_partition(stage.lines()).items():
        again: dict[str, list[int]] = defaultdict(list)
        for line in lines:
            if line.epoch >= stage.world.reset:
                again[line.key].append(line.sequence)
        expected = {line.sequence for line in lines if line.sequence >= positions[name]}
        assert {sequence for sequences in again.values() for sequence in sequences} == expected
        for key, sequences in again.items():
            if not stage.told("Fenced"):
                assert sequences == sorted(set(sequences)), f"{key}: {sequences}"


@scene
async def test_a_reset_to_a_cut_and_to_the_beginning_handles_everything_after_it_again(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"))
    await start(stage, "a", "b")
    await stage.publish(300)
    await stage.until_all_handled()
    cut = await stage.admin.cut()

    async with stage.load():
        await stage.until_more(200)
        await stage.admin.reset_to_cut(cut.sequence)
        await stage.until_more(400)
    await until_settled(stage)
    check_replayed(stage, {name: part.position for name, part in cut.parts.items()})

    await stage.admin.set_members(["b"])
    await stage.until_world(lambda _: set(stage.owners().values()) == {"b"})
    assert stage.world.config is not None
    await stage.admin.reset(stage.world.config.positions)
    await until_settled(stage)
    check_replayed(stage, stage.world.config.positions)
    assert {line.name for line in stage.lines() if line.epoch >= stage.world.reset} == {"b"}
    stage.check("at_least_once")
    assert len(stage.told("GroupReset", name="b")) == 2


async def until_settled(stage: Stage) -> None:
    """Wait until the world has the end of every partition as its position."""
    lines = await stage.until_all_handled()
    ends = {name: max(line.sequence for line in handled) + 1 for name, handled in by_partition(lines).items()}
    await stage.until_world(lambda world: {p.name: p.position for p in world.partitions.values()} == ends)


@scene
async def test_a_cut_that_a_slow_handler_holds_up_is_complete_when_that_ends(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"), cut_time=20.0)
    await stage.launch_seated("a", "a", slow=0.002)
    stage.launch("b", "b", slow=0.5)
    await stage.until_seated("b")
    await stage.publish(20, keys=20)
    await stage.until(lambda _: bool(stage.told("Begun", name="b")))
    asked = time.monotonic()
    cut = await stage.admin.cut()
    under_way = [line for line in stage.lines() if line.name == "b" and line.begun < asked]
    assert under_way
    assert all(line.sequence < cut.parts[line.partition].position for line in under_way)
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_a_cut_during_which_an_owner_is_killed_is_complete_all_the_same(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"), cut_time=20.0)
    await stage.launch_seated("a", "a", slow=0.002)
    stage.launch("b", "b", slow=2.0)
    await stage.until_seated("b")
    stage.launch("stand-by", "b", slow=0.002)
    await stage.until_joined("stand-by")
    await stage.publish(40)
    await stage.until(lambda _: bool(stage.told("Begun", name="b")))
    cutting = asyncio.ensure_future(stage.admin.cut())
    await stage.until_world(lambda world: world.cut is not None)
    stage.kill("b")
    cut = await cutting
    assert set(cut.parts) == set(stage.epochs())
    await stage.until_handled_by("stand-by", 10)
    await stage.until_all_handled()
    stage.check("at_least_once")


@scene
async def test_what_was_saved_at_a_cut_is_given_back_to_whoever_owns_the_partition_after_a_reset(stage: Stage) -> None:
    await stage.prepare(partitions=4, members=("a", "b"))
    for name in ("a", "b"):
        stage.launch(name, name, saves=True)
    await stage.until_seated("a", "b")
    await stage.publish(100)
    await stage.until_all_handled()
    cut = await stage.admin.cut()
    saved = {name: part.state for name, part in cut.parts.items()}
    assert saved == {name: str(len(lines)).encode() for name, lines in by_partition(stage.lines()).items()}

    await stage.publish(100)
    await stage.until_all_handled()
    stage.launch("c", "c", saves=True)
    await stage.until_joined("c")
    await stage.admin.set_members(["c"])
    await stage.until_world(lambda _: set(stage.owners().values()) == {"c"})
    await stage.admin.reset_to_cut(cut.sequence)
    await until_settled(stage)
    restored = {e.about["partition"]: e.about["state"] for e in stage.told("PartitionStarted") if e.about["state"]}
    assert {name: b64decode(state) for name, state in restored.items()} == saved
    again = await stage.admin.cut()
    everything = {name: str(len(messages)).encode() for name, messages in (await stage.stored()).items()}
    assert {name: part.state for name, part in again.parts.items()} == everything

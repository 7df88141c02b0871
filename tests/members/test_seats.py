"""Seats between real processes: stepping down, pausing, priority, overflow."""

import asyncio
import time

from tests.members.stage import Stage, scene

INTERVAL = 0.4


@scene
async def test_a_stand_by_takes_the_seat_that_its_holder_was_told_to_give_up(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=INTERVAL)
    await stage.launch_seated("first", "a", slow=0.002)
    stage.launch("second", "a", slow=0.002)
    await stage.until_joined("second")
    async with stage.load():
        await stage.until_more(100)
        await stage.admin.step_down("a")
        await stage.until_handled_by("second", 100)
        assert stage.holders() == {"a": "second"}
        await stage.admin.step_down("a")
        await stage.until_handled_by("first", 100, since=time.monotonic())
    await stage.until_all_handled()
    stage.check("once")
    for name in ("first", "second"):
        assert len(stage.told("SeatLost", name=name)) >= 2
        assert len(stage.told("SeatTaken", name=name)) >= 2


@scene
async def test_who_is_told_to_step_down_without_a_stand_by_sits_down_again_after_an_interval(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=INTERVAL)
    await stage.launch_seated("only", "a")
    async with stage.load():
        await stage.until_more(50)
        stepped_down = time.monotonic()
        await stage.admin.step_down("a")
        await stage.until_world(lambda _: not stage.owners())
        again = await stage.until_handled_by("only", since=stepped_down + INTERVAL / 2)
    assert again.begun - stepped_down > 0.9 * INTERVAL
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_who_is_told_to_step_down_in_an_automatic_group_is_out_until_it_joins_again(stage: Stage) -> None:
    await stage.prepare(members=None, interval=INTERVAL)
    for name in ("a", "b"):
        await stage.launch_seated(name)
    await stage.until_world(lambda _: set(stage.owners().values()) == {"a", "b"})
    async with stage.load():
        await stage.until_more(50)
        (out,) = [i.id for i in stage.world.instances.values() if i.profile.name == "a"]
        await stage.admin.step_down(out)
        await stage.until_world(lambda _: list(stage.owners().values()) == ["b"] * 6)
        await asyncio.sleep(3 * INTERVAL)
        assert set(stage.owners().values()) == {"b"}, "it may not claim by itself"
        assert stage.processes["a"].poll() is None
        stage.launch("a again", called="a")
        await stage.until_handled_by("a again", 50)
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_nothing_is_handled_while_the_group_is_paused(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"), interval=INTERVAL)
    for name in ("a", "b"):
        stage.launch(name, name, slow=0.002)
    await stage.until_seated("a", "b")
    async with stage.load():
        await stage.until_more(100)
        await stage.admin.pause()
        await stage.until_world(lambda _: not stage.owners())
        paused = time.monotonic()
        stage.launch("late", "a")
        await stage.until_joined("late")
        await asyncio.sleep(3 * INTERVAL)
        assert not [line for line in stage.lines() if line.ended > paused]
        resumed = time.monotonic()
        await stage.admin.resume()
        await stage.until_more(200)
        assert min(line.begun for line in stage.lines() if line.begun > paused) > resumed

        await stage.admin.pause(until=stage.world.broker_time + 1200)
        await stage.until_world(lambda _: not stage.owners())
        paused = time.monotonic()
        await stage.until_more(100)
        again = min(line.begun for line in stage.lines() if line.begun > paused)
        assert again - paused > 0.5
    await stage.until_all_handled()
    assert stage.world.paused is None
    stage.check("once")


@scene
async def test_a_process_of_better_priority_takes_over_after_four_intervals(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=INTERVAL)
    await stage.launch_seated("spare", "a", priority=5, slow=0.002)
    async with stage.load():
        await stage.until_more(50)
        stage.launch("main", "a", priority=1, slow=0.002)
        await stage.until_joined("main")
        joined = time.monotonic()
        taken = await stage.until_handled_by("main", 50)
        assert taken.begun - joined > 3.5 * INTERVAL
        stage.launch("worse", "a", priority=2)
        await stage.until_joined("worse")
        await asyncio.sleep(5 * INTERVAL)
        assert stage.holders() == {"a": "main"}
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_an_overflow_member_helps_only_while_much_waits(stage: Stage) -> None:
    await stage.prepare(members=("a", "extra"), interval=INTERVAL)
    await stage.launch_seated("a", "a", slow=0.005, lanes=1)
    await stage.launch_seated("extra", "extra", min_pending=300)
    await stage.until_world(lambda _: list(stage.owners().values()) == ["a"] * 6)
    await stage.publish(60)
    await stage.until_all_handled()
    assert {line.name for line in stage.lines()} == {"a"}
    await stage.publish(1200)
    await stage.until_handled_by("extra", 100)
    await stage.until_all_handled()
    await stage.until_world(lambda _: list(stage.owners().values()) == ["a"] * 6)
    stage.check("once")


@scene
async def test_an_overflow_member_works_when_nobody_else_is_left(stage: Stage) -> None:
    await stage.prepare(members=None, interval=INTERVAL)
    await stage.launch_seated("a")
    await stage.launch_seated("extra", min_pending=100_000)
    await stage.until_world(lambda _: list(stage.owners().values()) == ["a"] * 6)
    async with stage.load():
        await stage.until_more(50)
        await stage.drain("a")
        await stage.until_handled_by("extra", 100)
    await stage.until_all_handled()
    stage.check("once")

"""Real processes on real brokers: they share the work, are killed and suspended under load, and others go on."""

from tests.members.checks import Frozen
from tests.members.stage import Stage, scene
from tests.members.waiting import lateness

INTERVAL = 0.4


@scene
async def test_two_members_share_the_partitions_and_drain_on_sigterm(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"))
    await stage.publish(1000)
    for name in ("a", "b"):
        stage.launch(name, name)
    async with stage.load():
        await stage.until_seated("a", "b")
        await stage.until_handled_by("a", 100)
        await stage.until_handled_by("b", 100)
    await stage.until_all_handled()
    await stage.drain("a", "b")
    await stage.until_world(lambda world: not world.instances)
    assert not stage.owners()
    ends = {name: max(line.sequence for line in stage.lines() if line.partition == name) for name in stage.epochs()}
    assert {p.name: p.position for p in stage.world.partitions.values()} == {p: end + 1 for p, end in ends.items()}
    stage.check("once")


@scene
async def test_a_killed_process_is_replaced_at_once_by_its_stand_by_on_the_same_machine(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=1.0)
    await stage.launch_seated("first", "a", slow=0.005)
    stage.launch("second", "a", slow=0.005)
    await stage.until_joined("second")
    async with stage.load():
        await stage.until_handled_by("first", 200)
        async with lateness() as late:
            killed = stage.kill("first")
            taken_over = await stage.until_handled_by("second", since=killed)
    await stage.until_all_handled()
    assert taken_over.begun - killed < late.allow(0.3), "well below one interval"
    stage.check("at_least_once")


@scene
async def test_a_killed_process_is_replaced_by_its_stand_by_on_another_machine(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=INTERVAL)
    await stage.launch_seated("first", "a", slow=0.005, apart=True)
    stage.launch("second", "a", slow=0.005, apart=True)
    await stage.until_joined("second")
    async with stage.load():
        await stage.until_handled_by("first", 200)
        async with lateness() as late:
            killed = stage.kill("first")
            taken_over = await stage.until_handled_by("second", since=killed)
    await stage.until_all_handled()
    assert taken_over.begun - killed > INTERVAL, "nobody can know any sooner that it is not just slow"
    assert taken_over.begun - killed < late.allow(4 * INTERVAL)
    stage.check("at_least_once")


@scene
async def test_a_process_suspended_for_longer_than_two_intervals_stands_by_and_can_take_over_again(
    stage: Stage,
) -> None:
    await stage.prepare(members=("a",), interval=INTERVAL)
    await stage.launch_seated("first", "a", slow=0.002)
    stage.launch("second", "a", slow=0.002)
    await stage.until_joined("second")
    async with stage.load():
        await stage.until_handled_by("first", 100)
        frozen = await stage.suspend("first", 6 * INTERVAL)
        assert stage.holders() == {"a": "second"}
        await stage.until_handled_by("second", 100, since=frozen.end)
        await stage.until_joined("first")
        assert stage.holders() == {"a": "second"}
        assert not handled_after(stage, frozen)
        killed = stage.kill("second")
        await stage.until_handled_by("first", 100, since=killed)
    await stage.until_all_handled()
    stage.check("at_least_once")


def handled_after(stage: Stage, frozen: Frozen) -> list[str]:
    """What a process that was suspended began after it was woken."""
    return [line.data for line in stage.lines() if line.name == frozen.name and line.called > frozen.end]


@scene
async def test_a_process_suspended_for_less_than_an_interval_keeps_its_seat(stage: Stage) -> None:
    await stage.prepare(members=("a",), interval=1.0)
    await stage.launch_seated("first", "a", slow=0.002)
    stage.launch("second", "a")
    await stage.until_joined("second")
    epochs = stage.epochs()
    async with stage.load():
        await stage.until_handled_by("first", 50)
        frozen = await stage.suspend("first", 0.6)
        await stage.until_handled_by("first", 50, since=frozen.end)
    await stage.until_all_handled()
    assert stage.epochs() == epochs
    stage.check("once")

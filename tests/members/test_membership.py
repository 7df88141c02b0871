"""Members come and go under load: what does not move is not touched, what moves goes on where it was released."""

from itertools import pairwise

from msgspec import structs

from tests.members.stage import Stage, by_partition, scene


async def until_shared(stage: Stage, *names: str) -> None:
    """Wait until these processes own all partitions, and nobody else any."""
    await stage.until_world(
        lambda world: len(stage.owners()) == len(world.partitions) and set(stage.owners().values()) == set(names)
    )


def check_moves(stage: Stage, before: dict[str, str], epochs: dict[str, int]) -> set[str]:
    """What kept its owner was not interrupted: same epoch, and nobody started or ended with it. What moved."""
    after = stage.owners()
    moved = {name for name, owner in before.items() if after[name] != owner}
    touched = {name for name, epoch in stage.epochs().items() if epoch != epochs[name]}
    assert touched == moved
    told = stage.told("PartitionStarted", "PartitionEnded")
    assert {each.about["partition"] for each in told if each.about["epoch"] > max(epochs.values())} == moved
    return moved


@scene
async def test_partitions_that_do_not_move_are_not_interrupted_when_members_are_added_and_removed(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"))
    for name in ("a", "b", "c"):
        stage.launch(name, name, slow=0.002)
    await stage.until_joined("a", "b", "c")
    await until_shared(stage, "a", "b")
    async with stage.load():
        await stage.until_more(200)
        before, epochs = stage.owners(), stage.epochs()
        await stage.admin.set_members(["a", "b", "c"])
        await until_shared(stage, "a", "b", "c")
        await stage.until_more(200)
        assert len(check_moves(stage, before, epochs)) == 2

        before, epochs = stage.owners(), stage.epochs()
        await stage.admin.set_members(["b"])
        await until_shared(stage, "b")
        await stage.until_more(200)
        assert len(check_moves(stage, before, epochs)) == 4
    await stage.until_all_handled()
    stage.check("once")
    check_handed_over(stage)
    await stage.drain("a", "b", "c")


def check_handed_over(stage: Stage) -> None:
    """Whoever took a partition over began right after the last message of the former owner."""
    for name, lines in by_partition(stage.lines()).items():
        for owner, following in pairwise(lines):
            if following.name != owner.name:
                done = [line.sequence for line in lines if line.ended <= following.begun]
                assert following.sequence > max(done), f"partition {name} at {following.sequence}"


@scene
async def test_a_member_that_is_not_in_the_membership_waits_until_it_is_added(stage: Stage) -> None:
    await stage.prepare(members=("a",))
    await stage.launch_seated("a", "a")
    stage.launch("b", "b")
    await stage.until_joined("b")
    async with stage.load():
        await stage.until_more(100)
        assert stage.holders() == {"a": "a"}
        assert not any(line.name == "b" for line in stage.lines())
        await stage.admin.set_members(["a", "b"])
        await stage.until_handled_by("b", 50)
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_a_changed_mapping_moves_just_the_partitions_that_it_names_otherwise(stage: Stage) -> None:
    await stage.prepare(assignment="mapped", mapping={"a": ("0", "1", "2"), "b": ("3", "4", "5")})
    for name in ("a", "b"):
        stage.launch(name, name, slow=0.002)
    await until_shared(stage, "a", "b")
    async with stage.load():
        await stage.until_more(100)
        before, epochs = stage.owners(), stage.epochs()
        mapping = {"a": ("0", "1"), "b": ("2", "3", "4", "5")}
        await stage.admin.configure(lambda config: structs.replace(config, mapping=mapping))
        await stage.until_world(lambda _: stage.owners().get("2") == "b")
        await stage.until_more(100)
        assert check_moves(stage, before, epochs) == {"2"}
    await stage.until_all_handled()
    stage.check("once")


@scene
async def test_processes_of_an_automatic_group_come_and_go(stage: Stage) -> None:
    await stage.prepare(members=None)
    stage.launch("a")
    await until_shared(stage, "a")
    async with stage.load():
        stage.launch("b")
        await until_shared(stage, "a", "b")
        stage.launch("c")
        await until_shared(stage, "a", "b", "c")
        await stage.until_more(100)
        await stage.drain("a")
        await until_shared(stage, "b", "c")
        stage.kill("b")
        await until_shared(stage, "c")
        await stage.until_more(100)
    await stage.until_all_handled()
    stage.check("at_least_once")


@scene
async def test_a_stand_by_for_any_seat_takes_the_one_that_falls_vacant(stage: Stage) -> None:
    await stage.prepare(members=("a", "b"))
    for name in ("a", "b"):
        stage.launch(name, name)
    await stage.until_seated("a", "b")
    stage.launch("any")
    await stage.until_joined("any")
    async with stage.load():
        await stage.until_more(50)
        await stage.drain("b")
        await stage.until_world(lambda _: stage.holders() == {"a": "a", "b": "any"})
        await stage.until_handled_by("any", 50)
        assert not any(line.name == "any" and line.partition in owned_by(stage, "a") for line in stage.lines())
    await stage.until_all_handled()
    stage.check("once")


def owned_by(stage: Stage, name: str) -> set[str]:
    return {partition for partition, owner in stage.owners().items() if owner == name}


@scene
async def test_of_two_processes_with_one_name_and_member_one_sits_and_the_other_stands_by(stage: Stage) -> None:
    await stage.prepare(members=("a",))
    for name in ("one", "other"):
        stage.launch(name, "a", called="twin")
    await stage.until_world(lambda world: len(world.instances) == 2 and len(stage.owners()) == 6)
    async with stage.load():
        await stage.until_more(200)
        (seated,) = {line.name for line in stage.lines()}
        stage.kill(seated)
        await stage.until_handled_by("other" if seated == "one" else "one", 100)
    await stage.until_all_handled()
    stage.check("at_least_once")

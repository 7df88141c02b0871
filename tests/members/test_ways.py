"""Ways to take messages: a handler in a script, an async loop and a plain one, in one group."""

from tests.members.stage import Stage, scene


@scene
async def test_loops_and_handlers_share_a_group_leave_it_in_order_are_killed_and_replaced(stage: Stage) -> None:
    await stage.prepare(members=("a", "b", "c"))
    ways = {"a": "join", "b": "messages", "c": "consume"}
    for name, way in ways.items():
        stage.launch(name, name, way=way, slow=0.001)
    await stage.until_seated(*ways)
    async with stage.load():
        for name in ways:
            await stage.until_handled_by(name, 30)
        await stage.drain("a")
        stage.launch("a2", "a", way="consume")
        stage.kill("b")
        stage.launch("b2", "b", way="join")
        await stage.drain("c")
        stage.launch("c2", "c", way="messages")
        for name in ("a2", "b2", "c2"):
            await stage.until_handled_by(name, 30)
    lines = await stage.until_all_handled()
    await stage.drain("a2", "b2", "c2")
    await stage.until_world(lambda world: not world.instances)
    ends = {name: max(line.sequence for line in lines if line.partition == name) for name in stage.epochs()}
    behind = {p.name: ends[p.name] + 1 - p.position for p in stage.world.partitions.values()}
    assert set(behind.values()) <= {0, 1}, "the message at hand when a plain loop is left does not count"
    stage.check("at_least_once")


@scene
async def test_a_loop_keeps_its_seat_however_long_a_message_takes(stage: Stage) -> None:
    await stage.prepare(partitions=2, members=("a", "b"), interval=0.3)
    for name, way in (("a", "messages"), ("b", "consume")):
        stage.launch(name, name, way=way, slow=1.0)
    await stage.until_seated("a", "b")
    epochs = {seat.member: seat.epoch for seat in stage.world.seats.values()}
    await stage.publish(4)
    await stage.until_all_handled()
    assert {seat.member: seat.epoch for seat in stage.world.seats.values()} == epochs
    stage.check("once")

"""What holds of the fold whatever the log contains: plausible records, implausible ones, garbage, any times."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.group.actions import GoOn, Start
from echelon.group.config import Config
from echelon.group.fold import apply, fold
from echelon.group.records import Heartbeat, decode
from echelon.group.world import World, dump, load
from echelon.model import Entry
from tests.group.builders import EPOCH, INTERVAL, Log, Member, grown, make, mapped

CONFIGS = [
    make(3),
    make(3, members=["m1"], delivery="exactly_once", cut_time=2.0, cuts_kept=1),
    make(3, delivery="at_most_once", assignment="blocks"),
    make(3, members=None),
    make(3, members=None, delivery="exactly_once"),
    mapped(m1="0", m2="12"),
    make(3, growth="at_once"),
]
SENDERS = ["a", "b", "c", "admin"]
NAMES = ["0", "1", "2", "3", "none"]
POSITIONS = st.integers(0, 30)
STEPS = st.sampled_from([0, 1, 100, 250, 250, 250, 400, 500, 900, 2000, 2001, 5000, -700, -100_000])
PROFILES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "y"]),
        "member": st.sampled_from([None, "m1", "m1", "m2", "nowhere"]),
        "priority": st.integers(0, 2),
        "min_pending": st.sampled_from([None, None, None, 10]),
        "sole": st.sampled_from([False, False, False, True]),
    }
)


@st.composite
def changes(draw: st.DrawFn, config: Config | None) -> Config:
    """A configuration to change to: mostly one that is allowed."""
    if config is None or draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(CONFIGS))
    if config.membership == "mapped":
        return mapped(m2="0", m3="12")
    if draw(st.booleans()):
        return grown(config, len(config.positions) + 1, draw(POSITIONS))
    members = draw(st.lists(st.sampled_from(["m1", "m2", "m3"]), unique=True))
    return msgspec.structs.replace(config, members=None if config.members is None else tuple(members))


@st.composite
def bodies(draw: st.DrawFn, world: World) -> tuple[str, dict[str, object]]:
    """A kind of record and its fields, by one who knows this world, or errs."""
    kind = draw(
        st.sampled_from(
            ["heartbeat"] * 5
            + ["join", "claim", "release", "cut_part"] * 3
            + ["configure", "leave", "advance", "step_down", "pause", "resume", "cut", "cut_abort", "reset"]
            + ["retire", "unpark", "snapshot", "garbage", "newer"]
        )
    )
    # An epoch is the partition's own, or (one time in five) any number.
    progress: dict[str, list[object]] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True)):
        known = world.partitions.get(name)
        epoch = known.epoch if known is not None and draw(st.integers(0, 4)) else draw(st.integers(-1, 60))
        progress[name] = [epoch, draw(POSITIONS), draw(st.sampled_from([None, None, {}, {"k": 3}]))]
    cut = world.cut.sequence if world.cut is not None else draw(st.sampled_from([0, *world.cuts]))
    seats = [seat.epoch for seat in world.seats.values()]
    marks = [(mark.sequence, mark.sender, mark.counter) for mark in world.marks]
    as_of, as_of_sender, as_of_counter = draw(st.sampled_from([(1, "", 1), *marks]))
    fields: dict[str, object] = {
        "config": draw(changes(world.config)) if kind == "configure" else None,
        "replaces": world.configured,
        "profile": draw(PROFILES) if kind == "join" else None,
        "gone": draw(st.sampled_from([None, None, *SENDERS])) if kind == "leave" else None,
        "member": draw(st.sampled_from(["m1", "m2", *SENDERS])) if kind == "claim" else None,
        "progress": progress,
        "backlog": {name: [position, 1] for name, (_, position, _) in progress.items()},
        "states": dict.fromkeys(progress, b"state"),
        "epoch": draw(st.sampled_from([0, *seats])) if kind == "step_down" else 0,
        "until": draw(st.sampled_from([None, EPOCH, world.broker_time + 700])) if kind == "pause" else None,
        "periodic": draw(st.booleans()) if kind == "cut" else False,
        "cut": None if kind == "reset" and draw(st.booleans()) else cut,
        "positions": {name: position for name, (_, position, _) in progress.items()},
        "partition": "0",
        "keys": ["k"],
        "as_of": as_of,
        "as_of_sender": as_of_sender,
        "as_of_counter": as_of_counter,
        "world": msgspec.Raw(b"{}"),
    }
    return kind, {name: value for name, value in fields.items() if value is not None}


@st.composite
def records(draw: st.DrawFn, world: World, counters: dict[str, int]) -> bytes:
    """The bytes of a record that may follow on this world."""
    kind, fields = draw(bodies(world))
    if kind == "garbage":
        return draw(st.binary(max_size=8))
    sender = draw(st.sampled_from(SENDERS))
    counter = counters.get(sender, 0) + draw(st.sampled_from([1, 1, 1, 1, 1, 2, 0, -1]))
    counters[sender] = max(counter, counters.get(sender, 0))
    head = {
        "type": "heartbeat" if kind == "newer" else kind,
        "group": draw(st.sampled_from(["g"] * 15 + ["another"])),
        "sender": sender,
        "counter": counter,
        "version": 2 if kind == "newer" else 1,
        "read": draw(st.sampled_from([world.sequence] * 9 + [0])),
    }
    return msgspec.json.encode(head | fields)


def check_step(before: World, after: World, step: int) -> None:
    """What holds between the worlds before and after one record, `step` ms apart by the broker's clock."""
    grown_by = after.time - before.time
    assert grown_by == (0 if step < 0 or step > 2 * INTERVAL else min(step, INTERVAL // 2))
    for name, old in before.partitions.items():
        new = after.partitions[name]
        assert new.epoch >= old.epoch
        if new.owner != old.owner and new.owner is not None:
            assert new.epoch == after.sequence
        if new.epoch == old.epoch and before.config is not None and before.config.delivery != "exactly_once":
            assert new.position >= old.position
        if new.owner is not None and new.owner != old.owner:
            holder = after.holder(new.seat)
            assert holder is not None
            assert holder.id == new.owner


def check_world(world: World) -> None:
    """What holds of every world."""
    holders = [seat.holder for seat in world.seats.values() if seat.holder is not None]
    assert len(set(holders)) == len(holders)
    assert set(holders) <= set(world.instances)
    for partition in world.partitions.values():
        if partition.owner is not None:
            assert not world.instances[partition.owner].stale
        assert partition.done <= partition.position
        assert partition.epoch <= world.sequence
    assert set(world.instances) <= set(world.senders)
    if world.cut is not None:
        assert set(world.cut.parts) < set(world.partitions)
    assert all(set(cut.parts) <= set(world.partitions) for cut in world.cuts.values())
    if world.auto:
        assert set(world.seats) == set(world.instances)


def check_unreadable(world: World) -> None:
    """Bytes that nobody can read do nothing at a moment at which nothing ends by itself."""
    if world.paused is not None and (world.paused.until or world.broker_time + 1) <= world.broker_time:
        return
    after = world.copy()
    apply(after, Entry(world.sequence + 1, world.broker_time, b"?"), None)
    after.sequence = world.sequence
    assert after == world


@settings(max_examples=60)
@given(st.data())
def test_whatever_the_log_contains_the_fold_keeps_its_promises(data: st.DataObject) -> None:
    """It never raises, and every prefix of every log keeps what `check_step` and `check_world` say.

    A world that was dumped and loaded after every record stays equal to one that never was; so do worlds that
    were loaded once, at any record, and folded on from there.
    """
    log = Log(data.draw(st.sampled_from(CONFIGS)))
    counters: dict[str, int] = {}
    dumps = [dump(log.world)]
    reloaded = log.world.copy()
    for _ in range(data.draw(st.integers(1, 40))):
        before = log.world.copy()
        step = data.draw(STEPS)
        log.clock += step
        log.append(data.draw(records(log.world, counters)))
        check_step(before, log.world, step)
        check_world(log.world)
        check_unreadable(log.world)
        entry = log.entries[-1]
        apply(reloaded, entry, decode(entry.data))
        reloaded = reloaded.copy()
        assert reloaded == log.world
        dumps.append(dump(log.world))
    assert fold(log.entries) == log.world
    for index, snapshot in enumerate(dumps):
        assert fold(log.entries[index + 1 :], load(snapshot)) == log.world


@settings(max_examples=40)
@given(st.data())
def test_whatever_an_instance_reads_it_can_decide_and_processes_only_what_it_owns(data: st.DataObject) -> None:
    log = Log(data.draw(st.sampled_from(CONFIGS)))
    member = Member(log, "a", data.draw(st.sampled_from([None, "m1"])))
    counters: dict[str, int] = {}
    for _ in range(data.draw(st.integers(1, 30))):
        step = data.draw(st.sampled_from([1, 250, 400, 900]))
        member.now += step
        log.clock += step
        log.append(data.draw(records(log.world, counters)))
        if data.draw(st.integers(0, 3)):
            member.read()
        if data.draw(st.integers(0, 3)) == 0:
            member.send(Heartbeat(group="g", sender="a"))
        for action in member.act(send=False):
            if isinstance(action, Start | GoOn):
                assert member.world.partitions[action.partition].owner == "a"
                assert not member.own.fenced(INTERVAL, member.now)
            if isinstance(action, Start):
                run = member.run(action.partition)
                run.busy = data.draw(st.booleans())
                run.position += 1
        for run in member.own.runs.values():
            run.busy = run.busy and data.draw(st.booleans())
        member.own.leaving = member.own.leaving or data.draw(st.integers(0, 20)) == 0

"""When an instance starts a partition that it owns, and whom it waits for before that."""

from echelon.group.actions import Start
from echelon.group.records import Leave
from tests.group.builders import GARBAGE, INTERVAL, Log, Member, make, of, sitting


def test_a_partition_is_started_at_its_position_under_its_epoch() -> None:
    log = Log(make(members=["m1"], positions={"0": 5, "1": 6}))
    member = Member(log, "a", "m1")
    actions = member.settle()
    epoch = log.partition("0").epoch
    assert of(Start, actions) == [Start("0", epoch, 5), Start("1", epoch, 6)]


def test_what_was_released_is_started_at_once() -> None:
    log = Log(make(members=["m1"]))
    log.sit("z", "m1")
    member = Member(log, "a", "m1")
    member.settle()
    log.step_down("m1")
    member.settle()
    log.release("z", "0")
    assert of(Start, member.settle()) == [Start("0", log.partition("0").epoch, 0)]


def test_what_was_not_released_is_started_two_intervals_after_its_owners_last_record_was_read() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    member = Member(log, "b", "m1")
    member.settle()
    log.beat("a")
    member.read()
    read = member.now
    for _ in range(5):  # The broker's clock runs ahead: `a` counts as stale long before it stops.
        log.later(0.5).append(GARBAGE)
    member.settle()
    assert log.owners() == {"0": "b", "1": "b"}
    while not member.own.runs:
        member.live(0.125)
    assert 2 * INTERVAL <= member.now - read <= 2.125 * INTERVAL


def test_a_hot_stand_by_loses_nothing_by_the_wait() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    member = Member(log, "b", "m1")
    while log.holder("m1") != "b":
        member.live(0.125)
    assert set(log.partition("0").waits) == {"a"}
    member.live(0.125)
    assert set(member.own.runs) == {"0", "1"}


def test_a_newcomer_waits_two_intervals_from_when_it_began_to_read() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    assert log.owners() == {"0": "b", "1": "b"}
    member.live(1.875)
    assert member.own.runs == {}
    member.live(0.25)
    assert set(member.own.runs) == {"0", "1"}


def test_a_new_epoch_does_not_end_the_wait() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    member.live(1)
    log.write("admin", "reset", positions={"0": 7})
    member.live(0.875)
    assert member.own.runs == {}


def test_a_process_that_is_proved_gone_is_not_waited_for() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    member = Member(log, "b", "m1")
    member.settle()
    member.own.gone.add("a")
    assert len(of(Start, member.settle())) == 2


def test_a_proof_is_sent_only_for_an_instance_that_is_there() -> None:
    member = sitting()
    member.own.gone.add("nobody")
    assert member.records(Leave) == []


def test_who_regains_its_own_partition_waits_for_nobody() -> None:
    member = sitting()
    member.log.run(2.25)
    member.now += 2250
    member.settle()
    epoch = member.log.partition("0").epoch
    assert [(run.epoch, run.state) for run in member.own.runs.values()] == [(epoch, "running")] * 2


def test_who_regains_its_own_partition_waits_for_its_own_old_handlers() -> None:
    member = sitting()
    member.run("0").busy = True
    old = member.run("0").epoch
    member.log.run(2.25)
    member.now += 2250
    member.settle()
    assert (member.run("0").epoch, member.run("0").state) == (old, "halted")
    member.run("0").busy = False
    member.settle()
    assert (member.run("0").epoch, member.run("0").state) == (member.log.partition("0").epoch, "running")


def test_a_fenced_instance_starts_nothing() -> None:
    member = Member(Log(make(members=["m1"])), "a", "m1")
    member.read()
    member.act()
    member.read()
    member.act()
    member.later(1.1).read()
    assert member.log.owners() == {"0": "a", "1": "a"}
    assert not of(Start, member.decide())


def test_a_seat_with_a_checkpoint_starts_nothing_until_its_former_holder_has_released_all() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1", checkpoint=True)
    log.step_down("m1")
    member = Member(log, "b", "m1", checkpoint=True)
    member.settle()
    log.release("a", "0")
    member.settle()
    assert (log.owners(), member.own.runs) == ({"0": "b", "1": "a"}, {})
    log.release("a", "1")
    member.settle()
    assert set(member.own.runs) == {"0", "1"}


def test_a_seat_without_a_checkpoint_starts_each_partition_as_it_comes() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.step_down("m1")
    member = Member(log, "b", "m1")
    member.settle()
    log.release("a", "0")
    member.settle()
    assert set(member.own.runs) == {"0"}


def test_a_seat_with_a_checkpoint_starts_nothing_while_it_must_wait_for_one_of_its_partitions() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1", checkpoint=True)
    log.write("admin", "pause")
    log.release("a", "0")
    log.run(2.25)
    member = Member(log, "b", "m1", checkpoint=True)
    member.settle()
    log.write("admin", "resume")
    member.settle()
    assert (log.owners(), log.partition("0").waits) == ({"0": "b", "1": "b"}, {})
    assert member.own.runs == {}
    member.live(2.25)
    assert set(member.own.runs) == {"0", "1"}

"""What an instance tells while it processes: heartbeats, progress, backlog, announcements, parts of cuts."""

import pytest

from echelon.group.actions import Drain, GoOn, Start
from echelon.group.records import Advance, CutPart, Heartbeat, Progress, Record, TakeCut
from tests.group.builders import Log, Member, make, of, sent, sitting

# Heartbeats and progress


@pytest.mark.parametrize("interval", [0.1, 1.0, 3.0, 300.0])
def test_an_idle_instance_sends_a_record_at_least_every_third_of_an_interval(interval: float) -> None:
    member = Member(Log(make(members=["m1"], interval=interval)), "a", "m1")
    member.settle()
    last = member.now
    for _ in range(80):
        member.now += round(interval * 125)
        member.log.clock += round(interval * 125)
        member.read()
        if sent(Record, member.act()):
            assert member.now - last <= interval * 1000 / 3 + interval * 125
            last = member.now
    assert member.now - last <= interval * 1000 / 3 + interval * 125


def test_a_busy_instance_does_not_send_a_heartbeat_at_every_look() -> None:
    member = sitting()
    beats = 0
    for step in range(200):
        member.later(0.01).read()
        member.run("0").position = step
        beats += len(sent(Heartbeat, member.act()))
    assert 4 <= beats <= 10


def test_a_heartbeat_carries_progress_where_it_differs_from_the_world() -> None:
    member = sitting()
    member.run("0").position = 9
    member.later(0.3).read()
    (beat,) = member.records(Heartbeat)
    assert beat.progress == {"0": Progress(member.run("0").epoch, 9)}
    member.settle()
    member.later(0.3).read()
    (beat,) = member.records(Heartbeat)
    assert beat.progress == {}


def test_parked_keys_are_reported_with_the_position() -> None:
    member = sitting()
    member.run("0").position = 9
    member.run("0").parked = {"k": 4}
    member.later(0.3).settle()
    assert member.log.partition("0").parked == {"k": 4}
    member.run("0").parked = {}
    member.later(0.3).settle()
    assert member.log.partition("0").parked == {}


def test_nothing_is_reported_of_a_partition_that_was_lost() -> None:
    member = sitting()
    member.run("0").position = 9
    member.log.write("admin", "reset", positions={"0": 40})
    member.later(0.3).read()
    assert [beat.progress for beat in member.records(Heartbeat)] == [{}]


def test_exactly_once_the_first_heartbeat_of_an_epoch_reports_the_sinks_position_whatever_it_is() -> None:
    member = sitting(delivery="exactly_once", positions={"0": 50, "1": 50})
    for name, position in (("0", 30), ("1", 50)):
        member.run(name).position, member.run(name).ready = position, True
    member.later(0.3).settle()
    assert [member.log.partition(name).position for name in "01"] == [30, 50]
    assert [member.log.partition(name).reported for name in "01"] == [True, True]


def test_backlog_is_reported_where_it_differs() -> None:
    member = sitting()
    member.run("0").pending, member.run("0").in_flight = 7, 2
    member.later(0.3).settle()
    assert (member.log.partition("0").pending, member.log.partition("0").in_flight) == (7, 2)
    member.later(0.3).read()
    assert [beat.backlog for beat in member.records(Heartbeat)] == [{}]


def test_the_backlog_of_partitions_without_an_owner_is_reported_by_the_instance_with_the_lowest_id() -> None:
    log = Log(make())
    member, other = Member(log, "a", "m1"), Member(log, "b", "m1")
    for instance in (member, other):
        instance.own.backlog = {"0": 99, "1": 5}
        instance.settle()
    for instance in (member, other):
        instance.now += 300
        instance.read()
    assert [set(beat.backlog) for beat in member.records(Heartbeat)] == [{"1"}]
    assert [beat.backlog for beat in other.records(Heartbeat)] == [{}]


# At most once


def test_a_batch_is_announced_once_and_again_only_if_it_is_not_read_back() -> None:
    member = sitting(delivery="at_most_once")
    member.run("0").wanted = 10
    (advance,) = member.records(Advance)
    assert advance.progress == {"0": Progress(member.run("0").epoch, 10)}
    member.own.stamp(advance, member.now)  # It gets lost.
    assert not member.records(Advance)
    member.later(0.25)
    assert member.records(Advance)
    member.settle()
    assert member.log.partition("0").position == 10
    member.later(0.25).read()
    assert not member.records(Advance)


def test_nothing_is_announced_while_a_partition_drains() -> None:
    member = sitting(delivery="at_most_once")
    member.run("0").busy = True
    member.log.write("admin", "pause")
    member.read()
    member.act()
    member.run("0").wanted = 10
    assert not member.records(Advance)


@pytest.mark.parametrize("end", ["pause", "cut", "leaving", "fenced"])
def test_nothing_is_announced_in_the_very_decision_to_end_a_partition(end: str) -> None:
    """Its worker is stopped before the record is sent: it would not process what is announced then."""
    member = sitting(delivery="at_most_once")
    if end == "leaving":
        member.own.leaving = True
    elif end == "fenced":
        member.later(1.1)
    else:
        member.log.write("admin", end)
        member.read()
    member.run("0").busy = True
    member.run("0").wanted = 10
    assert member.run("0").state == "running"
    assert not member.records(Advance)


# Cuts


def test_at_a_cut_an_owner_drains_answers_with_its_positions_and_goes_on_when_it_is_complete() -> None:
    member = sitting()
    member.run("0").busy = member.run("1").busy = True
    cut = member.log.write("admin", "cut")
    member.read()
    assert of(Drain, member.act()) == [Drain("0"), Drain("1")]
    assert not member.records(CutPart)
    for name, position in (("0", 7), ("1", 8)):
        member.run(name).busy = False
        member.run(name).position = position
    member.run("0").state_at_cut = b"state"
    (part,) = member.records(CutPart)
    assert part.cut == cut
    assert {name: progress.position for name, progress in part.progress.items()} == {"0": 7, "1": 8}
    assert part.states == {"0": b"state"}
    actions = member.settle()
    assert cut in member.log.world.cuts
    assert of(GoOn, actions) == [GoOn("0"), GoOn("1")]


def test_who_has_answered_a_cut_takes_no_message_before_the_cut_is_over() -> None:
    log = Log(make())
    member = Member(log, "a", "m1")
    log.sit("b", "m2")
    member.settle()
    cut = log.write("admin", "cut")
    assert not of(GoOn, member.settle())
    assert (log.world.cuts, member.run("0").state) == ({}, "draining")
    log.part("b", "1", cut=cut)
    assert GoOn("0") in member.settle()


def test_after_an_aborted_cut_everything_goes_on() -> None:
    log = Log(make())
    member = Member(log, "a", "m1")
    log.sit("b", "m2")
    member.settle()
    cut = log.write("admin", "cut")
    member.settle()
    log.write("admin", "cut_abort", cut=cut)
    assert GoOn("0") in member.settle()


def test_a_part_of_a_cut_is_repeated_if_it_is_not_read_back() -> None:
    member = sitting()
    member.log.write("admin", "cut")
    member.read()
    member.act()
    (part,) = member.records(CutPart)
    member.own.stamp(part, member.now)  # It gets lost.
    assert not member.records(CutPart)
    member.later(0.25)
    assert member.records(CutPart)


def test_exactly_once_what_a_cut_gave_to_its_seat_is_opened_without_taking_messages_until_the_cut_is_over() -> None:
    log = Log(make(members=["m1"], delivery="exactly_once"))
    log.sit("a", "m1")
    member = Member(log, "b", "m1")
    member.settle()
    cut = log.write("admin", "cut")
    actions = member.live(3)
    epoch = log.partition("0").epoch
    assert of(Start, actions) == [Start("0", epoch, 0, idle=True), Start("1", epoch, 0, idle=True)]
    assert not log.world.cuts, "the sink has not told where it stands"
    for run in member.own.runs.values():
        run.ready = True
    actions = member.live(0.5)
    assert set(log.world.cuts) == {cut}
    assert of(GoOn, actions) == [GoOn("0"), GoOn("1")]


def test_the_instance_with_the_lowest_id_takes_a_cut_every_so_often() -> None:
    member = sitting(cut_time=1.0, cut_every=4.0)
    cuts = sent(TakeCut, member.live(13))
    assert 2 <= len(cuts) <= 3
    assert all(isinstance(cut, TakeCut) and cut.periodic for cut in cuts)


def test_nobody_takes_periodic_cuts_unless_the_group_is_made_so() -> None:
    assert not sent(TakeCut, sitting().live(13))

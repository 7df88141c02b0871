"""Holes that a reading of the rules against the core found; each is mended, and stays so."""

import msgspec
import pytest
from msgspec import structs

from echelon.errors import InvalidConfig
from echelon.group.actions import Exit, Halt
from echelon.group.advisories import SeatLost, Watch
from echelon.group.config import check, check_change
from echelon.group.newcomer import world_of
from echelon.group.records import Claim, Heartbeat, Leave, Release, Snapshot
from echelon.group.world import dump
from tests.group.builders import EPOCH, INTERVAL, Log, Member, grown, make, of, sent, sitting


def test_a_fenced_instance_cancels_a_handler_that_a_reset_let_run_on() -> None:
    member = sitting(drain_time=30.0)
    member.run("0").busy = True
    member.log.write("admin", "reset", positions={"0": 5})
    member.read()
    member.act()
    member.later(1.1)
    assert Halt("0") in member.decide()


def test_what_a_reset_let_run_on_is_cancelled_when_the_partition_is_lost() -> None:
    member = sitting(drain_time=30.0)
    member.run("0").busy = True
    member.log.write("admin", "reset", positions={"0": 5})
    member.read()
    member.act()
    member.log.join("b", "m1")
    member.log.write("b", "leave", gone="a")
    member.read()
    assert Halt("0") in member.decide()


def test_a_late_join_of_a_dead_process_does_not_put_out_its_sole_successor() -> None:
    log = Log(make(members=["m1"]))
    log.join("a", "m1", name="pod", sole=True)
    read = log.world.sequence
    log.sit("b", "m1", name="pod", sole=True)
    log.write("a", "join", profile={"name": "pod", "member": "m1", "sole": True}, read=read)
    assert log.holder("m1") == "b"


def test_checkpoint_waits_for_every_former_holder_not_only_the_last() -> None:
    log = Log(make(members=["m1"]))
    log.sit("x", "m1", checkpoint=True)
    log.step_down("m1")
    log.release("x", "1")
    log.sit("y", "m1", checkpoint=True)
    log.step_down("m1")
    log.release("y", "1")
    member = Member(log, "z", "m1", checkpoint=True)
    member.settle()
    assert log.owners() == {"0": "x", "1": "z"}
    assert member.own.runs == {}


def test_checkpoint_waits_for_the_former_holder_though_the_member_was_taken_out_and_back() -> None:
    log = Log(make(members=["m1"]))
    log.sit("x", "m1", checkpoint=True)
    log.reconfigure(make(members=[]))
    log.reconfigure(make(members=["m1"]))
    log.release("x", "1")
    member = Member(log, "y", "m1", checkpoint=True)
    member.settle()
    assert log.owners() == {"0": "x", "1": "y"}
    assert member.own.runs == {}


def test_checkpoint_waits_out_a_former_holders_partition_that_went_to_another_seat() -> None:
    log = Log(make(members=["m1"]))
    log.sit("x", "m1", checkpoint=True)
    log.reconfigure(make())
    log.sit("z", "m2")
    log.step_down("m1")
    log.release("x", "0")
    member = Member(log, "y", "m1", checkpoint=True)
    member.settle()
    began = member.now
    while log.owners()["1"] == "x":  # x is cut off and still drains; the broker's clock runs fast.
        member.now += 260
        log.later(0.5).beat("z")
        member.read()
        member.act()
    member.settle()
    assert member.own.runs == {} or member.now - began >= 2 * INTERVAL


def test_an_added_partition_is_held_again_when_a_restored_sink_sets_an_old_one_back() -> None:
    config = make(members=["m1"], delivery="exactly_once")
    log = Log(config)
    log.sit("a", "m1")
    log.reconfigure(grown(config, 3, 10))
    log.report("a", "0", 10)
    log.report("a", "1", 10)
    log.release("a", "0")
    log.report("a", "0", 5)
    assert log.partition("0").position == 5
    assert log.world.leaves(log.partition("2"))


def test_a_newcomer_ignores_a_snapshot_of_a_higher_version_as_the_fold_does() -> None:
    log = Log(make())
    log.sit("a", "m1")
    other = log.world.copy()
    other.reset = 77
    mark = log.world.marks[-1]
    named = {"as_of": mark.sequence, "as_of_sender": mark.sender, "as_of_counter": mark.counter}
    log.write("a", "snapshot", version=2, world=msgspec.Raw(dump(other)), **named)
    assert world_of(log.entries, from_start=True) == log.world


def test_a_handler_that_outlives_the_drain_time_after_a_reset_is_cancelled_before_the_process_exits() -> None:
    member = sitting(drain_time=5.0)
    member.run("0").busy = True
    member.log.write("admin", "reset", positions={"0": 5})
    assert not of(Exit, member.live(5.5))


def test_an_at_most_once_instance_under_load_still_sends_heartbeats() -> None:
    member = sitting(delivery="at_most_once")
    run = member.run("0")
    beats = 0
    for _ in range(40):
        member.later(0.1).read()
        run.position = member.world.partitions["0"].position
        run.wanted = run.position + 3
        beats += len(sent(Heartbeat, member.act()))
    assert beats > 4
    assert member.log.partition("0").done > 0


def test_a_proof_that_a_process_is_gone_is_not_sent_at_every_look() -> None:
    member = sitting()
    member.log.join("b", "m1")
    member.read()
    member.own.gone.add("b")
    assert sent(Leave, member.act())
    assert not member.records(Leave)


def test_nobody_says_that_it_has_left_while_its_handlers_still_run() -> None:
    member = sitting()
    member.run("0").busy = True
    member.log.join("b", "m1")
    member.log.write("b", "leave", gone="a")
    member.own.leaving = True
    member.read()
    assert not member.records(Leave)


def test_a_snapshot_that_can_no_longer_count_is_not_sent() -> None:
    member = sitting(snapshot_every=100)
    while member.own.picture is None:
        member.later(0.125).read()
        if member.own.picture is None:
            member.act()
    member.log.join("b", "m1")
    member.log.run(12, "b")  # It slept meanwhile.
    member.now += 12 * INTERVAL
    before = member.own.picture.as_of
    assert not [r for r in sent(Snapshot, member.live(3)) if isinstance(r, Snapshot) and r.as_of == before]


def test_a_snapshot_of_a_void_world_is_not_sent() -> None:
    member = sitting(snapshot_every=100)
    while member.own.picture is None:
        member.later(0.125).read()
        if member.own.picture is None:
            member.act()
    member.own.start_over(member.now)
    assert member.own.picture is None


def test_backlog_of_a_partition_that_the_world_does_not_know_is_no_error() -> None:
    member = sitting()
    member.own.backlog = {"7": 3}
    member.later(0.3).read()
    member.decide()


def test_what_was_never_started_is_not_halted() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    log.write("admin", "pause")
    member.live(1.875)
    member.later(0.125).read()
    (release,) = member.records(Release)
    member.own.stamp(release, member.now)  # It gets lost.
    member.later(1.1)
    assert not of(Halt, member.decide())


def test_nobody_waits_with_its_claim_for_one_that_is_leaving() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.step_down("m1", sender="a")
    log.run(1.5, "a")
    member = Member(log, "b")
    member.read()
    member.act()
    member.read()
    assert member.records(Claim)


def test_a_wait_that_an_owner_has_outlived_is_over() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    log.sit("b1", "m1", name="pod", sole=True)
    for position in range(40):
        log.later(0.25).report("b1", "0", position)  # It processes, so it has waited.
    log.sit("b2", "m1", name="pod", sole=True)
    assert log.partition("0").waits == {}


def test_a_stray_record_before_the_first_configure_does_not_break_the_log() -> None:
    log = Log()
    log.write("old", "heartbeat", group="old")
    log.write("maker", "configure", config=make())
    assert log.world.config is not None
    assert world_of(log.entries, from_start=True) == log.world


def test_who_was_unknown_before_an_outage_was_not_fresh_on_end() -> None:
    log = Log(make(members=["m1"]))
    log.sit("old", "m1", priority=5)
    log.join("new", "m1", priority=0)
    log.run(3, "old", "new")
    log.run(1.5, "old")
    log.later(3).beat("old")
    log.later(0.25).claim("new", "m1")
    assert log.holder("m1") == "old"


def test_the_assignment_does_not_change_after_the_group_is_made() -> None:
    with pytest.raises(InvalidConfig):
        check_change(make(), make(assignment="blocks"))


@pytest.mark.parametrize("name", ["delivery", "assignment", "growth", "on_failure", "out_of_range"])
def test_a_word_that_a_setting_does_not_take_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig):
        check(structs.replace(make(), **{name: "sometimes"}))


@pytest.mark.parametrize(("before", "reason"), [("admin", "preempted"), ("a", "timeout")])
def test_the_reason_of_a_lost_seat_is_not_that_of_an_earlier_loss(before: str, reason: str) -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1", priority=5)
    log.step_down("m1", sender=before)
    log.run(1.25, "a")
    log.join("b", "m1")
    log.claim("a", "m1")
    log.run(4.25, "a", "b")
    watch = Watch(log.world)
    if reason == "preempted":
        log.claim("b", "m1")
        news = watch.look(log.world)
    else:
        log.run(2.25, "b")
        news = watch.look(log.world)
    assert [one.reason for one in news if isinstance(one, SeatLost)] == [reason]


def test_a_pause_whose_end_is_already_past_stops_nobody() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.write("admin", "pause", until=EPOCH - 5)
    assert not log.world.leaves(log.partition("0"))


def test_a_priority_below_zero_does_not_count() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1", priority=0)
    log.join("b", "m1", priority=-1)
    log.run(4.5, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"


def test_exactly_once_nothing_is_reported_before_the_sink_was_opened() -> None:
    member = sitting(delivery="exactly_once")  # Started, but the sink has not answered yet.
    member.later(0.3).read()
    assert [beat.progress for beat in member.records(Heartbeat)] == [{}]

"""What an instance does: joining, claiming, starting, waiting, draining, releasing, fencing itself, leaving."""

import pytest

from echelon.group.actions import Action, Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.records import (
    Advance,
    Claim,
    CutPart,
    Heartbeat,
    Join,
    Leave,
    Progress,
    Record,
    Release,
    Snapshot,
    StepDown,
    TakeCut,
)
from tests.group.builders import INTERVAL, Log, Member, make


def sitting(**options: object) -> Member:
    """`a`, which holds m1 and runs both partitions."""
    member = Member(Log(make(members=["m1"], **options)), "a", "m1")
    member.settle()
    assert [run.state for run in member.own.runs.values()] == ["running", "running"]
    return member


def standing_by(last: str = "a", **options: object) -> Member:
    """`b` has taken over what `a` had, which fell silent, and has read everything as it came."""
    log = Log(make(members=["m1"], **options))
    log.sit("a", "m1")
    member = Member(log, "b", "m1")
    member.live(2.5)
    assert (log.holder("m1"), log.partition("0").waits.keys()) == ("b", {last})
    return member


def of(kind: type[Action], actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def sent(kind: type[Record], actions: list[Action]) -> list[Record]:
    return [action.record for action in actions if isinstance(action, Send) and isinstance(action.record, kind)]


# Joining and claiming


def test_an_instance_that_has_read_no_configuration_does_nothing() -> None:
    assert Member(Log(), "a").decide() == []


def test_an_instance_joins_once_it_has_read_the_log_and_says_how_far() -> None:
    member = Member(Log(make()), "a", "m1", priority=3)
    member.read()
    (join,) = member.records(Join)
    assert (join.group, join.sender, join.read) == ("g", "a", member.world.sequence)
    assert (join.profile.member, join.profile.priority) == ("m1", 3)


def test_an_instance_does_nothing_else_before_it_reads_that_it_has_joined() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.act()
    assert member.decide() == []
    member.later(0.3)
    assert [type(action) for action in member.decide()] == [Send]
    assert member.records(Join)


def test_an_instance_claims_its_vacant_seat() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.act()
    member.read()
    assert [claim.member for claim in member.records(Claim)] == ["m1"]


def test_a_claim_is_repeated_if_it_is_not_read_back_and_not_at_every_look() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.act()
    member.read()
    assert sent(Claim, member.act())
    assert not member.records(Claim)
    member.later(0.3)
    assert member.records(Claim)


def test_nobody_claims_a_seat_that_is_held() -> None:
    log = Log(make(members=["m1"]))
    log.sit("z", "m1")
    member = Member(log, "a", "m1")
    member.settle()
    assert not member.records(Claim)
    assert log.holder("m1") == "z"


def test_a_stand_by_claims_a_seat_that_falls_vacant() -> None:
    log = Log(make())
    log.sit("x", "m1")
    log.sit("y", "m2")
    member = Member(log, "s")
    member.settle()
    log.write("y", "leave")
    member.settle()
    assert log.holder("m2") == "s"


def test_who_joined_just_for_a_seat_goes_before_a_stand_by_for_any() -> None:
    log = Log(make(members=["m1"]))
    log.join("d", "m1")
    member = Member(log, "s")
    member.settle()
    assert log.holder("m1") is None
    log.claim("d", "m1")
    log.run(1.5)
    log.write("d", "leave")
    member.now += 1500
    member.settle()
    assert log.holder("m1") == "s"


def test_a_better_priority_goes_first_to_a_vacant_seat() -> None:
    log = Log(make(members=["m1"]))
    log.join("better", "m1", priority=1)
    log.join("worse", "m1", priority=3)
    member = Member(log, "a", "m1", priority=2)
    member.settle()
    assert log.holder("m1") is None
    log.write("better", "leave")
    member.settle()
    assert log.holder("m1") == "a"


def test_nobody_waits_for_a_better_one_that_is_not_fresh() -> None:
    log = Log(make(members=["m1"]))
    log.join("better", "m1", priority=0)
    member = Member(log, "a", "m1", priority=2)
    member.settle()
    member.live(0.9)
    assert log.holder("m1") is None
    member.live(0.5)
    assert log.holder("m1") == "a"


def test_a_better_priority_takes_a_held_seat_after_four_intervals() -> None:
    log = Log(make(members=["m1"]))
    log.sit("z", "m1", priority=5)
    member = Member(log, "a", "m1", priority=1)
    member.settle()
    for eighth in range(40):
        log.beat("z")
        member.live(0.125)
        if log.holder("m1") == "a":
            assert 32 <= eighth <= 36
            return
    raise AssertionError("it did not take the seat")


def test_who_was_put_out_of_an_auto_group_joins_again_only_if_it_is_told_to() -> None:
    member = Member(Log(make(members=None)), "a")
    member.settle()
    member.log.step_down("a")
    member.live(2)
    assert member.log.holder("a") is None
    member.own.rejoin = True
    member.live(1)
    assert member.log.holder("a") == "a"


# Starting and waiting


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
    starts: list[Action] = []
    log.clock += 10 * INTERVAL  # The broker's clock runs ahead: the seat changes hands early.
    for _ in range(8):
        log.later(0.5).beat("b", p0=1)
    member.own.counter = 50
    while not starts:
        member.live(0.125)
        starts = [Start(name, run.epoch, run.position) for name, run in member.own.runs.items()]
    assert log.holder("m1") == "b"
    assert 2 * INTERVAL <= member.now - read <= 2.25 * INTERVAL


def test_a_hot_stand_by_loses_nothing_by_the_wait() -> None:
    member = standing_by()
    taken = member.log.partition("0").since
    assert set(member.own.runs) == {"0", "1"}
    assert member.log.world.time - taken <= INTERVAL


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


# Draining and releasing


def test_a_partition_that_moves_is_drained_and_then_released_with_its_position() -> None:
    member = sitting()
    member.run("0").busy = member.run("1").busy = True
    member.log.write("admin", "pause")
    member.read()
    assert of(Drain, member.act()) == [Drain("0"), Drain("1")]
    assert not member.records(Release)
    member.run("0").busy = False
    member.run("0").position = 9
    (release,) = member.records(Release)
    assert release.progress == {"0": Progress(member.run("0").epoch, 9, {})}


def test_a_release_is_repeated_until_it_is_read_that_the_epoch_is_over() -> None:
    member = sitting()
    member.log.write("admin", "pause")
    member.read()
    member.act()
    first = member.records(Release)
    assert first
    member.own.stamp(first[0], member.now)  # It is sent, and gets lost.
    assert not member.records(Release)
    member.later(0.25)
    assert member.records(Release)[0].progress == first[0].progress
    member.settle()
    assert member.log.owners() == {"0": None, "1": None}
    assert (member.own.runs, member.records(Release)) == ({}, [])


def test_after_a_release_was_sent_nothing_more_is_processed_under_its_epoch_whatever_is_read() -> None:
    member = sitting()
    member.log.write("admin", "pause")
    member.read()
    member.act()
    (release,) = member.records(Release)
    member.own.stamp(release, member.now)  # It is on its way.
    member.log.write("admin", "resume")
    member.later(0.25).read()
    actions = member.act()
    assert not of(GoOn, actions)
    assert sent(Release, actions)
    epoch = release.progress["0"].epoch
    member.settle()
    assert member.run("0").epoch > epoch
    assert member.run("0").state == "running"


def test_what_need_not_be_released_after_all_goes_on_under_its_epoch() -> None:
    member = sitting()
    member.run("0").busy = True
    epoch = member.run("0").epoch
    member.log.write("admin", "pause")
    member.read()
    member.act()
    member.log.write("admin", "resume")
    member.read()
    assert GoOn("0") not in member.decide()
    member.run("0").busy = False
    assert GoOn("0") in member.decide()
    member.settle()
    assert (member.run("0").epoch, member.run("0").state) == (epoch, "running")


def test_an_owner_that_still_waits_sends_no_release() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.run(3)
    member = Member(log, "b", "m1")
    member.settle()
    log.write("admin", "pause")
    member.live(1.875)
    assert log.owners() == {"0": "b", "1": "b"}
    member.live(0.25)
    assert log.owners() == {"0": None, "1": None}


def test_what_was_given_up_unstarted_is_not_started_under_that_epoch() -> None:
    log = Log(make(members=["m1"]))
    log.write("admin", "pause")
    member = Member(log, "a", "m1")
    member.settle()
    log.write("admin", "resume")
    member.settle()
    member.log.write("admin", "pause")
    member.read()
    member.act()
    (release,) = member.records(Release)
    member.own.runs.clear()
    member.own.stamp(release, member.now)
    log.write("admin", "resume")
    member.read()
    assert not of(Start, member.decide())


def test_a_handler_that_does_not_end_in_the_drain_time_is_cancelled() -> None:
    member = sitting(drain_time=2.0)
    member.run("0").busy = True
    member.log.write("admin", "pause")
    actions = member.live(2)
    assert Halt("0", cancel=True) not in actions
    assert Halt("0", cancel=True) in member.live(0.25)


def test_a_handler_that_does_not_end_in_the_drain_time_once_it_is_cancelled_makes_the_process_exit() -> None:
    member = sitting(drain_time=2.0)
    member.run("0").busy = True
    member.log.write("admin", "pause")
    member.live(2.25)
    actions = member.live(1.875)
    assert not of(Exit, actions)
    member.later(0.3)
    assert member.decide() == [Exit("stuck")]


def test_what_is_lost_is_cancelled_at_once_and_forgotten_when_it_has_ended() -> None:
    member = sitting()
    member.run("0").busy = True
    member.log.join("b", "m1")
    member.log.write("b", "leave", gone="a")
    member.read()
    assert Halt("0", cancel=True) in member.act()
    assert Close("0") not in member.decide()
    member.run("0").busy = False
    assert Close("0") in member.decide()


# Resets


def test_after_a_reset_running_handlers_end_uncounted_and_then_the_partition_is_started_anew() -> None:
    member = sitting()
    member.run("0").busy = True
    reset = member.log.write("admin", "reset", positions={"0": 40})
    member.read()
    assert [action for action in member.act() if not isinstance(action, Send)] == [Halt("0", cancel=False)]
    member.run("0").position = 3
    member.run("0").busy = False
    member.settle()
    assert (member.run("0").epoch, member.run("0").position) == (reset, 40)
    assert member.log.partition("0").position == 40


def test_a_reset_does_not_touch_partitions_that_it_does_not_name() -> None:
    member = sitting()
    member.log.write("admin", "reset", positions={"0": 40})
    actions = member.settle()
    assert not [action for action in actions if getattr(action, "partition", None) == "1"]


# Fencing


def test_who_does_not_read_its_own_records_for_an_interval_stops_processing() -> None:
    member = sitting()
    member.later(1)
    assert not of(Halt, member.decide())
    member.later(0.001)
    assert of(Halt, member.decide()) == [Halt("0", cancel=True), Halt("1", cancel=True)]


def test_who_was_fenced_goes_on_with_partitions_whose_epoch_is_unchanged() -> None:
    member = sitting()
    member.later(1.1)
    member.act()
    member.read()
    member.settle()
    assert [run.state for run in member.own.runs.values()] == ["running", "running"]


def test_who_was_fenced_starts_anew_what_it_has_lost_and_regained() -> None:
    member = sitting()
    epoch = member.run("0").epoch
    member.later(1.1)
    member.act()
    member.log.run(2.25)
    member.now += 2250
    member.settle()
    assert member.run("0").epoch > epoch


def test_who_was_fenced_does_not_go_on_while_cancelled_handlers_still_run() -> None:
    member = sitting()
    member.run("0").busy = True
    member.later(1.1)
    member.act()
    member.read()
    member.settle()
    assert (member.run("0").state, member.run("1").state) == ("halted", "running")


def deaf(member: Member, intervals: float) -> list[Action]:
    """It can write and reads nothing: what it did last."""
    actions: list[Action] = []
    for _ in range(round(intervals * 8)):
        member.later(0.125)
        actions = member.act()
        if sent(Record, actions):
            member.own.stored(INTERVAL, member.now)
    return actions


def test_who_can_write_but_not_read_exits_after_it_was_fenced_for_two_intervals() -> None:
    member = sitting()
    assert not of(Exit, deaf(member, 2.875))
    assert deaf(member, 0.5) == [Exit("unread")]


def test_who_can_neither_write_nor_read_stays_and_waits() -> None:
    member = sitting()
    for _ in range(80):
        assert not of(Exit, member.later(0.125).act())


def test_after_an_outage_nobody_exits_for_what_it_could_not_read_then() -> None:
    member = sitting()
    deaf(member, 0.5)
    member.later(20)
    member.own.stored(INTERVAL, member.now)
    assert not of(Exit, member.decide())


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
    member.run("0").position = 30
    member.run("1").position = 50
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


def test_exactly_once_what_a_cut_gave_to_its_seat_is_opened_without_taking_messages() -> None:
    log = Log(make(members=["m1"], delivery="exactly_once"))
    log.sit("a", "m1")
    log.run(2.25)
    member = Member(log, "b", "m1")
    log.join("b", "m1")
    member.own.counter = 1
    log.write("admin", "cut")
    member.read()
    member.own.lease = member.now
    member.live(2.25)
    assert log.world.cuts
    assert [run.state for run in member.own.runs.values()] == ["running", "running"]


def test_the_instance_with_the_lowest_id_takes_a_cut_every_so_often() -> None:
    member = sitting(cut_time=1.0, cut_every=4.0)
    cuts = sent(TakeCut, member.live(13))
    assert 2 <= len(cuts) <= 3
    assert all(isinstance(cut, TakeCut) and cut.periodic for cut in cuts)


def test_nobody_takes_periodic_cuts_unless_the_group_is_made_so() -> None:
    assert not sent(TakeCut, sitting().live(13))


# Snapshots and deletion


def test_a_snapshot_that_is_due_is_sent_and_repeated_until_it_counts() -> None:
    member = sitting(snapshot_every=100)
    while member.own.picture is None:
        member.later(0.125).read()
        if member.own.picture is None:
            member.act()
    (picture,) = member.records(Snapshot)
    member.own.stamp(picture, member.now)  # It gets lost.
    assert not member.records(Snapshot)
    member.live(1.125)
    assert member.log.world.snapshot == picture.as_of
    assert member.own.picture is None


def test_everyone_stops_without_further_records_when_the_group_is_deleted() -> None:
    member = sitting()
    member.log.write("admin", "delete")
    member.read()
    actions = member.decide()
    assert actions[-1] == Exit("deleted")
    assert not of(Send, actions)
    assert of(Halt, actions) == [Halt("0", cancel=True), Halt("1", cancel=True)]


# Leaving


def test_who_leaves_steps_down_drains_releases_leaves_and_exits_in_this_order() -> None:
    member = sitting()
    member.own.leaving = True
    done: list[str] = []
    for _ in range(20):
        member.later(0.05).read()
        done += [
            type(action.record).__name__ if isinstance(action, Send) else type(action).__name__
            for action in member.act()
        ]
        if "Exit" in done:
            break
    shape = list(dict.fromkeys(name for name in done if name != "Heartbeat"))
    assert sorted(shape[:2]) == ["Drain", "StepDown"]
    assert shape[2:] == ["Release", "Close", "Leave", "Exit"]
    assert member.decide() == [Exit("left")]
    assert "a" not in member.log.world.instances


def test_who_leaves_does_not_leave_before_its_handlers_have_ended_and_its_releases_are_read_back() -> None:
    member = sitting()
    member.run("0").busy = True
    member.own.leaving = True
    actions = member.live(3)
    assert not sent(Leave, actions)
    member.run("0").busy = False
    actions = member.live(1)
    assert sent(Leave, actions)


def test_the_step_down_of_one_that_leaves_lets_a_stand_by_take_its_seat_while_it_drains() -> None:
    member = sitting()
    member.log.join("b", "m1")
    member.run("0").busy = True
    member.own.leaving = True
    member.live(0.5)
    member.log.claim("b", "m1")
    assert member.log.holder("m1") == "b"
    assert member.log.owners() == {"0": "a", "1": "b"}


def test_who_leaves_claims_nothing_any_more() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.act()
    member.own.leaving = True
    actions = member.live(1)
    assert not sent(Claim, actions)
    assert of(Exit, actions)[0] == Exit("left")


def test_who_leaves_before_it_has_joined_just_exits() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.own.leaving = True
    assert member.decide() == [Exit("left")]


def test_the_step_down_of_one_that_leaves_names_the_epoch_of_its_seat() -> None:
    member = sitting()
    member.own.leaving = True
    assert [record.epoch for record in member.records(StepDown)] == [member.log.world.seats["m1"].epoch]

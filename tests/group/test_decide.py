"""What an instance does first and last: joining, claiming, leaving, and what one does for the group."""

from echelon.group.actions import Exit, Halt, Send
from echelon.group.records import Claim, Join, Leave, Snapshot, StepDown
from tests.group.builders import Log, Member, make, of, sent, sitting

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
    assert of(Halt, actions) == [Halt("0"), Halt("1")]


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


def test_who_leaves_while_the_broker_is_away_exits_once_everybody_else_takes_it_for_stale() -> None:
    member = sitting()
    member.own.leaving = True
    for _ in range(11):
        member.later(0.25)
        assert Exit("left") not in member.act(send=False)
    member.later(0.5)
    assert Exit("left") in member.act(send=False)


def test_who_leaves_before_it_has_joined_just_exits() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    member.own.leaving = True
    assert member.decide() == [Exit("left")]


def test_the_step_down_of_one_that_leaves_names_the_epoch_of_its_seat() -> None:
    member = sitting()
    member.own.leaving = True
    assert [record.epoch for record in member.records(StepDown)] == [member.log.world.seats["m1"].epoch]

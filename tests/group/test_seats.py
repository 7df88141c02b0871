"""Rules 3, 8 and 11 (priority): who may claim a seat, three memberships, stepping down, leaving."""

import pytest

from tests.group.builders import Log, make, mapped


def waiting(**profile: object) -> Log:
    """`a` holds m1 with priority 5, `b` waits for it as `profile` says."""
    log = Log(make(members=["m1"]))
    log.sit("a", "m1", priority=5)
    log.join("b", "m1", **profile)
    return log


# Claims


def test_a_vacant_seat_goes_to_who_claims_it_and_the_claims_sequence_is_its_epoch() -> None:
    log = Log(make())
    sequence = log.sit("a", "m1")
    assert (log.holder("m1"), log.world.seats["m1"].epoch) == ("a", sequence)


def test_the_first_claim_in_the_log_wins() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.join("b", "m1")
    log.claim("b", "m1")
    log.claim("a", "m1")
    assert log.holder("m1") == "b"


def test_a_claim_of_a_seat_that_is_not_in_the_membership_is_refused() -> None:
    log = Log(make())
    log.sit("a", "m9")
    assert set(log.world.seats) == {"m1", "m2"}
    assert log.world.seat_of("a") is None


def test_a_claim_while_the_group_is_paused_is_refused() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.write("admin", "pause")
    log.claim("a", "m1")
    assert log.holder("m1") is None


def test_a_claim_of_a_held_seat_is_refused() -> None:
    log = waiting(priority=5)
    log.run(5, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"


@pytest.mark.parametrize("end", ["stale", "left", "stepped down"])
def test_a_seat_is_vacant_when_its_holder_is_stale_left_or_stepped_down(end: str) -> None:
    log = waiting(priority=9)
    match end:
        case "stale":
            log.run(2.25, "b")
        case "left":
            log.write("a", "leave")
        case "stepped down":
            log.step_down("m1")
    sequence = log.claim("b", "m1")
    assert (log.holder("m1"), log.world.seats["m1"].epoch) == ("b", sequence)


def test_an_instance_that_joined_for_a_member_may_claim_no_other_seat() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.claim("a", "m2")
    assert log.holder("m2") is None


def test_a_stand_by_may_claim_any_seat_that_is_vacant() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.join("s")
    log.claim("s", "m1")
    assert log.holder("m1") == "a"
    log.claim("s", "m2")
    assert log.holder("m2") == "s"


def test_an_instance_holds_one_seat_at_most() -> None:
    log = Log(make())
    log.join("s")
    log.claim("s", "m1")
    log.claim("s", "m2")
    assert (log.holder("m1"), log.holder("m2")) == ("s", None)


def test_a_stand_by_takes_over_the_positions_of_who_was_there_before() -> None:
    log = waiting()
    log.report("a", "0", 17)
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert (log.partition("0").owner, log.partition("0").position) == ("b", 17)


# Memberships


def test_in_an_auto_group_every_instance_has_a_seat_of_its_own() -> None:
    log = Log(make(4, members=None))
    for name in ("a", "b"):
        log.sit(name)
    assert {name: log.holder(name) for name in log.world.seats} == {"a": "a", "b": "b"}
    assert sorted(str(seat) for seat in log.seats().values()) == ["a", "a", "b", "b"]


def test_in_an_auto_group_nobody_may_claim_anothers_seat() -> None:
    log = Log(make(members=None))
    log.sit("a")
    log.run(3)
    log.join("b")
    log.claim("b", "a")
    assert log.holder("a") == "a"
    assert log.world.seat_of("b") is None


def test_in_an_auto_group_who_has_not_claimed_takes_no_part() -> None:
    log = Log(make(members=None))
    log.join("a")
    assert log.seats() == {"0": None, "1": None}


def test_in_an_auto_group_a_stale_instance_takes_no_part_until_it_returns() -> None:
    log = Log(make(members=None))
    log.sit("a")
    log.sit("b")
    log.release("a", "1")
    assert log.owners() == {"0": "a", "1": "b"}
    log.run(2.25, "a")
    assert log.owners() == {"0": "a", "1": "a"}
    log.beat("b")
    assert log.world.seat_of("b") is not None
    assert sorted(str(seat) for seat in log.seats().values()) == ["a", "b"]


def test_in_an_auto_group_a_seat_goes_with_its_instance() -> None:
    log = Log(make(members=None))
    log.sit("a")
    log.write("a", "leave")
    assert log.world.seats == {}


def test_in_a_mapped_group_each_member_gets_just_what_the_mapping_says() -> None:
    log = Log(mapped(m1="02", m2="1"))
    log.sit("a", "m1")
    assert log.owners() == {"0": "a", "1": None, "2": "a"}
    log.sit("b", "m2")
    assert log.owners() == {"0": "a", "1": "b", "2": "a"}


def test_a_member_that_is_taken_out_loses_its_seat_and_one_that_stays_does_not() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.sit("b", "m2")
    epoch = log.world.seats["m1"].epoch
    log.reconfigure(make(members=["m1", "m3"]))
    assert {name: seat.holder for name, seat in log.world.seats.items()} == {"m1": "a", "m3": None}
    assert log.world.seats["m1"].epoch == epoch


# Priority


def test_a_better_priority_takes_a_held_seat_after_four_fresh_intervals() -> None:
    log = waiting(priority=4)
    log.run(4, "a", "b")
    sequence = log.claim("b", "m1")
    assert (log.holder("m1"), log.world.seats["m1"].epoch) == ("b", sequence)


def test_a_better_priority_does_not_take_a_held_seat_before_four_fresh_intervals() -> None:
    log = waiting(priority=4)
    log.run(3.75, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"


@pytest.mark.parametrize("priority", [5, 6])
def test_an_equal_or_worse_priority_never_takes_a_held_seat(priority: int) -> None:
    log = waiting(priority=priority)
    log.run(8, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"


def test_the_four_intervals_begin_anew_after_one_in_which_it_was_not_fresh() -> None:
    log = waiting(priority=0)
    log.run(3, "a", "b")
    log.run(1.25, "a")
    log.run(3.75, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"
    log.run(0.5, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "b"


def test_a_better_priority_that_was_stepped_down_does_not_take_a_held_seat_until_it_joins_again() -> None:
    log = Log(make(members=["m1"]))
    log.sit("b", "m1", priority=0)
    log.step_down("m1")
    log.sit("a", "m1", priority=5)
    log.run(5, "a", "b")
    log.claim("b", "m1")
    assert log.holder("m1") == "a"
    log.join("b", "m1", priority=0)
    log.claim("b", "m1")
    assert log.holder("m1") == "b"


def test_a_better_priority_needs_no_four_intervals_for_a_vacant_seat() -> None:
    log = waiting(priority=0)
    log.step_down("m1")
    log.claim("b", "m1")
    assert log.holder("m1") == "b"


def test_who_was_preempted_drains_and_releases_before_the_other_gets_its_partitions() -> None:
    log = waiting(priority=0)
    log.run(4, "a", "b")
    log.claim("b", "m1")
    assert log.owners() == {"0": "a", "1": "a"}
    assert log.world.leaves(log.partition("0"))
    log.release("a", "0")
    assert log.owners() == {"0": "b", "1": "a"}


# Stepping down


def test_a_step_down_names_the_seats_epoch() -> None:
    log = waiting()
    epoch = log.world.seats["m1"].epoch
    log.write("admin", "step_down", epoch=epoch - 1)
    assert log.holder("m1") == "a"
    log.write("admin", "step_down", epoch=epoch)
    assert log.holder("m1") is None


def test_a_step_down_that_was_meant_for_the_holder_before_does_nothing() -> None:
    log = waiting()
    epoch = log.world.seats["m1"].epoch
    log.step_down("m1")
    log.claim("b", "m1")
    log.write("admin", "step_down", epoch=epoch)
    assert log.holder("m1") == "b"


def test_who_was_stepped_down_may_not_claim_the_seat_again_for_one_interval() -> None:
    log = waiting()
    log.step_down("m1")
    log.run(0.75, "a")
    log.claim("a", "m1")
    assert log.holder("m1") is None
    log.run(0.25, "a")
    log.claim("a", "m1")
    assert log.holder("m1") == "a"


def test_who_was_stepped_down_may_claim_another_seat_at_once() -> None:
    log = Log(make())
    log.join("s")
    log.claim("s", "m1")
    log.step_down("m1")
    log.claim("s", "m2")
    assert log.holder("m2") == "s"


def test_joining_again_does_not_end_the_bar_of_one_interval() -> None:
    log = waiting()
    log.step_down("m1")
    log.join("a", "m1")
    log.claim("a", "m1")
    assert log.holder("m1") is None


def test_who_was_stepped_down_keeps_its_partitions_until_it_has_released_them() -> None:
    log = waiting()
    log.step_down("m1")
    log.claim("b", "m1")
    assert log.owners() == {"0": "a", "1": "a"}
    log.release("a", "0", "1")
    assert log.owners() == {"0": "b", "1": "b"}


def test_in_an_auto_group_a_step_down_puts_the_instance_out_until_it_joins_again() -> None:
    log = Log(make(members=None))
    log.sit("a")
    log.sit("b")
    log.step_down("a")
    assert set(log.seats().values()) == {"b"}
    log.run(2, "a", "b")
    log.claim("a", "a")
    assert log.holder("a") is None
    log.join("a")
    log.claim("a", "a")
    assert log.holder("a") == "a"
    assert set(log.seats().values()) == {"a", "b"}


def test_a_join_that_was_sent_before_its_sender_knew_of_the_step_down_does_not_undo_it() -> None:
    log = Log(make(members=None))
    log.sit("a")
    read = log.world.sequence
    log.step_down("a")
    log.write("a", "join", profile={"name": "a"}, read=read)
    log.run(1.25, "a")
    log.claim("a", "a")
    assert log.holder("a") is None


# Leaving


def test_who_leaves_is_gone_with_its_seat_and_its_partitions_are_free() -> None:
    log = waiting()
    log.report("a", "0", 5)
    log.write("a", "leave")
    assert "a" not in log.world.instances
    assert (log.holder("m1"), log.owners()) == (None, {"0": None, "1": None})
    assert log.partition("0").position == 5


def test_what_comes_from_an_instance_after_its_leave_is_ignored() -> None:
    log = waiting()
    log.write("a", "leave")
    log.claim("a", "m1")
    assert not log.counted


def test_an_instance_may_join_again_after_it_left() -> None:
    log = waiting()
    log.write("a", "leave")
    log.sit("a", "m1")
    assert log.holder("m1") == "a"


def test_an_instance_may_leave_for_one_whose_process_is_gone() -> None:
    log = waiting()
    log.write("b", "leave", gone="a")
    assert set(log.world.instances) == {"b"}
    assert log.holder("m1") is None


def test_sole_vouches_that_older_instances_of_the_name_are_gone() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a1", "m1", name="pod-0")
    log.join("b", "m1", name="pod-1")
    log.join("a2", "m1", name="pod-0", sole=True)
    assert set(log.world.instances) == {"a2", "b"}
    log.claim("a2", "m1")
    assert log.owners() == {"0": "a2", "1": "a2"}
    assert log.partition("0").waits == {}


def test_without_sole_an_older_instance_of_the_name_stays() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a1", "m1", name="pod-0")
    log.sit("a2", "m1", name="pod-0")
    assert log.holder("m1") == "a1"


def test_who_has_written_nothing_for_ten_intervals_is_forgotten_with_its_seat() -> None:
    log = waiting()
    log.run(11, "b")
    assert set(log.world.instances) == {"b"}
    assert log.holder("m1") is None


def test_who_is_forgotten_without_ever_being_stale_loses_its_partitions() -> None:
    log = waiting()
    for _ in range(8):
        log.run(1.75, "b")
        log.later(3).beat("b")
        assert "a" not in log.world.instances or not log.world.instances["a"].stale
    assert set(log.world.instances) == {"b"}
    assert log.owners() == {"0": None, "1": None}
    assert set(log.partition("0").waits) == {"a"}

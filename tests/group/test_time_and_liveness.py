"""Rules 1 and 2: group time, which only records move, and who is fresh, unknown or stale by it."""

import pytest

from echelon.group.world import World
from tests.group.builders import EPOCH, GARBAGE, Log, make


def holding() -> Log:
    """`a` sits on m1 and owns both partitions, `b` stands by for it."""
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.join("b", "m1")
    return log


def times(log: Log) -> tuple[int, int]:
    return log.world.time, log.world.broker_time - EPOCH


# Rule 1: time


def test_group_time_begins_with_the_first_record() -> None:
    assert times(Log(make())) == (0, 0)


def test_group_time_grows_by_the_difference_of_broker_times() -> None:
    log = Log(make())
    log.later(0.2).join("a", "m1")
    log.later(0.3).beat("a")
    assert times(log) == (500, 500)


def test_one_record_adds_at_most_half_an_interval() -> None:
    log = Log(make())
    log.later(0.51).append(GARBAGE)
    assert times(log) == (500, 510)
    log.later(2).append(GARBAGE)
    assert times(log) == (1000, 2510)


def test_a_difference_above_two_intervals_adds_nothing() -> None:
    log = Log(make())
    log.later(2.001).append(GARBAGE)
    assert times(log) == (0, 2001)


def test_a_clock_that_goes_back_adds_nothing_and_time_goes_on_from_there() -> None:
    log = Log(make())
    log.later(-3600).append(GARBAGE)
    assert log.world.time == 0
    log.later(0.1).append(GARBAGE)
    assert log.world.time == 100


def written(log: Log, kind: str) -> World:
    match kind:
        case "unreadable":
            log.append(GARBAGE)
        case "unknown":
            log.write("a", "murmur")
        case "of another group":
            log.write("a", "heartbeat", group="another")
        case "of a newer version":
            log.write("a", "heartbeat", version=2)
        case "repeated":
            log.write("a", "heartbeat", counter=1)
        case "not joined":
            log.write("x", "heartbeat")
    return log.world


KINDS = ["unreadable", "unknown", "of another group", "of a newer version", "repeated", "not joined"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_ignored_moves_time_and_does_nothing_else(kind: str) -> None:
    plain, other = holding(), holding()
    plain.later(0.3).append(GARBAGE)
    assert written(other.later(0.3), kind) == plain.world
    assert other.world.time == 300


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_that_is_ignored_keeps_nobody_fresh(kind: str) -> None:
    log = holding()
    for _ in range(9):
        written(log.later(0.25), kind)
    assert log.world.instances["a"].stale


def test_others_fall_stale_by_the_time_that_ignored_records_move() -> None:
    log = holding()
    log.run(2.25)
    assert log.world.instances["a"].stale
    assert log.owners() == {"0": None, "1": None}


# Rule 2: liveness


def test_an_instance_is_fresh_for_one_interval_after_its_last_record() -> None:
    log = holding()
    a = log.world.instances["a"]
    log.run(1)
    assert log.world.fresh(a)
    log.run(0.25)
    assert not log.world.fresh(a)


def test_an_instance_is_stale_after_two_intervals_and_not_before() -> None:
    log = holding()
    log.run(2)
    assert not log.world.instances["a"].stale
    log.clock += 1
    log.append(GARBAGE)
    assert log.world.instances["a"].stale


def test_who_is_unknown_keeps_its_seat_and_its_partitions() -> None:
    log = holding()
    log.run(2, "b")
    log.claim("b", "m1")
    assert (log.holder("m1"), log.owners()) == ("a", {"0": "a", "1": "a"})


def test_any_record_that_counts_keeps_its_sender_fresh() -> None:
    log = holding()
    for kind in ("heartbeat", "claim", "pause", "resume", "join", "cut_abort", "retire", "heartbeat"):
        log.run(0.5)
        log.write("a", kind, member="m2", profile={"name": "a"}, cut=1)
    assert log.world.fresh(log.world.instances["a"])
    assert log.world.instances["b"].stale


def test_each_instance_falls_stale_by_itself() -> None:
    log = holding()
    log.run(3, "b")
    assert (log.world.instances["a"].stale, log.world.instances["b"].stale) == (True, False)


def test_a_stale_holder_that_returns_before_another_claim_keeps_its_seat() -> None:
    log = holding()
    epoch = log.world.seats["m1"].epoch
    log.run(3)
    log.beat("a")
    assert (log.holder("m1"), log.world.seats["m1"].epoch) == ("a", epoch)
    assert log.owners() == {"0": "a", "1": "a"}


def test_a_stale_holder_that_returns_gets_its_partitions_under_a_new_epoch() -> None:
    log = holding()
    log.run(3)
    returned = log.beat("a")
    assert [log.partition(name).epoch for name in "01"] == [returned, returned]


def test_the_record_that_comes_too_late_itself_makes_its_sender_lose_what_it_had() -> None:
    log = holding()
    epoch = log.partition("0").epoch
    log.run(2)
    log.later(0.5).report("a", "0", 9, epoch=epoch)
    assert (log.partition("0").position, log.partition("0").owner) == (0, "a")
    assert log.partition("0").epoch > epoch


def test_a_stale_holder_that_returns_after_another_claim_has_lost_its_seat() -> None:
    log = holding()
    log.run(3, "b")
    log.claim("b", "m1")
    log.beat("a")
    assert (log.holder("m1"), log.owners()) == ("b", {"0": "b", "1": "b"})


def test_a_stale_holder_is_given_nothing() -> None:
    log = holding()
    log.run(3)
    log.write("admin", "reset", positions={"0": 7, "1": 7})
    assert log.owners() == {"0": None, "1": None}


# Outages and clocks


def test_after_an_outage_all_who_were_not_stale_count_as_heard_now() -> None:
    log = holding()
    log.run(1.75, "b")
    log.later(3).beat("b")
    log.run(2, "b")
    assert not log.world.instances["a"].stale
    log.run(0.25, "b")
    assert log.world.instances["a"].stale


def test_an_outage_does_not_raise_the_dead() -> None:
    log = holding()
    log.run(2.25, "b")
    log.later(3).beat("b")
    assert log.world.instances["a"].stale
    assert log.owners() == {"0": None, "1": None}


@pytest.mark.parametrize("jump", [-86400, -3, -0.5, 0.5, 1, 1.5, 2, 2.5, 30, 86400])
def test_no_seat_and_no_partition_changes_hands_because_the_brokers_clock_jumps(jump: float) -> None:
    log = holding()
    log.run(1, "a", "b")
    before = log.holder("m1"), log.owners(), log.partition("0").epoch
    log.later(jump)
    log.run(1, "a", "b")
    log.claim("b", "m1")
    assert (log.holder("m1"), log.owners(), log.partition("0").epoch) == before


def test_no_seat_changes_hands_because_of_one_outage_after_another() -> None:
    log = holding()
    epoch = log.partition("0").epoch
    for _ in range(10):
        log.later(5).beat("b")
        log.later(0.25).beat("a")
        log.claim("b", "m1")
    assert (log.holder("m1"), log.partition("0").epoch) == ("a", epoch)

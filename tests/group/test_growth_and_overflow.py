"""Rules 11 (overflow) and 12 (partitions added), and 14 (delete)."""

import pytest

from echelon.group.config import Config
from tests.group.builders import Log, grown, make, mapped

# Partitions added


def growing(ends: int = 10, count: int = 3, **options: object) -> Log:
    """`a` owns partitions 0 and 1 of a group that has grown to `count`."""
    config = make(members=["m1"], **options)
    log = Log(config)
    log.sit("a", "m1")
    log.reconfigure(grown(config, count, ends))
    return log


def done(log: Log, *names: str, at: int = 10) -> None:
    for name in names:
        if log.world.config is not None and log.world.config.delivery == "at_most_once":
            log.report("a", name, at, kind="advance")
        log.report("a", name, at)


def test_an_added_partition_starts_at_its_beginning_and_belongs_to_nobody_at_first() -> None:
    log = growing()
    assert (log.partition("2").position, log.partition("2").owner, log.partition("2").held) == (0, None, True)
    assert log.owners() == {"0": "a", "1": "a", "2": None}


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_an_added_partition_is_given_away_when_all_old_ones_have_passed_their_ends(delivery: str) -> None:
    log = growing(delivery=delivery)
    done(log, "0")
    assert log.partition("2").owner is None
    done(log, "1", at=9)
    assert log.partition("2").owner is None
    done(log, "1")
    assert log.partition("2").owner == "a"


def test_growth_does_not_touch_the_old_partitions() -> None:
    log = growing()
    assert not any(log.world.leaves(log.partition(name)) for name in "01")


def test_an_added_partition_is_given_away_at_once_if_nothing_lies_before_the_ends() -> None:
    log = growing(ends=0)
    assert log.partition("2").owner == "a"


def test_at_most_once_an_added_partition_waits_for_what_is_announced_and_still_processed() -> None:
    log = growing(delivery="at_most_once")
    done(log, "1")
    log.report("a", "0", 20, kind="advance")
    assert log.partition("2").owner is None
    log.report("a", "0", 10)
    assert log.partition("2").owner == "a"


def test_an_added_partition_waits_for_keys_that_are_parked_from_before_the_end() -> None:
    log = growing()
    done(log, "1")
    log.report("a", "0", 50, parked={"k": 9})
    assert log.partition("2").owner is None
    log.report("a", "0", 50, parked={"late": 10})
    assert log.partition("2").owner == "a"


def test_an_added_partition_is_held_again_after_a_reset_to_before_the_end() -> None:
    log = growing()
    done(log, "0", "1")
    log.write("admin", "reset", positions={"0": 3})
    assert (log.partition("2").owner, log.world.leaves(log.partition("2"))) == ("a", True)
    log.release("a", "2")
    assert log.partition("2").owner is None
    done(log, "0")
    assert log.partition("2").owner == "a"


def test_an_added_partition_is_not_held_by_a_reset_to_beyond_the_end() -> None:
    log = growing()
    done(log, "0", "1", at=50)
    log.write("admin", "reset", positions={"0": 30})
    assert not log.world.leaves(log.partition("2"))


def test_a_reset_past_the_end_lets_an_added_partition_go() -> None:
    log = growing()
    done(log, "1")
    log.write("admin", "reset", positions={"0": 10})
    assert log.partition("2").owner == "a"


def test_a_partition_added_later_waits_for_those_added_earlier_too() -> None:
    log = growing()
    assert log.world.config is not None
    log.reconfigure(grown(log.world.config, 4, {"0": 15, "1": 15, "2": 5}))
    done(log, "0", "1", at=15)
    assert log.owners() == {"0": "a", "1": "a", "2": "a", "3": None}
    done(log, "2", at=5)
    assert log.partition("3").owner == "a"


def test_a_partition_added_earlier_does_not_wait_for_the_later_ends() -> None:
    log = growing()
    assert log.world.config is not None
    log.reconfigure(grown(log.world.config, 4, {"0": 99, "1": 99, "2": 0}))
    done(log, "0", "1", at=10)
    assert (log.partition("2").owner, log.partition("3").owner) == ("a", None)


def test_the_wait_of_an_added_partition_outlives_the_owner_of_an_old_one() -> None:
    log = growing()
    log.join("b", "m1")
    done(log, "0", at=5)
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert log.owners() == {"0": "b", "1": "b", "2": None}


def test_a_group_can_be_made_to_take_added_partitions_at_once() -> None:
    log = growing(growth="at_once")
    assert log.partition("2").owner == "a"
    log.write("admin", "reset", positions={"0": 3})
    assert not log.world.leaves(log.partition("2"))


def test_a_mapped_group_refuses_growth_that_its_mapping_does_not_cover() -> None:
    config = mapped(m1="0", m2="1")
    log = Log(config)
    log.reconfigure(grown(config, 3, 0))
    assert set(log.owners()) == {"0", "1"}
    log.reconfigure(grown(config, 3, 0, mapping={"m1": ["0"], "m2": ["1", "2"]}))
    assert log.seats() == {"0": "m1", "1": "m2", "2": "m2"}


@pytest.mark.parametrize(
    "config", [make(3), make(1), grown(make(), 3, {"0": 1})], ids=["no ends", "fewer", "an end is missing"]
)
def test_the_number_of_partitions_changes_only_with_the_ends_of_the_old_ones(config: Config) -> None:
    log = Log(make())
    log.reconfigure(config)
    assert set(log.owners()) == {"0", "1"}


def test_growth_is_written_once_though_two_instances_saw_it() -> None:
    log = Log(make())
    seen = log.world.configured
    log.write("a", "configure", config=grown(make(), 3, 10), replaces=seen)
    log.write("b", "configure", config=grown(make(), 3, 20), replaces=seen)
    assert log.world.config is not None
    assert log.world.config.ends == ({"0": 10, "1": 10},)


def test_added_partitions_spread_over_the_members() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.sit("b", "m2")
    before = log.seats()
    log.reconfigure(grown(make(), 6, 0))
    after = log.seats()
    assert {name: after[name] for name in before} == before
    assert sorted(str(seat) for seat in after.values()) == ["m1"] * 3 + ["m2"] * 3


# Overflow


def spilling(**thresholds: int) -> Log:
    """`a` is a plain instance of an auto group over four partitions, `o` an overflow member."""
    log = Log(make(4, members=None))
    log.sit("a")
    log.sit("o", **thresholds)
    return log


def takes_part(log: Log, member: str = "o") -> bool:
    return member in log.seats().values()


def test_an_overflow_member_takes_no_part_while_the_backlog_is_low() -> None:
    log = spilling(min_pending=10)
    assert not takes_part(log)
    log.beat("a", p0=9)
    assert not takes_part(log)


def test_an_overflow_member_takes_part_while_the_backlog_of_the_group_is_above_its_threshold() -> None:
    log = spilling(min_pending=10)
    log.beat("a", p0=6, p1=5)
    assert takes_part(log)
    assert sorted(str(seat) for seat in log.seats().values()) == ["a", "a", "o", "o"]


def test_an_overflow_member_stays_until_the_backlog_is_below_half_its_threshold() -> None:
    log = spilling(min_pending=10)
    log.beat("a", p0=11)
    log.beat("a", p0=6)
    assert takes_part(log)
    log.beat("a", p0=4)
    assert not takes_part(log)
    log.beat("a", p0=9)
    assert not takes_part(log)


def test_an_overflow_member_comes_in_by_what_is_fetched_and_not_yet_reported() -> None:
    log = spilling(min_ack_pending=10)
    log.write("a", "heartbeat", backlog={"0": [1000, 9]})
    assert not takes_part(log)
    log.write("a", "heartbeat", backlog={"0": [0, 11]})
    assert takes_part(log)
    log.write("a", "heartbeat", backlog={"0": [1000, 4]})
    assert not takes_part(log)


@pytest.mark.parametrize("backlog", [[11, 0], [0, 101], [11, 101]])
def test_either_threshold_suffices(backlog: list[int]) -> None:
    log = spilling(min_pending=10, min_ack_pending=100)
    log.write("a", "heartbeat", backlog={"0": backlog})
    assert takes_part(log)


def test_either_threshold_keeps_an_overflow_member_in() -> None:
    log = spilling(min_pending=10, min_ack_pending=100)
    log.write("a", "heartbeat", backlog={"0": [11, 0]})
    log.write("a", "heartbeat", backlog={"0": [0, 60]})
    assert takes_part(log)
    log.write("a", "heartbeat", backlog={"0": [4, 40]})
    assert not takes_part(log)


def test_an_overflow_member_takes_all_when_no_other_instance_is_left() -> None:
    log = spilling(min_pending=10)
    log.run(2.25, "o")
    assert set(log.seats().values()) == {"o"}
    log.beat("a")
    assert set(log.seats().values()) == {"a"}


def test_an_overflow_member_that_is_alone_from_the_beginning_takes_all() -> None:
    log = Log(make(members=None))
    log.sit("o", min_pending=10)
    assert log.owners() == {"0": "o", "1": "o"}


def test_overflow_members_share_when_only_they_are_left() -> None:
    log = spilling(min_pending=10)
    log.sit("p", min_pending=20)
    log.write("a", "leave")
    assert set(log.seats().values()) == {"o", "p"}


def test_each_overflow_member_has_a_threshold_of_its_own() -> None:
    log = spilling(min_pending=10)
    log.sit("p", min_pending=100)
    log.beat("a", p0=50)
    assert (takes_part(log, "o"), takes_part(log, "p")) == (True, False)


def test_what_an_overflow_member_had_is_drained_and_released_when_the_backlog_is_low_again() -> None:
    log = spilling(min_pending=10)
    log.beat("a", p0=20)
    moved = [name for name, seat in log.seats().items() if seat == "o"]
    log.release("a", *moved)
    assert {log.partition(name).owner for name in moved} == {"o"}
    log.beat("a", p0=0)
    assert all(log.world.leaves(log.partition(name)) for name in moved)
    log.release("o", *moved)
    assert set(log.owners().values()) == {"a"}


def test_backlog_counts_from_the_owner_and_for_partitions_without_one_from_any_instance() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.join("b", "m2")
    log.write("b", "heartbeat", backlog={"0": [70, 7], "1": [30, 3]})
    assert [(log.partition(name).pending, log.partition(name).in_flight) for name in "01"] == [(0, 0), (30, 0)]
    log.write("a", "heartbeat", backlog={"0": [50, 5]})
    assert (log.partition("0").pending, log.partition("0").in_flight) == (50, 5)


def test_what_a_lost_owner_had_fetched_counts_no_more() -> None:
    log = spilling(min_ack_pending=10)
    log.sit("c")
    log.write("a", "heartbeat", backlog={"0": [0, 20]})
    assert takes_part(log)
    log.run(2.25, "c", "o")
    assert not takes_part(log)


def test_what_was_fetched_of_a_released_partition_counts_no_more() -> None:
    log = Log(make(members=["m1"]))
    log.sit("a", "m1")
    log.write("a", "heartbeat", backlog={"0": [0, 20]})
    log.release("a", "0")
    assert log.partition("0").in_flight == 0


def test_in_a_listed_group_too_an_overflow_member_takes_part_by_backlog() -> None:
    log = Log(make(4))
    log.sit("a", "m1")
    log.sit("o", "m2", min_pending=10)
    assert set(log.seats().values()) == {"m1"}
    log.beat("a", p0=20)
    assert set(log.seats().values()) == {"m1", "m2"}


# Delete


def test_after_delete_nothing_counts_any_more() -> None:
    log = Log(make())
    log.sit("a", "m1")
    sequence = log.write("admin", "delete")
    assert log.world.deleted == sequence
    before = log.owners(), log.holder("m1")
    log.write("a", "leave")
    log.write("admin", "reset", positions={"0": 7})
    log.reconfigure(make(members=[]))
    assert not log.counted
    assert (log.owners(), log.holder("m1"), log.partition("0").position) == (*before, 0)


def test_a_delete_for_another_identity_does_nothing() -> None:
    log = Log(make())
    log.write("admin", "delete", group="another")
    assert log.world.deleted == 0

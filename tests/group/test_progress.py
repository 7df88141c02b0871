"""Rules 5 and 6: what counts as progress, parked keys, and positions that are announced (at most once)."""

import pytest

from echelon.group.config import Config
from tests.group.builders import Log, make


def owned(config: Config | None = None) -> Log:
    """`a` holds m1 and owns both partitions, `b` stands by for it."""
    log = Log(config or make(members=["m1"]))
    log.sit("a", "m1")
    log.join("b", "m1")
    return log


# Progress


@pytest.mark.parametrize("kind", ["heartbeat", "release", "cut_part"])
def test_progress_counts_under_the_partitions_epoch(kind: str) -> None:
    log = owned()
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind=kind, cut=cut)
    assert log.partition("0").position == 5


@pytest.mark.parametrize("kind", ["heartbeat", "release", "cut_part", "advance"])
@pytest.mark.parametrize("other", [-1, 1])
def test_progress_under_another_epoch_does_not_count(kind: str, other: int) -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind=kind, epoch=log.partition("0").epoch + other, cut=cut)
    assert log.partition("0").position == 0


@pytest.mark.parametrize("kind", ["heartbeat", "release", "cut_part", "advance"])
def test_progress_of_another_than_the_owner_does_not_count(kind: str) -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    cut = log.write("admin", "cut")
    log.report("b", "0", 5, kind=kind, cut=cut)
    assert (log.partition("0").owner, log.partition("0").position) == ("a", 0)


def test_progress_of_a_fenced_instance_does_not_count() -> None:
    log = owned()
    epoch = log.partition("0").epoch
    log.run(2.25, "b")
    log.claim("b", "m1")
    log.report("a", "0", 50, epoch=epoch)
    assert log.partition("0").position == 0


def test_progress_of_an_unknown_partition_is_ignored() -> None:
    log = owned()
    log.write("a", "heartbeat", progress={"77": [1, 5]}, backlog={"77": [3]})
    assert set(log.owners()) == {"0", "1"}


def test_progress_of_one_partition_does_not_touch_another() -> None:
    log = owned()
    log.report("a", "0", 5)
    assert log.partition("1").position == 0


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_within_an_epoch_positions_only_grow(delivery: str) -> None:
    log = owned(make(members=["m1"], delivery=delivery))
    log.report("a", "0", 5)
    log.report("a", "0", 4)
    assert log.partition("0").position == 5


def test_a_release_with_a_lower_position_counts_and_the_position_stays() -> None:
    log = owned()
    log.report("a", "0", 5)
    log.step_down("m1")
    log.report("a", "0", 4, kind="release")
    assert (log.partition("0").owner, log.partition("0").position) == (None, 5)


def test_in_an_exactly_once_group_the_first_report_of_an_epoch_may_set_the_position_back() -> None:
    log = owned(make(members=["m1"], delivery="exactly_once"))
    log.report("a", "0", 5)
    log.report("a", "0", 5, kind="release")
    log.report("a", "0", 3)
    assert log.partition("0").position == 3


def test_in_an_at_least_once_group_no_report_sets_the_position_back() -> None:
    log = owned()
    log.report("a", "0", 5)
    log.report("a", "0", 5, kind="release")
    log.report("a", "0", 3)
    assert log.partition("0").position == 5


def test_a_new_owner_goes_on_at_the_position_that_counted_last() -> None:
    log = owned()
    log.report("a", "0", 5)
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert (log.partition("0").owner, log.partition("0").position) == ("b", 5)


def test_parked_keys_travel_with_the_position() -> None:
    log = owned()
    log.report("a", "0", 5, parked={"k": 3})
    assert log.partition("0").parked == {"k": 3}
    log.report("a", "0", 6)
    assert log.partition("0").parked == {"k": 3}
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert log.partition("0").parked == {"k": 3}
    log.report("b", "0", 6, parked={})
    assert log.partition("0").parked == {}


def test_parked_keys_of_another_epoch_do_not_count() -> None:
    log = owned()
    log.report("a", "0", 5, parked={"k": 3}, epoch=1)
    assert log.partition("0").parked == {}


def parked() -> Log:
    """`a` has parked the keys k and l of partition 0, and is asked to try k again."""
    log = owned()
    log.report("a", "0", 9, parked={"k": 3, "l": 4})
    log.write("admin", "unpark", partition="0", keys=["k", "unknown"])
    return log


def test_an_owner_can_be_asked_to_try_a_parked_key_again_or_to_pass_over_it() -> None:
    log = parked()
    assert log.partition("0").called.keys() == {"k"}
    log.write("admin", "unpark", partition="0", keys=["l"], skip=True)
    assert {key: call.skip for key, call in log.partition("0").called.items()} == {"k": False, "l": True}


def test_what_was_asked_of_a_parked_key_waits_for_the_next_owner_too() -> None:
    log = parked()
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert (log.partition("0").owner, set(log.partition("0").called)) == ("b", {"k"})


@pytest.mark.parametrize("left", [{"l": 4}, {"k": 5, "l": 4}], ids=["gone", "parked further on"])
def test_what_was_asked_of_a_parked_key_is_done_once_it_is(left: dict[str, int]) -> None:
    log = parked()
    log.report("a", "0", 9, parked={"k": 3, "l": 4})
    assert log.partition("0").called.keys() == {"k"}
    log.report("a", "0", 9, parked=left)
    assert log.partition("0").called == {}


def test_a_reset_forgets_what_was_asked_of_parked_keys() -> None:
    log = parked()
    log.write("admin", "reset", positions={"0": 2})
    assert (log.partition("0").parked, log.partition("0").called) == ({}, {})


# At most once


def test_advance_moves_the_position_before_processing_in_an_at_most_once_group() -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    log.report("a", "0", 10, kind="advance")
    assert (log.partition("0").position, log.partition("0").done) == (10, 0)


def test_what_was_announced_is_skipped_by_the_next_owner() -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    log.report("a", "0", 10, kind="advance")
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert (log.partition("0").owner, log.partition("0").position) == ("b", 10)


def test_at_most_once_a_heartbeat_says_how_far_processing_is_and_moves_no_position() -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    log.report("a", "0", 10, kind="advance")
    log.report("a", "0", 4)
    assert (log.partition("0").position, log.partition("0").done) == (10, 4)
    log.report("a", "0", 99)
    assert (log.partition("0").position, log.partition("0").done) == (10, 10)


def test_an_advance_with_a_lower_position_takes_nothing_back() -> None:
    log = owned(make(members=["m1"], delivery="at_most_once"))
    log.report("a", "0", 10, kind="advance")
    log.report("a", "0", 5, kind="advance")
    assert log.partition("0").position == 10


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_advance_does_nothing_where_progress_follows_processing(delivery: str) -> None:
    log = owned(make(members=["m1"], delivery=delivery))
    log.report("a", "0", 10, kind="advance")
    assert log.partition("0").position == 0

"""Rules 9 and 10: cuts of all positions at one drain, and resets, to a cut or to positions."""

import pytest

from echelon.group.records import MAX_STATE
from tests.group.builders import Log, grown, make


def two(**options: object) -> Log:
    """`a` owns partition 0 and `b` partition 1."""
    log = Log(make(**options))
    log.sit("a", "m1")
    log.sit("b", "m2")
    assert log.owners() == {"0": "a", "1": "b"}
    return log


def cut_at(log: Log, first: int, second: int, **fields: object) -> int:
    """A complete cut with these positions of `a` and `b`."""
    cut = log.write("admin", "cut", **fields)
    log.report("a", "0", first, kind="cut_part", cut=cut, parked={"k": 1})
    log.report("b", "1", second, kind="cut_part", cut=cut)
    assert cut in log.world.cuts
    return cut


def positions(log: Log, cut: int) -> dict[str, int]:
    return {name: part.position for name, part in sorted(log.world.cuts[cut].parts.items())}


# Cuts


def test_a_cut_is_complete_when_the_parts_cover_all_partitions() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind="cut_part", cut=cut)
    assert (log.world.cuts, log.world.cut is not None) == ({}, True)
    log.report("b", "1", 7, kind="cut_part", cut=cut)
    assert positions(log, cut) == {"0": 5, "1": 7}
    assert log.world.cut is None


def test_a_cut_moves_nothing() -> None:
    log = two()
    epochs = [log.partition(name).epoch for name in "01"]
    cut_at(log, 5, 7)
    assert [log.partition(name).epoch for name in "01"] == epochs
    assert log.owners() == {"0": "a", "1": "b"}


def test_a_part_that_names_another_cut_does_not_count() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind="cut_part", cut=cut - 1)
    assert log.world.cut is not None
    assert log.world.cut.parts == {}
    assert log.partition("0").position == 0


def test_a_part_under_another_epoch_does_not_count() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind="cut_part", cut=cut, epoch=1)
    assert log.world.cut is not None
    assert log.world.cut.parts == {}


def test_the_first_part_of_a_partition_stands() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind="cut_part", cut=cut)
    log.report("a", "0", 6, kind="cut_part", cut=cut)
    log.part("b", "1", cut=cut)
    assert positions(log, cut)["0"] == 5


@pytest.mark.parametrize("delivery", ["at_least_once", "at_most_once", "exactly_once"])
def test_a_partition_that_never_had_an_owner_answers_by_itself(delivery: str) -> None:
    log = Log(make(delivery=delivery))
    log.sit("a", "m1")
    cut = log.write("admin", "cut")
    log.report("a", "0", 5, kind="cut_part", cut=cut)
    assert positions(log, cut)["1"] == 0


def test_a_partition_that_is_released_meanwhile_answers_by_itself() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.step_down("m1")
    log.report("a", "0", 4, kind="release")
    log.part("b", "1", cut=cut)
    assert positions(log, cut) == {"0": 4, "1": 0}


def test_a_partition_whose_owner_falls_stale_meanwhile_answers_by_itself() -> None:
    log = two()
    log.report("a", "0", 4)
    cut = log.write("admin", "cut")
    log.part("b", "1", cut=cut)
    log.run(2.25, "b")
    assert positions(log, cut) == {"0": 4, "1": 0}


def test_a_free_partition_goes_to_nobody_until_the_cut_is_over() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.join("b", "m2")
    cut = log.write("admin", "cut")
    log.claim("b", "m2")
    assert log.owners() == {"0": "a", "1": None}
    sequence = log.part("a", "0", cut=cut)
    assert (log.partition("1").owner, log.partition("1").epoch) == ("b", sequence)


def test_exactly_once_a_partition_whose_owner_fell_stale_is_given_to_its_seat_first() -> None:
    log = two(delivery="exactly_once")
    log.join("c", "m1")
    log.report("a", "0", 4)
    cut = log.write("admin", "cut")
    log.part("b", "1", cut=cut)
    log.run(2.25, "b", "c")
    assert cut not in log.world.cuts
    log.claim("c", "m1")
    assert log.partition("0").owner == "c"
    log.report("c", "0", 9, kind="cut_part", cut=cut)
    assert positions(log, cut) == {"0": 9, "1": 0}


def test_exactly_once_a_partition_whose_owner_fell_stale_before_the_cut_does_not_answer_by_itself() -> None:
    log = two(delivery="exactly_once")
    log.run(2.25, "b")
    cut = log.write("admin", "cut")
    log.part("b", "1", cut=cut)
    assert cut not in log.world.cuts


def test_exactly_once_a_released_partition_answers_by_itself() -> None:
    log = two(delivery="exactly_once")
    cut = log.write("admin", "cut")
    log.step_down("m1")
    log.report("a", "0", 4, kind="release")
    log.part("b", "1", cut=cut)
    assert positions(log, cut) == {"0": 4, "1": 0}


def test_exactly_once_who_gives_up_a_lost_partition_unstarted_does_not_make_its_position_sure() -> None:
    log = two(delivery="exactly_once")
    log.join("c", "m1")
    log.run(2.25, "b", "c")
    log.claim("c", "m1")
    log.step_down("m1")
    log.release("c", "0")
    cut = log.write("admin", "cut")
    log.part("b", "1", cut=cut)
    assert cut not in log.world.cuts


def test_a_second_cut_during_one_is_ignored() -> None:
    log = two()
    first = log.write("admin", "cut")
    log.write("other", "cut")
    assert log.world.cut is not None
    assert log.world.cut.sequence == first


def test_a_cut_while_paused_is_ignored() -> None:
    log = two()
    log.write("admin", "pause")
    log.write("admin", "cut")
    assert log.world.cut is None


def test_a_cut_that_is_not_complete_in_its_group_time_is_aborted() -> None:
    log = two(cut_time=2.0)
    cut = log.write("admin", "cut")
    log.part("a", "0", cut=cut)
    log.run(2, "a", "b")
    assert log.world.aborted == 0
    log.run(0.25, "a", "b")
    log.part("b", "1", cut=cut)
    assert (log.world.cut, log.world.cuts, log.world.aborted) == (None, {}, cut)


def test_an_outage_does_not_use_up_the_time_of_a_cut() -> None:
    log = two(cut_time=2.0)
    log.write("admin", "cut")
    log.later(100).beat("a")
    assert log.world.cut is not None


@pytest.mark.parametrize("by", ["reset", "pause", "growth", "cut_abort"])
def test_a_cut_is_aborted_by(by: str) -> None:
    log = two()
    cut = log.write("admin", "cut")
    if by == "growth":
        log.reconfigure(grown(make(), 3, 0))
    else:
        log.write("admin", by, positions={"0": 0}, cut=cut if by == "cut_abort" else None)
    assert (log.world.cut, log.world.aborted) == (None, cut)


def test_a_change_of_members_does_not_abort_a_cut() -> None:
    log = two()
    log.write("admin", "cut")
    log.reconfigure(make(members=["m1"]))
    assert log.world.cut is not None


def test_an_abort_that_names_another_cut_does_nothing() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.write("admin", "cut_abort", cut=cut - 1)
    assert log.world.cut is not None


def test_a_part_carries_a_small_state_of_the_application() -> None:
    log = two()
    cut = log.write("admin", "cut")
    log.part("a", "0", cut=cut, states={"0": b"\x00" * MAX_STATE})
    log.part("b", "1", cut=cut, states={"1": b"x" * (MAX_STATE + 1)})
    parts = log.world.cuts[cut].parts
    assert (parts["0"].state, parts["1"].state) == (b"\x00" * 65536, None)


def test_a_cut_keeps_parked_keys_with_the_positions() -> None:
    log = two()
    cut = cut_at(log, 5, 7)
    assert [log.world.cuts[cut].parts[name].parked for name in "01"] == [{"k": 1}, {}]


def test_cuts_are_kept_until_retired() -> None:
    log = two(cuts_kept=1)
    first, second, third = (cut_at(log, at, at) for at in (1, 2, 3))
    assert set(log.world.cuts) == {first, second, third}
    log.write("admin", "retire", cut=second)
    assert set(log.world.cuts) == {first, third}


def test_of_periodic_cuts_the_last_few_are_kept() -> None:
    log = two(cuts_kept=2)
    asked_for = cut_at(log, 0, 0)
    periodic = [cut_at(log, at, at, periodic=True) for at in range(1, 5)]
    assert set(log.world.cuts) == {asked_for, *periodic[-2:]}


# Resets


def test_a_reset_sets_the_positions_it_names_and_bumps_their_epochs() -> None:
    log = two()
    log.report("a", "0", 50)
    log.report("b", "1", 60)
    untouched = log.partition("1").epoch
    sequence = log.write("admin", "reset", positions={"0": 10})
    assert (log.partition("0").position, log.partition("0").epoch, log.partition("0").reset) == (10, sequence, sequence)
    assert (log.partition("1").position, log.partition("1").epoch, log.partition("1").reset) == (60, untouched, 0)


def test_a_reset_may_go_forward() -> None:
    log = two()
    log.write("admin", "reset", positions={"0": 10, "1": 20})
    assert [log.partition(name).position for name in "01"] == [10, 20]


def test_a_reset_keeps_owners_and_seats() -> None:
    log = two()
    log.write("admin", "reset", positions={"0": 10, "1": 20})
    assert (log.owners(), log.holder("m1")) == ({"0": "a", "1": "b"}, "a")


@pytest.mark.parametrize("kind", ["heartbeat", "release"])
def test_what_is_in_flight_is_fenced_by_a_reset(kind: str) -> None:
    log = two()
    old = log.partition("0").epoch
    log.write("admin", "reset", positions={"0": 10})
    log.report("a", "0", 99, kind=kind, epoch=old)
    assert (log.partition("0").owner, log.partition("0").position) == ("a", 10)


def test_at_most_once_an_advance_from_before_a_reset_does_not_count() -> None:
    log = two(delivery="at_most_once")
    old = log.partition("0").epoch
    log.report("a", "0", 20, kind="advance")
    log.write("admin", "reset", positions={"0": 5})
    log.report("a", "0", 30, kind="advance", epoch=old)
    assert (log.partition("0").position, log.partition("0").done) == (5, 5)


def test_a_reset_to_a_cut_brings_back_its_positions_and_parked_keys() -> None:
    log = two()
    cut = cut_at(log, 5, 7)
    log.report("a", "0", 50, parked={"other": 30})
    log.report("b", "1", 70, parked={"other": 40})
    log.write("admin", "reset", positions=positions(log, cut), cut=cut)
    assert [(log.partition(name).position, log.partition(name).parked) for name in "01"] == [(5, {"k": 1}), (7, {})]


def test_a_reset_to_positions_forgets_parked_keys() -> None:
    log = two()
    log.report("a", "0", 50, parked={"other": 30})
    log.write("admin", "reset", positions={"0": 5})
    assert log.partition("0").parked == {}


def test_a_reset_to_a_cut_that_is_not_there_is_ignored() -> None:
    log = two()
    under_way = log.write("admin", "cut")
    log.write("admin", "reset", positions={"0": 5}, cut=under_way)
    assert (log.partition("0").position, log.partition("0").reset) == (0, 0)
    assert log.world.cut is not None


def test_a_cut_can_be_reset_to_again_and_again() -> None:
    log = two()
    cut = cut_at(log, 5, 7)
    for _ in range(2):
        log.report("a", "0", 50)
        log.write("admin", "reset", positions=positions(log, cut), cut=cut)
        assert log.partition("0").position == 5


def test_a_cut_survives_that_its_members_change() -> None:
    log = two()
    cut = cut_at(log, 5, 7)
    log.reconfigure(make(members=["m1"]))
    log.report("b", "1", 70, kind="release")
    log.write("admin", "reset", positions=positions(log, cut), cut=cut)
    assert log.owners() == {"0": "a", "1": "a"}
    assert [log.partition(name).position for name in "01"] == [5, 7]


def test_a_reset_of_a_partition_that_is_not_there_or_to_a_negative_position_does_nothing() -> None:
    log = two()
    log.write("admin", "reset", positions={"77": 5, "0": -1})
    assert set(log.owners()) == {"0", "1"}
    assert (log.partition("0").position, log.partition("0").reset) == (0, 0)


def test_a_partition_without_an_owner_is_reset_too() -> None:
    log = Log(make())
    sequence = log.write("admin", "reset", positions={"0": 5})
    assert (log.partition("0").position, log.partition("0").epoch) == (5, sequence)
    claimed = log.sit("a", "m1")
    assert (log.partition("0").position, log.partition("0").epoch) == (5, claimed)


def test_a_reset_while_paused_counts_and_gives_nothing_away() -> None:
    log = two()
    log.write("admin", "pause")
    log.release("a", "0")
    log.write("admin", "reset", positions={"0": 5})
    assert (log.partition("0").owner, log.partition("0").position) == (None, 5)


def test_exactly_once_after_a_reset_the_first_report_may_set_the_position_back() -> None:
    log = two(delivery="exactly_once")
    log.report("a", "0", 50)
    log.write("admin", "reset", positions={"0": 20})
    log.report("a", "0", 15)
    assert log.partition("0").position == 15


def test_exactly_once_a_partition_that_was_reset_after_its_owner_was_lost_answers_a_cut_by_itself() -> None:
    log = two(delivery="exactly_once")
    log.run(2.25, "b")
    log.write("admin", "reset", positions={"0": 20})
    cut = log.write("admin", "cut")
    log.part("b", "1", cut=cut)
    assert positions(log, cut) == {"0": 20, "1": 0}

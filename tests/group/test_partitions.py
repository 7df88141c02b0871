"""Rules 4 and 7: who owns which partition, what a release does, who has to be waited for, pause."""

import pytest

from echelon.group.config import Config
from tests.group.builders import EPOCH, Log, make, mapped


def owned(config: Config | None = None) -> Log:
    """`a` holds m1 and owns both partitions, `b` stands by for it."""
    log = Log(config or make(members=["m1"]))
    log.sit("a", "m1")
    log.join("b", "m1")
    return log


def taken_over(config: Config | None = None) -> Log:
    """`a` fell silent, and `b` has its seat and its partitions."""
    log = owned(config)
    log.run(2.25, "b")
    log.claim("b", "m1")
    return log


def balance(log: Log) -> dict[str, int]:
    seats = [str(seat) for seat in log.seats().values()]
    return {seat: seats.count(seat) for seat in sorted(set(seats))}


# Rule 4: who owns what


def test_a_free_partition_goes_to_the_holder_of_its_seat_with_that_records_sequence_as_epoch() -> None:
    log = Log(make())
    sequence = log.sit("a", "m1")
    mine = [name for name, seat in log.seats().items() if seat == "m1"]
    assert [(log.partition(name).owner, log.partition(name).epoch) for name in mine] == [("a", sequence)]


def test_a_partition_whose_seat_is_vacant_belongs_to_nobody_and_not_to_the_other_member() -> None:
    log = Log(make())
    log.sit("a", "m1")
    assert balance(log) == {"m1": 1, "m2": 1}
    assert sorted(str(owner) for owner in log.owners().values()) == ["None", "a"]


def test_each_partition_gets_an_epoch_of_its_own() -> None:
    log = owned()
    first = log.partition("0").epoch
    log.step_down("m1")
    log.claim("b", "m1")
    sequence = log.release("a", "0")
    assert (log.partition("0").epoch, log.partition("1").epoch) == (sequence, first)


def test_a_partition_that_moves_stays_with_its_owner_until_it_is_released() -> None:
    log = Log(make(4, members=["m1"]))
    log.sit("a", "m1")
    log.reconfigure(make(4, members=["m1", "m2"]))
    log.sit("b", "m2")
    moving = [name for name, seat in log.seats().items() if seat == "m2"]
    assert set(log.owners().values()) == {"a"}
    assert [name for name in log.owners() if log.world.leaves(log.partition(name))] == moving
    log.release("a", *moving)
    assert {log.partition(name).owner for name in moving} == {"b"}


def test_what_does_not_move_is_not_touched() -> None:
    log = Log(make(4, members=["m1"]))
    epoch = log.sit("a", "m1")
    log.reconfigure(make(4, members=["m1", "m2"]))
    log.sit("b", "m2")
    stays = [log.partition(name) for name, seat in log.seats().items() if seat == "m1"]
    assert len(stays) == 2
    assert [(p.owner, p.epoch, log.world.leaves(p)) for p in stays] == [("a", epoch, False)] * 2


def test_sticky_moves_no_more_than_it_must_from_ten_members_to_eight() -> None:
    members = [f"m{number}" for number in range(10)]
    log = Log(make(40, members=members))
    before = log.seats()
    log.reconfigure(make(40, members=members[:8]))
    after = log.seats()
    assert all(after[name] == seat for name, seat in before.items() if seat in members[:8])
    assert balance(log) == dict.fromkeys(members[:8], 5)


def test_blocks_are_contiguous() -> None:
    log = Log(make(5, assignment="blocks"))
    assert log.seats() == {"0": "m1", "1": "m1", "2": "m2", "3": "m2", "4": "m1"}


def test_a_new_mapping_moves_what_it_names_elsewhere_and_nothing_else() -> None:
    log = Log(mapped(m1="01", m2="2"))
    log.sit("a", "m1")
    log.sit("b", "m2")
    log.reconfigure(mapped(m1="0", m2="12"))
    assert [log.world.leaves(log.partition(name)) for name in "012"] == [False, True, False]
    log.release("a", "1")
    assert log.owners() == {"0": "a", "1": "b", "2": "b"}


def test_the_partitions_of_a_stale_owner_are_free_at_once() -> None:
    log = owned()
    log.run(2.25, "b")
    assert log.owners() == {"0": None, "1": None}


def test_a_partition_that_should_stay_after_all_stays_with_its_owner_in_its_epoch() -> None:
    log = Log(make(2, members=["m1"]))
    epoch = log.sit("a", "m1")
    log.reconfigure(make(2, members=["m2"]))
    assert log.world.leaves(log.partition("0"))
    log.reconfigure(make(2, members=["m1"]))
    log.claim("a", "m1")
    assert (log.partition("0").owner, log.partition("0").epoch) == ("a", epoch)
    assert not log.world.leaves(log.partition("0"))


# Rule 4: releases


def test_a_release_counts_only_under_the_partitions_epoch() -> None:
    log = owned()
    log.report("a", "0", 5, kind="release", epoch=log.partition("0").epoch - 1)
    assert (log.partition("0").owner, log.partition("0").position) == ("a", 0)


def test_a_release_counts_only_from_the_owner() -> None:
    log = owned()
    log.release("b", "0")
    assert log.owners() == {"0": "a", "1": "a"}


def test_a_delayed_release_of_an_old_epoch_does_not_hand_over_what_was_taken_up_again() -> None:
    log = owned()
    old = log.partition("0").epoch
    log.run(3)
    log.beat("a")
    log.report("a", "0", 3, kind="release", epoch=old)
    assert (log.partition("0").owner, log.partition("0").position) == ("a", 0)


def test_a_release_of_what_its_owner_keeps_gives_it_back_under_a_new_epoch() -> None:
    log = owned()
    sequence = log.report("a", "0", 5, kind="release")
    assert (log.partition("0").owner, log.partition("0").epoch, log.partition("0").position) == ("a", sequence, 5)


def test_one_record_gives_a_partition_to_one_new_owner_at_most() -> None:
    log = owned()
    log.step_down("m1")
    log.claim("b", "m1")
    sequence = log.release("a", "0")
    assert (log.partition("0").owner, log.partition("0").epoch) == ("b", sequence)


# Rule 4: whom the next owner has to wait for


def test_who_did_not_release_is_kept_with_the_sequence_of_its_last_record_before_the_loss() -> None:
    log = owned()
    last = log.beat("a")
    log.run(2.25, "b")
    log.claim("b", "m1")
    assert (log.partition("0").owner, log.partition("0").waits) == ("b", {"a": last})


def test_who_comes_back_too_late_is_kept_with_the_record_before_the_loss_and_not_the_late_one() -> None:
    log = owned()
    last = log.beat("a")
    log.run(2.25)
    log.beat("a")
    assert log.partition("0").waits == {"a": last}


def test_a_release_leaves_nobody_to_wait_for() -> None:
    log = owned()
    log.step_down("m1")
    log.claim("b", "m1")
    log.release("a", "0")
    assert log.partition("0").waits == {}


def test_a_new_epoch_does_not_end_the_wait() -> None:
    log = taken_over()
    waits = dict(log.partition("0").waits)
    log.write("admin", "reset", positions={"0": 7})
    assert log.partition("0").waits == waits


def test_who_gained_and_was_lost_in_turn_is_added_to_the_wait() -> None:
    log = taken_over()
    log.join("c", "m1")
    log.run(2.25, "c")
    log.claim("c", "m1")
    assert (log.partition("0").owner, set(log.partition("0").waits)) == ("c", {"a", "b"})


def test_a_release_ends_all_waits() -> None:
    log = taken_over()
    log.release("b", "0")
    assert log.partition("0").waits == {}
    assert set(log.partition("1").waits) == {"a"}


def test_a_leave_that_proves_a_process_gone_ends_the_wait_for_that_process_only() -> None:
    log = taken_over()
    log.join("c", "m1")
    log.run(2.25, "c")
    log.claim("c", "m1")
    log.write("c", "leave", gone="a")
    assert set(log.partition("0").waits) == {"b"}


def test_a_leave_counts_as_a_release_at_the_last_reported_position() -> None:
    log = owned()
    log.report("a", "0", 9)
    log.write("b", "leave", gone="a")
    log.claim("b", "m1")
    assert (log.partition("0").owner, log.partition("0").position, log.partition("0").waits) == ("b", 9, {})


def test_who_leaves_while_it_still_had_to_wait_leaves_the_wait_to_the_next() -> None:
    log = taken_over()
    log.write("b", "leave")
    assert set(log.partition("0").waits) == {"a"}


def test_who_is_forgotten_is_still_waited_for() -> None:
    log = owned()
    log.run(12, "b")
    assert "a" not in log.world.instances
    log.claim("b", "m1")
    assert set(log.partition("0").waits) == {"a"}


# Rule 7: pause


def test_while_paused_everything_has_to_be_released() -> None:
    log = owned()
    log.write("admin", "pause")
    assert all(log.world.leaves(log.partition(name)) for name in "01")
    assert log.owners() == {"0": "a", "1": "a"}


def test_while_paused_free_partitions_go_to_nobody() -> None:
    log = owned()
    log.write("admin", "pause")
    log.release("a", "0", "1")
    log.run(1, "a", "b")
    assert log.owners() == {"0": None, "1": None}


def test_a_pause_keeps_the_seats() -> None:
    log = owned()
    log.write("admin", "pause")
    log.release("a", "0", "1")
    assert log.holder("m1") == "a"


def test_resume_ends_the_pause_and_gives_the_partitions_back() -> None:
    log = owned()
    log.write("admin", "pause")
    log.release("a", "0", "1")
    sequence = log.write("admin", "resume")
    assert log.owners() == {"0": "a", "1": "a"}
    assert log.partition("0").epoch == sequence


def test_what_was_not_yet_released_goes_on_in_its_epoch_after_a_resume() -> None:
    log = owned()
    epoch = log.partition("0").epoch
    log.write("admin", "pause")
    log.write("admin", "resume")
    assert (log.partition("0").epoch, log.world.leaves(log.partition("0"))) == (epoch, False)


@pytest.mark.parametrize("last", ["beat", "unreadable"])
def test_a_pause_ends_with_the_first_record_whose_broker_time_reaches_its_end(last: str) -> None:
    log = owned()
    log.write("admin", "pause", until=EPOCH + 1000)
    log.release("a", "0", "1")
    log.clock = EPOCH + 999
    log.beat("a")
    assert log.world.paused is not None
    log.clock = EPOCH + 1000
    if last == "beat":
        log.beat("b")
    else:
        log.append(b"?")
    assert log.world.paused is None
    assert log.owners() == {"0": "a", "1": "a"}


def test_a_pause_ends_by_broker_time_even_if_that_adds_nothing_to_group_time() -> None:
    log = owned()
    log.write("admin", "pause", until=EPOCH + 5000)
    log.later(6).beat("a")
    assert (log.world.paused, log.world.time) == (None, 0)


def test_a_pause_without_an_end_lasts_until_it_is_resumed() -> None:
    log = owned()
    log.write("admin", "pause")
    log.later(10_000)
    log.run(3, "a", "b")
    assert log.world.paused is not None

"""Rule 13: snapshots, which of them count, and how a newcomer gets the world from one and the tail."""

from typing import Any

import msgspec
import pytest

from echelon.errors import UnknownVersion
from echelon.group.fold import fold
from echelon.group.newcomer import world_of
from echelon.group.world import Mark, World, dump, load
from echelon.model import Entry
from tests.group.builders import EPOCH, GARBAGE, Log, make


def busy(intervals: float = 3) -> Log:
    """A log with some history."""
    log = Log(make())
    log.sit("a", "m1")
    log.sit("b", "m2")
    log.run(intervals, "a", "b")
    return log


def picture(log: Log) -> tuple[Mark, World]:
    """The newest record that a snapshot can be made of, and the world as of it."""
    mark = log.world.marks[-1]
    return mark, fold([entry for entry in log.entries if entry.sequence <= mark.sequence])


def snap(log: Log, mark: Mark, world: World | bytes, /, sender: str = "a", **fields: object) -> int:
    """Write a snapshot; `fields` replace what it says."""
    held = msgspec.Raw(dump(world) if isinstance(world, World) else world)
    named = {"as_of": mark.sequence, "as_of_sender": mark.sender, "as_of_counter": mark.counter, "world": held}
    return log.write(sender, "snapshot", **named | fields)


# Which snapshots count


def test_a_snapshot_counts_by_its_as_of_and_changes_nothing_else() -> None:
    log = busy()
    mark, world = picture(log)
    seats, partitions = log.world.copy().seats, log.world.copy().partitions
    snap(log, mark, world)
    assert log.world.snapshot == mark.sequence
    assert (log.world.seats, log.world.partitions) == (seats, partitions)


def test_a_snapshot_counts_only_if_its_as_of_exceeds_every_earlier_ones() -> None:
    log = busy()
    earlier = picture(log)
    log.run(1, "a", "b")
    later = picture(log)
    snap(log, *later)
    snap(log, *earlier)
    assert log.world.snapshot == later[0].sequence


@pytest.mark.parametrize("wrong", [{"as_of_sender": "x"}, {"as_of_counter": 999}, {"as_of": 999}])
def test_a_snapshot_does_not_count_where_the_logs_record_is_another(wrong: dict[str, Any]) -> None:
    log = busy()
    snap(log, *picture(log), **wrong)
    assert log.world.snapshot == 0


def test_a_snapshot_of_one_that_has_not_joined_does_not_count() -> None:
    log = busy()
    snap(log, *picture(log), sender="stranger")
    assert log.world.snapshot == 0


def test_a_snapshot_that_comes_ten_intervals_late_does_not_count() -> None:
    log = busy()
    old = picture(log)
    log.run(11, "a", "b")
    snap(log, *old)
    assert log.world.snapshot == 0


def test_a_snapshot_counts_though_others_wrote_between_the_as_of_and_it() -> None:
    log = busy()
    old = picture(log)
    log.run(5, "a", "b")
    snap(log, *old)
    assert log.world.snapshot == old[0].sequence


# How a newcomer gets the world


def test_a_snapshot_plus_the_tail_is_the_whole_fold_at_every_record() -> None:
    log = busy()
    log.report("a", "0", 9, parked={"k": 3})
    cut = log.write("admin", "cut")
    log.part("a", "0", cut=cut, states={"0": b"\x00\xff"})
    log.part("b", "1", cut=cut)
    log.step_down("m1")
    log.write("admin", "pause", until=log.clock + 10_000)
    log.run(3, "b")
    for index in range(1, len(log.entries)):
        world = load(dump(fold(log.entries[:index])))
        assert fold(log.entries[index:], world) == log.world


def test_a_newcomer_reads_a_young_log_from_its_beginning() -> None:
    log = busy()
    assert world_of(log.entries, from_start=True) == log.world


def test_a_newcomer_starts_after_the_as_of_and_not_after_the_snapshot() -> None:
    log = busy()
    old = picture(log)
    log.report("a", "0", 9)
    log.write("admin", "reset", positions={"1": 5})
    snap(log, *old)
    log.run(1, "a", "b")
    tail = [entry for entry in log.entries if entry.sequence >= old[0].sequence]
    assert world_of(tail, from_start=False) == log.world
    assert log.world.partitions["0"].position == 9


def test_a_newcomer_takes_the_newest_snapshot_that_fits() -> None:
    log = busy()
    for _ in range(3):
        snap(log, *picture(log))
        log.run(1, "a", "b")
    newest = log.world.snapshot
    tail = [entry for entry in log.entries if entry.sequence >= newest]
    assert world_of(tail, from_start=False) == log.world
    assert world_of(log.entries, from_start=True) == log.world


def test_a_snapshot_whose_as_of_record_is_not_there_cannot_be_used() -> None:
    log = busy()
    mark, world = picture(log)
    snap(log, mark, world)
    log.run(1, "a", "b")
    assert world_of([entry for entry in log.entries if entry.sequence > mark.sequence], from_start=False) is None


@pytest.mark.parametrize("wrong", [{"as_of_sender": "x"}, {"as_of_counter": 999}])
def test_a_snapshot_that_names_another_record_than_the_logs_cannot_be_used(wrong: dict[str, Any]) -> None:
    log = busy()
    mark, _ = picture(log)
    snap(log, mark, World(), **wrong)
    tail = [entry for entry in log.entries if entry.sequence >= mark.sequence]
    assert world_of(tail, from_start=False) is None
    assert world_of(log.entries, from_start=True) == log.world


def test_a_snapshot_whose_world_cannot_be_read_is_passed_over() -> None:
    log = busy()
    good = picture(log)
    snap(log, *good)
    log.run(1, "a", "b")
    snap(log, picture(log)[0], b'{"sequence":"not a number"}')
    tail = [entry for entry in log.entries if entry.sequence >= good[0].sequence]
    assert world_of(tail, from_start=False) == log.world


def test_a_log_without_its_beginning_and_without_a_snapshot_that_fits_is_not_whole() -> None:
    log = busy()
    assert world_of(log.entries[1:], from_start=True) is None
    assert world_of([], from_start=True) is None


def test_more_has_to_be_read_where_the_entries_hold_neither_snapshot_nor_beginning() -> None:
    log = busy()
    assert world_of(log.entries, from_start=False) is None


def test_a_log_that_begins_with_a_later_configure_is_not_whole() -> None:
    log = busy()
    log.reconfigure(make(members=["m1"]))
    assert world_of(log.entries[-1:], from_start=True) is None


def test_a_newcomer_to_a_group_of_a_newer_version_stops_with_a_clear_error() -> None:
    data = b'{"type":"configure","group":"g","sender":"maker","counter":1,"version":2,"config":"new"}'
    with pytest.raises(UnknownVersion):
        world_of([Entry(1, EPOCH, data)], from_start=True)


def test_unreadable_entries_in_the_tail_hinder_no_newcomer() -> None:
    log = busy()
    old = picture(log)
    snap(log, *old)
    log.append(GARBAGE)
    log.append(b'{"type":"snapshot"')
    tail = [entry for entry in log.entries if entry.sequence >= old[0].sequence]
    assert world_of(tail, from_start=False) == log.world


def test_sequences_may_have_gaps() -> None:
    log = busy()
    spread = [Entry(entry.sequence * 7, entry.time, entry.data) for entry in log.entries[:1]]
    assert world_of(spread, from_start=True) == fold(spread)
    assert fold(spread).configured == 7

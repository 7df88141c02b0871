"""Advisories of partitions: that they moved, and that they are idle."""

from itertools import pairwise

from echelon.group.advisories import (
    PartitionIdle,
    PartitionMoved,
)
from tests.group.builders import make
from tests.group.watched import Watched, held


def test_a_partition_that_gets_its_first_owner_has_not_moved() -> None:
    log = Watched(make(members=["m1"]))
    log.sit("a", "m1")
    assert not [news for news in log.last() if isinstance(news, PartitionMoved)]


def test_a_partition_that_moved_is_told_with_from_to_and_position() -> None:
    log = held()
    log.report("a", "0", 9)
    log.step_down("m1")
    log.claim("b", "m1")
    log.last()
    sequence = log.release("a", "0")
    assert log.last() == [
        PartitionMoved(
            sequence=sequence,
            time=log.clock,
            partition="0",
            from_member="m1",
            from_instance="a",
            to_member="m1",
            to_instance="b",
            position=9,
        )
    ]


def test_a_partition_that_moved_to_another_member_names_both() -> None:
    log = Watched(make(members=["m1"]))
    log.sit("a", "m1")
    log.reconfigure(make(members=["m2"]))
    log.sit("b", "m2")
    log.last()
    log.release("a", "0", "1")
    moved = [news for news in log.last() if isinstance(news, PartitionMoved)]
    assert [(news.partition, news.from_member, news.to_member) for news in moved] == [
        ("0", "m1", "m2"),
        ("1", "m1", "m2"),
    ]


def test_a_partition_that_comes_back_to_the_same_instance_has_not_moved() -> None:
    log = held()
    log.run(2.25)
    log.beat("a")
    assert not [news for news in log.last() if isinstance(news, PartitionMoved)]


def test_a_partition_moved_is_told_though_nobody_owned_it_for_a_while() -> None:
    log = held()
    log.run(2.25, "b")
    log.run(3, "b")
    log.last()
    log.claim("b", "m1")
    moved = [news for news in log.last() if isinstance(news, PartitionMoved)]
    assert [(news.from_instance, news.to_instance) for news in moved] == [("a", "b"), ("a", "b")]


def idle(log: Watched, name: str = "1") -> list[float]:
    return [news.seconds for news in log.last() if isinstance(news, PartitionIdle) and news.partition == name]


def test_a_partition_without_an_owner_is_told_idle_and_again_on_a_timer_while_it_lasts() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.run(1.75, "a")
    assert idle(log) == []
    log.run(0.5, "a")
    assert len(idle(log)) == 1
    log.run(9.5, "a")
    assert idle(log) == []
    log.run(21, "a")
    seconds = idle(log)
    assert len(seconds) == 3
    assert [round(later - earlier) for earlier, later in pairwise(seconds)] == [10, 10]


def test_a_partition_that_was_given_an_owner_is_idle_no_more() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.run(3, "a")
    log.last()
    log.sit("b", "m2")
    log.run(15, "a", "b")
    assert idle(log) == []


def test_the_idle_time_begins_when_the_owner_is_lost() -> None:
    log = held()
    log.run(2.25, "b")
    log.last()
    log.run(2.5, "b")
    (seconds,) = idle(log)
    assert 2 <= seconds <= 2.5


def test_an_idle_partition_is_told_with_what_waits_in_it() -> None:
    log = Watched(make())
    log.sit("a", "m1")
    log.beat("a", p1=42)
    log.run(2.5, "a")
    assert [news.pending for news in log.last() if isinstance(news, PartitionIdle)] == [42]

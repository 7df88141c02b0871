"""Advisories of seats: who sat down, who lost a seat and why, and seats that nobody fills."""

from echelon.group.advisories import (
    SeatLost,
    SeatsUnfilled,
    SeatTaken,
)
from tests.group.builders import EPOCH, make
from tests.group.watched import Watched, held, lost


def test_a_seat_taken_is_told_with_member_instance_sequence_and_broker_time() -> None:
    log = Watched(make(members=["m1"]))
    sequence = log.later(0.25).sit("a", "m1")
    assert log.last() == [SeatTaken(sequence=sequence, time=EPOCH + 250, member="m1", instance="a")]


def test_a_seat_is_lost_by_timeout() -> None:
    log = held()
    log.run(2.25, "b")
    assert lost(log) == [("m1", "a", "timeout")]


def test_a_seat_is_lost_by_timeout_even_if_another_takes_it_with_the_same_record() -> None:
    log = held()
    log.run(2, "b")
    sequence = log.later(0.25).claim("b", "m1")
    news = log.last()
    assert [(type(one), one.sequence) for one in news[:2]] == [(SeatLost, sequence), (SeatTaken, sequence)]
    assert isinstance(news[0], SeatLost)
    assert news[0].reason == "timeout"


def test_a_seat_is_lost_by_an_administrators_step_down() -> None:
    log = held()
    log.step_down("m1")
    assert lost(log) == [("m1", "a", "admin")]


def test_a_seat_is_lost_by_an_administrator_who_takes_the_member_out() -> None:
    log = held()
    log.reconfigure(make(members=["m2"]))
    assert lost(log) == [("m1", "a", "admin")]


def test_a_seat_is_lost_because_its_holder_left() -> None:
    log = held()
    log.write("a", "leave")
    assert lost(log) == [("m1", "a", "left")]


def test_a_seat_is_lost_because_its_holder_is_leaving() -> None:
    log = held()
    log.step_down("m1", sender="a")
    assert lost(log) == [("m1", "a", "left")]


def test_a_seat_is_lost_by_timeout_by_one_that_is_forgotten_before_anybody_lived_long_enough_to_time_it_out() -> None:
    log = Watched(make(members=["m1", "m2"]))
    log.sit("a", "m1")
    for number in range(20):
        log.later(3).join(f"guest-{number}", "m2")
        log.run(1.5, f"guest-{number}")
    assert ("m1", "a", "timeout") in lost(log)


def test_a_seat_is_lost_because_its_holders_process_is_gone() -> None:
    log = held()
    log.write("b", "leave", gone="a")
    assert lost(log) == [("m1", "a", "gone")]


def test_a_seat_is_lost_to_a_better_priority() -> None:
    log = held()
    log.run(4, "a", "b")
    log.claim("b", "m1")
    assert lost(log) == [("m1", "a", "preempted")]


def test_a_holder_that_comes_back_is_told_as_a_seat_taken() -> None:
    log = held()
    log.run(2.25)
    log.last()
    log.beat("a")
    assert [news.instance for news in log.last() if isinstance(news, SeatTaken)] == ["a"]


def test_more_seats_than_instances_is_told_once() -> None:
    log = Watched(make(members=["m1", "m2", "m3"]))
    sequence = log.join("a", "m1")
    assert log.last() == [SeatsUnfilled(sequence=sequence, time=EPOCH, seats=3, instances=1)]
    log.beat("a")
    assert log.last() == []


def test_as_many_instances_as_seats_is_no_news_until_one_falls_stale() -> None:
    log = held()
    log.run(1, "a", "b")
    log.reconfigure(make(members=["m1", "m2"]))
    assert not [news for news in log.last() if isinstance(news, SeatsUnfilled)]
    log.run(2.25, "a")
    assert [(news.seats, news.instances) for news in log.last() if isinstance(news, SeatsUnfilled)] == [(2, 1)]


def test_an_auto_group_has_never_more_seats_than_instances() -> None:
    log = Watched(make(members=None))
    log.sit("a")
    log.sit("b")
    log.run(2.25, "a")
    assert not [news for news in log.last() if isinstance(news, SeatsUnfilled)]

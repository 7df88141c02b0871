"""The checks of the other tests find what they look for."""

from collections.abc import Iterable

import pytest

from tests.members.checks import Frozen, Guarantee, check_exclusion, check_order, check_places
from tests.members.process import Line


def line(number: int, begun: float, *, name: str = "a", epoch: int = 1, ended: float = 0.0, key: str = "k") -> Line:
    return Line(name, "0", number, key, f"{key}:{number}", epoch, begun, begun, ended or begun + 0.5)


def in_order(*numbers: int) -> list[Line]:
    return [line(number, begun) for begun, number in enumerate(numbers)]


SENT = {"k": ["k:0", "k:1", "k:2"]}


@pytest.mark.parametrize(
    ("guarantee", "numbers"),
    [
        ("once", (0, 1, 2)),
        ("at_least_once", (0, 1, 0, 1, 2)),
        ("at_least_once", (0, 1, 2, 2)),
        ("at_most_once", (0, 2)),
        ("at_most_once", ()),
    ],
)
def test_what_a_guarantee_allows_passes(guarantee: Guarantee, numbers: Iterable[int]) -> None:
    check_order(in_order(*numbers), SENT, guarantee)


@pytest.mark.parametrize(
    ("guarantee", "numbers", "words"),
    [
        ("once", (0, 1, 1, 2), "1 follows 1 again"),
        ("once", (0, 1), "lost"),
        ("once", (1, 0, 2), "1 follows -1"),
        ("at_least_once", (0, 2), "lost"),
        ("at_least_once", (0, 2, 1), "2 follows 0"),
        ("at_least_once", (0, 1, 0, 2), "2 follows 0"),
        ("at_most_once", (0, 1, 1), "1 follows 1 again"),
        ("at_most_once", (1, 0), "0 follows 1 again"),
        ("at_most_once", (7,), "nobody sent"),
    ],
)
def test_what_a_guarantee_forbids_is_found(guarantee: Guarantee, numbers: Iterable[int], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_order(in_order(*numbers), SENT, guarantee)


def test_a_message_that_nobody_sent_is_found() -> None:
    with pytest.raises(AssertionError, match="nobody sent"):
        check_order([line(0, 1.0, key="other")], {}, "at_least_once")


def test_two_processes_at_the_same_time_are_found() -> None:
    check_exclusion([line(0, 1.0), line(1, 2.0, name="b", epoch=2)])
    with pytest.raises(AssertionError, match="b and a at the same time"):
        check_exclusion([line(0, 1.0, ended=3.0), line(1, 2.0, name="b", epoch=2)])


def test_two_messages_of_one_key_at_the_same_time_are_found() -> None:
    check_exclusion([line(0, 1.0, ended=3.0), line(1, 2.0, key="other")])
    with pytest.raises(AssertionError, match="two of the key"):
        check_exclusion([line(0, 1.0, ended=3.0), line(1, 2.0)])


def test_an_epoch_that_comes_back_or_is_shared_is_found() -> None:
    with pytest.raises(AssertionError, match="after 2"):
        check_exclusion([line(0, 1.0, epoch=2), line(1, 2.0, name="b", epoch=1)])
    with pytest.raises(AssertionError, match="both under 1"):
        check_exclusion([line(0, 1.0), line(1, 2.0, name="b")])


def test_what_a_suspended_process_had_begun_is_no_offence_but_what_it_begins_after_it_is() -> None:
    frozen = [Frozen("a", 1.1, 9.0)]
    check_exclusion([line(0, 1.0, ended=9.1), line(0, 5.0, name="b", epoch=2)], frozen)
    with pytest.raises(AssertionError, match="after 2"):
        check_exclusion([line(0, 1.0, ended=9.1), line(0, 5.0, name="b", epoch=2), line(1, 9.2)], frozen)


def test_a_message_at_two_places_is_found() -> None:
    with pytest.raises(AssertionError, match="k:0 is at"):
        check_places([line(0, 1.0), Line("a", "1", 0, "k", "k:0", 1, 2.0, 2.0, 2.5)])

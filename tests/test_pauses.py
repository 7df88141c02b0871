"""How long to wait before something is tried again, however often it was tried."""

from itertools import pairwise

from echelon.pauses import pause


def test_a_pause_doubles_until_it_is_the_longest() -> None:
    assert [pause(0.5, 3, doublings) for doublings in range(5)] == [0.5, 1, 2, 3, 3]


def test_a_pause_never_shrinks_and_has_no_number_of_attempts_that_it_cannot_bear() -> None:
    pauses = [pause(0.01, 0.25, doublings) for doublings in range(5000)]
    assert all(one <= next_ for one, next_ in pairwise(pauses))
    assert pauses[-1] == pause(0.01, 0.25, 10**100) == 0.25

"""Rule 6, exactly once: what a sink with positions checks when an epoch is opened, and at every commit."""

from hypothesis import given
from hypothesis import strategies as st

from echelon.group.delivery import SinkState, commit, open_epoch

NUMBERS = st.integers(0, 20)
STATES = st.builds(SinkState, fence=NUMBERS, committed=NUMBERS, position=st.none() | NUMBERS)


def opened(state: SinkState, *, epoch: int, reset: int = 0, position: int = 0) -> SinkState:
    """The state after an epoch that is not refused."""
    result = open_epoch(state, epoch=epoch, reset=reset, position=position)
    assert result is not None
    return result


def committed(state: SinkState, *, epoch: int, begin: int, end: int) -> SinkState:
    """The state after a commit that is not refused."""
    result = commit(state, epoch=epoch, begin=begin, end=end)
    assert result is not None
    return result


def test_an_empty_sink_begins_where_the_log_says() -> None:
    assert opened(SinkState(), epoch=5, position=40) == SinkState(fence=5, committed=0, position=40)


def test_a_new_owner_goes_on_where_the_sink_is_and_not_where_the_log_is() -> None:
    state = committed(opened(SinkState(), epoch=5), epoch=5, begin=0, end=30)
    assert opened(state, epoch=9, position=20).position == 30


def test_a_restored_sink_that_is_behind_the_log_wins_too() -> None:
    state = SinkState(fence=5, committed=5, position=10)
    assert opened(state, epoch=9, position=20).position == 10


def test_the_log_wins_if_the_sinks_last_commit_is_older_than_the_reset() -> None:
    state = SinkState(fence=5, committed=5, position=30)
    assert opened(state, epoch=9, reset=9, position=12).position == 12


def test_the_sink_wins_once_it_took_a_commit_after_the_reset() -> None:
    state = opened(SinkState(fence=5, committed=5, position=30), epoch=9, reset=9, position=12)
    state = committed(state, epoch=9, begin=12, end=15)
    assert opened(state, epoch=11, reset=9, position=12).position == 15


def test_opening_an_epoch_after_a_reset_is_not_yet_a_commit() -> None:
    state = opened(SinkState(fence=5, committed=5, position=30), epoch=9, reset=9, position=12)
    assert (state.fence, state.committed) == (9, 5)
    assert opened(state, epoch=11, reset=9, position=12).position == 12


def test_a_second_reset_wins_over_commits_after_the_first() -> None:
    state = SinkState(fence=9, committed=9, position=15)
    assert opened(state, epoch=20, reset=20, position=3).position == 3


def test_an_epoch_below_the_one_that_the_sink_holds_is_refused() -> None:
    assert open_epoch(SinkState(fence=9), epoch=8, reset=0, position=0) is None


def test_the_same_epoch_may_be_opened_again_after_a_commit_without_an_answer() -> None:
    state = committed(opened(SinkState(), epoch=5), epoch=5, begin=0, end=3)
    assert opened(state, epoch=5).position == 3


def test_a_commit_needs_the_epoch_that_the_sink_holds() -> None:
    state = opened(opened(SinkState(), epoch=5), epoch=9)
    assert commit(state, epoch=5, begin=0, end=3) is None
    assert commit(state, epoch=10, begin=0, end=3) is None


def test_a_commit_begins_where_the_sink_is() -> None:
    state = committed(opened(SinkState(), epoch=5), epoch=5, begin=0, end=3)
    assert commit(state, epoch=5, begin=0, end=3) is None
    assert commit(state, epoch=5, begin=4, end=6) is None
    assert committed(state, epoch=5, begin=3, end=6).position == 6


def test_a_commit_that_was_done_without_an_answer_is_not_done_twice() -> None:
    state = committed(opened(SinkState(), epoch=5), epoch=5, begin=0, end=3)
    again = opened(state, epoch=5, position=0)
    assert commit(again, epoch=5, begin=0, end=3) is None


@given(STATES, NUMBERS, NUMBERS, NUMBERS)
def test_the_fence_only_grows_and_a_refusal_changes_nothing(state: SinkState, epoch: int, reset: int, at: int) -> None:
    after = open_epoch(state, epoch=epoch, reset=reset, position=at)
    assert (after is None) == (epoch < state.fence)
    if after is not None:
        assert (after.fence, after.committed) == (epoch, state.committed)
        assert after.position in (state.position, at)


@given(st.lists(st.tuples(st.sampled_from("oc"), st.integers(1, 4), NUMBERS, NUMBERS), max_size=30))
def test_without_a_reset_the_sink_takes_every_message_once_and_in_order(steps: list[tuple[str, int, int, int]]) -> None:
    state, taken = SinkState(), list[int]()
    for step, epoch, begin, length in steps:
        if step == "o":
            state = open_epoch(state, epoch=epoch, reset=0, position=0) or state
        elif (after := commit(state, epoch=epoch, begin=begin, end=begin + length)) is not None:
            state = after
            taken += range(begin, begin + length)
    assert taken == list(range(len(taken)))

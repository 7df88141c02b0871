from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.group.config import Stream
from echelon.keys import RecordKey
from echelon.spark.limits import choose_ends, spread

Case = tuple[dict[str, int], dict[str, int], dict[str, int]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    names = [str(number) for number in range(draw(st.integers(1, 8)))]
    positions = {name: draw(st.integers(0, 1000)) for name in names}
    ends = {name: draw(st.integers(0, 2000)) for name in names}
    is_shared = draw(st.booleans())
    return positions, ends, dict.fromkeys(names, len(names) if is_shared else 1)


@given(cases(), st.integers(1, 3000))
def test_a_batch_lies_between_positions_and_ends_within_the_limit_and_goes_on(case: Case, limit: int) -> None:
    positions, ends, spreads = case
    chosen = choose_ends(positions, ends, spreads, limit)
    assert chosen.keys() == positions.keys()
    for name, end in chosen.items():
        assert positions[name] <= end <= max(positions[name], ends[name])
    messages = sum(Fraction(chosen[name] - positions[name], spreads[name]) for name in chosen)
    assert messages <= limit
    if any(ends[name] > positions[name] for name in positions):
        assert chosen != positions


@given(cases(), st.integers(8, 3000))
def test_no_partition_is_passed_over_when_the_limit_allows_one_of_each(case: Case, limit: int) -> None:
    positions, ends, spreads = case
    chosen = choose_ends(positions, ends, spreads, limit)
    for name, position in positions.items():
        assert chosen[name] > position or ends[name] <= position


@given(cases())
def test_without_a_limit_everything_is_taken(case: Case) -> None:
    positions, ends, spreads = case
    expected = {name: max(position, ends[name]) for name, position in positions.items()}
    assert choose_ends(positions, ends, spreads, None) == expected


@given(cases(), st.integers(1, 50))
def test_batch_after_batch_everything_is_read(case: Case, limit: int) -> None:
    positions, ends, spreads = case
    for _ in range(20_000):
        chosen = choose_ends(positions, ends, spreads, limit)
        if chosen == positions:
            break
        positions = chosen
    assert all(positions[name] >= ends[name] for name in positions)


def test_partitions_of_one_stream_in_step_take_the_limit_exactly() -> None:
    names = [str(number) for number in range(12)]
    chosen = choose_ends(dict.fromkeys(names, 17), dict.fromkeys(names, 5000), dict.fromkeys(names, 12), 100)
    assert chosen == dict.fromkeys(names, 117)


def test_a_larger_backlog_gets_a_larger_part() -> None:
    chosen = choose_ends({"0": 0, "1": 0}, {"0": 900, "1": 100}, {"0": 1, "1": 1}, 100)
    assert chosen == {"0": 89, "1": 10}  # parts are rounded down


@pytest.mark.parametrize(
    ("partitioning", "expected"), [("native", 1), ("token", 12), ("derived", 12), ("computed", 12)]
)
def test_only_kafka_numbers_each_partition(partitioning: str, expected: int) -> None:
    assert spread(Stream("orders", 12, RecordKey(), partitioning)) == expected  # type: ignore[arg-type]  # a literal

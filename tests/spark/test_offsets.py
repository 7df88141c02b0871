import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echelon.errors import InvalidConfig
from echelon.spark.offsets import from_offset, identity_of, parse_place, to_offset

NAMES = st.one_of(
    st.integers(0, 200).map(str), st.tuples(st.sampled_from("ab"), st.integers(0, 20)).map("{0[0]}/{0[1]}".format)
)


@given(st.dictionaries(NAMES, st.integers(0)), st.text("abc", max_size=3), st.randoms())
def test_equal_positions_are_written_equally_and_read_back(
    positions: dict[str, int], identity: str, chance: Random
) -> None:
    shuffled = list(positions.items())
    chance.shuffle(shuffled)
    text = json.dumps(to_offset(positions, identity))
    assert json.dumps(to_offset(dict(shuffled), identity)) == text
    assert from_offset(json.loads(text)) == positions
    assert identity_of(json.loads(text)) == identity


def test_partitions_are_written_in_their_order() -> None:
    assert json.dumps(to_offset({"10": 1, "9": 2, "0": 3}, "x")) == '{"0": 3, "9": 2, "10": 1, "identity": "x"}'


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("1790000000000", 1790000000000),
        ("2026-09-21T14:13:20Z", 1790000000000),
        ("2026-09-21 14:13:20", 1790000000000),
        ("2026-09-21T16:13:20.5+02:00", 1790000000500),
        ('{"1": 5, "0": 17}', {"0": 17, "1": 5}),
        ('{"0": 17, "identity": "x"}', {"0": 17}),
    ],
)
def test_a_place_is_a_word_a_time_or_positions(text: str, place: object) -> None:
    assert parse_place("startingPositions", text) == place


@pytest.mark.parametrize("text", ["", "soon", "{", '{"0": "x"}', '{"0": 1.5}', "-5", "2026-13-01"])
def test_anything_else_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"startingPositions.*names no positions.*earliest, latest"):
        parse_place("startingPositions", text)

"""Who gets which partition: the reference's blocks, given mappings, and least movement."""

from collections import Counter
from collections.abc import Mapping
from itertools import product
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from echelon.assignment import blocks, check_mapping, mapped, sticky
from echelon.errors import InvalidConfig
from echelon.model import partition_order

member_names = st.text("abcdeXYZ019-_", min_size=1, max_size=3)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def reference_blocks(members: list[str], max_members: int, member_name: str) -> list[str]:
    """`GetPartitionFilters` of JetStream's partitioned consumer groups, line by line."""
    members = sorted(set(members))
    if len(members) > max_members:
        members = members[:max_members]
    my_filters = []
    num_members = len(members)
    if num_members > 0:
        num_per = max_members // num_members
        for i in range(max_members):
            member_index = i // num_per
            if i < num_members * num_per:
                if members[member_index % num_members] == member_name:
                    my_filters.append(f"{i}.>")
            elif members[(i - (num_members * num_per)) % num_members] == member_name:
                my_filters.append(f"{i}.>")
    return my_filters


def moves(current: Mapping[str, str], members: list[str], result: Mapping[str, str]) -> int:
    return sum(current.get(name) in members and current[name] != member for name, member in result.items())


def is_balanced(result: Mapping[str, str], members: list[str]) -> bool:
    counts = Counter(result.values())
    return max(counts[member] for member in members) - min(counts[member] for member in members) <= 1


def fewest_moves(members: list[str], partitions: list[str], current: Mapping[str, str]) -> int:
    """The least movement of any balanced assignment, by the formula.

    Whoever holds more than its share must give up the rest, and only `remainder` members have one more.
    """
    held = Counter(member for name, member in current.items() if name in partitions and member in members)
    size, remainder = divmod(len(partitions), len(members))
    above = [count - size for count in held.values() if count > size]
    return sum(above) - min(len(above), remainder)


@given(st.lists(member_names), st.integers(0, 40))
@example(["m3", "m1", "m1", "m2"], 10)
@example(["c", "a", "d", "b"], 3)
def test_blocks_are_those_of_the_reference(members: list[str], count: int) -> None:
    result = blocks(members, reversed(numbers(count)))
    for member in {*members, "stranger"}:
        expected = [name.removesuffix(".>") for name in reference_blocks(members, count, member)]
        assert [name for name, owner in result.items() if owner == member] == expected
    assert len(result) == (count if members else 0)


def test_blocks_order_partitions_by_stream_and_number() -> None:
    partitions = ["b/1", "a/10", "a/9", "b/0"]
    assert list(blocks(["m2", "m1"], partitions).items()) == [
        ("a/9", "m1"),
        ("a/10", "m1"),
        ("b/0", "m2"),
        ("b/1", "m2"),
    ]


def test_a_mapping_is_turned_around() -> None:
    mapping = {"m1": ("0", "2"), "m2": ("1",)}
    check_mapping(mapping, numbers(3))
    assert mapped(mapping) == {"0": "m1", "1": "m2", "2": "m1"}


@pytest.mark.parametrize(
    ("mapping", "mistake"),
    [
        ({}, "names no member"),
        ({"": ("0", "1", "2")}, "empty name"),
        ({"m1": ("0", "1", "2"), "m2": ()}, "no partition to member m2"),
        ({"m1": ("0", "1", "2", "3")}, "partition 3 to member m1; there is no such partition"),
        ({"m1": ("0", "1"), "m2": ("2", "1")}, "partition 1 to member m1 and again to member m2"),
        ({"m1": ("0", "1", "2", "1")}, "partition 1 to member m1 and again to member m1"),
        ({"m1": ("1",)}, "2 of 3 partitions to no member, the first is 0"),
    ],
)
def test_a_mistaken_mapping_is_refused_by_name(mapping: Mapping[str, tuple[str, ...]], mistake: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_mapping(mapping, numbers(3))
    assert mistake in str(refused.value)


@given(data=st.data())
def test_sticky_moves_least_of_all_balanced_assignments(data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from("abcd"), min_size=1, unique=True))
    partitions = data.draw(st.lists(st.sampled_from(numbers(6)), unique=True))
    current = data.draw(st.dictionaries(st.sampled_from(numbers(7)), st.sampled_from("abcdz")))
    result = sticky(members, partitions, current)
    assert sorted(result) == sorted(partitions)
    assert set(result.values()) <= set(members)
    assert is_balanced(result, members)
    every = (dict(zip(partitions, owners, strict=True)) for owners in product(members, repeat=len(partitions)))
    least = min(moves(current, members, other) for other in every if is_balanced(other, members))
    assert moves(current, members, result) == least == fewest_moves(members, partitions, current)


@given(data=st.data())
def test_sticky_moves_least_in_large_groups(data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 300))
    before = [f"m{number}" for number in data.draw(st.lists(st.integers(0, 60), unique=True))]
    members = [f"m{number}" for number in data.draw(st.lists(st.integers(0, 60), min_size=1, unique=True))]
    partitions = numbers(count)
    choice = data.draw(st.randoms(use_true_random=False))
    current = {name: choice.choice(before) for name in partitions if before and choice.random() < 0.9}
    result = sticky(members, partitions, current)
    assert list(result) == partitions
    assert set(result.values()) <= set(members)
    assert is_balanced(result, members)
    assert moves(current, members, result) == fewest_moves(members, partitions, current)


@given(st.lists(member_names, min_size=1), st.integers(0, 20), st.randoms(use_true_random=False), st.data())
def test_sticky_does_not_depend_on_the_order_of_what_it_is_given(
    members: list[str], count: int, shuffle: Random, data: st.DataObject
) -> None:
    partitions = numbers(count)
    current = data.draw(st.dictionaries(st.sampled_from([*partitions, "99"]), st.sampled_from([*members, "gone"])))
    result = list(sticky(members, partitions, current).items())
    others = [*members, members[0]]
    shuffle.shuffle(others)
    shuffle.shuffle(partitions)
    items = list(current.items())
    shuffle.shuffle(items)
    assert list(sticky(others, partitions, dict(items)).items()) == result


@given(st.lists(member_names, min_size=1), st.integers(0, 40))
def test_sticky_leaves_a_balanced_assignment_as_it_is(members: list[str], count: int) -> None:
    current = blocks(members, numbers(count))
    assert sticky(members, numbers(count), current) == current


@pytest.mark.parametrize("count", [10, 16, 40, 64, 100, 1000])
def test_from_ten_members_to_eight_only_the_freed_partitions_change_owner(count: int) -> None:
    ten = [f"m{number}" for number in range(10)]
    eight = ten[:8]
    before = sticky(ten, numbers(count), {})
    after = sticky(eight, numbers(count), before)
    for name, member in before.items():
        if member in eight:
            assert after[name] == member
    freed = Counter(after[name] for name, member in before.items() if member not in eight)
    held = Counter(member for member in before.values() if member in eight)
    assert is_balanced(after, eight)
    # Those that held one more already get one less of the freed: both together are even.
    assert all(freed[member] + held[member] in (count // 8, -(-count // 8)) for member in eight)


def test_sticky_spreads_each_stream_over_the_members() -> None:
    partitions = [f"{stream}/{number}" for stream in ("orders", "payments") for number in range(4)]
    result = sticky(["a", "b"], partitions, {})
    for stream in ("orders", "payments"):
        assert Counter(member for name, member in result.items() if name.startswith(stream)) == {"a": 2, "b": 2}


def test_nobody_gets_anything_where_there_is_nobody() -> None:
    assert blocks([], numbers(3)) == sticky([], numbers(3), {"0": "a"}) == {}


def test_results_are_in_the_order_of_partitions() -> None:
    partitions = ["10", "9", "a/2", "a/11"]
    for result in (blocks(["m"], partitions), sticky(["m"], partitions, {"10": "m"})):
        assert list(result) == sorted(partitions, key=partition_order) == ["9", "10", "a/2", "a/11"]

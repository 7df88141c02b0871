"""Where a reset would go: every target, what is chosen, and what is refused before anything is done."""

import asyncio
import uuid

import pytest
from msgspec import structs

from echelon.brokers.memory import MemoryBroker
from echelon.errors import InvalidConfig, UnknownName
from echelon.group.config import Stream
from echelon.group.world import Cut, Part, Partition, World
from echelon.keys import SubjectKey
from echelon.members.admin import create_group
from echelon.ops.resets import ResetRow, ShiftBy, Target, ToCut, ToPositions, ToTime, forgotten, plan_reset
from tests.brokers.harnesses import MemoryHarness


def planned(
    target: Target, *chosen: str, trim: int = 0, positions: dict[str, int] | None = None
) -> dict[str, tuple[int, int]]:
    """Before and after by partition, of a group over 20 messages in two partitions that was made at the third."""
    return {row.partition: (row.before, row.after) for row in asyncio.run(_plan(target, chosen, trim, positions or {}))}


async def _plan(target: Target, chosen: tuple[str, ...], trim: int, positions: dict[str, int]) -> list[ResetRow]:
    harness = MemoryHarness(uuid.uuid4().hex)
    async with harness.connect() as broker:
        world = await _world(broker, harness)
        for name, position in positions.items():
            world.partitions[name].position = position
        if trim:
            harness.server.streams["S"].trim(trim)
        return await plan_reset(broker, "g", world, target, chosen)


async def _world(broker: MemoryBroker, harness: MemoryHarness) -> World:
    harness.server.create_stream("S")
    writer = await broker.writer()
    for number in range(20):
        await writer.write(f"S.{number}", b"")
    world = await create_group(broker, "g", [Stream("S", 2, SubjectKey())], start="earliest")
    assert world.config is not None
    world.config = structs.replace(world.config, positions={"0": 3, "1": 3})
    return world


def test_it_goes_to_every_place() -> None:
    now = {"0": 8, "1": 9}
    assert planned("initial", positions=now) == {"0": (8, 3), "1": (9, 3)}
    assert planned("earliest", positions=now) == {"0": (8, 1), "1": (9, 1)}
    assert planned("latest", positions=now) == {"0": (8, 21), "1": (9, 21)}
    assert planned(ToPositions({"1": 5, "0": 8}), positions=now) == {"0": (8, 8), "1": (9, 5)}
    assert planned(ShiftBy(2), positions=now) == {"0": (8, 10), "1": (9, 11)}
    assert planned(ToTime(0), positions=now).keys() == now.keys()
    assert planned(ToTime(1 << 43), positions=now) == {"0": (8, 21), "1": (9, 21)}


def test_a_shift_stays_within_what_the_partition_holds() -> None:
    assert planned(ShiftBy(-100), positions={"0": 8, "1": 9}, trim=6) == {"0": (8, 6), "1": (9, 6)}
    assert planned(ShiftBy(100), positions={"0": 8, "1": 9}) == {"0": (8, 21), "1": (9, 21)}


def test_only_what_has_a_position_is_set() -> None:
    """A partition that is named gets a new epoch, which fences what is under way: others must not be named."""
    assert planned(ToPositions({"1": 5}), positions={"0": 8, "1": 9}) == {"1": (9, 5)}
    with pytest.raises(InvalidConfig, match="no position for partition 0"):
        planned(ToPositions({"1": 5}), "0", positions={"0": 8, "1": 9})


def test_only_what_is_chosen_is_set() -> None:
    assert planned("latest", "1", positions={"0": 8, "1": 9}) == {"1": (9, 21)}
    assert planned(ToTime(1 << 43), "0", positions={"0": 8, "1": 9}) == {"0": (8, 21)}


@pytest.mark.parametrize(
    ("target", "chosen", "told"),
    [
        ("latest", ("7",), "there is no partition 7"),
        (ToPositions({"7": 1}), (), "there is no partition 7"),
        (ToCut(5), (), "the group g has no cut 5"),
    ],
)
def test_what_is_not_there_is_told(target: Target, chosen: tuple[str, ...], told: str) -> None:
    with pytest.raises(UnknownName, match=told):
        planned(target, *chosen)


@pytest.mark.parametrize(("position", "trim"), [(22, 0), (5, 6)])
def test_a_position_that_the_stream_does_not_hold_is_refused(position: int, trim: int) -> None:
    with pytest.raises(InvalidConfig, match=f"not {position}"):
        planned(ToPositions({"0": position}), positions={"0": 8, "1": 9}, trim=trim)


def test_a_partition_that_stays_may_be_where_it_is() -> None:
    """It may stand before what is left, and a reset of another must not fail for that."""
    assert planned(ToPositions({"0": 2, "1": 8}), positions={"0": 2, "1": 9}, trim=6) == {"0": (2, 2), "1": (9, 8)}


def test_parked_keys_that_a_reset_forgets_are_told() -> None:
    world = World()
    world.partitions = {name: Partition(name, 9, 9) for name in "0123"}
    world.partitions["0"].parked = {"a": 4}
    world.partitions["1"].parked = {"b": 7}
    world.partitions["2"].parked = {"c": 2}
    world.cuts[5] = Cut(5, 0, 0, periodic=False, parts={"2": Part(6, {"c": 2})})
    rows = [ResetRow(partition=name, before=9, after=6, change=-3, first=1, end=20) for name in "0123"]
    assert forgotten(world, rows, ShiftBy(-3)) == ["0", "2"]
    assert forgotten(world, rows, ToCut(5)) == ["0"]

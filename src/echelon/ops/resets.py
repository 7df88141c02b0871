"""Where a reset would set the positions of a group: from what was asked for to a number for each partition."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from echelon.brokers.base import Broker
from echelon.errors import InvalidConfig, UnknownName
from echelon.group.world import World
from echelon.model import Bounds, partition_order
from echelon.ops.ends import read_bounds, readers
from echelon.ops.listing import check_partition


class ToCut(Struct, frozen=True):
    """Back to a cut; partitions that were added since go to where the group was made with them."""

    cut: int


class ToTime(Struct, frozen=True):
    """To the first message whose broker time, in milliseconds, is not before this."""

    time: int


class ToPositions(Struct, frozen=True):
    """To these positions; a partition that is not named is left alone."""

    positions: Mapping[str, int]


class ShiftBy(Struct, frozen=True):
    """So many sequences on, or (negative) back, within what the partition holds."""

    count: int


Target = Literal["initial", "earliest", "latest"] | ToCut | ToTime | ToPositions | ShiftBy


class ResetRow(Struct, frozen=True, kw_only=True):
    """A partition before and after a reset."""

    partition: str
    before: int
    after: int
    change: int
    first: int
    end: int


async def plan_reset(
    broker: Broker, group: str, world: World, target: Target, chosen: Collection[str] = ()
) -> list[ResetRow]:
    """What a reset to the target would do to all partitions it has a place for, or to those that are chosen.

    Changes nothing. Raises UnknownName for a cut or a partition that is not there, InvalidConfig for a chosen partition
    without a position, or a position that the stream does not hold.
    """
    config = world.config
    assert config is not None
    named = target.positions if isinstance(target, ToPositions) else world.partitions
    for name in (*chosen, *named):
        check_partition(world, name)
    if missing := [name for name in chosen if name not in named]:
        raise InvalidConfig(f"there is no position for partition {missing[0]}", remedy="Add it, or leave out the -p")
    bounds = await read_bounds(broker, group, config)
    if isinstance(target, ToTime):
        target = ToPositions(await _at(broker, group, world, target.time, chosen))
    rows = []
    for name in sorted(chosen or named, key=partition_order):
        before = world.partitions[name].position
        after = _after(group, world, target, name, bounds[name])
        rows.append(
            ResetRow(
                partition=name,
                before=before,
                after=after,
                change=after - before,
                first=bounds[name].first,
                end=bounds[name].end,
            )
        )
    _check_held(rows)
    return rows


def forgotten(world: World, rows: Sequence[ResetRow], target: Target) -> list[str]:
    """The partitions with parked keys that the reset forgets: it passes over their messages before the new position."""
    parts = world.cuts[target.cut].parts if isinstance(target, ToCut) else {}
    return [
        row.partition
        for row in rows
        if any(
            sequence < row.after and not (row.partition in parts and key in parts[row.partition].parked)
            for key, sequence in world.partitions[row.partition].parked.items()
        )
    ]


def _after(group: str, world: World, target: Target, name: str, bounds: Bounds) -> int:
    assert world.config is not None
    initial = world.config.positions[name]
    match target:
        case "initial":
            return initial
        case "earliest":
            return bounds.first
        case "latest":
            return bounds.end
        case ToCut(cut=cut):
            if cut not in world.cuts:
                raise UnknownName(
                    f"the group {group} has no cut {cut}", remedy=f"List them with: echelon cut list {group}"
                )
            part = world.cuts[cut].parts.get(name)
            return part.position if part is not None else initial
        case ToPositions(positions=positions):
            return positions[name]
        case ShiftBy(count=count):
            return max(bounds.first, min(bounds.end, world.partitions[name].position + count))
    raise AssertionError(target)


async def _at(broker: Broker, group: str, world: World, time: int, chosen: Collection[str]) -> dict[str, int]:
    config = world.config
    assert config is not None
    reading = await readers(broker, group, config)
    positions = {}
    for name in chosen or world.partitions:
        stream, number = config.locate(name)
        positions[name] = await reading[stream.name].position_at(number, time)
    return positions


def _check_held(rows: Sequence[ResetRow]) -> None:
    """What was deleted cannot be processed again, and what is not there yet must not be passed over."""
    for row in rows:
        if row.after != row.before and not row.first <= row.after <= row.end:
            raise InvalidConfig(
                f"partition {row.partition} holds {row.first} to {row.end}, not {row.after}",
                remedy="Reset to earliest instead, or leave the partition out",
            )

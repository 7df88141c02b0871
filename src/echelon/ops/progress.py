"""How far a group is: its partitions as tables, with what the broker holds of them. Pure, as `status` is."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from echelon.group.records import Advance, CutPart, Heartbeat, Progress, Record, Release, decode
from echelon.group.world import World
from echelon.model import Entry
from echelon.ops.status import Place, in_order, label, place, when


class Ends(Struct, frozen=True):
    """What a partition holds, seen from the group's position.

    `lag` counts the messages from the position on; `oldest` is the broker time of the first of them.
    """

    first: int
    end: int
    lag: int
    oldest: int | None = None


class PartitionRow(Struct, frozen=True, kw_only=True):
    """A partition: who owns it, how far the group is in it, and how much waits."""

    partition: str
    state: Place
    member: str | None
    owner: str | None
    epoch: int | None
    position: int | None
    end: int | None = None
    lag: int | None = None
    lag_seconds: float | None = None
    in_flight: int | None = None
    parked: int = 0
    last_progress: datetime | None = None


class LagRow(Struct, frozen=True, kw_only=True):
    """How much waits in a partition; the last row is the total."""

    partition: str
    owner: str | None
    position: int | None
    end: int | None
    lag: int | None
    lag_seconds: float | None


def partitions(
    world: World, ends: Mapping[str, Ends], now: int, progress: Mapping[str, int] | None = None
) -> list[PartitionRow]:
    """All partitions, in order. `progress` has the broker time of the last progress of each."""
    return [
        PartitionRow(
            partition=name,
            state=place(world, partition, now),
            member=partition.seat,
            owner=label(world, partition.owner),
            epoch=partition.epoch or None,
            position=partition.position,
            end=ends[name].end if name in ends else None,
            lag=ends[name].lag if name in ends else None,
            lag_seconds=_seconds(ends.get(name), now),
            in_flight=partition.in_flight if partition.owner is not None else None,
            parked=len(partition.parked),
            last_progress=when((progress or {})[name]) if name in (progress or {}) else None,
        )
        for name, partition in in_order(world)
    ]


def lag(world: World, ends: Mapping[str, Ends], now: int) -> list[LagRow]:
    """How much waits in each partition, and in all of them; in seconds, the longest wait."""
    rows = [
        LagRow(
            partition=name,
            owner=label(world, partition.owner),
            position=partition.position,
            end=ends[name].end,
            lag=ends[name].lag,
            lag_seconds=_seconds(ends[name], now),
        )
        for name, partition in in_order(world)
        if name in ends
    ]
    longest = max((row.lag_seconds for row in rows if row.lag_seconds is not None), default=None)
    total = sum(row.lag or 0 for row in rows)
    return [
        *rows,
        LagRow(partition="total", owner=None, position=None, end=None, lag=total, lag_seconds=longest),
    ]


def _seconds(ends: Ends | None, now: int) -> float | None:
    if ends is None:
        return None
    return 0.0 if ends.oldest is None else round(max(0, now - ends.oldest) / 1000, 1)


def last_progress(entries: Iterable[Entry]) -> dict[str, int]:
    """The broker time of the last record among the entries that told of progress, by partition."""
    return {name: entry.time for entry in entries for name in _progress(decode(entry.data))}


def _progress(record: Record | None) -> Mapping[str, Progress]:
    return record.progress if isinstance(record, Heartbeat | Advance | Release | CutPart) else {}

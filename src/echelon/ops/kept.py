"""What a group keeps: its cuts, and the keys that wait apart. Pure views of a world, as `status` has them."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from echelon.group.world import World
from echelon.model import partition_order
from echelon.ops.status import in_order, when


class CutRow(Struct, frozen=True, kw_only=True):
    """A cut of a group."""

    cut: int
    taken: datetime
    kind: Literal["asked", "periodic"]
    partitions: int
    parked: int
    saved_bytes: int


class CutPartRow(Struct, frozen=True, kw_only=True):
    """A partition's part of a cut."""

    partition: str
    position: int
    parked: int
    saved_bytes: int


class ParkedRow(Struct, frozen=True, kw_only=True):
    """A parked key, and the sequence of the first message that waits."""

    partition: str
    key: str
    sequence: int
    asked: Literal["retry", "skip"] | None


def cuts(world: World) -> list[CutRow]:
    """The cuts that are kept, the latest last."""
    return [
        CutRow(
            cut=cut.sequence,
            taken=when(cut.broker_time),
            kind="periodic" if cut.periodic else "asked",
            partitions=len(cut.parts),
            parked=sum(len(part.parked) for part in cut.parts.values()),
            saved_bytes=sum(len(part.state or b"") for part in cut.parts.values()),
        )
        for _, cut in sorted(world.cuts.items())
    ]


def cut_parts(world: World, cut: int) -> list[CutPartRow]:
    """What a cut that is kept holds of each partition."""
    parts = world.cuts[cut].parts
    return [
        CutPartRow(
            partition=name,
            position=parts[name].position,
            parked=len(parts[name].parked),
            saved_bytes=len(parts[name].state or b""),
        )
        for name in sorted(parts, key=partition_order)
    ]


def parked(world: World) -> list[ParkedRow]:
    """The parked keys of all partitions, each with what was asked for it and is not done yet."""
    rows = []
    for name, partition in in_order(world):
        for key, sequence in sorted(partition.parked.items(), key=lambda item: item[1]):
            call = partition.called.get(key)
            asked: Literal["retry", "skip"] | None = None if call is None else "skip" if call.skip else "retry"
            rows.append(ParkedRow(partition=name, key=key, sequence=sequence, asked=asked))
    return rows

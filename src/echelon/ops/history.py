"""What was written to a group's log, record by record, in words."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final

from msgspec import Struct

from echelon.group.fold import apply
from echelon.group.records import (
    Admitted,
    Advance,
    AnyRecord,
    Claim,
    Configure,
    CutPart,
    Heartbeat,
    Join,
    Leave,
    Newer,
    Pause,
    Record,
    Release,
    Reset,
    Retire,
    Snapshot,
    StepDown,
    Unpark,
    decode,
)
from echelon.group.world import World
from echelon.model import Entry
from echelon.ops.status import when

_ROUTINE: Final = (Heartbeat, Advance, Snapshot)


class HistoryRow(Struct, frozen=True, kw_only=True):
    """A record of the log. `counted` is false for one that did nothing but move time."""

    sequence: int
    time: datetime
    record: str
    by: str
    counted: bool
    what: str


def history(world: World, entries: Iterable[Entry], *, routine: bool = False) -> Iterator[HistoryRow]:
    """The records among the entries, which follow `world`; that is used up.

    `routine` also tells of those that are written all the time: heartbeats, advances, snapshots, and joins that an
    instance repeats because it has not read its first one yet.
    """
    names = {instance.id: instance.profile.name for instance in world.instances.values()}
    for entry in entries:
        record = decode(entry.data)
        is_routine = isinstance(record, _ROUTINE) or (isinstance(record, Join) and _changes_nothing(world, record))
        counted = apply(world, entry, record)
        if isinstance(record, Join):
            names[record.sender] = record.profile.name
        if routine or not is_routine:
            yield _row(world, entry, record, names, counted=counted)


def _changes_nothing(world: World, join: Join) -> bool:
    """Whether the instance has joined already, and puts out nobody either."""
    known = world.instances.get(join.sender)
    return known is not None and not known.stale and not known.stepped_down and not join.profile.sole


def _row(
    world: World, entry: Entry, record: AnyRecord | Newer | None, names: dict[str, str], *, counted: bool
) -> HistoryRow:
    sender = record.sender if record is not None else ""
    return HistoryRow(
        sequence=entry.sequence,
        time=when(entry.time),
        record=str(record.__struct_config__.tag) if record is not None else "unreadable",
        by=f"{names.get(sender) or ('admin' if isinstance(record, Admitted) else '')} {sender[:6]}".strip(),
        counted=counted,
        what=_what(world, record, names) if record is not None and counted else "",
    )


def _what(world: World, record: Record, names: dict[str, str]) -> str:
    """What a member wrote, or an administrator."""
    match record:
        case Join(profile=profile):
            priority = f", priority {profile.priority}" if profile.priority else ""
            return f"for {profile.member or 'any seat'}{priority}"
        case Claim(member=member):
            taken = world.seats.get(member) is not None and world.seats[member].epoch == world.sequence
            return f"the seat of {names.get(member, member)}" + ("" if taken else ": refused, it is not vacant")
        case Leave(gone=gone) if gone is not None:
            return f"the process of {names.get(gone, gone[:6])} is gone"
        case Heartbeat() | Advance() | Release() | CutPart():
            return ", ".join(f"{name} at {progress.position}" for name, progress in record.progress.items())
    return _ordered(record)


def _ordered(record: Record) -> str:
    match record:
        case Configure():
            return _configured(record)
        case StepDown(epoch=epoch):
            return f"the seat with epoch {epoch}"
        case Pause(until=until):
            return "until it is resumed" if until is None else f"until {when(until):%Y-%m-%d %H:%M:%S} UTC"
        case Reset(positions=positions, cut=cut, keep=keep):
            told = ", ".join(f"{name} to {position}" for name, position in positions.items())
            return (f"to the cut {cut}: " if cut else "") + told + ("; the sink keeps what it has" if keep else "")
        case Retire(cut=cut):
            return f"the cut {cut}"
        case Unpark(partition=partition, keys=keys, skip=skip):
            return f"{'skip' if skip else 'retry'} {', '.join(keys)} of {partition}"
    return ""


def _configured(record: Configure) -> str:
    config = record.config
    mapped = config.mapping or {}
    seats = ", ".join(f"{m} ({', '.join(mapped[m])})" if m in mapped else m for m in config.seats()) or "every instance"
    return f"{len(config.positions)} partitions of {', '.join(s.name for s in config.streams)}; seats: {seats}"

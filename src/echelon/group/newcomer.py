"""How a newcomer gets the world without reading the whole log: from the newest snapshot that fits it."""

from collections.abc import Iterator, Sequence

import msgspec

from echelon.group.fold import fold
from echelon.group.records import Record, Snapshot, decode
from echelon.group.world import World, load
from echelon.model import Entry

_SNAPSHOT = b'"type":"snapshot"'


def world_of(entries: Sequence[Entry], *, from_start: bool) -> World | None:
    """The world at the end of the log, whose newest entries these are, without a gap.

    `from_start`: nothing is before them. Returns None where more has to be read: they hold no snapshot that
    fits, and not the beginning. A log of which `from_start` entries give None is not whole. Raises
    UnknownVersion if the group speaks a newer protocol.
    """
    for place, world in fitting_worlds(entries):
        return fold(entries[place + 1 :], world)
    world = fold(entries) if from_start else World()
    return world if world.config is not None else None


def fitting_worlds(entries: Sequence[Entry]) -> Iterator[tuple[int, World]]:
    """The worlds that snapshots among the entries hold of this log, the latest first.

    Each comes with the place of its as-of among the entries: it is the world right after that entry.
    """
    places = {entry.sequence: index for index, entry in enumerate(entries)}
    for snapshot in sorted(_snapshots(entries), key=lambda found: found.as_of, reverse=True):
        place = places.get(snapshot.as_of)
        if place is not None and _fits(snapshot, decode(entries[place].data)):
            try:
                world = load(snapshot.world)
            except msgspec.DecodeError:
                continue
            if snapshot.version <= world.version and snapshot.group == world.identity:
                yield place, world


def _snapshots(entries: Sequence[Entry]) -> list[Snapshot]:
    # Looking for the tag first spares decoding every record only to find the few snapshots.
    decoded = (decode(entry.data) for entry in entries if _SNAPSHOT in entry.data[:64])
    return [record for record in decoded if isinstance(record, Snapshot)]


def _fits(snapshot: Snapshot, record: Record | None) -> bool:
    """Whether the snapshot was made from this log: the record at its as-of is the one that it names."""
    named = (snapshot.as_of_sender, snapshot.as_of_counter)
    return record is not None and (record.sender, record.counter) == named

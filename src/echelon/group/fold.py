"""The fold: how a record of the log changes the world.

`apply` is the whole protocol as readers see it. Only the record, its sequence and the broker's time count.
For each record, in this order: time, who is stale, the record's effect, assignment, once.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from echelon.errors import InvalidConfig, UnknownVersion
from echelon.group import cuts, partitions, seats
from echelon.group.config import Config, check, check_change
from echelon.group.records import (
    VERSION,
    Admitted,
    Advance,
    AnyRecord,
    Claim,
    Configure,
    CutAbort,
    CutPart,
    Delete,
    Heartbeat,
    Join,
    Leave,
    Newer,
    Pause,
    Record,
    Release,
    Reset,
    Resume,
    Retire,
    Snapshot,
    StepDown,
    TakeCut,
    Unpark,
    decode,
)
from echelon.group.world import HORIZON, Mark, Partition, Paused, Seat, Sender, World, milliseconds
from echelon.model import Entry


def fold(entries: Iterable[Entry], world: World | None = None) -> World:
    """Apply all entries, in order, to `world` (a new one if none is given), and return it."""
    world = World() if world is None else world
    for entry in entries:
        apply(world, entry, decode(entry.data))
    return world


def apply(world: World, entry: Entry, record: AnyRecord | Newer | None) -> bool:
    """Apply one entry, decoded as `record` (None: it cannot be read), to the world, in place.

    Returns whether the record counted: it is of this group, new, and from a sender that may write it. One
    that does not count still moves time. Raises UnknownVersion if the group goes on in a newer protocol.
    """
    world.sequence = entry.sequence
    move_time(world, entry.time)
    changed = seats.find_stale(world)
    changed |= _end_pause(world)
    counted = record is not None and counts(world, record)
    if counted and record is not None:
        changed |= _count(world, record)
        changed |= _EFFECTS[type(record)](world, record)
    if world.cut is not None:
        changed |= cuts.expire(world)
    if changed:
        world.turn += 1
        # The cut comes first: what it held back is given away with the record that completes it.
        cuts.settle(world)
        partitions.assign(world)
    return counted


def move_time(world: World, broker_time: int) -> None:
    """Move group time by what the broker's clock moved since the last record, within limits.

    Nobody is stale because the broker was away or its clock jumped: a step adds at most half an interval, and
    one above two intervals adds nothing and renews all who were not stale.
    """
    step = broker_time - world.broker_time
    world.broker_time = broker_time
    if step > 2 * world.interval:
        renew_all(world)
    elif step > 0:
        world.time += min(step, world.interval // 2)


def renew_all(world: World) -> None:
    """Let the last record of every instance that is not stale count as made now."""
    for instance in world.instances.values():
        if not instance.stale:
            if not world.fresh(instance):
                instance.fresh_since = world.time
            instance.last = world.time


def counts(world: World, record: Record) -> bool:
    """Whether a record is of this group, new, and from a sender that may write it."""
    if world.deleted:
        return False
    if world.config is None:
        return isinstance(record, Configure | Newer) and record.replaces is None
    if record.group != world.identity:
        return False
    if record.version > world.version and not isinstance(record, Configure | Newer):
        return False
    sender = world.senders.get(record.sender)
    if sender is not None and record.counter <= sender.counter:
        return False
    if isinstance(record, Admitted | Newer):
        return isinstance(record, Newer) or record.read >= horizon(world)
    return record.sender in world.instances


def horizon(world: World) -> int:
    """What was read before this sequence is too old to act on."""
    return world.marks[0].sequence if world.marks else 0


def _count(world: World, record: Record) -> bool:
    sender = world.senders.get(record.sender)
    if sender is None:
        world.senders[record.sender] = Sender(record.counter, world.sequence)
    else:
        sender.counter = record.counter
        sender.sequence = world.sequence
    instance = world.instances.get(record.sender)
    changed = instance is not None and seats.hear(world, instance)
    if not world.marks or world.time >= world.marks[-1].time + world.interval // 4:
        changed |= _mark(world, record)
    return changed


def _mark(world: World, record: Record) -> bool:
    """Remember this record as a mile stone, and forget who has written nothing since the oldest one."""
    marks = world.marks
    marks.append(Mark(world.sequence, world.time, record.sender, record.counter))
    oldest = world.time - HORIZON * world.interval
    passed = 0
    while passed + 1 < len(marks) and marks[passed + 1].time <= oldest:
        passed += 1
    del marks[:passed]
    silent = [name for name, sender in world.senders.items() if sender.sequence < marks[0].sequence] if passed else []
    for name in silent:
        seats.lose_all(world, name)
        seats.forget(world, name)
        del world.senders[name]
    return bool(silent)


def _end_pause(world: World) -> bool:
    if world.paused is None or world.paused.until is None or world.broker_time < world.paused.until:
        return False
    world.paused = None
    return True


def _configure(world: World, record: Configure) -> bool:
    if world.config is not None and record.replaces != world.configured:
        return False
    try:
        if world.config is None:
            check(record.config)
        else:
            check_change(world.config, record.config)
    except InvalidConfig:
        return False
    if world.config is None:
        world.identity = record.group
        world.made = world.broker_time
        world.version = record.version
        world.interval = milliseconds(record.config.interval)
    elif len(record.config.positions) > len(world.partitions):
        cuts.abort(world)
    _reconfigure(world, record.config)
    return True


def _reconfigure(world: World, config: Config) -> None:
    world.config = config
    world.configured = world.sequence
    for name in config.partitions():
        if name not in world.partitions:
            position = config.positions[name]
            world.partitions[name] = Partition(name, position, position, since=world.time)
    if not world.auto:
        members = config.seats()
        world.seats = {member: world.seats.get(member) or Seat(member) for member in members}


def _newer(world: World, record: Newer) -> bool:
    if world.config is not None and record.replaces != world.configured:
        return False
    raise UnknownVersion(
        f"the group speaks version {record.version} of the protocol; this program knows up to {VERSION}",
        remedy="Upgrade echelon here",
    )


def _pause(world: World, record: Pause) -> bool:
    if record.until is not None and record.until <= world.broker_time:
        return False
    cuts.abort(world)
    world.paused = Paused(world.sequence, record.until)
    return True


def _resume(world: World, _record: Resume) -> bool:
    world.paused = None
    return True


def _snapshot(world: World, record: Snapshot) -> bool:
    """It counts if it is newer than those before, and made from this log: its as-of is one of the marks."""
    if record.as_of > world.snapshot and any(
        (mark.sequence, mark.sender, mark.counter) == (record.as_of, record.as_of_sender, record.as_of_counter)
        for mark in world.marks
    ):
        world.snapshot = record.as_of
    return False


def _delete(world: World, _record: Delete) -> bool:
    world.deleted = world.sequence
    return True


_EFFECTS: Final[dict[type, Callable[[World, Any], bool]]] = {
    Configure: _configure,
    Newer: _newer,
    Join: seats.join,
    Leave: seats.leave,
    Claim: seats.claim,
    StepDown: seats.step_down,
    Heartbeat: partitions.heartbeat,
    Advance: partitions.advance,
    Release: partitions.release,
    Pause: _pause,
    Resume: _resume,
    TakeCut: cuts.take,
    CutPart: cuts.part,
    CutAbort: cuts.abandon,
    Reset: cuts.reset,
    Retire: cuts.retire,
    Unpark: partitions.unpark,
    Snapshot: _snapshot,
    Delete: _delete,
}

"""Cuts and resets: checkpoints of all positions at one drain, and going back to positions.

Effects of records on the world; each returns whether anything changed that assignment depends on.
"""

from echelon.group.partitions import needs_owner, owns, report
from echelon.group.records import MAX_STATE, CutAbort, CutPart, Reset, Retire, TakeCut
from echelon.group.world import Cut, Part, Partition, World, milliseconds


def take(world: World, record: TakeCut) -> bool:
    """Begin a cut, unless one is under way or the group is paused."""
    if world.cut is not None or world.paused is not None:
        return False
    world.cut = Cut(world.sequence, world.time, world.broker_time, record.periodic)
    world.last_cut = world.time
    return True


def part(world: World, record: CutPart) -> bool:
    """An owner has drained for the cut under way, and tells where it stands."""
    cut = world.cut
    if cut is None or cut.sequence != record.cut:
        return False
    for name, progress in record.progress.items():
        partition = world.partitions.get(name)
        if partition is not None and owns(partition, record.sender, progress) and name not in cut.parts:
            report(world, partition, progress)
            state = record.states.get(name)
            _answer(cut, partition, state if state is None or len(state) <= MAX_STATE else None)
    return True


def settle(world: World) -> None:
    """Let partitions without an owner answer the cut by themselves, and complete it when all have answered."""
    cut = world.cut
    if cut is None:
        return
    for partition in world.partitions.values():
        if partition.owner is None and partition.name not in cut.parts and not needs_owner(world, partition):
            _answer(cut, partition, None)
    if len(cut.parts) == len(world.partitions):
        world.cut = None
        world.cuts[cut.sequence] = cut
        _retire_oldest(world)


def _answer(cut: Cut, partition: Partition, state: bytes | None) -> None:
    cut.parts[partition.name] = Part(partition.position, partition.parked, state)


def _retire_oldest(world: World) -> None:
    kept = world.config.cuts_kept if world.config is not None else 0
    periodic = [cut.sequence for cut in world.cuts.values() if cut.periodic]
    for sequence in sorted(periodic)[: max(0, len(periodic) - kept)]:
        del world.cuts[sequence]


def expire(world: World) -> bool:
    """Abort the cut under way if its time is over."""
    if world.cut is None or world.config is None:
        return False
    return world.time - world.cut.time > milliseconds(world.config.cut_time) and abort(world)


def abandon(world: World, record: CutAbort) -> bool:
    """Abort the cut that the record names, if it is under way."""
    return world.cut is not None and world.cut.sequence == record.cut and abort(world)


def abort(world: World) -> bool:
    """Abort the cut under way, if there is one."""
    if world.cut is None:
        return False
    world.aborted = world.cut.sequence
    world.cut = None
    return True


def retire(world: World, record: Retire) -> bool:
    """Forget a complete cut."""
    return world.cuts.pop(record.cut, None) is not None


def reset(world: World, record: Reset) -> bool:
    """Set positions, under new epochs: what is in flight under the old ones no longer counts."""
    origin = world.cuts.get(record.cut) if record.cut is not None else None
    if record.cut is not None and origin is None:
        return False
    abort(world)
    for name, position in record.positions.items():
        partition = world.partitions.get(name)
        if partition is None or position < 0:
            continue
        saved = origin.parts.get(name) if origin is not None else None
        partition.position = partition.done = position
        partition.parked = saved.parked if saved is not None else {}
        partition.called = {}
        partition.before = partition.epoch
        partition.epoch = partition.reset = world.sequence
        partition.keep = record.keep
        partition.restored = record.cut or 0
        partition.reported = partition.unsure = False
        world.reset = world.sequence
    return True

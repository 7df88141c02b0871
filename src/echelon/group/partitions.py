"""Who owns which partition, and how far it is: progress, release, assignment, overflow, growth.

Effects of records on the world; each returns whether anything changed that assignment depends on.
"""

from collections.abc import Mapping

from echelon.assignment import blocks, mapped, sticky
from echelon.group.records import Advance, Backlog, Heartbeat, Progress, Release, Unpark
from echelon.group.world import Called, Instance, Partition, World


def heartbeat(world: World, record: Heartbeat) -> bool:
    """Take the progress of the sender's own partitions, and the backlog it sees."""
    changed = False
    for name, progress in record.progress.items():
        partition = world.partitions.get(name)
        if partition is not None and owns(partition, record.sender, progress):
            changed |= report(world, partition, progress)
    if record.backlog:
        changed |= _note_backlog(world, record.sender, record.backlog)
    return changed


def advance(world: World, record: Advance) -> bool:
    """At most once: move positions ahead of processing."""
    if world.config is None or world.config.delivery != "at_most_once":
        return False
    for name, progress in record.progress.items():
        partition = world.partitions.get(name)
        if partition is not None and owns(partition, record.sender, progress):
            partition.position = max(partition.position, progress.position)
            _note_report(partition)
    return False


def release(world: World, record: Release) -> bool:
    """The sender has drained these partitions: they are free, and nobody has to wait for anybody."""
    changed = False
    for name, progress in record.progress.items():
        partition = world.partitions.get(name)
        if partition is None or not owns(partition, record.sender, progress):
            continue
        sure = partition.reported or not partition.unsure
        report(world, partition, progress)
        partition.unsure = not sure
        partition.owner = None
        partition.waits = {}
        partition.in_flight = 0
        partition.since = world.time
        changed = True
    return changed


def owns(partition: Partition, sender: str, progress: Progress) -> bool:
    """Whether the progress was made under the partition's epoch, by its owner. Nothing else counts."""
    return partition.owner == sender and partition.epoch == progress.epoch


def report(world: World, partition: Partition, progress: Progress) -> bool:
    """Take progress made under the partition's epoch. Returns whether a held partition may have become free."""
    before = partition.done
    holds_others = _holds_others(world, partition)
    first = not partition.reported
    _note_report(partition)
    if progress.parked is not None:
        _park(partition, progress.parked)
    delivery = world.config.delivery if world.config is not None else None
    if delivery == "at_most_once":
        partition.done = max(before, min(progress.position, partition.position))
    elif progress.position > before or (first and delivery == "exactly_once"):
        partition.position = partition.done = progress.position
        partition.unsure = False
    return holds_others or _holds_others(world, partition)


def _note_report(partition: Partition) -> None:
    """Something is reported under the epoch: so its owner has begun, and before that it waited for former ones."""
    if not partition.reported:
        partition.waits = {}
    partition.reported = True


def _park(partition: Partition, parked: Mapping[str, int]) -> None:
    """Take the parked keys as reported; what was asked of a key is done once it is gone, or parked further on."""
    partition.called = {key: call for key, call in partition.called.items() if parked.get(key) == partition.parked[key]}
    partition.parked = parked


def unpark(world: World, record: Unpark) -> bool:
    """Ask the owner to try parked keys again, or to pass over them."""
    partition = world.partitions.get(record.partition)
    keys = [key for key in record.keys if partition is not None and key in partition.parked]
    if partition is not None:
        partition.called.update(dict.fromkeys(keys, Called(world.sequence, record.skip)))
    return bool(keys)


def _holds_others(world: World, partition: Partition) -> bool:
    """Whether partitions that were added may wait for this one."""
    ends = world.config.ends if world.config is not None else ()
    return any(_behind(partition, recorded.get(partition.name, 0)) for recorded in ends)


def _note_backlog(world: World, sender: str, backlog: Mapping[str, Backlog]) -> bool:
    for name, seen in backlog.items():
        partition = world.partitions.get(name)
        if partition is not None and partition.owner in (None, sender):
            partition.pending = seen.pending
            partition.in_flight = seen.in_flight if partition.owner == sender else 0
    return any(seat.overflow and seat.spilling != _spills(world, seat.member) for seat in world.seats.values())


def assign(world: World) -> None:
    """Find the desired seat of every partition, and give the free ones to the holders of theirs."""
    if world.config is None or world.deleted:
        return
    _hold_added(world)
    for seat in world.seats.values():
        seat.spilling = seat.overflow and _spills(world, seat.member)
    desired = _desired(world)
    for partition in world.partitions.values():
        partition.seat = desired.get(partition.name)
        if partition.owner is None:
            holder = _receiver(world, partition)
            if holder is not None:
                give(world, partition, holder)


def give(world: World, partition: Partition, holder: Instance) -> None:
    """Make `holder` the owner of a free partition, under a new epoch, from its position on."""
    partition.owner = holder.id
    partition.before, partition.epoch = partition.epoch, world.sequence
    partition.reported = False
    partition.since = world.time
    if partition.former is None or partition.former[0] != partition.seat:
        partition.seated = world.sequence
    partition.former = (partition.seat or "", holder.id)


def _receiver(world: World, partition: Partition) -> Instance | None:
    """Who gets a free partition now, if anybody."""
    if world.paused is not None or partition.held:
        return None
    if world.cut is not None and not (needs_owner(world, partition) and partition.name not in world.cut.parts):
        return None
    return world.holder(partition.seat)


def needs_owner(world: World, partition: Partition) -> bool:
    """Whether only an owner can tell the position of a free partition: the sink may be ahead of the log."""
    return partition.unsure and world.config is not None and world.config.delivery == "exactly_once"


def _desired(world: World) -> dict[str, str]:
    config = world.config
    assert config is not None
    if config.assignment == "mapped":
        return mapped(config.mapping or {})
    members = [seat.member for seat in world.seats.values() if _takes_part(world, seat.member)]
    if config.assignment == "blocks":
        return blocks(members, config.partitions())
    current = {p.name: p.seat for p in world.partitions.values() if p.seat is not None}
    return sticky(members, config.partitions(), current)


def _takes_part(world: World, member: str) -> bool:
    seat = world.seats[member]
    if seat.overflow and not seat.spilling:
        return False
    return not world.auto or world.holder(member) is not None


def _spills(world: World, member: str) -> bool:
    """Whether an overflow seat takes part: from its threshold on, until half of it; or when nobody else is left."""
    seat = world.seats[member]
    instance = world.instances.get(seat.holder or "")
    if instance is None or not instance.profile.overflow:
        return False
    if not any(not other.overflow and world.holder(other.member) is not None for other in world.seats.values()):
        return True
    pending = sum(partition.pending for partition in world.partitions.values())
    in_flight = sum(partition.in_flight for partition in world.partitions.values())
    share = 2 if seat.spilling else 1
    return any(
        least is not None and value * share >= least
        for value, least in ((pending, instance.profile.min_pending), (in_flight, instance.profile.min_ack_pending))
    )


def _hold_added(world: World) -> None:
    """Hold added partitions back while an older one is before its end recorded then: keys keep their order."""
    config = world.config
    if config is None or not config.ends or config.growth == "at_once":
        return
    for ends, later in zip(config.ends, [*config.ends[1:], config.positions], strict=True):
        behind = any(_behind(world.partitions[name], end) for name, end in ends.items())
        for name in later:
            if name not in ends:
                world.partitions[name].held = behind


def _behind(partition: Partition, end: int) -> bool:
    return partition.done < end or any(sequence < end for sequence in partition.parked.values())

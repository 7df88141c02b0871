"""Who is there and who sits where: joining, leaving, claiming, stepping down, falling silent.

Effects of records on the world; each returns whether anything changed that assignment depends on.
"""

from echelon.group.records import Claim, Join, Leave, StepDown, is_valid
from echelon.group.world import Instance, Partition, Seat, World


def hear(world: World, instance: Instance) -> bool:
    """Take note of a record of this instance: it is fresh. Returns whether it was stale."""
    if world.time - instance.last > world.interval:
        instance.fresh_since = world.time
    instance.last = world.time
    was_stale = instance.stale
    instance.stale = False
    return was_stale


def find_stale(world: World) -> bool:
    """Mark those stale whose last record is more than two intervals old, and free what they own."""
    if world.time <= world.check_at:
        return False
    patience = 2 * world.interval
    oldest = world.time
    found = False
    for instance in world.instances.values():
        if instance.stale:
            continue
        if world.time - instance.last > patience:
            instance.stale = found = True
            lose_all(world, instance.id)
        else:
            oldest = min(oldest, instance.last)
    world.check_at = oldest + patience
    return found


def lose_all(world: World, instance: str) -> None:
    """Take all partitions from an instance that did not release them; whoever gains one has to wait for it."""
    for partition in world.owned(instance):
        lose(world, partition, world.senders[instance].sequence)


def lose(world: World, partition: Partition, last_record: int | None) -> None:
    """Take a partition from its owner, which wrote `last_record` last (None: it is known to be gone)."""
    if partition.owner is not None and last_record is not None:
        partition.waits[partition.owner] = last_record
    partition.owner = None
    partition.unsure = True
    partition.in_flight = 0
    partition.since = world.time


def forget(world: World, instance: str) -> None:
    """Strike an instance that has ended, or has been silent for long."""
    if world.instances.pop(instance, None) is None:
        return
    for seat in world.seats.values():
        if seat.holder == instance:
            _vacate(seat)
        seat.barred.pop(instance, None)
    if world.auto:
        world.seats.pop(instance, None)


def join(world: World, record: Join) -> bool:
    """An instance is there. One that was put out of its seat may claim again, if it knew of that."""
    instance = world.instances.get(record.sender)
    if not is_valid(record.profile):
        return False
    if instance is None:
        instance = Instance(
            id=record.sender,
            profile=record.profile,
            member=record.sender if world.auto else record.profile.member,
            joined=world.sequence,
            joined_time=world.broker_time,
            last=world.time,
            fresh_since=world.time,
        )
        world.instances[record.sender] = instance
        if world.auto:
            world.seats[record.sender] = Seat(record.sender)
    elif record.read >= instance.stepped_down:
        instance.stepped_down = 0
    if record.profile.sole:
        # Only those it knew of: a late join of a process that has ended must not put out its successor.
        known = [i for i in world.instances.values() if i.joined <= record.read and i.id != record.sender]
        for other in [i.id for i in known if i.profile.name == record.profile.name]:
            _gone(world, other)
    return True


def leave(world: World, record: Leave) -> bool:
    """A process has ended; this counts as its release, at the positions it had reported."""
    _gone(world, record.gone or record.sender)
    return True


def _gone(world: World, instance: str) -> None:
    for partition in world.partitions.values():
        if partition.owner == instance:
            lose(world, partition, None)
        partition.waits.pop(instance, None)
    forget(world, instance)


def claim(world: World, record: Claim) -> bool:
    """Sit down, if the seat may be claimed. The claim's sequence is the seat's epoch."""
    seat = world.seats.get(record.member)
    instance = world.instances[record.sender]
    if seat is None or not world.claimable(seat, instance):
        return False
    if seat.holder is not None:
        _vacate(seat)
    seat.holder = instance.id
    seat.epoch = world.sequence
    seat.overflow = instance.profile.overflow
    seat.spilling = False
    seat.barred = {name: until for name, until in seat.barred.items() if until > world.time}
    return True


def step_down(world: World, record: StepDown) -> bool:
    """The holder gives up the seat, and may not claim it again for one interval. Who leaves does so by itself."""
    for seat in world.seats.values():
        if seat.epoch == record.epoch and seat.holder is not None:
            seat.barred[seat.holder] = world.time + world.interval
            holder = world.instances[seat.holder]
            holder.stepped_down = world.sequence
            holder.leaving = record.sender == holder.id
            _vacate(seat)
            return True
    return False


def _vacate(seat: Seat) -> None:
    seat.former = seat.holder
    seat.holder = None

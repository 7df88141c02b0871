"""The partitions that an instance runs: when each is started, drained, halted, gone on with and closed. Pure."""

from collections.abc import Iterator

from echelon.group.actions import Action, Close, Drain, GoOn, Halt, Start
from echelon.group.own import Own, Run
from echelon.group.world import Partition, World, milliseconds


def action(world: World, own: Own, name: str, now: int) -> Action | None:
    """What this instance is to do about a partition that it owns or runs; None: nothing now."""
    run = own.runs.get(name)
    return _begin(world, own, name, now) if run is None else _next(world, own, name, run, now)


def _begin(world: World, own: Own, name: str, now: int) -> Start | None:
    """Start a partition that this instance owns and does not run, if it may and should."""
    partition = world.partitions[name]
    if not may_start(world, own, partition, now) or must_release(world, own, partition):
        return None
    if world.cut is not None and name in world.cut.parts:
        return None
    return Start(name, partition.epoch, partition.position, idle=world.cut is not None)


def _next(world: World, own: Own, name: str, run: Run, now: int) -> Action | None:
    """What is to be done about a partition that this instance runs."""
    partition = world.partitions.get(name)
    mine = partition is not None and partition.owner == own.id
    over = partition is None or not mine or run.epoch != partition.epoch
    if over and not run.busy:
        return Close(name)
    if not mine or own.fenced(world.interval, now):
        return Halt(name) if run.state != "halted" and not drained(run) else None
    assert partition is not None
    if over or must_drain(world, own, partition):
        if run.state == "running":
            return Drain(name)
        overdue = run.state == "draining" and run.busy and now - run.since > drain_time(world)
        return Halt(name) if overdue else None
    return GoOn(name) if drained(run) and may_go_on(run) and world.cut is None else None


def may_go_on(run: Run) -> bool:
    """Whether a run may take messages again: not once a release was sent, which may be accepted at any time."""
    return not run.released


def must_drain(world: World, own: Own, partition: Partition) -> bool:
    """Whether this instance must stop with a partition that it owns: for good, or for a cut."""
    cut = world.cut
    return must_release(world, own, partition) or (cut is not None and partition.name not in cut.parts)


def must_release(world: World, own: Own, partition: Partition) -> bool:
    """Whether this instance must give up a partition that it owns."""
    run = own.runs.get(partition.name)
    return own.leaving or world.leaves(partition) or (run is not None and run.refused)


def may_start(world: World, own: Own, partition: Partition, now: int) -> bool:
    """Whether this instance may process a partition that it owns: it is not fenced, and nobody else still does.

    A seat with a checkpoint starts nothing before its former holder has ended with all that it had.
    """
    if own.fenced(world.interval, now) or not waited(world, own, partition, now):
        return False
    if not own.profile.checkpoint:
        return True
    seat = world.seat_of(own.id)
    member = seat.member if seat is not None else ""
    others = [other for other in world.partitions.values() if other.owner not in (None, own.id)]
    if any(other.former == (member, other.owner) for other in others):
        return False
    return all(waited(world, own, other, now) for other in world.partitions.values())


def waited(world: World, own: Own, partition: Partition, now: int) -> bool:
    """Whether whoever owned the partition and did not release it has surely stopped.

    It stops by itself one interval after it sent the last record that it read back. It sent it before this
    instance read it; so two intervals after that, by this instance's own clock, it has stopped.
    """
    return all(
        former == own.id or now - own.read_at(sequence) >= 2 * world.interval
        for former, sequence in partition.waits.items()
    )


def drained(run: Run) -> bool:
    """Whether a run takes no more messages and everything it began has ended."""
    return run.state != "running" and not run.busy


def drain_time(world: World) -> int:
    """How long handlers may take to end, in milliseconds."""
    return milliseconds(world.config.drain_time) if world.config is not None else 0


def valid(world: World, own: Own) -> Iterator[tuple[Partition, Run]]:
    """The runs under the epochs that this instance's partitions have now."""
    for name, run in own.runs.items():
        partition = world.partitions.get(name)
        if partition is not None and partition.owner == own.id and partition.epoch == run.epoch:
            yield partition, run

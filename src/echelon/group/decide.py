"""What an instance does next: from the world it has read, and its own clock, to actions. Pure.

An instance decides from what it has read back, never from what it has sent; the one exception is a release,
after which nothing more is processed under that epoch. The shell calls `decide` whenever something was read,
sent or finished, and at least eight times an interval; it performs the actions in order.
"""

from collections.abc import Iterator
from typing import Literal

from echelon.group.actions import Action, Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.own import Own, Run
from echelon.group.records import (
    Advance,
    Backlog,
    Claim,
    CutPart,
    Heartbeat,
    Join,
    Leave,
    Progress,
    Record,
    Release,
    StepDown,
    TakeCut,
)
from echelon.group.world import Instance, Partition, World, milliseconds


def decide(world: World, own: Own, now: int) -> list[Action]:
    """The actions of this instance in this world at this moment of its own clock."""
    if world.config is None:
        return []
    if world.deleted:
        return [*(Halt(name) for name, run in own.runs.items() if not drained(run)), Exit("deleted")]
    exit_reason = _must_exit(world, own, now)
    if exit_reason is not None:
        return [Exit(exit_reason)]
    actions: list[Action] = []
    names = {partition.name: None for partition in world.owned(own.id)} | dict.fromkeys(own.runs)
    for name in names:
        run = own.runs.get(name)
        action = _begin(world, own, name, now) if run is None else _next(world, own, name, run, now)
        if action is not None:
            actions.append(action)
    actions.extend(Send(record) for record in _records(world, own, now))
    return actions


def _must_exit(world: World, own: Own, now: int) -> Literal["left", "unread", "stuck"] | None:
    if own.leaving and own.id not in world.instances and not own.runs and (Leave in own.asked or Join not in own.asked):
        return "left"
    if own.leaving and own.lease is not None and own.fenced(3 * world.interval, now) and not _busy(own):
        return "left"  # It cannot say so; but by now it is stale to everybody else.
    if _writes_unread(own, world.interval, now):
        return "unread"
    drain_time = _drain_time(world)
    if any(run.busy and run.state == "halted" and now - run.since > drain_time for run in own.runs.values()):
        return "stuck"
    return None


def _busy(own: Own) -> bool:
    return any(run.busy for run in own.runs.values())


def _writes_unread(own: Own, interval: int, now: int) -> bool:
    """Whether this instance can write but not read: for two intervals its records are stored, and none comes back."""
    if own.unread_since is None or own.acknowledged is None or now - own.acknowledged > interval:
        return False
    return own.fenced(3 * interval, now) and now - own.unread_since > 2 * interval


def _drain_time(world: World) -> int:
    return milliseconds(world.config.drain_time) if world.config is not None else 0


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
    if over or _must_drain(world, own, partition):
        if run.state == "running":
            return Drain(name)
        overdue = run.state == "draining" and run.busy and now - run.since > _drain_time(world)
        return Halt(name) if overdue else None
    return GoOn(name) if drained(run) and may_go_on(run) and world.cut is None else None


def may_go_on(run: Run) -> bool:
    """Whether a run may take messages again: not once a release was sent, which may be accepted at any time."""
    return not run.released


def _must_drain(world: World, own: Own, partition: Partition) -> bool:
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


def _records(world: World, own: Own, now: int) -> Iterator[Record]:
    me = world.instances.get(own.id)
    patience = world.interval // 4
    if me is None:
        if own.leaving:
            if not own.runs and Join in own.asked and Leave not in own.asked:
                yield Leave(group=world.identity, sender=own.id)
        elif _since(own.asked.get(Join), now) >= patience:
            yield own.join(world)
        return
    if own.rejoin and me.stepped_down and _since(own.asked.get(Join), now) >= patience:
        yield own.join(world)
    released = _release(world, own, now, patience)
    if released is not None:
        yield released
    part = _cut_part(world, own, now, patience)
    if part is not None:
        yield part
    advanced = _advance(world, own, now, patience)
    if advanced is not None:
        yield advanced
    moved = _go(world, own, now, patience) if own.leaving else _claim(world, own, me, now, patience)
    if moved is not None:
        yield moved
    yield from _chair(world, own, now)
    yield from _proofs(world, own, now, patience)
    beat = _heartbeat(world, own, now)
    if beat is not None:
        yield beat


def _proofs(world: World, own: Own, now: int, patience: int) -> Iterator[Leave]:
    """That processes are gone which this instance has seen end; repeated until it is read back."""
    for gone in own.gone & world.instances.keys():
        if _since(own.told.get(gone), now) >= patience:
            yield Leave(group=world.identity, sender=own.id, gone=gone)


def _valid_runs(world: World, own: Own) -> Iterator[tuple[Partition, Run]]:
    """The runs under the epochs that this instance's partitions have now."""
    for name, run in own.runs.items():
        partition = world.partitions.get(name)
        if partition is not None and partition.owner == own.id and partition.epoch == run.epoch:
            yield partition, run


def _since(then: int | None, now: int) -> int:
    return now - then if then is not None else 1 << 62


def _claim(world: World, own: Own, me: Instance, now: int, patience: int) -> Claim | None:
    if _since(own.asked.get(Claim), now) < patience or world.seat_of(me.id) is not None:
        return None
    members = [me.member] if me.member is not None else sorted(world.seats)
    for member in members:
        seat = world.seats.get(member)
        if seat is not None and world.claimable(seat, me) and not _others_first(world, member, me):
            return Claim(group=world.identity, sender=own.id, member=member)
    return None


def _go(world: World, own: Own, now: int, patience: int) -> Record | None:
    """The way out: give up the seat, so that its partitions go elsewhere once they are released; then leave."""
    seat = world.seat_of(own.id)
    if seat is not None:
        due = _since(own.asked.get(StepDown), now) >= patience
        return StepDown(group=world.identity, sender=own.id, read=world.sequence, epoch=seat.epoch) if due else None
    if own.runs or any(True for _ in world.owned(own.id)) or _since(own.asked.get(Leave), now) < patience:
        return None
    return Leave(group=world.identity, sender=own.id)


def _others_first(world: World, member: str, me: Instance) -> bool:
    """Whether somebody with a better right to a vacant seat is there to claim it: better priority, or just for it."""
    right = (me.profile.priority, me.member is None)
    return any(
        (other.profile.priority, other.member is None) < right
        and world.fresh(other)
        and not other.leaving
        and world.claimable(world.seats[member], other)
        for other in world.instances.values()
        if other.id != me.id
    )


def _release(world: World, own: Own, now: int, patience: int) -> Release | None:
    """The release of all partitions that are drained and must go; repeated until it is read back."""
    progress: dict[str, Progress] = {}
    for partition in world.owned(own.id):
        waiting = partition.name not in own.runs
        if waiting and must_release(world, own, partition) and waited(world, own, partition, now):
            progress[partition.name] = Progress(partition.epoch, partition.position)
    for partition, run in _valid_runs(world, own):
        if drained(run) and (run.released or must_release(world, own, partition)):
            known = Progress(run.epoch, run.position, run.parked)
            progress[partition.name] = known if run.ready else Progress(run.epoch, partition.position)
    urgent = any(name in own.runs and own.runs[name].asked is None for name in progress)
    if progress and (urgent or _since(own.asked.get(Release), now) >= patience):
        return Release(group=world.identity, sender=own.id, progress=progress)
    return None


def drained(run: Run) -> bool:
    """Whether a run takes no more messages and everything it began has ended."""
    return run.state != "running" and not run.busy


def _cut_part(world: World, own: Own, now: int, patience: int) -> CutPart | None:
    cut = world.cut
    if cut is None:
        return None
    progress: dict[str, Progress] = {}
    states: dict[str, bytes] = {}
    for partition, run in _valid_runs(world, own):
        name = partition.name
        if drained(run) and run.ready and not run.released and name not in cut.parts:
            progress[name] = Progress(run.epoch, run.position, run.parked)
            if run.state_at_cut is not None:
                states[name] = run.state_at_cut
    urgent = any(own.runs[name].asked is None for name in progress)
    if progress and (urgent or _since(own.asked.get(CutPart), now) >= patience):
        return CutPart(group=world.identity, sender=own.id, cut=cut.sequence, progress=progress, states=states)
    return None


def _advance(world: World, own: Own, now: int, patience: int) -> Advance | None:
    """The announcement of batches that are about to be processed; repeated until it is read back.

    Not where the run ends with this very decision: its worker will have stopped when the record is sent.
    """
    if own.fenced(world.interval, now):
        return None
    late = _since(own.asked.get(Advance), now) >= patience
    progress: dict[str, Progress] = {}
    for partition, run in _valid_runs(world, own):
        due = run.wanted > partition.position and (late or run.wanted != run.advanced)
        if due and run.state == "running" and not _must_drain(world, own, partition):
            progress[partition.name] = Progress(run.epoch, run.wanted)
    return Advance(group=world.identity, sender=own.id, progress=progress) if progress else None


def _chair(world: World, own: Own, now: int) -> Iterator[Record]:
    """What one instance does for the group: snapshots, and cuts every so often."""
    if own.picture is not None and _since(own.asked.get(type(own.picture)), now) >= world.interval:
        yield own.picture
    every = world.config.cut_every if world.config is not None else None
    if every is None or world.cut is not None or world.paused is not None or world.chair() != own.id:
        return
    if world.time - world.last_cut >= milliseconds(every) and _since(own.asked.get(TakeCut), now) >= world.interval:
        yield TakeCut(group=world.identity, sender=own.id, read=world.sequence, periodic=True)


def _heartbeat(world: World, own: Own, now: int) -> Heartbeat | None:
    period = world.interval // 4
    progress = _progress(world, own)
    due = _since(own.last_sent, now) >= period
    if due or (progress and _since(own.asked.get(Heartbeat), now) >= min(period, 1000)):
        return Heartbeat(group=world.identity, sender=own.id, progress=progress, backlog=_backlog(world, own))
    return None


def _progress(world: World, own: Own) -> dict[str, Progress]:
    """Progress where it differs from the world as read back."""
    assert world.config is not None
    first_counts = world.config.delivery == "exactly_once"
    progress: dict[str, Progress] = {}
    for partition, run in _valid_runs(world, own):
        if not run.ready:
            continue
        # Parked keys travel with every position: what was read back may be lost with the log's tail.
        parked = run.parked if run.parked or partition.parked else None
        news = run.position > partition.done or (run.parked is not None and run.parked != partition.parked)
        if news or (first_counts and not partition.reported):
            progress[partition.name] = Progress(run.epoch, run.position, parked)
    return progress


def _backlog(world: World, own: Own) -> dict[str, Backlog]:
    """Backlog where it differs: of its own partitions, and (from one instance) of those that nobody owns."""
    seen = {partition.name: Backlog(run.pending, run.in_flight) for partition, run in _valid_runs(world, own)}
    if own.backlog and world.chair() == own.id:
        free = {partition.name for partition in world.partitions.values() if partition.owner is None}
        seen |= {name: Backlog(own.backlog[name]) for name in free & own.backlog.keys()}
    return {
        name: backlog
        for name, backlog in seen.items()
        if (backlog.pending, backlog.in_flight) != (world.partitions[name].pending, world.partitions[name].in_flight)
    }

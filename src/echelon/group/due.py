"""The records that an instance is due to write now. Pure."""

from collections.abc import Iterator

from echelon.group import runs
from echelon.group.own import Own
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
from echelon.group.world import Instance, World, milliseconds


def records(world: World, own: Own, now: int) -> Iterator[Record]:
    """What this instance is to write, in this order. What is not read back soon comes again."""
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


def _release(world: World, own: Own, now: int, patience: int) -> Release | None:
    """The release of all partitions that are drained and must go; repeated until it is read back."""
    progress: dict[str, Progress] = {}
    for partition in world.owned(own.id):
        waiting = partition.name not in own.runs
        if waiting and runs.must_release(world, own, partition) and runs.waited(world, own, partition, now):
            progress[partition.name] = Progress(partition.epoch, partition.position)
    for partition, run in runs.valid(world, own):
        if runs.drained(run) and (run.released or runs.must_release(world, own, partition)):
            known = Progress(run.epoch, run.position, run.parked)
            progress[partition.name] = known if run.ready else Progress(run.epoch, partition.position)
    urgent = any(name in own.runs and own.runs[name].asked is None for name in progress)
    if progress and (urgent or _since(own.asked.get(Release), now) >= patience):
        return Release(group=world.identity, sender=own.id, progress=progress)
    return None


def _cut_part(world: World, own: Own, now: int, patience: int) -> CutPart | None:
    cut = world.cut
    if cut is None:
        return None
    progress: dict[str, Progress] = {}
    states: dict[str, bytes] = {}
    for partition, run in runs.valid(world, own):
        name = partition.name
        if runs.drained(run) and run.ready and not run.released and name not in cut.parts:
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
    for partition, run in runs.valid(world, own):
        due = run.wanted > partition.position and (late or run.wanted != run.advanced)
        if due and run.state == "running" and not runs.must_drain(world, own, partition):
            progress[partition.name] = Progress(run.epoch, run.wanted)
    return Advance(group=world.identity, sender=own.id, progress=progress) if progress else None


def _go(world: World, own: Own, now: int, patience: int) -> Record | None:
    """The way out: give up the seat, so that its partitions go elsewhere once they are released; then leave."""
    seat = world.seat_of(own.id)
    if seat is not None:
        due = _since(own.asked.get(StepDown), now) >= patience
        return StepDown(group=world.identity, sender=own.id, read=world.sequence, epoch=seat.epoch) if due else None
    if own.runs or any(True for _ in world.owned(own.id)) or _since(own.asked.get(Leave), now) < patience:
        return None
    return Leave(group=world.identity, sender=own.id)


def _claim(world: World, own: Own, me: Instance, now: int, patience: int) -> Claim | None:
    if _since(own.asked.get(Claim), now) < patience or world.seat_of(me.id) is not None:
        return None
    members = [me.member] if me.member is not None else sorted(world.seats)
    for member in members:
        seat = world.seats.get(member)
        if seat is not None and world.claimable(seat, me) and not _others_first(world, member, me):
            return Claim(group=world.identity, sender=own.id, member=member)
    return None


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


def _chair(world: World, own: Own, now: int) -> Iterator[Record]:
    """What one instance does for the group: snapshots, and cuts every so often."""
    if own.picture is not None and _since(own.asked.get(type(own.picture)), now) >= world.interval:
        yield own.picture
    every = world.config.cut_every if world.config is not None else None
    if every is None or world.cut is not None or world.paused is not None or world.chair() != own.id:
        return
    if world.time - world.last_cut >= milliseconds(every) and _since(own.asked.get(TakeCut), now) >= world.interval:
        yield TakeCut(group=world.identity, sender=own.id, read=world.sequence, periodic=True)


def _proofs(world: World, own: Own, now: int, patience: int) -> Iterator[Leave]:
    """That processes are gone which this instance has seen end; repeated until it is read back."""
    for gone in own.gone & world.instances.keys():
        if _since(own.told.get(gone), now) >= patience:
            yield Leave(group=world.identity, sender=own.id, gone=gone)


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
    for partition, run in runs.valid(world, own):
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
    seen = {partition.name: Backlog(run.pending, run.in_flight) for partition, run in runs.valid(world, own)}
    if own.backlog and world.chair() == own.id:
        free = {partition.name for partition in world.partitions.values() if partition.owner is None}
        seen |= {name: Backlog(own.backlog[name]) for name in free & own.backlog.keys()}
    return {
        name: backlog
        for name, backlog in seen.items()
        if (backlog.pending, backlog.in_flight) != (world.partitions[name].pending, world.partitions[name].in_flight)
    }


def _since(then: int | None, now: int) -> int:
    return now - then if then is not None else 1 << 62

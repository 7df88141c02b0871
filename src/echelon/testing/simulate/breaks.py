"""Deliberate breakages of the protocol, to show that the simulator can fail.

Each replaces a rule by a plausible mistake while `broken` is entered. A breakage that no schedule catches would
mean that its rule is not needed, or that the simulator does not look.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct, structs

from echelon.group import cuts, delivery, fold, newcomer, partitions, runs, seats, world
from echelon.group.delivery import SinkState
from echelon.group.own import Own, Run
from echelon.group.records import AnyRecord, Heartbeat, Newer, Progress, Record, Reset
from echelon.group.world import Instance, Partition, Seat, World
from echelon.model import Entry
from echelon.testing.simulate import ending, process
from echelon.testing.simulate.process import Process

# The rules as they are, for breakages that call them.
_apply = fold.apply
_counts = fold.counts
_give = partitions.give
_reset = cuts.reset
_heard = Own.heard
_take = Process._take
_leaves = World.leaves


class Break(Struct, frozen=True):
    """A breakage: what is replaced, by what, and which rule that breaks."""

    rule: str
    patches: tuple[tuple[Any, str | type, Any], ...]


def _owns_any_epoch(partition: Partition, _sender: str, progress: Progress) -> bool:
    return partition.owner is not None and progress.epoch <= partition.epoch


def _take_by_own_clock(self: Process, entry: Entry) -> None:
    _take(self, structs.replace(entry, time=self.clock()))
    self.last_entry = entry


def _never_fenced(self: Own, _interval: int, _now: int) -> bool:
    return self.lease is None


def _heard_renews_now(
    self: Own, known: World, entry: Entry, record: AnyRecord | Newer | None, *, counted: bool, now: int
) -> None:
    lease = self.lease
    _heard(self, known, entry, record, counted=counted, now=now)
    if self.lease != lease:
        self.lease = now


def _waited_for_nobody(_world: World, _own: Own, _partition: Partition, _now: int) -> bool:
    return True


def _drained_at_once(run: Run) -> bool:
    return run.state != "running"


def _heartbeat_overwrites(known: World, record: Heartbeat) -> bool:
    for name, progress in record.progress.items():
        partition = known.partitions[name]
        partition.owner, partition.position, partition.done = record.sender, progress.position, progress.position
    return bool(record.progress)


def _give_from_start(known: World, partition: Partition, holder: Instance) -> None:
    _give(known, partition, holder)
    if known.config is not None:
        partition.position = partition.done = known.config.positions[partition.name]


def _move_time_freely(known: World, broker_time: int) -> None:
    known.time += max(0, broker_time - known.broker_time) if known.broker_time else 0
    known.broker_time = broker_time


def _apply_readable(known: World, entry: Entry, record: AnyRecord | Newer | None) -> bool:
    if record is None:
        known.sequence = entry.sequence
        return False
    return _apply(known, entry, record)


def _open_ignoring_reset(state: SinkState, *, epoch: int, reset: int, position: int) -> SinkState | None:
    del reset
    if epoch < state.fence:
        return None
    at = state.position if state.position is not None else position
    return SinkState(fence=epoch, committed=state.committed, position=at)


def _open_any_epoch(state: SinkState, *, epoch: int, reset: int, position: int) -> SinkState | None:
    log_wins = state.position is None or state.committed < reset
    return SinkState(fence=epoch, committed=state.committed, position=position if log_wins else state.position)


def _commit_anywhere(state: SinkState, *, epoch: int, begin: int, end: int) -> SinkState | None:
    del begin
    return SinkState(fence=epoch, committed=epoch, position=end) if epoch == state.fence else None


def _world_by_place(entries: Sequence[Entry], *, from_start: bool) -> World | None:
    found = newcomer._snapshots(entries)
    if not found:
        return fold.fold(entries) if from_start else None
    last = max(index for index, entry in enumerate(entries) if newcomer._SNAPSHOT in entry.data[:64])
    return fold.fold(entries[last + 1 :], world.load(found[-1].world))


def _always_go_on(_run: Run) -> bool:
    return True


def _renew_the_dead(known: World) -> None:
    for instance in known.instances.values():
        instance.stale = False
        instance.last = known.time


def _give_without_wait(known: World, partition: Partition, holder: Instance) -> None:
    if partition.epoch == partition.reset:
        partition.waits = {}
    newest = max(partition.waits.values(), default=0)
    partition.waits = {name: at for name, at in partition.waits.items() if at == newest}
    _give(known, partition, holder)


def _reset_without_wait(known: World, record: Reset) -> bool:
    changed = _reset(known, record)
    for name in record.positions:
        if name in known.partitions:
            known.partitions[name].waits = {}
    return changed


def _reset_in_epoch(known: World, record: Reset) -> bool:
    epochs = {name: partition.epoch for name, partition in known.partitions.items()}
    changed = _reset(known, record)
    for name, partition in known.partitions.items():
        partition.epoch = epochs[name]
    return changed


def _counts_repeated(known: World, record: Record) -> bool:
    sender = known.senders.get(record.sender)
    if sender is not None:
        sender.counter = min(sender.counter, record.counter - 1)
    return _counts(known, record)


def _claim_any(self: World, seat: Seat, instance: Instance) -> bool:
    return self.seat_of(instance.id) is None and (instance.member or seat.member) == seat.member


def _holder_even_stale(self: World, member: str | None) -> Instance | None:
    seat = self.seats.get(member or "")
    return self.instances.get(seat.holder or "") if seat is not None else None


def _everything_moves(self: World, partition: Partition) -> bool:
    return any(_leaves(self, other) for other in self.partitions.values() if other.owner == partition.owner)


def _hold_nothing(_world: World) -> None:
    return


def _forget_parked(known: World, partition: Partition, holder: Instance) -> None:
    _give(known, partition, holder)
    partition.parked = {}


def _fold_without_assigning_to_cut(known: World, partition: Partition) -> bool:
    del known, partition
    return False


def _ground_is_firm(_self: Process) -> bool:
    return False


def _stale_without_loss(_world: World, _instance: str) -> None:
    return


BREAKS: Final[dict[str, Break]] = {
    "accept-old-epochs": Break(
        "progress counts only under the partition's epoch",
        ((partitions, "owns", _owns_any_epoch), (cuts, "owns", _owns_any_epoch)),
    ),
    "reader-clock": Break("time is the broker's, never a reader's", ((Process, "_take", _take_by_own_clock),)),
    "no-self-fencing": Break("who cannot see its own records stops", ((Own, "fenced", _never_fenced),)),
    "fence-from-reading": Break(
        "the lease runs from sending, not from reading back", ((Own, "heard", _heard_renews_now),)
    ),
    "start-at-once": Break("whoever gains what was not released waits", ((runs, "waited", _waited_for_nobody),)),
    "release-before-draining": Break("what is released is drained", ((runs, "drained", _drained_at_once),)),
    "heartbeat-overwrites": Break(
        "a heartbeat gives nobody a partition", ((fold._EFFECTS, Heartbeat, _heartbeat_overwrites),)
    ),
    "forget-positions": Break("a new owner goes on at the position", ((partitions, "give", _give_from_start),)),
    "no-time-clamp": Break("a step of time is limited", ((fold, "move_time", _move_time_freely),)),
    "unreadable-without-time": Break(
        "every record moves time", ((fold, "apply", _apply_readable), (process, "apply", _apply_readable))
    ),
    "sink-over-reset": Break(
        "a reset wins over the sink's older position", ((delivery, "open_epoch", _open_ignoring_reset),)
    ),
    "sink-without-fence": Break(
        "a sink refuses an epoch older than its own", ((delivery, "open_epoch", _open_any_epoch),)
    ),
    "commit-anywhere": Break("a commit begins where the sink stands", ((delivery, "commit", _commit_anywhere),)),
    "snapshot-by-place": Break(
        "a snapshot counts by its as-of",
        (
            (newcomer, "world_of", _world_by_place),
            (process, "world_of", _world_by_place),
            (ending, "world_of", _world_by_place),
        ),
    ),
    "go-on-after-release": Break("after a release nothing is processed", ((runs, "may_go_on", _always_go_on),)),
    "outage-raises-dead": Break("an outage renews only who was not stale", ((fold, "renew_all", _renew_the_dead),)),
    "forget-wait": Break(
        "a new epoch does not end the wait",
        ((partitions, "give", _give_without_wait), (fold._EFFECTS, Reset, _reset_without_wait)),
    ),
    "reset-in-epoch": Break("a reset fences what is in flight", ((fold._EFFECTS, Reset, _reset_in_epoch),)),
    "count-repeated": Break("late and repeated records do nothing", ((fold, "counts", _counts_repeated),)),
    "claim-any-seat": Break("only a vacant seat is claimed", ((World, "claimable", _claim_any),)),
    "give-to-stale": Break("a stale holder is given nothing", ((World, "holder", _holder_even_stale),)),
    "stop-the-world": Break("what does not move is not touched", ((World, "leaves", _everything_moves),)),
    "growth-at-once": Break("added partitions wait for the old ones", ((partitions, "_hold_added", _hold_nothing),)),
    "forget-parked": Break("parked keys travel with the position", ((partitions, "give", _forget_parked),)),
    "cut-guesses-sink": Break(
        "only an owner can tell where a sink stands",
        (
            (partitions, "needs_owner", _fold_without_assigning_to_cut),
            (cuts, "needs_owner", _fold_without_assigning_to_cut),
        ),
    ),
    "trust-the-ground": Break(
        "who slept checks that the log is the one it read", ((Process, "_ground_is_gone", _ground_is_firm),)
    ),
    "keep-stale-owner": Break("the partitions of a stale owner are free", ((seats, "lose_all", _stale_without_loss),)),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break a rule while this is entered. Raises KeyError for an unknown name."""
    undo: list[tuple[Any, str | type, Any]] = []
    for target, key, replacement in BREAKS[name].patches:
        if isinstance(target, dict):
            undo.append((target, key, target[key]))
            target[key] = replacement
        else:
            undo.append((target, key, getattr(target, str(key))))
            setattr(target, str(key), replacement)
    try:
        yield
    finally:
        for target, key, original in undo:
            if isinstance(target, dict):
                target[key] = original
            else:
                setattr(target, str(key), original)

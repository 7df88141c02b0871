"""The invariants while a schedule runs. They look at what really happened, in virtual time, and at a reference world.

The reference world reads every record at once, as a reader of a newer version would: what others cannot read,
it can, and ignores. After a log lost its tail, what was agreed on is void, and some checks rest.
"""

from collections import defaultdict
from typing import TYPE_CHECKING

from echelon.group.fold import apply, fold
from echelon.group.own import Run
from echelon.group.records import VERSION, AnyRecord, CutPart, Heartbeat, Newer, Record, Release, Reset
from echelon.group.world import Cut, Partition, World
from echelon.model import Entry
from echelon.testing.simulate.plan import INTERVAL

if TYPE_CHECKING:
    from echelon.testing.simulate.process import Handler, Process
    from echelon.testing.simulate.schedule import Schedule

Before = tuple[str | None, int, int, dict[str, int]]
"""Of a partition before a record: owner, epoch, position, parked keys."""


class Violation(Exception):
    """An invariant does not hold."""


class Checks:
    """The invariants of one schedule while it runs. Each method that is called by the schedule raises Violation."""

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.world = World()
        self.lost_tail = False
        self.active: dict[str, list[Handler]] = defaultdict(list)
        self.owners: dict[tuple[str, int], str] = {}
        self.begins: dict[tuple[str, int], int] = {}
        """Where an epoch of a partition begins."""
        self.done: dict[tuple[str, int, str], set[int]] = defaultdict(set)
        self.seen: dict[tuple[str, int], set[int]] = defaultdict(set)
        """At most once: what was begun, by partition and how often it was reset."""
        self.resets: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.expected: dict[str, int] = {}
        """Exactly once: the next message that the sink must take."""
        self.last_commit: dict[str, int] = defaultdict(int)
        self.opened_epoch: dict[str, int] = defaultdict(int)
        self.late_commits: set[str] = set()
        """Partitions whose sink took a commit late, after its owner had opened it anew."""
        self.given_up: set[tuple[str, str, int]] = set()
        self.starts: set[tuple[str, str, int]] = set()

    def fail(self, what: str) -> None:
        """An invariant does not hold."""
        raise Violation(what)

    # The log

    def stored(self, entry: Entry) -> None:
        """A record was stored: apply it to the reference world and compare before and after."""
        world = self.world
        record = self._as_newer_version(self.schedule.log.records[entry.sequence])
        stale = {instance.id for instance in world.instances.values() if instance.stale}
        before: dict[str, Before] = {
            p.name: (p.owner, p.epoch, p.position, dict(p.parked)) for p in world.partitions.values()
        }
        holders = {seat.member: seat.holder for seat in world.seats.values()}
        cuts = set(world.cuts)
        counted = apply(world, entry, record)
        for partition in world.partitions.values():
            if partition.name in before:
                self._check_ownership(partition, before[partition.name], record)
                self._check_position(partition, before[partition.name], record)
            self._note_epoch(partition)
        self._check_liveness(stale, record, holders)
        if counted and isinstance(record, Reset):
            self._check_reset(record)
        if self.schedule.exactly_once and not self.lost_tail:
            for cut in world.cuts.keys() - cuts:
                self._check_cut(world.cuts[cut])

    def _as_newer_version(self, record: AnyRecord | Newer | None) -> AnyRecord | Newer:
        unknown = Heartbeat(group=self.world.identity, sender="newer", counter=1, version=VERSION + 1)
        return unknown if record is None else record

    def _check_ownership(self, partition: Partition, before: Before, record: Record) -> None:
        owner, epoch, _, _ = before
        name = partition.name
        if partition.epoch < epoch:
            self.fail(f"the epoch of partition {name} went back from {epoch} to {partition.epoch}")
        if partition.owner is None or partition.epoch == epoch:
            if partition.owner not in (None, owner):
                self.fail(f"partition {name} went from {owner} to {partition.owner} within epoch {epoch}")
            return
        known = self.owners.get((name, partition.epoch))
        if known not in (None, partition.owner):
            self.fail(f"partition {name} has two owners in epoch {epoch}: {known} and {partition.owner}")
        # Its own record may have released it, or come so late that it was lost and regained with it.
        if owner == partition.owner and partition.reset != partition.epoch and record.sender != owner:
            self.fail(f"partition {name} did not move, and yet its epoch changed from {epoch} to {partition.epoch}")

    def _note_epoch(self, partition: Partition) -> None:
        if partition.owner is not None:
            self.owners[partition.name, partition.epoch] = partition.owner
        self.begins.setdefault((partition.name, partition.epoch), partition.position)
        self.expected.setdefault(partition.name, partition.position)
        if partition.reset and (
            not self.resets[partition.name] or self.resets[partition.name][-1][0] < partition.reset
        ):
            self.resets[partition.name].append((partition.reset, partition.position))

    def _check_position(self, partition: Partition, before: Before, record: Record) -> None:
        owner, epoch, position, parked = before
        name = partition.name
        if partition.reset == self.world.sequence:
            return
        if partition.position < position and not self.lost_tail:
            self.fail(f"the position of partition {name} went back from {position} to {partition.position}")
        if partition.position == position and partition.parked == parked:
            return
        if record.sender != owner:
            self.fail(f"partition {name} is owned by {owner}, and {record.sender} moved it to {partition.position}")
        if self.schedule.exactly_once:
            state = self.schedule.sink.states[name]
            if state.committed >= partition.reset and partition.position > (state.position or 0):
                self.fail(f"partition {name} is at {partition.position}, and its sink only at {state.position}")
        elif not self.schedule.at_most_once:
            waiting = set(parked.values()) - set(partition.parked.values())
            self._check_processed(partition, epoch, owner or "", {*range(position, partition.position), *waiting})

    def _check_processed(self, partition: Partition, epoch: int, owner: str, messages: set[int]) -> None:
        missing = messages - self.done[partition.name, epoch, owner] - set(partition.parked.values())
        if missing:
            self.fail(f"partition {partition.name} counts {min(missing)} as processed, which {owner} has not done")

    def _check_liveness(self, stale: set[str], record: Record, holders: dict[str, str | None]) -> None:
        for instance in self.world.instances.values():
            if instance.stale and instance.id not in stale:
                process = self.schedule.processes.get(instance.id)
                if process is not None and process.up and self.schedule.now - process.troubled > 4 * INTERVAL:
                    self.fail(f"{instance.id} is well, and yet counts as stale")
            if not instance.stale and instance.id in stale and record.sender != instance.id:
                self.fail(f"{instance.id} was stale, and is not any more, though it wrote nothing")
        for seat in self.world.seats.values():
            before = holders.get(seat.member)
            if seat.holder != before and seat.holder is not None and seat.epoch != self.world.sequence:
                self.fail(f"seat {seat.member} went from {before} to {seat.holder} without a new epoch")
            if self.schedule.plan.calm and before is not None and seat.holder != before:
                self.fail(f"seat {seat.member} went from {before} to {seat.holder}, though only the broker had trouble")

    def _check_cut(self, cut: Cut) -> None:
        """All have drained: what the sink holds is what the cut says."""
        for name, part in cut.parts.items():
            state = self.schedule.sink.states.get(name)
            if state is None or state.committed < self.world.partitions[name].reset:
                continue
            if name in self.late_commits:
                # A commit without an answer was done in the end, after the owner had looked where the sink stands.
                # A reset to the cut takes it back.
                continue
            if state.position != part.position:
                self.fail(
                    f"cut {cut.sequence} has partition {name} at {part.position}, its sink is at {state.position}"
                )

    def _check_reset(self, record: Reset) -> None:
        if record.cut is not None and record.cut not in self.world.cuts:
            return
        for name in record.positions.keys() & self.world.partitions.keys():
            if self.world.partitions[name].epoch != self.world.sequence:
                self.fail(f"a reset of partition {name} fences nothing: its epoch did not change")
        cut = self.world.cuts.get(record.cut or 0)
        for name, part in cut.parts.items() if cut is not None else ():
            if name in record.positions and self.world.partitions[name].position != part.position:
                self.fail(f"a reset to cut {record.cut} set partition {name} elsewhere than the cut has it")

    def tail_lost(self) -> None:
        """The log lost its newest records: what follows from them was never agreed on."""
        self.lost_tail = True
        self.world = fold(self.schedule.log.archive)
        last = self.schedule.log.last
        self.owners = {key: owner for key, owner in self.owners.items() if key[1] <= last}
        self.begins = {key: begin for key, begin in self.begins.items() if key[1] <= last}
        for name, resets in self.resets.items():
            self.resets[name] = [reset for reset in resets if reset[0] <= last]

    # What processes do

    def started(self, process: "Process", name: str, epoch: int, position: int) -> None:
        """A process starts a partition."""
        if (process.id, name, epoch) in self.given_up and not self.lost_tail:
            self.fail(f"{process.id} starts partition {name} under epoch {epoch}, which it has released")
        again = (process.id, name, epoch) in self.starts
        self.starts.add((process.id, name, epoch))
        begins = self.begins.get((name, epoch))
        if begins is not None and begins != position and not again and not self.lost_tail:
            self.fail(f"{process.id} starts partition {name} at {position}; epoch {epoch} begins at {begins}")

    def began(self, handler: "Handler") -> None:
        """A handler begins."""
        name, epoch = handler.partition, handler.epoch
        for other in self.active[name]:
            if other.process != handler.process and not other.frozen and not self.lost_tail:
                self.fail(f"{handler.process} and {other.process} process partition {name} at the same time")
        self.active[name].append(handler)
        if (handler.process, name, epoch) in self.given_up and not self.lost_tail:
            self.fail(f"{handler.process} processes partition {name} under epoch {epoch}, which it has released")
        if not self.lost_tail:
            self._check_growth(handler)
        if self.schedule.at_most_once and not self.lost_tail:
            times_reset = sum(reset <= epoch for reset, _ in self.resets[name])
            seen = self.seen[name, times_reset]
            again = seen & set(range(handler.begin, handler.end))
            if again:
                self.fail(f"{handler.process} processes message {min(again)} of partition {name} a second time")
            seen.update(range(handler.begin, handler.end))

    def _check_growth(self, handler: "Handler") -> None:
        """A partition that was added is not processed before the old ones have passed their ends recorded then."""
        config = self.world.config
        for ends in config.ends if config is not None else ():
            for name, end in ends.items() if handler.partition not in ends else ():
                old = self.world.partitions[name]
                if old.done < end and old.reset <= handler.epoch:
                    self.fail(
                        f"added partition {handler.partition} is processed, and {name} is at {old.done}, not {end}"
                    )

    def ended(self, handler: "Handler") -> None:
        """A handler has ended, however."""
        self.active[handler.partition].remove(handler)

    def completed(self, handler: "Handler") -> None:
        """A handler has ended well: its messages are processed, but for those it parked."""
        messages = set(range(handler.begin, handler.end)) - set((handler.run.parked or {}).values())
        self.done[handler.partition, handler.epoch, handler.process] |= messages

    def unparked(self, process: "Process", name: str, run: Run, sequence: int) -> None:
        """A parked message was processed at last."""
        self.done[name, run.epoch, process.id].add(sequence)

    def opened(self, name: str, epoch: int) -> None:
        """A new owner's epoch was written into the sink: after a reset, the sink goes on where the reset says."""
        self.opened_epoch[name] = max(epoch, self.opened_epoch[name])
        self.late_commits.discard(name)
        for reset, position in self.resets[name]:
            if self.last_commit[name] < reset <= epoch:
                self.expected[name] = position

    def committed(self, handler: "Handler") -> None:
        """The sink took a batch."""
        name = handler.partition
        if handler.begin != self.expected[name]:
            what = "again" if handler.begin < self.expected[name] else "too early"
            self.fail(
                f"the sink took message {handler.begin} of partition {name} {what}; {self.expected[name]} is next"
            )
        if handler.epoch < self.opened_epoch[name]:
            self.fail(f"the sink took a batch under epoch {handler.epoch}; {self.opened_epoch[name]} has begun there")
        self.expected[name] = handler.end
        self.last_commit[name] = handler.epoch
        if handler.over and handler.ends_at < self.schedule.now:
            self.late_commits.add(name)

    def sent(self, process: "Process", record: Record) -> None:
        """A process sends a record."""
        if not isinstance(record, Release | CutPart):
            return
        for name, progress in record.progress.items():
            handler = process.handlers.get(name)
            if handler is not None:
                self.fail(f"{process.id} hands over partition {name} while it still processes {handler.begin}")
            if isinstance(record, Release):
                self.given_up.add((process.id, name, progress.epoch))

    def interrupted(self, process: "Process", name: str) -> None:
        """A process stops taking messages of a partition that it owns."""
        world, run = process.world, process.own.runs[name]
        seat = world.seats.get(world.partitions[name].seat or "")
        stays = seat is not None and seat.holder == process.id and not world.partitions[name].held
        stays &= run.epoch == world.partitions[name].epoch
        if stays and world.paused is None and world.cut is None and not process.own.leaving and not run.refused:
            self.fail(f"{process.id} drains partition {name}, which does not move")

"""A simulated process: the real `decide` and the real fold, with handlers, a clock and a network that can fail."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from echelon.group.actions import Action, Close, Drain, Exit, GoOn, Halt, Send, Start
from echelon.group.decide import decide
from echelon.group.fold import apply
from echelon.group.newcomer import world_of
from echelon.group.own import Own, Run
from echelon.group.records import encode
from echelon.group.world import World
from echelon.model import Entry
from echelon.testing.simulate.plan import INTERVAL

if TYPE_CHECKING:
    from echelon.testing.simulate.schedule import Schedule

STEP = INTERVAL // 5
"""How often a process looks around when nothing wakes it."""
BATCH = 3


class Handler(Struct):
    """A batch of messages under way. `frozen`: its process was suspended meanwhile, so it may end late."""

    process: str
    partition: str
    run: Run
    epoch: int
    begin: int
    end: int
    ends_at: int
    cancelled: bool = False
    frozen: bool = False
    over: bool = False


class Process:
    """One instance. Its clock runs at a rate of its own; `alive` and `suspended` are the process's state."""

    def __init__(self, schedule: "Schedule", own: Own, *, rate: float, offset: int) -> None:
        self.schedule = schedule
        self.own = own
        self.rate = rate
        self.offset = offset
        self.world = World()
        self.alive = True
        self.suspended = False
        self.can_read = True
        self.can_write = True
        self.read_delay = 0
        self.troubled = schedule.now
        """When a fault last touched this process."""
        self.last_entry: Entry | None = None
        self.last_read = 0
        self.handlers: dict[str, Handler] = {}
        self.next_wake = 0
        self.last_arrival = 0

    @property
    def id(self) -> str:
        """The instance's id."""
        return self.own.id

    @property
    def up(self) -> bool:
        """Whether it runs: neither gone nor suspended."""
        return self.alive and not self.suspended

    def clock(self) -> int:
        """The process's own monotonic clock."""
        return self.offset + int(self.schedule.now * self.rate)

    def wake(self) -> None:
        """Read what there is, decide, act, and process messages."""
        if not self.up:
            return
        self._read()
        for _ in range(5):
            actions = decide(self.world, self.own, self.clock())
            for action in actions:
                self._act(action)
            if not actions or not self.alive:
                break
        if not self.alive:
            return
        for partition, run in list(self.own.runs.items()):
            self._work(partition, run)
        self._sleep()

    def _sleep(self) -> None:
        pause = self.schedule.rng.randint(STEP // 2, STEP)
        if self.own.lease is not None:
            left = int((self.own.lease + self.world.interval + 1 - self.clock()) / self.rate) + 1
            pause = min(pause, left) if left > 0 else pause
        self.schedule.wake_at(self, self.schedule.now + pause)

    def _read(self) -> None:
        log, now = self.schedule.log, self.schedule.now
        if not self.can_read or log.down_until > now:
            return
        if self.last_entry is None or (now - self.last_read >= INTERVAL and self._ground_is_gone()):
            self._start_over()
            return
        index = log.index_after(self.last_entry.sequence)
        while index < len(log.archive) and log.stored_at[index] + self.read_delay <= now:
            self._take(log.archive[index])
            index += 1

    def _ground_is_gone(self) -> bool:
        """Whether the last record that was applied is no longer in the log: it was trimmed, or lost its tail."""
        return self.last_entry is not None and not self.schedule.log.holds(self.last_entry)

    def catch_up(self) -> None:
        """Read all that there is, and do nothing about it."""
        if self.up:
            self._read()

    def reconnect(self) -> None:
        """The connection was lost and is back: look whether the log is still the one that was read."""
        self.last_read = self.schedule.now - INTERVAL
        self.troubled = self.schedule.now

    def _take(self, entry: Entry) -> None:
        record = self.schedule.log.records[entry.sequence]
        counted = apply(self.world, entry, record)
        self.own.heard(self.world, entry, record, counted=counted, now=self.clock())
        self.last_entry = entry
        self.last_read = self.schedule.now

    def _start_over(self) -> None:
        """Begin to read, from a snapshot where there is one; whatever ran before ends and counts no more."""
        entries = self.schedule.log.held()
        world = world_of(entries, from_start=self.schedule.log.first == 0)
        if world is None:
            self.schedule.checks.fail(f"the log is not whole for {self.id}")
            return
        for partition in self.own.runs:
            self._cancel(partition)
        self.world = world
        self.own.start_over(self.clock())
        self.last_entry = entries[-1]
        self.last_read = self.schedule.now
        self.own.heard(world, entries[-1], None, counted=False, now=self.clock())

    def _act(self, action: Action) -> None:
        own, now = self.own, self.clock()
        match action:
            case Send(record=record):
                stamped = own.stamp(record, now)
                self.schedule.checks.sent(self, stamped)
                self.schedule.append(self, encode(stamped))
            case Start(partition=name, epoch=epoch, position=position, idle=idle):
                self._start(name, epoch, position, idle=idle)
            case Drain(partition=name):
                self.schedule.checks.interrupted(self, name)
                own.turn(name, "draining", now)
            case Halt(partition=name):
                own.turn(name, "halted", now)
                self._cancel(name)
            case GoOn(partition=name):
                own.turn(name, "running", now)
            case Close(partition=name):
                del own.runs[name]
            case Exit():
                self.schedule.trace("exit", self.id, action)
                self.end()

    def _start(self, name: str, epoch: int, position: int, *, idle: bool) -> None:
        self.schedule.checks.started(self, name, epoch, position)
        run = self.own.start(self.world.partitions[name], self.clock(), idle=idle)
        if self.schedule.exactly_once:
            self._open(name, run)

    def _open(self, name: str, run: Run) -> None:
        """Open the epoch in the sink. If it is refused, a later owner is there, or will be once this one releases."""
        partition = self.world.partitions[name]
        position = self.schedule.sink.open(name, run.epoch, partition.reset, partition.position)
        if position is None:
            run.refused = True
        else:
            self.schedule.checks.opened(name, run.epoch)
            run.position = position

    def _work(self, name: str, run: Run) -> None:
        """Begin the next batch of a partition, if there is one and nothing stands against it."""
        if run.busy or run.state != "running" or self.own.fenced(self.world.interval, self.clock()):
            return
        available = self.schedule.end(name)
        run.pending = max(0, available - run.position)
        end = min(available, run.position + (BATCH if self.schedule.turmoil else 8 * BATCH))
        if end <= run.position:
            self._unpark(name, run)
            return
        if self.schedule.at_most_once:
            partition = self.world.partitions[name]
            if partition.epoch != run.epoch:
                return
            if partition.position <= run.position:
                run.wanted = end
                return
            end = partition.position
        self._begin(name, run, end)

    def _begin(self, name: str, run: Run, end: int) -> None:
        duration = self.schedule.rng.randint(20, INTERVAL // 5)
        handler = Handler(self.id, name, run, run.epoch, run.position, end, self.schedule.now + duration)
        run.busy = True
        run.in_flight = end - run.position
        self.handlers[name] = handler
        self.schedule.checks.began(handler)
        self.schedule.call_at(handler.ends_at, lambda: self._ended(handler))

    def _ended(self, handler: Handler) -> None:
        if not self.alive or handler.over:
            return
        if self.suspended or self.schedule.now < handler.ends_at:
            self.schedule.call_at(max(handler.ends_at, self.schedule.now + STEP), lambda: self._ended(handler))
            return
        handler.over = True
        run = handler.run
        run.busy = False
        run.in_flight = 0
        del self.handlers[handler.partition]
        if self.schedule.at_most_once:
            # What was announced is never processed again, however it ended.
            run.position = handler.end
        elif not handler.cancelled:
            self._finish(handler, run)
        self.schedule.checks.ended(handler)
        self.schedule.wake_at(self, self.schedule.now)

    def _finish(self, handler: Handler, run: Run) -> None:
        if self.schedule.exactly_once:
            self._commit(handler, run)
            return
        if self.schedule.plan.parking and self.schedule.rng.random() < 0.1:
            run.parked = {**(run.parked or {}), f"k{handler.begin}": handler.begin}
        self.schedule.checks.completed(handler)
        run.position = max(run.position, handler.end)

    def _commit(self, handler: Handler, run: Run) -> None:
        unanswered = self.schedule.strikes("lost_answer", 0.3)
        if unanswered and self.schedule.rng.random() < 0.5:
            # Nobody answers, and yet it is done in the end.
            delay = self.schedule.rng.randint(1, INTERVAL)
            self.schedule.call_at(self.schedule.now + delay, partial(self.schedule.commit, handler))
            committed = False
        else:
            committed = self.schedule.commit(handler)
        if committed and not unanswered:
            run.position = handler.end
        elif run.epoch == self.world.partitions[handler.partition].epoch and not run.released:
            self._open(handler.partition, run)

    def _unpark(self, name: str, run: Run) -> None:
        """Process a parked key at last, now and then."""
        if run.parked and self.schedule.rng.random() < 0.3:
            key = min(run.parked)
            self.schedule.checks.unparked(self, name, run, run.parked[key])
            run.parked = {other: sequence for other, sequence in run.parked.items() if other != key}

    def _cancel(self, name: str) -> None:
        handler = self.handlers.get(name)
        if handler is not None:
            handler.cancelled = True
            handler.ends_at = min(handler.ends_at, self.schedule.now + self.schedule.rng.randint(0, INTERVAL // 5))
            self.schedule.call_at(handler.ends_at, lambda: self._ended(handler))

    def end(self) -> None:
        """The process is gone, with all that it ran."""
        self.alive = False
        for handler in self.handlers.values():
            handler.over = True
            self.schedule.checks.ended(handler)
        self.handlers.clear()

    def suspend(self) -> None:
        """The process stands still; what it was in the middle of may end when it wakes."""
        self.suspended = True
        for handler in self.handlers.values():
            handler.frozen = True

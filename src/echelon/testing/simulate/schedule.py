"""One schedule: a group with its processes in virtual time, from a seed, with trouble until it stops."""

import heapq
from collections.abc import Callable
from random import Random

from msgspec import Struct

from echelon.group.own import Own
from echelon.group.records import Configure, Profile, encode
from echelon.testing.simulate.administration import Administration
from echelon.testing.simulate.broker import SimLog, SimSink
from echelon.testing.simulate.checks import Checks, Violation
from echelon.testing.simulate.ending import check_agreement, check_recovery
from echelon.testing.simulate.plan import INTERVAL, RECOVERY, TURMOIL, Plan, RequestFault, draw
from echelon.testing.simulate.process import Handler, Process
from echelon.testing.simulate.trouble import Trouble


class Outcome(Struct, frozen=True):
    """How a schedule ended. `trace` is what happened up to the violation, if it was asked for."""

    seed: int
    events: int
    records: int
    violation: str | None
    trace: tuple[str, ...] = ()


class Schedule:
    """Runs one schedule. Virtual time is in milliseconds; nothing but the seed decides what happens."""

    def __init__(self, seed: int, *, plan: Plan | None = None, tracing: bool = False) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.plan = draw(self.rng) if plan is None else plan
        self.now = 0
        self.events = 0
        self.log = SimLog(self.rng)
        self.sink = SimSink()
        self.processes: dict[str, Process] = {}
        self.checks = Checks(self)
        self.log.on_stored = self.checks.stored
        self.exactly_once = self.plan.config.delivery == "exactly_once"
        self.at_most_once = self.plan.config.delivery == "at_most_once"
        self.turmoil = True
        self._queue: list[tuple[int, int, Callable[[], object]]] = []
        self._ties = 0
        self._lines: list[str] | None = [] if tracing else None
        self._rates = {name: self.rng.uniform(1.0, 3.0) for name in (str(number) for number in range(12))}
        self.administration = Administration(self)
        self.trouble = Trouble(self)

    def run(self) -> Outcome:
        """Run to the end, or to the first violation."""
        violation = None
        try:
            self._run()
        except Violation as found:
            violation = str(found)
        return Outcome(self.seed, self.events, len(self.log.archive), violation, tuple(self._lines or ()))

    def _run(self) -> None:
        config = self.plan.config
        self.trace("plan", config.membership, config.delivery, self.plan.faults, self.plan.administration)
        self.make_group()
        self.trouble.begin()
        self.run_until(TURMOIL)
        self.turmoil = False
        self.trouble.heal()
        self.run_until(TURMOIL + RECOVERY * INTERVAL)
        if not self.checks.world.deleted:
            check_recovery(self.checks)
        for process in self.processes.values():
            process.catch_up()
        check_agreement(self.checks)

    def make_group(self) -> None:
        """Write the first record of the group's log."""
        self.log.store(
            encode(Configure(group="g", sender="maker", counter=1, read=0, config=self.plan.config)), self.now
        )

    def run_until(self, end: int) -> None:
        """Let virtual time pass."""
        while self._queue and self._queue[0][0] <= end:
            self.now, _, event = heapq.heappop(self._queue)
            self.events += 1
            event()
        self.now = end

    def call_at(self, time: int, event: Callable[[], object]) -> None:
        """Let something happen at a later moment."""
        self._ties += 1
        heapq.heappush(self._queue, (max(time, self.now), self._ties, event))

    def wake_at(self, process: Process, time: int) -> None:
        """Wake a process then, instead of when it would wake by itself."""
        process.next_wake = time
        self.call_at(time, lambda: process.wake() if process.next_wake == time else None)

    def launch(self, name: str, profile: Profile) -> Process:
        """Start a process, with a clock of its own."""
        rate = self.rng.uniform(0.92, 1.1)
        process = Process(self, Own(name, profile, began=0), rate=rate, offset=self.rng.randint(0, 10**9))
        process.own.begin_reading(process.clock())
        self.processes[name] = process
        self.trace("launch", name, profile)
        self.wake_at(process, self.now + self.rng.randint(0, 50))
        return process

    def append(self, process: Process, data: bytes) -> None:
        """Send a record to the broker: it arrives after a while, perhaps late, twice or never."""
        delay = self.rng.randint(2, 30)
        if not process.can_write or self.strikes("failed_append", 0.1):
            process.troubled = self.now
            return
        if self.strikes("delayed_append", 0.05):
            process.troubled = self.now
            delay = self.rng.randint(100, self.rng.choice((2, 6, 14)) * INTERVAL)
        else:
            # One connection keeps the order of what is sent over it; what is delayed was sent again over another.
            delay = max(delay, process.last_arrival - self.now)
            process.last_arrival = self.now + delay
        self.call_at(self.now + delay, lambda: self._arrive(process, data))
        if self.strikes("duplicated_append", 0.1):
            self.call_at(self.now + delay + self.rng.randint(1, 4 * INTERVAL), lambda: self._arrive(process, data))

    def _arrive(self, process: Process, data: bytes) -> None:
        if self.log.down_until > self.now:
            # The client tries again until the broker is back; some of what waited that long is given up.
            if self.rng.random() < 0.7:
                self.call_at(self.log.down_until + self.rng.randint(1, 50), lambda: self._arrive(process, data))
            return
        sequence = self.log.store(data, self.now)
        self.trace("stored", sequence, data)
        if process.can_write:
            process.own.stored(INTERVAL, process.clock())

    def commit(self, handler: Handler) -> bool:
        """Commit a handler's batch to the sink; False if it is refused."""
        done = self.sink.commit(handler.partition, handler.epoch, handler.begin, handler.end)
        if done:
            self.checks.committed(handler)
        return done

    def end(self, partition: str) -> int:
        """One past the newest message of a partition. Messages come at a steady rate until the trouble stops."""
        begin = self.plan.config.positions.get(partition, 0)
        return begin + int(self._rates[partition] * min(self.now, TURMOIL) / INTERVAL)

    def strikes(self, fault: RequestFault, chance: float) -> bool:
        """Whether a fault that this schedule may have strikes a request now."""
        return self.turmoil and fault in self.plan.faults and self.rng.random() < chance

    def trace(self, *what: object) -> None:
        """Note what happens, if this schedule is traced."""
        if self._lines is not None:
            text = " ".join(str(part.decode() if isinstance(part, bytes) else part) for part in what)
            self._lines.append(f"{self.now / INTERVAL:8.3f}  {text[:400]}")

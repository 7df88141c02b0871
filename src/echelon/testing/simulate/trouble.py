"""What happens to a group in a schedule: faults of processes, network and broker, and when its administrator acts."""

from functools import partial
from typing import TYPE_CHECKING

from echelon.group.records import Profile
from echelon.testing.simulate.plan import ADMINISTRATION, INTERVAL, REQUEST_FAULTS, TURMOIL
from echelon.testing.simulate.process import Process

if TYPE_CHECKING:
    from echelon.testing.simulate.schedule import Schedule


class Trouble:
    """Draws faults and administration from the schedule's seed, and ends them when it is time."""

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.rng = schedule.rng
        self._launched = 0

    def begin(self) -> None:
        """Launch the first processes, and let trouble come now and then."""
        for index in range(self.schedule.plan.instances):
            self.schedule.call_at(self.rng.randint(0, INTERVAL), partial(self.launch, index))
        kinds = [*self.schedule.plan.faults, *self.schedule.plan.administration]
        for _ in range(len(kinds) * 2):
            kind = self.rng.choice(kinds)
            self.schedule.call_at(self.rng.randint(INTERVAL, TURMOIL - INTERVAL), partial(self._strike, kind))

    def launch(self, index: int, name: str | None = None, *, sole: bool = False) -> None:
        """Launch a process for the seat of that index; if there are not so many, perhaps for any seat."""
        plan = self.schedule.plan
        seats = plan.config.seats()
        self._launched += 1
        spare = bool(seats) and index >= len(seats)
        profile = Profile(
            name=name or f"{index}.{self._launched}",
            member=None if not seats or (spare and self.rng.random() < 0.5) else seats[index % len(seats)],
            priority=self.rng.randint(0, 2) if plan.priorities else 0,
            min_pending=4 if plan.overflow and index > 0 and self.rng.random() < 0.6 else None,
            sole=sole,
            checkpoint=plan.spark,
        )
        self.schedule.launch(f"i{self._launched:02}", profile)

    def _strike(self, kind: str) -> None:
        if not self.schedule.turmoil or kind in REQUEST_FAULTS:
            return
        self.schedule.trace("trouble", kind)
        if kind in ADMINISTRATION:
            getattr(self.schedule.administration, kind)()
        else:
            getattr(self, f"_{kind}")()

    def pick(self) -> Process | None:
        """Some process that is up: something happens to it now."""
        up = [process for process in self.schedule.processes.values() if process.up]
        if not up:
            return None
        process = self.rng.choice(up)
        process.troubled = self.schedule.now
        return process

    def heal(self) -> None:
        """End all trouble: everything runs, reads and writes, and each seat has somebody for it."""
        schedule = self.schedule
        schedule.trace("heal")
        schedule.log.down_until = 0
        for process in schedule.processes.values():
            process.can_read = process.can_write = True
            process.read_delay = 0
            process.own.rejoin = True
            if process.suspended:
                self._wake(process)
        if schedule.checks.world.paused is not None:
            schedule.administration.resume()
        self._fill_seats()
        # What an administrator sent before the trouble stopped may have arrived only now.
        schedule.call_at(schedule.now + INTERVAL, self._fill_seats)

    def _fill_seats(self) -> None:
        schedule = self.schedule
        config = schedule.administration.config
        staying = [process.own for process in schedule.processes.values() if process.alive and not process.own.leaving]
        wanted = {own.profile.member for own in staying if not own.profile.overflow}
        for member in config.seats():
            if member not in wanted:
                self._launch_plain(member)
        if not config.seats() and not wanted:
            self._launch_plain(None)

    def _launch_plain(self, member: str | None) -> None:
        self._launched += 1
        self.schedule.launch(f"i{self._launched:02}", Profile(f"0.{self._launched}", member))

    # Faults of processes and their network

    def _crash(self) -> None:
        process = self.pick()
        if process is not None:
            process.end()
            index = int(process.own.profile.name.partition(".")[0])
            sole = self.rng.random() < 0.3
            relaunch = partial(self._relaunch, index, process.own.profile.name, sole=sole)
            self.schedule.call_at(self.schedule.now + self.rng.randint(0, 4 * INTERVAL), relaunch)

    def _relaunch(self, index: int, name: str, *, sole: bool) -> None:
        if self.schedule.turmoil:
            self.launch(index, name, sole=sole)

    def _crash_seen(self) -> None:
        """A process ends, and another one on its machine sees that."""
        process = self.pick()
        witness = self.pick()
        if process is not None and witness is not None and process is not witness:
            process.end()
            witness.own.gone.add(process.id)

    def _suspend(self) -> None:
        process = self.pick()
        if process is not None:
            process.suspend()
            pause = self.rng.choice((INTERVAL // 2, 2 * INTERVAL, 3 * INTERVAL, 5 * INTERVAL, 13 * INTERVAL))
            self.schedule.call_at(self.schedule.now + pause, lambda: self._wake(process))

    def _wake(self, process: Process) -> None:
        process.suspended = False
        process.troubled = self.schedule.now
        if process.alive:
            self.schedule.wake_at(process, self.schedule.now + self.rng.randint(0, 5))

    def _cut_off(self) -> None:
        self._disconnect(read=False, write=False)

    def _deaf(self) -> None:
        self._disconnect(read=False, write=True)

    def _mute(self) -> None:
        self._disconnect(read=True, write=False)

    def _disconnect(self, *, read: bool, write: bool) -> None:
        process = self.pick()
        if process is None:
            return
        process.can_read, process.can_write = read, write
        lasts = self.rng.randint(INTERVAL // 2, 6 * INTERVAL)
        self.schedule.call_at(self.schedule.now + lasts, partial(self._reconnect, process))

    def _fading(self) -> None:
        """A process hears ever later what is said, and then cannot speak any more."""
        process = self.pick()
        if process is None:
            return
        process.read_delay = self.rng.randint(INTERVAL, 2 * INTERVAL)
        self.schedule.call_at(self.schedule.now + self.rng.randint(0, 2 * INTERVAL), partial(self._silence, process))

    def _silence(self, process: Process) -> None:
        process.can_write = False
        process.troubled = self.schedule.now
        self.schedule.call_at(self.schedule.now + 4 * INTERVAL, partial(self._reconnect, process))

    def _reconnect(self, process: Process) -> None:
        process.can_read = process.can_write = True
        process.read_delay = 0
        process.troubled = self.schedule.now

    def _storm(self) -> None:
        """A process is cut off while the broker's clock runs fast, and what it had is given away twice."""
        self._cut_off()
        self._fast_clock()
        reset = self.schedule.administration.reset
        for _ in range(2):
            self.schedule.call_at(self.schedule.now + self.rng.randint(INTERVAL // 2, INTERVAL), reset)

    def _slow_reader(self) -> None:
        process = self.pick()
        if process is not None:
            process.read_delay = self.rng.randint(50, 2 * INTERVAL)
            self.schedule.call_at(self.schedule.now + 3 * INTERVAL, partial(self._reconnect, process))

    # Faults of the broker

    def _clock_jump(self) -> None:
        self.schedule.log.clock += self.rng.choice((-3600, -3, -1, 1, 2, 3, 30, 3600)) * INTERVAL

    def _fast_clock(self) -> None:
        """The broker's clock runs far too fast for a while: the well seem stale, and must not be harmed by it."""
        for tick in range(20):
            self.schedule.call_at(self.schedule.now + tick * INTERVAL // 10, self._tick_fast)

    def _tick_fast(self) -> None:
        self.schedule.log.clock += INTERVAL // 3
        for process in self.schedule.processes.values():
            process.troubled = self.schedule.now

    def _outage(self) -> None:
        log = self.schedule.log
        log.down_until = max(log.down_until, self.schedule.now + self.rng.randint(INTERVAL // 2, 6 * INTERVAL))

    def _trim(self) -> None:
        self.schedule.log.first = max(self.schedule.log.first, self.schedule.checks.world.snapshot)

    def _lost_tail(self) -> None:
        log = self.schedule.log
        count = self.rng.randint(1, 4)
        if len(log.archive) > count + 20 and log.archive[-count].sequence > self.schedule.checks.world.snapshot:
            log.lose_tail(count)
            self.schedule.checks.tail_lost()
            for process in self.schedule.processes.values():
                process.reconnect()

    def _newer_record(self) -> None:
        data = self.rng.choice(
            (b'{"type":"murmur","group":"g"}', b"\xff\x00", b"[]", b'{"type":"claim","version":2,"x":1}')
        )
        if self.schedule.log.down_until <= self.schedule.now:
            self.schedule.log.store(data, self.schedule.now)

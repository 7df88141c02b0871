"""What happens to a group in a schedule: faults of processes, network and broker, and administration."""

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from echelon.group.config import Config, Stream
from echelon.group.records import (
    Admitted,
    Configure,
    Pause,
    Profile,
    Reset,
    Resume,
    Retire,
    StepDown,
    TakeCut,
    encode,
)
from echelon.testing.simulate.plan import INTERVAL, TURMOIL, deal
from echelon.testing.simulate.process import Process

if TYPE_CHECKING:
    from echelon.testing.simulate.schedule import Schedule


class Trouble:
    """Draws faults and administration from the schedule's seed, and ends them when it is time."""

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.rng = schedule.rng
        self._launched = 0
        self._counter = 1

    def begin(self) -> None:
        """Launch the first processes, and let trouble come now and then."""
        for index in range(self.schedule.plan.instances):
            self.schedule.call_at(self.rng.randint(0, INTERVAL), partial(self._launch, index))
        kinds = [*self.schedule.plan.faults, *self.schedule.plan.administration]
        for _ in range(len(kinds) * 2):
            kind = self.rng.choice(kinds)
            self.schedule.call_at(self.rng.randint(INTERVAL, TURMOIL - INTERVAL), partial(self._strike, kind))

    def _launch(self, index: int, name: str | None = None, *, sole: bool = False) -> None:
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
        if not self.schedule.turmoil:
            return
        strike = getattr(self, f"_{kind}", None)
        if strike is not None:
            self.schedule.trace("trouble", kind)
            strike()

    def _pick(self) -> Process | None:
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
            self._administer(Resume(group="g", sender="", read=0))
        self._fill_seats()
        # What an administrator sent before the trouble stopped may have arrived only now.
        schedule.call_at(schedule.now + INTERVAL, self._fill_seats)

    def _fill_seats(self) -> None:
        schedule = self.schedule
        config = self._config()
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
        process = self._pick()
        if process is not None:
            process.end()
            index = int(process.own.profile.name.partition(".")[0])
            sole = self.rng.random() < 0.3
            relaunch = partial(self._relaunch, index, process.own.profile.name, sole=sole)
            self.schedule.call_at(self.schedule.now + self.rng.randint(0, 4 * INTERVAL), relaunch)

    def _relaunch(self, index: int, name: str, *, sole: bool) -> None:
        if self.schedule.turmoil:
            self._launch(index, name, sole=sole)

    def _crash_seen(self) -> None:
        """A process ends, and another one on its machine sees that."""
        process = self._pick()
        witness = self._pick()
        if process is not None and witness is not None and process is not witness:
            process.end()
            witness.own.gone.add(process.id)

    def _suspend(self) -> None:
        process = self._pick()
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
        process = self._pick()
        if process is None:
            return
        process.can_read, process.can_write = read, write
        lasts = self.rng.randint(INTERVAL // 2, 6 * INTERVAL)
        self.schedule.call_at(self.schedule.now + lasts, partial(self._reconnect, process))

    def _fading(self) -> None:
        """A process hears ever later what is said, and then cannot speak any more."""
        process = self._pick()
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
        for _ in range(2):
            self.schedule.call_at(self.schedule.now + self.rng.randint(INTERVAL // 2, INTERVAL), self._reset)

    def _slow_reader(self) -> None:
        process = self._pick()
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

    # Administration

    def _administer(self, record: Admitted) -> None:
        """Send an administrator's record, as one who has read everything."""
        self._counter += 1
        read = self.schedule.checks.world.sequence
        stamped = structs.replace(record, sender="admin", counter=self._counter, read=read)
        delay = self.rng.randint(2, 300)
        self.schedule.call_at(self.schedule.now + delay, lambda: self._store(encode(stamped)))

    def _store(self, data: bytes) -> None:
        log = self.schedule.log
        if log.down_until > self.schedule.now:
            self.schedule.call_at(self.schedule.now + INTERVAL // 2, lambda: self._store(data))
            return
        self.schedule.trace("stored", log.store(data, self.schedule.now), data)

    def _configure(self, config: Config) -> None:
        self._administer(
            Configure(group="g", sender="", read=0, config=config, replaces=self.schedule.checks.world.configured)
        )

    def _config(self) -> Config:
        return self.schedule.checks.world.config or self.schedule.plan.config

    def _members(self) -> None:
        config = self._config()
        if config.members is not None:
            members = tuple(f"m{number}" for number in sorted(self.rng.sample(range(4), self.rng.randint(1, 4))))
            self._configure(structs.replace(config, members=members))

    def _mapping(self) -> None:
        config = self._config()
        if config.mapping is not None:
            members = tuple(f"m{number}" for number in self.rng.sample(range(4), self.rng.randint(1, 3)))
            names = list(config.partitions())
            self.rng.shuffle(names)
            self._configure(structs.replace(config, mapping=deal(names, members)))

    def _step_down(self) -> None:
        held = [seat for seat in self.schedule.checks.world.seats.values() if seat.holder is not None]
        if held:
            self._administer(StepDown(group="g", sender="", read=0, epoch=self.rng.choice(held).epoch))

    def _pause(self) -> None:
        log = self.schedule.log
        until = log.clock + self.schedule.now + self.rng.randint(1, 4) * INTERVAL if self.rng.random() < 0.5 else None
        self._administer(Pause(group="g", sender="", read=0, until=until))
        if until is None:
            delay = self.rng.randint(1, 4 * INTERVAL)
            self.schedule.call_at(
                self.schedule.now + delay, lambda: self._administer(Resume(group="g", sender="", read=0))
            )

    def _cut(self) -> None:
        self._administer(TakeCut(group="g", sender="", read=0))

    def _reset(self) -> None:
        world = self.schedule.checks.world
        if world.cuts and self.rng.random() < 0.7:
            cut = self.rng.choice(list(world.cuts.values()))
            positions = {name: part.position for name, part in cut.parts.items()}
            added = {name: first for name, first in self._config().positions.items() if name not in positions}
            self._administer(Reset(group="g", sender="", read=0, positions={**positions, **added}, cut=cut.sequence))
            return
        names = self.rng.sample(list(world.partitions), self.rng.randint(1, len(world.partitions)))
        positions = {name: self.rng.randint(5, max(6, self.schedule.end(name))) for name in names}
        self._administer(Reset(group="g", sender="", read=0, positions=positions))

    def _retire(self) -> None:
        cuts = self.schedule.checks.world.cuts
        if cuts:
            self._administer(Retire(group="g", sender="", read=0, cut=min(cuts)))

    def _growth(self) -> None:
        """The stream gains a partition, and somebody who saw it says so, with the ends of the others."""
        config = self._config()
        count = config.streams[0].partitions
        if count < 8:
            ends = {name: self.schedule.end(name) for name in config.positions}
            grown = structs.replace(
                config,
                streams=(Stream("data", count + 1),),
                positions={**config.positions, str(count): 0},
                ends=(*config.ends, ends),
            )
            if config.mapping is not None:
                first = min(config.mapping)
                grown = structs.replace(grown, mapping={**config.mapping, first: (*config.mapping[first], str(count))})
            self._configure(grown)

    def _newcomer(self) -> None:
        self._launch(self.rng.randint(0, 3))

    def _drain(self) -> None:
        process = self._pick()
        if process is not None:
            process.own.leaving = True

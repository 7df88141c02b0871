"""What administrators do to a group in a schedule."""

from typing import TYPE_CHECKING

from msgspec import structs

from echelon.group.config import Config, Stream
from echelon.group.records import Admitted, Configure, Pause, Reset, Resume, Retire, StepDown, TakeCut, encode
from echelon.testing.simulate.plan import INTERVAL, deal

if TYPE_CHECKING:
    from echelon.testing.simulate.schedule import Schedule


class Administration:
    """An administrator, who draws from the schedule's seed; `Trouble` says when. Methods are called as in `plan`."""

    def __init__(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.rng = schedule.rng
        self._counter = 1

    def _send(self, record: Admitted) -> None:
        """Send a record, as one who has read everything."""
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
        self._send(
            Configure(group="g", sender="", read=0, config=config, replaces=self.schedule.checks.world.configured)
        )

    @property
    def config(self) -> Config:
        """What the group is configured as now."""
        return self.schedule.checks.world.config or self.schedule.plan.config

    def members(self) -> None:
        """The group gets other members."""
        config = self.config
        if config.members is not None:
            members = tuple(f"m{number}" for number in sorted(self.rng.sample(range(4), self.rng.randint(1, 4))))
            self._configure(structs.replace(config, members=members))

    def mapping(self) -> None:
        """The partitions are mapped otherwise."""
        config = self.config
        if config.mapping is not None:
            members = tuple(f"m{number}" for number in self.rng.sample(range(4), self.rng.randint(1, 3)))
            names = list(config.partitions())
            self.rng.shuffle(names)
            self._configure(structs.replace(config, mapping=deal(names, members)))

    def step_down(self) -> None:
        """A holder is told to give up its seat."""
        held = [seat for seat in self.schedule.checks.world.seats.values() if seat.holder is not None]
        if held:
            self._send(StepDown(group="g", sender="", read=0, epoch=self.rng.choice(held).epoch))

    def pause(self) -> None:
        """The group is paused, and goes on after a while."""
        log = self.schedule.log
        until = log.clock + self.schedule.now + self.rng.randint(1, 4) * INTERVAL if self.rng.random() < 0.5 else None
        self._send(Pause(group="g", sender="", read=0, until=until))
        if until is None:
            delay = self.rng.randint(1, 4 * INTERVAL)
            self.schedule.call_at(self.schedule.now + delay, self.resume)

    def resume(self) -> None:
        """The group goes on."""
        self._send(Resume(group="g", sender="", read=0))

    def cut(self) -> None:
        """A cut is taken."""
        self._send(TakeCut(group="g", sender="", read=0))

    def reset(self) -> None:
        """Partitions are reset, to a cut or anywhere."""
        world = self.schedule.checks.world
        if world.cuts and self.rng.random() < 0.7:
            cut = self.rng.choice(list(world.cuts.values()))
            positions = {name: part.position for name, part in cut.parts.items()}
            added = {name: first for name, first in self.config.positions.items() if name not in positions}
            self._send(Reset(group="g", sender="", read=0, positions={**positions, **added}, cut=cut.sequence))
            return
        names = self.rng.sample(list(world.partitions), self.rng.randint(1, len(world.partitions)))
        positions = {name: self.rng.randint(5, max(6, self.schedule.end(name))) for name in names}
        self._send(Reset(group="g", sender="", read=0, positions=positions))

    def retire(self) -> None:
        """The oldest cut is given up."""
        cuts = self.schedule.checks.world.cuts
        if cuts:
            self._send(Retire(group="g", sender="", read=0, cut=min(cuts)))

    def growth(self) -> None:
        """The stream gains a partition, and somebody who saw it says so, with the ends of the others."""
        config = self.config
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

    def newcomer(self) -> None:
        """One more process is launched."""
        self.schedule.trouble.launch(self.rng.randint(0, 3))

    def drain(self) -> None:
        """A process is told to leave."""
        process = self.schedule.trouble.pick()
        if process is not None:
            process.own.leaving = True

"""Logs and instances in a few words, for tests of the core.

Broker times are given in intervals of the group; an interval is 1000 ms. Records are written as they are on the
wire, as JSON. Nothing happens that a test does not ask for.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from echelon.group.actions import Action, Close, Drain, GoOn, Halt, Send, Start
from echelon.group.config import Config, Stream
from echelon.group.decide import decide
from echelon.group.fold import apply
from echelon.group.own import Own, RecordT, Run
from echelon.group.records import Backlog, Profile, Progress, Record, decode, encode
from echelon.group.world import Partition, World
from echelon.model import Entry

INTERVAL: Final = 1000
EPOCH: Final = 1_700_000_000_000
"""Broker time at which every log begins."""
GARBAGE: Final = b"\xff not a record"


def make(partitions: int = 2, /, members: object = ("m1", "m2"), **options: object) -> Config:
    """A configuration of a group over one stream, all positions 0; `members=None` makes it auto."""
    fields: dict[str, object] = {
        "streams": [Stream("data", partitions)],
        "positions": {str(number): 0 for number in range(partitions)},
        "members": members,
        "interval": INTERVAL / 1000,
    }
    return msgspec.convert(msgspec.to_builtins(fields | options), Config)


def mapped(**mapping: str) -> Config:
    """A mapped group: `mapped(m1="01", m2="2")` gives partitions 0 and 1 to m1, 2 to m2."""
    return make(
        sum(map(len, mapping.values())),
        members=None,
        assignment="mapped",
        mapping={member: list(names) for member, names in mapping.items()},
    )


def grown(config: Config, count: int, ends: int | Mapping[str, int], **options: object) -> Config:
    """`config` with `count` partitions; the ends of the old ones are recorded."""
    recorded = dict.fromkeys(config.positions, ends) if isinstance(ends, int) else dict(ends)
    added = {str(number): 0 for number in range(len(config.positions), count)}
    fields: dict[str, object] = {
        "streams": [Stream("data", count)],
        "positions": {**config.positions, **added},
        "ends": [*config.ends, recorded],
    }
    return msgspec.convert(msgspec.to_builtins(msgspec.structs.asdict(config) | fields | options), Config)


class Log:
    """A log that grows, and the world that it folds to."""

    def __init__(self, config: Config | None = None) -> None:
        self.entries: list[Entry] = []
        self.world = World()
        self.clock = EPOCH
        self.counted = False
        """Whether the last record counted."""
        self._counters: dict[str, int] = {}
        if config is not None:
            self.write("maker", "configure", config=config)

    def append(self, data: bytes) -> int:
        """Store these bytes now, and apply them."""
        entry = Entry(self.world.sequence + 1, self.clock, data)
        self.entries.append(entry)
        self.counted = apply(self.world, entry, decode(data))
        return entry.sequence

    def write(self, sender: str, kind: str, **fields: object) -> int:
        """Store a record with its sender's next counter, by one who has read everything."""
        self._counters[sender] = counter = self._counters.get(sender, 0) + 1
        head = {"type": kind, "group": "g", "sender": sender, "counter": counter, "read": self.world.sequence}
        return self.append(msgspec.json.encode(head | fields))

    def later(self, intervals: float) -> "Log":
        """Move the broker's clock; group time moves with the next record."""
        self.clock += round(intervals * INTERVAL)
        return self

    def run(self, intervals: float, *alive: str) -> None:
        """Let group time pass in quarters of an interval, with a heartbeat of each that is alive (or garbage)."""
        for _ in range(round(intervals * 4)):
            self.later(0.25)
            for sender in alive:
                self.beat(sender)
            if not alive:
                self.append(GARBAGE)

    def reconfigure(self, config: Config, **fields: object) -> int:
        """Replace the configuration in force."""
        return self.write("admin", "configure", **{"config": config, "replaces": self.world.configured} | fields)

    def join(self, sender: str, member: str | None = None, /, **profile: object) -> int:
        """An instance joins for a member, or (None) for any."""
        return self.write(sender, "join", profile={"name": sender, "member": member} | profile)

    def claim(self, sender: str, member: str) -> int:
        """An instance claims a seat."""
        return self.write(sender, "claim", member=member)

    def sit(self, sender: str, member: str | None = None, /, **profile: object) -> int:
        """An instance joins and claims the seat; None: its own, in an auto group."""
        self.join(sender, member, **profile)
        return self.claim(sender, member or sender)

    def beat(self, sender: str, **backlog: int) -> int:
        """A heartbeat without progress; `p0=7` reports a backlog of 7 of partition 0."""
        seen = {name.removeprefix("p"): Backlog(pending) for name, pending in backlog.items()}
        return self.write(sender, "heartbeat", backlog=seen)

    def report(self, sender: str, name: str, position: int, **fields: object) -> int:
        """Progress of one partition, under its epoch unless another is given; `kind` is heartbeat by default."""
        epoch = fields.pop("epoch", self.world.partitions[name].epoch)
        kind = str(fields.pop("kind", "heartbeat"))
        return self.write(sender, kind, progress={name: [epoch, position, fields.pop("parked", None)]}, **fields)

    def release(self, sender: str, *names: str) -> int:
        """A release of these partitions, at the positions that they have."""
        known = self.world.partitions
        progress = {name: Progress(known[name].epoch, known[name].position) for name in names}
        return self.write(sender, "release", progress=progress)

    def part(self, sender: str, *names: str, cut: int, **fields: object) -> int:
        """A part of a cut for these partitions, at the positions that they have."""
        known = self.world.partitions
        progress = {name: Progress(known[name].epoch, known[name].position) for name in names}
        return self.write(sender, "cut_part", cut=cut, progress=progress, **fields)

    def step_down(self, member: str, sender: str = "admin") -> int:
        """Put the holder out of its seat."""
        return self.write(sender, "step_down", epoch=self.world.seats[member].epoch)

    def holder(self, member: str) -> str | None:
        """Who sits on a seat, stale or not."""
        return self.world.seats[member].holder

    def owners(self) -> dict[str, str | None]:
        """The owner of each partition."""
        return {partition.name: partition.owner for partition in self.world.partitions.values()}

    def seats(self) -> dict[str, str | None]:
        """The desired seat of each partition."""
        return {partition.name: partition.seat for partition in self.world.partitions.values()}

    def partition(self, name: str) -> Partition:
        """A partition of the world."""
        return self.world.partitions[name]


class Member:
    """An instance that follows a log with the real `decide`, in its own time (in milliseconds)."""

    def __init__(self, log: Log, id: str, member: str | None = None, /, **profile: object) -> None:
        self.log = log
        self.now = 5_000_000
        self.world = World()
        self.own = Own(id, msgspec.convert({"name": id, "member": member} | profile, Profile), began=self.now)
        self._read = 0

    def read(self) -> None:
        """Read what is new in the log, now."""
        for entry in self.log.entries[self._read :]:
            record = decode(entry.data)
            counted = apply(self.world, entry, record)
            self.own.heard(self.world, entry, record, counted=counted, now=self.now)
        self._read = len(self.log.entries)

    def later(self, intervals: float) -> "Member":
        """Let time pass, for this instance and for the broker."""
        self.now += round(intervals * INTERVAL)
        self.log.later(intervals)
        return self

    def decide(self) -> list[Action]:
        """What it would do now."""
        return decide(self.world, self.own, self.now)

    def records(self, kind: type[RecordT]) -> list[RecordT]:
        """The records of a kind that it would send now."""
        return [a.record for a in self.decide() if isinstance(a, Send) and isinstance(a.record, kind)]

    def send(self, record: Record) -> int:
        """Send a record of its own; it is stored at once, and not yet read back."""
        return self.log.append(encode(self.own.stamp(record, self.now)))

    def act(self, *, send: bool = True) -> list[Action]:
        """Decide, and do all of it; handlers take no time. Without `send`, what it sends is lost."""
        actions = self.decide()
        for action in actions:
            self._perform(action, send=send)
        return actions

    def _perform(self, action: Action, *, send: bool) -> None:
        match action:
            case Send(record) if send:
                self.send(record)
            case Send(record):
                self.own.stamp(record, self.now)
            case Start(name, idle=idle):
                # An exactly-once sink has not answered yet.
                ready = self.world.config is None or self.world.config.delivery != "exactly_once"
                self.own.start(self.world.partitions[name], self.now, idle=idle, ready=ready)
            case Drain(name):
                self.own.turn(name, "draining", self.now)
            case Halt(name):
                self.own.turn(name, "halted", self.now)
            case GoOn(name):
                self.own.turn(name, "running", self.now)
            case Close(name):
                del self.own.runs[name]
            case _:
                pass

    def live(self, intervals: float) -> list[Action]:
        """Read, decide and act, eight times an interval; all that it did."""
        done: list[Action] = []
        for _ in range(round(intervals * 8)):
            self.later(0.125)
            self.read()
            done += self.act()
        return done

    def settle(self) -> list[Action]:
        """Read, decide and act, at this moment, until there is nothing to do; all that it did."""
        done: list[Action] = []
        for _ in range(20):
            self.read()
            actions = self.act()
            done += actions
            if not actions:
                return done
        raise AssertionError(f"it does not come to rest: {actions}")

    def run(self, name: str) -> Run:
        """Its run of a partition."""
        return self.own.runs[name]


def sitting(**options: object) -> Member:
    """`a`, which holds m1, the only seat, and runs both partitions."""
    member = Member(Log(make(members=["m1"], **options)), "a", "m1")
    member.settle()
    assert [run.state for run in member.own.runs.values()] == ["running", "running"]
    return member


def of(kind: type[Action], actions: list[Action]) -> list[Action]:
    """The actions of a kind."""
    return [action for action in actions if isinstance(action, kind)]


def sent(kind: type[Record], actions: list[Action]) -> list[Record]:
    """The records of a kind that were sent."""
    return [action.record for action in actions if isinstance(action, Send) and isinstance(action.record, kind)]

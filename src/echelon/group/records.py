"""The records of a group's log: frozen, tagged, versioned structs that round-trip through JSON.

Unknown fields are ignored. What cannot be read gives None: the fold then only moves time.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from echelon.group.config import Config

VERSION: Final = 1
"""The version of the protocol that this program speaks."""


class Progress(Struct, frozen=True, array_like=True, gc=False):
    """How far an owner is in a partition, under which epoch.

    `parked` are the keys whose messages wait apart, each with the sequence of its first parked message;
    None means that they are unchanged.
    """

    epoch: int
    position: int
    parked: Mapping[str, int] | None = None


class Backlog(Struct, frozen=True, array_like=True, gc=False):
    """Messages of a partition that wait (`pending`), and that are fetched but not yet reported (`in_flight`)."""

    pending: int
    in_flight: int = 0


class Machine(Struct, frozen=True):
    """Where a process runs, exactly enough to prove from the same machine that it is gone."""

    boot: str
    namespace: str
    processes: tuple[tuple[int, int], ...]
    """Process ids with their start times; for Spark the driver's and the JVM's."""
    host: str = ""
    """The machine's name, for people only."""


class Profile(Struct, frozen=True, omit_defaults=True):
    """What an instance says of itself when it joins.

    It wants the seat of `member`, or (None) any that falls vacant; in an auto group, its own. It is an overflow
    member if it has one of the two thresholds.
    """

    name: str
    member: str | None = None
    priority: int = 0
    min_pending: int | None = None
    min_ack_pending: int | None = None
    machine: Machine | None = None
    sole: bool = False
    """No other process of this name runs: whoever ran under it before is gone."""
    checkpoint: bool = False
    """The seat's progress is in a checkpoint of its own (Spark), so nothing starts before its former holder ended."""

    @property
    def overflow(self) -> bool:
        """Whether it takes part only while the backlog is high."""
        return self.min_pending is not None or self.min_ack_pending is not None


def is_valid(profile: Profile) -> bool:
    """Whether a profile is within its limits: priority 0 to 9, thresholds at least 1."""
    thresholds = (profile.min_pending, profile.min_ack_pending)
    return 0 <= profile.priority <= 9 and all(least is None or least >= 1 for least in thresholds)


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every record carries: the group's identity, its sender, and the sender's counter.

    `counter` grows with every record of one sender; Own.stamp sets it when a record is sent.
    """

    group: str
    sender: str
    counter: int = 0
    version: int = VERSION


class Admitted(Record, frozen=True, kw_only=True):
    """A record that its sender may write without having joined. `read` is the last sequence it has read."""

    read: int


class Configure(Admitted, frozen=True, kw_only=True, tag="configure"):
    """Make the group (`replaces` is None), or change it; `replaces` is the sequence of the configure in force."""

    config: Config
    replaces: int | None = None


class Join(Admitted, frozen=True, kw_only=True, tag="join"):
    """An instance is there and wants a seat."""

    profile: Profile


class Leave(Record, frozen=True, kw_only=True, tag="leave"):
    """The sender, or the process `gone`, has ended: nothing of it runs any more."""

    gone: str | None = None


class Claim(Record, frozen=True, kw_only=True, tag="claim"):
    """The sender sits down on the seat of `member`, if it may."""

    member: str


class Heartbeat(Record, frozen=True, kw_only=True, tag="heartbeat"):
    """The sender is alive, and this far (in an at-most-once group: this far with processing)."""

    progress: Mapping[str, Progress] = {}
    backlog: Mapping[str, Backlog] = {}


class Advance(Record, frozen=True, kw_only=True, tag="advance"):
    """At most once: the sender is about to process up to these positions, and nobody ever will again."""

    progress: Mapping[str, Progress]


class Release(Record, frozen=True, kw_only=True, tag="release"):
    """The sender has drained these partitions and processes nothing more of them under these epochs."""

    progress: Mapping[str, Progress]


class StepDown(Admitted, frozen=True, kw_only=True, tag="step_down"):
    """Whoever holds the seat with this epoch gives it up."""

    epoch: int


class Pause(Admitted, frozen=True, kw_only=True, tag="pause"):
    """All drain and release, until `resume` or the broker time `until`."""

    until: int | None = None


class Resume(Admitted, frozen=True, kw_only=True, tag="resume"):
    """End the pause."""


class TakeCut(Admitted, frozen=True, kw_only=True, tag="cut"):
    """All owners drain and tell their positions; `periodic` ones give way to newer ones."""

    periodic: bool = False


class CutPart(Record, frozen=True, kw_only=True, tag="cut_part"):
    """The sender's part of the cut: drained positions, and for each partition a small state of the application."""

    cut: int
    progress: Mapping[str, Progress]
    states: Mapping[str, bytes] = {}


class CutAbort(Admitted, frozen=True, kw_only=True, tag="cut_abort"):
    """Give up the cut that is under way."""

    cut: int


class Reset(Admitted, frozen=True, kw_only=True, tag="reset"):
    """Set these positions; `cut` names the cut they come from, `keep` that the sink keeps its output."""

    positions: Mapping[str, int]
    cut: int | None = None
    keep: bool = False


class Retire(Admitted, frozen=True, kw_only=True, tag="retire"):
    """Forget a cut."""

    cut: int


class Unpark(Admitted, frozen=True, kw_only=True, tag="unpark"):
    """The owner of the partition tries these parked keys again, or (`skip`) passes over what is parked of them."""

    partition: str
    keys: tuple[str, ...]
    skip: bool = False


class Delete(Admitted, frozen=True, kw_only=True, tag="delete"):
    """The group ends."""


class Snapshot(Record, frozen=True, kw_only=True, tag="snapshot"):
    """The world as of a sequence, and which record stands there."""

    as_of: int
    as_of_sender: str
    as_of_counter: int
    world: msgspec.Raw


class Newer(Record, frozen=True, kw_only=True, tag="configure"):
    """A `configure` of a version that this program does not know; only this much of it can be read."""

    replaces: int | None = None


AnyRecord = (
    Configure
    | Join
    | Leave
    | Claim
    | Heartbeat
    | Advance
    | Release
    | StepDown
    | Pause
    | Resume
    | TakeCut
    | CutPart
    | CutAbort
    | Reset
    | Retire
    | Unpark
    | Delete
    | Snapshot
)

MAX_STATE: Final = 64 * 1024
"""The largest state of the application that a part of a cut may carry, in bytes."""

_decoder: Final[msgspec.json.Decoder[AnyRecord]] = msgspec.json.Decoder(AnyRecord)
_newer: Final = msgspec.json.Decoder(Newer)
_encoder: Final = msgspec.json.Encoder()


def encode(record: Record) -> bytes:
    """The record as it stands in the log."""
    return _encoder.encode(record)


def decode(data: bytes) -> AnyRecord | Newer | None:
    """The record that `data` holds, or None if it cannot be read."""
    try:
        record = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_newer(data)
    if type(record) is Configure and record.version > VERSION:
        return _decode_newer(data)
    return record


def _decode_newer(data: bytes) -> Newer | None:
    try:
        record = _newer.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.version > VERSION else None

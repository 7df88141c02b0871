"""The actions that `decide` asks of the shell around it."""

from typing import Literal

from msgspec import Struct

from echelon.group.records import Record


class Send(Struct, frozen=True):
    """Append this record, stamped by `Own.stamp`."""

    record: Record


class Start(Struct, frozen=True):
    """Process the partition from `position` on, under `epoch`.

    An exactly-once sink is opened first: its answer is where to begin. `idle`: take no messages yet, a cut is
    under way.
    """

    partition: str
    epoch: int
    position: int
    idle: bool = False


class Drain(Struct, frozen=True):
    """Take no more messages of the partition; let what was begun end.

    It counts, unless the partition has another epoch by now.
    """

    partition: str


class Halt(Struct, frozen=True):
    """Take no more messages of the partition, and cancel what was begun; it does not count."""

    partition: str


class GoOn(Struct, frozen=True):
    """Take messages of a drained or halted partition again, from where its run stands, under the same epoch."""

    partition: str


class Close(Struct, frozen=True):
    """Nothing runs any more: forget the run of the partition."""

    partition: str


class Exit(Struct, frozen=True):
    """End the process at once, without another record. `left`: all is handed over, this is the normal end."""

    reason: Literal["left", "deleted", "unread", "stuck"]


Action = Send | Start | Drain | Halt | GoOn | Close | Exit

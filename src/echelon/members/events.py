"""What a member tells its application, besides messages."""

from msgspec import Struct

from echelon.group.advisories import Advisory


class PartitionStarted(Struct, frozen=True):
    """The member begins to process a partition, from `position` on, under `epoch`.

    After a reset to a cut, `state` is what the application had saved of the partition at that cut.
    """

    partition: str
    epoch: int
    position: int
    state: bytes | None = None


class PartitionEnded(Struct, frozen=True):
    """The member has ended with a partition; caches for it can be purged."""

    partition: str
    epoch: int


class Fenced(Struct, frozen=True):
    """The member cannot see its own records and has stopped processing until it can."""


Event = PartitionStarted | PartitionEnded | Fenced | Advisory
"""Besides what concerns this member alone, it gets all advisories of the group."""

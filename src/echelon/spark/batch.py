"""The offsets of a seat's query, and what a batch that Spark repeats means. Pure.

An offset names, for each partition of the batch that ends there, the stretch that the batch holds of it. So a batch can
be planned again from its offset alone, whatever came to the seat or left it since.
"""

from collections.abc import Mapping

from msgspec import Struct

from echelon.group.world import Partition
from echelon.model import partition_order


class Stretch(Struct, frozen=True, array_like=True, gc=False):
    """A partition's messages from `begin` up to `end`, taken under `epoch`."""

    begin: int
    end: int
    epoch: int


Offset = dict[str, Stretch]
"""The stretches of a batch by partition, in the order of `partition_order`: Spark compares offsets as text."""


def offset(stretches: Mapping[str, Stretch]) -> Offset:
    """The offset of a batch that holds these stretches."""
    return {name: stretches[name] for name in sorted(stretches, key=partition_order)}


def continues(stretch: Stretch | None, partition: Partition) -> bool:
    """Whether a stretch in the seat's checkpoint is the newest that is known of the partition.

    It is, if it was taken under the epoch that the partition has; or under the one before, if its owner ended without
    a release, which would have said more. Then nobody else had the partition since, and it was not reset.
    """
    if stretch is None or stretch.epoch < partition.reset:
        return False
    return stretch.epoch == partition.epoch or (stretch.epoch == partition.before and partition.unsure)


def first_position(committed: Stretch | None, partition: Partition) -> int:
    """Where a partition goes on that came to the seat: the checkpoint may know more than was reported to the group."""
    if committed is not None and continues(committed, partition):
        return max(committed.end, partition.position)
    return partition.position


def to_repeat(stretch: Stretch, partition: Partition, position: int) -> bool:
    """Whether a stretch of a batch that Spark repeats is this seat's to process now.

    It begins where the partition stands; or it was begun by this seat, nobody has had it since, and it has not been
    reported whole.
    """
    if stretch.begin == position:
        return True
    return continues(stretch, partition) and stretch.begin <= position < stretch.end

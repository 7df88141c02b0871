"""What every sink keeps of a partition, and how it may change: `echelon.group.delivery`, for a group of that name.

It is kept under the group's name, with the identity of the group it belongs to. So a group that is made anew meets
its forerunner in the same place: it takes the place over, and what the forerunner still has under way is refused.
"""

from msgspec import Struct

from echelon.errors import GroupExists, NotReversible
from echelon.group import delivery
from echelon.group.delivery import SinkState
from echelon.members.sinks.base import Place


class Kept(Struct, frozen=True):
    """What a sink keeps of one partition: whose it is, and the three numbers."""

    identity: str
    made: int
    state: SinkState

    @property
    def position(self) -> int:
        """Where the partition stands. It is known as soon as an epoch was opened, and nothing is kept before."""
        assert self.state.position is not None
        return self.state.position


def open_kept(kept: Kept | None, place: Place, *, epoch: int, reset: int, position: int) -> Kept | None:
    """What is to be kept once the epoch is open. None: a later epoch is there.

    Raises GroupExists if what is kept belongs to a group of the same name that was made later.
    """
    state = SinkState()
    if kept is not None and kept.identity == place.identity:
        state = kept.state
    elif kept is not None and (kept.made, kept.identity) > (place.made, place.identity):
        raise GroupExists(
            f"the sink belongs to another group named {place.group}, which was made later than this one",
            remedy="Stop the members of the older group, or give it another sink",
        )
    opened = delivery.open_epoch(state, epoch=epoch, reset=reset, position=position)
    return None if opened is None else Kept(place.identity, place.made, opened)


def commit_kept(kept: Kept | None, place: Place, *, epoch: int, begin: int, end: int) -> Kept | None:
    """What is to be kept once the batch is committed. None: refused."""
    if kept is None or kept.identity != place.identity:
        return None
    state = delivery.commit(kept.state, epoch=epoch, begin=begin, end=end)
    return None if state is None else Kept(kept.identity, kept.made, state)


def falls_back(before: Kept | None, after: Kept) -> bool:
    """Whether there may be results past the position that `after` sets."""
    return before is not None and before.identity == after.identity and before.position > after.position


def not_reversible(place: Place, position: int) -> NotReversible:
    """The error of a sink that would have to take back results and cannot."""
    return NotReversible(
        f"partition {place.partition} of {place.group} is reset to {position}, and the sink cannot take back the "
        "results past that",
        remedy="Give a database sink a take_back function, or reset again and keep the output",
    )

"""Exactly once: what a sink with positions must check, as pure functions.

A sink keeps, for each partition of a group's identity, three numbers beside the results, and changes them in
the same transaction as the results. `fence` and `committed` are apart because writing an epoch is not yet a
commit: only a commit made after a reset makes the sink's position newer than the reset's.
"""

from msgspec import Struct


class SinkState(Struct, frozen=True):
    """What a sink holds of a partition: the epoch that may commit, the epoch of the last commit, the position."""

    fence: int = 0
    committed: int = 0
    position: int | None = None


def open_epoch(state: SinkState, *, epoch: int, reset: int, position: int) -> SinkState | None:
    """Write a new owner's epoch; the position of the result is where it goes on. None: a later epoch is there.

    `reset` is the sequence of the partition's last reset, `position` the log's position. The log's wins if the
    sink has none, or if its last commit is older than the reset; what lies past it is then taken back.
    """
    if epoch < state.fence:
        return None
    log_wins = state.position is None or state.committed < reset
    return SinkState(fence=epoch, committed=state.committed, position=position if log_wins else state.position)


def commit(state: SinkState, *, epoch: int, begin: int, end: int) -> SinkState | None:
    """Commit a batch from `begin` up to `end`. None: refused, and the owner opens its epoch again."""
    if epoch != state.fence or begin != state.position:
        return None
    return SinkState(fence=epoch, committed=epoch, position=end)

"""Exit codes, which are stable, and errors as a user sees them."""

from typing import Final

from echelon import errors
from echelon.errors import EchelonError

DECLINED: Final = 10
"""The user did not confirm."""
NOT_EXACT: Final = 11
"""An audit found messages that are not there exactly once and in order."""
INTERRUPTED: Final = 130
"""Ctrl-C, as shells have it."""
TERMINATED: Final = 143
"""SIGTERM, as shells have it."""

_CODES: Final[dict[type[EchelonError], int]] = {
    EchelonError: 1,
    errors.InvalidConfig: 2,
    errors.NotPartitionable: 2,
    errors.UnknownName: 3,
    errors.GroupNotFound: 3,
    errors.StreamNotFound: 3,
    errors.GroupExists: 4,
    errors.GroupDeleted: 4,
    errors.WrongState: 4,
    errors.NotReversible: 4,
    errors.Unreachable: 5,
    errors.ConsumerNotFound: 3,
    errors.ConsumerExists: 4,
    errors.FilterTaken: 4,
    errors.Denied: 6,
    errors.Unsupported: 7,
    errors.LogBroken: 8,
    errors.UnknownVersion: 8,
    errors.MissingComponent: 9,
}


def exit_code(error: EchelonError) -> int:
    """The code of an error: that of the nearest class above it that has one."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


def message(error: EchelonError) -> str:
    """What happened, and what to do about it."""
    return f"error: {error.what}" + (f"\n{error.remedy}" if error.remedy else "")

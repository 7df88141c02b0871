"""The clock by which an instance fences itself: monotonic, and it counts a machine's sleep where it can."""

import time
from typing import Final

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> int:
    """Milliseconds since the machine was started."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000

"""Times and durations as users write them."""

import math
import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from echelon.errors import InvalidConfig

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_END: Final = 2**63 // 10**6  # Brokers count in 64 bits; NATS does so in nanoseconds.


def duration(text: str) -> float:
    """Seconds of `90s`, `1h30m`, `2d`, `250ms`; a plain number is seconds. Raises InvalidConfig."""
    with suppress(ValueError):
        if math.isfinite(seconds := float(text)):
            return seconds
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InvalidConfig(f"'{text}' is no duration", remedy="Write 90s, 1h30m or 2d")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def moment(text: str, now: int, *, ahead: bool = False) -> int:
    """A time in milliseconds: ISO 8601 (UTC unless it says otherwise), a time of today, or a duration from now.

    A duration is counted back, unless it begins with `+` or `ahead` is set. Raises InvalidConfig; also for a time that
    no broker can tell, before 1970 or after 2262.
    """
    here = datetime.fromtimestamp(now / 1000, UTC)
    try:
        found = _time(text, here) or _from_now(text, here, ahead=ahead)
    except (InvalidConfig, OverflowError):
        raise InvalidConfig(
            f"'{text}' is no time", remedy="Write 2026-01-31T12:00 (UTC), 12:00, or a duration from now, as 90s or 2h"
        ) from None
    time = round(found.timestamp() * 1000)
    if not 0 <= time < _END:
        raise InvalidConfig(f"'{text}' is too far away", remedy="Write a time between 1970 and 2262")
    return time


def _time(text: str, here: datetime) -> datetime | None:
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?", text):
        text = f"{here:%Y-%m-%d}T{text if text[2] == ':' else '0' + text}"
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _from_now(text: str, here: datetime, *, ahead: bool) -> datetime:
    forward = text.startswith("+") or (ahead and not text.startswith("-"))
    seconds = duration(text.lstrip("+-"))
    return here + timedelta(seconds=seconds if forward else -seconds)

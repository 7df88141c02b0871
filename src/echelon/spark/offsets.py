"""Positions as Spark keeps them: a JSON object by partition, always written the same way.

Spark compares offsets as text, so equal positions must be written equally. The offset of a stream that is read
without a group also has the stream's identity, by which one made anew is recognised.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

from echelon.errors import InvalidConfig
from echelon.model import partition_order

Offset = dict[str, int | str]
Place = Literal["earliest", "latest"] | int | Mapping[str, int]
"""Where to begin or to end; a number is a broker time in milliseconds, a mapping has positions by partition."""

_IDENTITY: Final = "identity"


def in_order(positions: Mapping[str, int]) -> dict[str, int]:
    """The positions, the partitions in their order."""
    return {name: positions[name] for name in sorted(positions, key=partition_order)}


def to_offset(positions: Mapping[str, int], identity: str = "") -> Offset:
    """The offset that says these positions; `json.dumps` makes the same text of the same positions."""
    offset: Offset = {**in_order(positions)}
    if identity:
        offset[_IDENTITY] = identity
    return offset


def from_offset(offset: Mapping[str, int | str]) -> dict[str, int]:
    """The positions of an offset."""
    return {name: int(position) for name, position in offset.items() if name != _IDENTITY}


def identity_of(offset: Mapping[str, int | str]) -> str:
    """The identity of the stream that an offset is of; empty if it does not say."""
    return str(offset.get(_IDENTITY, ""))


def parse_place(option: str, text: str) -> Place:
    """What the option says: `earliest`, `latest`, a JSON object of positions, or a time.

    A time is milliseconds since the epoch, or a date and time as ISO 8601 writes them; without a zone it is
    UTC. Raises InvalidConfig.
    """
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    try:
        if text.startswith("{"):
            positions = msgspec.json.decode(text, type=dict[str, int | str])
            return in_order(from_offset(positions))
        if text.isdecimal():
            return int(text)
        time = datetime.fromisoformat(text)
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidConfig(
            f"the option {option} is '{text}', which names no positions",
            remedy='Write earliest, latest, positions as {"0": 17}, or a time as 2026-01-31T12:00:00Z',
        ) from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)

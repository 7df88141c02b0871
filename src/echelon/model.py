"""The words that every layer shares, as frozen structs.

A *partition* is the unit of order. It is named by its stream and number (`orders/3`), or by the number
alone (`3`) in a group over one stream. A *position* is the sequence of the next message to process.
Times are whole milliseconds: broker time since the epoch, group time since the group was made.
"""

from msgspec import Struct


class Message(Struct, frozen=True, gc=False):
    """One message of a partition, as a handler gets it.

    `subject` is the NATS subject without the partition token, or the Kafka topic. `key` is what order is
    kept by; on Kafka it is None for a record without a key. `time` is the broker's, in milliseconds.
    """

    partition: str
    sequence: int
    subject: str
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    data: bytes
    time: int


class Entry(Struct, frozen=True, gc=False):
    """One record of a group's log as the broker holds it, not yet decoded."""

    sequence: int
    time: int
    data: bytes


class Bounds(Struct, frozen=True, gc=False):
    """What a partition holds: `first` is its oldest sequence, `end` one past its newest."""

    first: int
    end: int


def publishers_headers(message: Message) -> dict[str, str]:
    """The headers that a copy may have: not the broker's, by which it would be a duplicate or misplaced, nor ours.

    Of several with one name it is the first, by which keys go.
    """
    kept = [(n, v) for n, v in message.headers if not n.lower().startswith(("nats-", "echelon-"))]
    return {name: value.decode(errors="replace") for name, value in reversed(kept)}


def partition_name(stream: str, number: int, *, alone: bool) -> str:
    """The name of a stream's partition; `alone` if the group is over this one stream."""
    return str(number) if alone else f"{stream}/{number}"


def partition_order(name: str) -> tuple[str, int, str]:
    """Sort key of partition names: by stream, then by number, so that `10` comes after `9`."""
    stream, _, number = name.rpartition("/")
    return (stream, int(number), "") if number.isdecimal() else (name, -1, number)

"""How far a batch may go: which ends to take, given positions, what the partitions hold, and a limit."""

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from echelon.group.config import Stream


def spread(stream: Stream) -> int:
    """Over how many partitions the sequences of a stream are spread: Kafka numbers each one, NATS only the stream."""
    return 1 if stream.partitioning == "native" else stream.partitions


def choose_ends(
    positions: Mapping[str, int], ends: Mapping[str, int], spreads: Mapping[str, int], limit: int | None
) -> dict[str, int]:
    """The end to read to, for each partition that has a position: between its position and its end in `ends`.

    With a limit, the ranges hold about that many messages, and no more if sequences are spread evenly: each
    partition gets a part of the limit as large as its part of all that is there to read. If there is anything
    to read, the result is ahead of the positions; and where the limit allows one message of each partition, none
    is passed over. A position beyond the end stays where it is.
    """
    whole = {name: max(position, ends.get(name, position)) for name, position in positions.items()}
    backlog = {
        name: Fraction(end - positions[name], spreads[name]) for name, end in whole.items() if end > positions[name]
    }
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return whole
    least = sum(Fraction(1, spreads[name]) for name in backlog)
    chosen = dict(positions)
    if limit < least:
        for name in sorted(backlog, key=lambda name: backlog[name], reverse=True)[: max(1, limit)]:
            chosen[name] += 1
        return chosen
    # One sequence each; the rest by what is there beyond that.
    beyond = Fraction(limit - least, total - least)
    for name, messages in backlog.items():
        chosen[name] += 1 + floor((messages * spreads[name] - 1) * beyond)
    return chosen

"""What must hold of all that the processes of a group handled: order, loss, duplication, exclusion."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tests.members.process import Line

Guarantee = Literal["once", "at_least_once", "at_most_once"]
"""`once`: nobody was killed or cut off, so that nothing is repeated or left out whatever the group's delivery is."""


class Frozen(Struct, frozen=True):
    """A process was suspended for this span of time: nothing of it ran."""

    name: str
    begin: float
    end: float


def check_order(lines: Iterable[Line], sent: Mapping[str, Sequence[str]], guarantee: Guarantee) -> None:
    """Every key's messages were handled in order, one after the other, and as often as the guarantee has it.

    They are taken in the order in which they were begun. Whoever goes on begins at the next message or before it,
    at least once; after it, at most once.
    """
    by_key: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_key[line.key].append(line)
    unknown = by_key.keys() - sent.keys()
    assert not unknown, f"nobody sent {sorted(unknown)[:5]}"
    for key, expected in sent.items():
        found = sorted(by_key[key], key=order_of)
        strange = {line.data for line in found} - set(expected)
        assert not strange, f"{key}: nobody sent {sorted(strange)[:5]}"
        if guarantee != "at_most_once":
            lost = sorted(set(expected) - {line.data for line in found}, key=number_of)
            assert not lost, f"{key}: lost {lost[:5]}"
        previous = number_of(expected[0]) - 1 if expected else -1
        for line in found:
            number = number_of(line.data)
            if guarantee != "at_most_once":
                assert number <= previous + 1, f"{key}: {number} follows {previous}, by {line.name}"
            if guarantee != "at_least_once":
                assert number > previous, f"{key}: {number} follows {previous} again, by {line.name}"
            previous = number


def check_places(lines: Iterable[Line]) -> None:
    """A message is always at the same place."""
    places: dict[str, tuple[str, int]] = {}
    for line in lines:
        place = (line.partition, line.sequence)
        assert places.setdefault(line.data, place) == place, f"{line.data} is at {places[line.data]} and at {place}"


def check_exclusion(lines: Iterable[Line], frozen: Sequence[Frozen] = ()) -> None:
    """No two processes handled messages of one partition at the same time, nor one process two of one key.

    Epochs only grow, and each is one process's (0 stands for one that was not told). What had begun when its process
    was suspended counts as ended then: nobody can take that back.
    """
    by_partition: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_partition[line.partition].append(line)
    for partition, found in by_partition.items():
        found.sort(key=order_of)
        epoch, owner = 0, ""
        ended: dict[str, float] = {}
        ended_key: dict[str, float] = {}
        for line in found:
            where = f"partition {partition}, message {line.sequence}"
            assert not line.epoch or line.epoch >= epoch, (
                f"{where}: {line.name} began under {line.epoch}, after {epoch}"
            )
            shared = line.epoch and line.epoch == epoch and line.name != owner
            assert not shared, f"{where}: {owner} and {line.name} both under {epoch}"
            others = [name for name, end in ended.items() if name != line.name and end > line.begun]
            assert not others, f"{where}: {line.name} and {others[0]} at the same time"
            assert ended_key.get(line.key, 0.0) <= line.begun, f"{where}: two of the key {line.key} at the same time"
            epoch, owner = line.epoch or epoch, line.name
            end = end_of(line, frozen)
            ended[line.name] = max(ended.get(line.name, 0.0), end)
            ended_key[line.key] = end


def end_of(line: Line, frozen: Sequence[Frozen]) -> float:
    """When the handling of a message ended; when its process was suspended, if the handler had been called by then."""
    spans = [each.begin for each in frozen if each.name == line.name and line.called <= each.begin < line.ended]
    return min(spans, default=line.ended)


def order_of(line: Line) -> tuple[float, float]:
    """Sort key: messages in the order in which they were begun. A call of a handler is begun as a whole."""
    return line.called, line.begun


def number_of(data: str) -> int:
    """A message's number within its key."""
    return int(data.rpartition(":")[2])

"""Why a partition is where it is, in a sentence that a person understands."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from echelon.brokers.base import Log
from echelon.errors import UnknownName
from echelon.group.world import Partition, World
from echelon.model import Entry
from echelon.ops.changes import Change, Observer
from echelon.ops.listing import check_partition
from echelon.ops.replay import replays
from echelon.ops.status import when


class Answer(Struct, frozen=True, kw_only=True):
    """Who owns a partition at some time, since which record, and why; `changes` led there, in order."""

    partition: str
    member: str | None
    name: str | None
    instance: str | None
    since: datetime | None
    sequence: int | None
    sentence: str
    changes: tuple[Change, ...]


async def ask(log: Log, partition: str, at: int | None = None) -> Answer:
    """The same of a log; it is read only as far back as the answer needs.

    Raises UnknownName also for a time before the log, if that was trimmed, and what `replays` raises.
    """
    answer = None
    async for found in replays(log):
        begin = found.world.broker_time
        if found.whole and at is not None and at < begin:
            raise UnknownName("the log does not go back that far", remedy=f"It begins at {_clock(when(begin))}")
        if found.whole or at is None or begin <= at:
            known = partition in found.world.partitions
            answer = why(found.world, found.entries, partition, at) if known or found.whole else None
            if answer is not None and any(change.change == "lost" for change in answer.changes):
                break
    assert answer is not None
    return answer


def why(world: World, entries: Sequence[Entry], partition: str, at: int | None = None) -> Answer:
    """Why a partition was where it was at a broker time, or is where it is at the end of the entries.

    The entries follow `world`, which is used up. Raises UnknownName if there is no such partition.
    """
    observer = Observer(world)
    observer.take(entry for entry in entries if at is None or entry.time <= at)
    check_partition(observer.world, partition)
    found = observer.world.partitions[partition]
    chain = _chain([change for change in observer.changes if change.partition == partition])
    last = next((c for c in reversed(chain) if c.change in ("gained", "lost")), None)
    return Answer(
        partition=partition,
        member=found.seat,
        name=observer.world.instances[found.owner].profile.name if found.owner is not None else None,
        instance=found.owner,
        since=last.time if last is not None else None,
        sequence=last.sequence if last is not None else None,
        sentence=_sentence(partition, chain, observer),
        changes=tuple(chain),
    )


def _chain(changes: Sequence[Change]) -> list[Change]:
    """The last change of owner as a whole: from the one that had it before to the one that has it now."""
    start = 0
    gains = [place for place, change in enumerate(changes) if change.change == "gained"]
    ends_owned = bool(changes) and gains and not any(c.change == "lost" for c in changes[gains[-1] :])
    if ends_owned:
        start = gains[-2] if len(gains) > 1 else 0
    elif gains:
        start = gains[-1]
    return list(changes[start:])


def _sentence(partition: str, chain: Sequence[Change], observer: Observer) -> str:
    gained = next((c for c in reversed(chain) if c.change == "gained"), None)
    lost = next((c for c in reversed(chain) if c.change == "lost"), None)
    found = observer.world.partitions[partition]
    missing = _missing(found, observer.world)
    if gained is None and lost is None:
        if found.owner is None:
            return f"Partition {partition} belongs to nobody: {missing}."
        member = found.former[0] if found.former is not None else found.seat
        who = _name(member, found.owner, observer.world.instances[found.owner].profile.name)
        return f"Partition {partition} belongs to {who}, since before the oldest record that the log still has."
    if gained is None or (lost is not None and chain.index(lost) > chain.index(gained)):
        assert lost is not None
        return (
            f"Partition {partition} has belonged to nobody since {_clock(lost.time)}, when record {lost.sequence} "
            f"({_a(lost.record)}) took it from {_who(lost)}: {lost.cause}{_moved(chain, lost)}; {missing}."
        )
    return _sentence_of_gain(partition, chain, gained, lost)


def _sentence_of_gain(partition: str, chain: Sequence[Change], gained: Change, lost: Change | None) -> str:
    if lost is None:
        moved, reasons = f"came to {_who(gained)}", gained.cause
    else:
        same = lost.instance == gained.instance
        moved = f"came back to {_who(gained)}" if same else f"went from {_who(lost)} to {_who(gained)}"
        told = [f"{lost.cause}{_moved(chain, lost)}"]
        if lost.sequence != gained.sequence:
            seconds = (gained.time - lost.time).total_seconds()
            told.append(f"nobody had it from record {lost.sequence} on, for {seconds:.1f} s")
        reasons = "; ".join([*told, gained.cause])
    return (
        f"Partition {partition} {moved} at {_clock(gained.time)} by record {gained.sequence} ({_a(gained.record)}): "
        f"{reasons}. It went on at position {gained.position}.{_since(chain, gained)}"
    )


def _since(chain: Sequence[Change], gained: Change) -> str:
    """What has happened since it was gained, by the last record of each kind."""
    later = {change.change: change for change in chain[chain.index(gained) :]}
    told = ""
    if "reset" in later:
        told += f" Since then {later['reset'].cause} (record {later['reset'].sequence})."
    if "moving" in later:
        told += f" It is to move on: {later['moving'].cause} (record {later['moving'].sequence})."
    return told


def _moved(chain: Sequence[Change], lost: Change) -> str:
    """Why it had to be released, if it was asked for before it was lost."""
    moving = [c for c in chain if c.change == "moving" and c.instance == lost.instance and c.sequence <= lost.sequence]
    return f", because {moving[-1].cause} (record {moving[-1].sequence})" if moving else ""


def _missing(partition: Partition, world: World) -> str:
    """Why nobody owns the partition now."""
    if world.deleted:
        return "the group was deleted"
    if world.paused is not None:
        return f"the group is paused, by record {world.paused.sequence}"
    if partition.held:
        return "it was added, and waits until the older partitions have passed their ends"
    if world.cut is not None:
        return f"the cut {world.cut.sequence} is under way"
    if partition.seat is None:
        return "there is no seat that it could belong to"
    return f"nobody has claimed the seat of {partition.seat} yet"


def _who(change: Change) -> str:
    return _name(change.member, change.instance or "", change.name)


def _name(member: str | None, instance: str, name: str | None) -> str:
    return f"{name} ({instance[:6]})" if member == instance else f"{member} ({name} {instance[:6]})"


def _a(record: str) -> str:
    """The kind of a record with its article."""
    word = record.replace("_", " ")
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 100_000} UTC"

"""The records of a log in words, and logs of which only the end is left."""

import asyncio

import msgspec
import pytest

from echelon.errors import GroupNotFound, LogBroken, UnknownName
from echelon.group.world import World, dump
from echelon.model import Bounds, Entry
from echelon.ops.changes import changes
from echelon.ops.events import events
from echelon.ops.history import HistoryRow, history
from echelon.ops.replay import Replay, replay, times_of
from echelon.ops.why import ask
from tests.group.builders import EPOCH, GARBAGE, Log, make

A, B = "a-0001-xyz", "b-0002-xyz"


class Kept:
    """What a broker still holds of a log."""

    def __init__(self, log: Log, first: int = 1) -> None:
        self._entries = [entry for entry in log.entries if entry.sequence >= first]
        self.end = log.world.sequence + 1
        self.first = first

    async def append(self, data: bytes, *, admin: bool = False) -> int:
        raise NotImplementedError

    async def bounds(self) -> Bounds:
        return Bounds(self.first, self.end)

    async def read(self, start: int, end: int) -> list[Entry]:
        return [entry for entry in self._entries if start <= entry.sequence < end]

    def follow(self, start: int) -> object:
        raise NotImplementedError

    async def trim(self, before: int) -> None:
        raise NotImplementedError


def told(log: Log, **options: bool) -> list[HistoryRow]:
    return list(history(World(), log.entries, **options))


def busy() -> Log:
    """A log with a record of most kinds."""
    log = Log(make(members=["m1"], on_failure="park"))
    log.sit(A, "m1", name="web-1", priority=2)
    log.join(B, None, name="web-2")
    log.claim(B, "m1")
    log.report(A, "0", 5, parked={"k": 2})
    log.write("admin", "unpark", partition="0", keys=["k"], skip=True)
    cut = log.write("admin", "cut")
    log.part(A, "0", "1", cut=cut)
    log.write("admin", "reset", positions={"0": 2, "1": 0}, cut=cut)
    log.write("admin", "retire", cut=cut)
    log.write("admin", "pause", until=EPOCH + 60_000)
    log.release(A, "0", "1")
    log.write("admin", "resume")
    log.step_down("m1")
    log.write(B, "leave", gone=A)
    log.append(GARBAGE)
    return log


def test_every_record_is_told_in_words() -> None:
    log = busy()
    rows = told(log)
    cut = next(row.sequence for row in rows if row.record == "cut")
    assert [(row.record, row.by, row.what) for row in rows] == [
        ("configure", "admin maker", "2 partitions of data; seats: m1"),
        ("join", "web-1 a-0001", "for m1, priority 2"),
        ("claim", "web-1 a-0001", "the seat of m1"),
        ("join", "web-2 b-0002", "for any seat"),
        ("claim", "web-2 b-0002", "the seat of m1: refused, it is not vacant"),
        ("unpark", "admin admin", "skip k of 0"),
        ("cut", "admin admin", ""),
        ("cut_part", "web-1 a-0001", "0 at 5, 1 at 0"),
        ("reset", "admin admin", f"to the cut {cut}: 0 to 2, 1 to 0"),
        ("retire", "admin admin", f"the cut {cut}"),
        ("pause", "admin admin", "until 2023-11-14 22:14:20 UTC"),
        ("release", "web-1 a-0001", "0 at 2, 1 at 0"),
        ("resume", "admin admin", ""),
        ("step_down", "admin admin", "the seat with epoch 3"),
        ("leave", "web-2 b-0002", "the process of web-1 is gone"),
        ("unreadable", "", ""),
    ]
    assert [row.sequence for row in rows if not row.counted] == [log.world.sequence]


def test_routine_is_told_only_when_asked_for() -> None:
    log = busy()
    assert len(told(log, routine=True)) == len(log.entries)
    assert [row.what for row in told(log, routine=True) if row.record == "heartbeat"] == ["0 at 5"]
    assert not any(row.record == "heartbeat" for row in told(log))


def test_a_join_that_is_repeated_is_routine_but_not_one_after_a_step_down() -> None:
    log = Log(make(members=["m1"]))
    first = log.join(A, "m1")
    again = log.join(A, "m1")
    log.claim(A, "m1")
    log.step_down("m1")
    back = log.join(A, "m1")
    assert [row.sequence for row in told(log) if row.record == "join"] == [first, back]
    assert [row.sequence for row in told(log, routine=True) if row.record == "join"] == [first, again, back]


def test_a_join_that_is_repeated_is_told_if_it_may_have_put_out_a_namesake() -> None:
    log = Log(make(members=["m1"]))
    joins = [log.join(A, "m1", sole=True), log.join(A, "m1", sole=True)]
    assert [row.sequence for row in told(log) if row.record == "join"] == joins


def test_a_reset_that_keeps_the_output_says_so() -> None:
    log = Log(make(members=["m1"], delivery="exactly_once"))
    log.write("admin", "reset", positions={"0": 2}, keep=True)
    assert told(log)[-1].what == "0 to 2; the sink keeps what it has"


def with_snapshot() -> tuple[Log, int]:
    """`busy`, a snapshot, and a failover after it; and the sequence that the snapshot is of."""
    log = Log(make(members=["m1"]))
    log.sit(A, "m1", name="web-1")
    log.join(B, None, name="web-2")
    as_of = log.beat(A)
    named = {"as_of": as_of, "as_of_sender": A, "as_of_counter": log.world.senders[A].counter}
    log.write(A, "snapshot", world=msgspec.Raw(dump(log.world)), **named)
    log.report(A, "0", 7)
    log.run(2.25, B)
    log.claim(B, "m1")
    return log, as_of


def found(log: Log, first: int = 1, since: int | None = None) -> Replay:
    return asyncio.run(replay(Kept(log, first), since))  # type: ignore[arg-type]  # it cannot be followed


def test_a_trimmed_log_is_replayed_from_its_snapshot() -> None:
    log, as_of = with_snapshot()
    whole, rest = found(log), found(log, as_of)
    assert (whole.whole, whole.world.sequence, len(whole.entries)) == (True, 0, len(log.entries))
    assert (rest.whole, rest.world.sequence) == (True, as_of)
    assert [entry.sequence for entry in rest.entries] == list(range(as_of + 1, log.world.sequence + 1))
    later = [change for change in changes(whole.world, whole.entries) if change.sequence > as_of]
    assert changes(rest.world, rest.entries) == later
    assert [row.kind for row in events(found(log, as_of))] == [
        row.kind for row in events(found(log)) if row.sequence > as_of
    ]


def test_why_is_told_from_a_trimmed_log_as_from_the_whole_one() -> None:
    log, as_of = with_snapshot()
    answers = [
        asyncio.run(ask(Kept(log, first), "0"))  # type: ignore[arg-type]  # it cannot be followed
        for first in (1, as_of)
    ]
    assert answers[0].sentence.endswith("web-2 (b-0002) claimed the seat of m1. It went on at position 7.")
    assert answers[1].name == answers[0].name == "web-2"
    assert answers[1].sequence == answers[0].sequence
    assert "web-1 (a-0001) was stale" in answers[1].sentence


def test_why_of_a_partition_that_stays_since_before_a_trimmed_log_says_so() -> None:
    log, as_of = with_snapshot()
    kept = Kept(log, as_of)
    at = log.entries[as_of].time  # of the record after it
    answer = asyncio.run(ask(kept, "0", at))  # type: ignore[arg-type]  # it cannot be followed
    assert (answer.name, answer.instance, answer.sequence, answer.since) == ("web-1", A, None, None)
    assert answer.sentence == (
        "Partition 0 belongs to m1 (web-1 a-0001), since before the oldest record that the log still has."
    )
    with pytest.raises(UnknownName, match="does not go back that far"):
        asyncio.run(ask(kept, "0", log.entries[0].time - 1))  # type: ignore[arg-type]  # as above


def test_a_log_without_its_beginning_or_a_snapshot_is_broken() -> None:
    log = busy()
    with pytest.raises(LogBroken):
        found(log, 2)


def test_an_empty_log_is_no_group() -> None:
    with pytest.raises(GroupNotFound):
        found(Log())


def test_times_of_records_are_read_from_the_log_only_where_they_are_not_known() -> None:
    log, as_of = with_snapshot()
    kept = Kept(log, as_of)
    known = [entry for entry in log.entries if entry.sequence == log.world.sequence]
    times = asyncio.run(times_of(kept, known, {0, 1, as_of, log.world.sequence}))  # type: ignore[arg-type]  # as above
    assert times == {as_of: EPOCH, log.world.sequence: log.clock}

"""Groups, members, partitions, cuts and parked keys as tables: what stands in each column, in every state."""

from datetime import UTC, datetime

import pytest

from echelon.ops import kept, progress, status
from echelon.ops.progress import Ends
from tests.group.builders import EPOCH, INTERVAL, Log, grown, make

A, B, C = "a-0001-xyz", "b-0002-xyz", "c-0003-xyz"
MACHINE = {"boot": "boot", "namespace": "n", "processes": [[4711, 1]], "host": "mill"}


def seated(**options: object) -> Log:
    """`web-1` holds m1 and owns both partitions; m2 is vacant; `web-2` stands by."""
    log = Log(make(**options))
    log.sit(A, "m1", name="web-1")
    log.join(B, None, name="web-2", priority=3, machine=MACHINE)
    return log


def test_a_group_in_one_line() -> None:
    log = seated()
    log.report(A, "0", 5)
    log.beat(A, p0=3, p1=4)
    row = status.group_row("g", log.world, log.clock)
    assert (row.kind, row.membership, row.state, row.streams) == ("echelon", "listed", "active", ("data",))
    assert (row.partitions, row.idle, row.seats, row.active, row.standby) == (2, 1, 2, 1, 1)
    assert row.pending == 7


def test_the_state_of_a_group_in_one_word() -> None:
    log = seated()
    assert status.state(log.world, log.clock) == "active"
    assert status.state(log.world, log.clock + 2 * INTERVAL) == "active"
    assert status.state(log.world, log.clock + 2 * INTERVAL + 1) == "silent"
    log.write("admin", "cut")
    assert status.state(log.world, log.clock) == "cutting"
    log.write("admin", "pause")
    assert status.state(log.world, log.clock) == "paused"
    assert status.state(log.world, log.clock + 60_000) == "silent"
    log.write("admin", "delete")
    assert status.state(log.world, log.clock + 60_000) == "deleted"
    assert status.state(Log(make()).world, EPOCH + 60_000) == "empty"


def test_seats_come_first_and_then_those_who_stand_by() -> None:
    log = seated()
    claim = log.world.seats["m1"].epoch
    log.later(0.5).beat(B)
    rows = status.members(log.world, log.clock + 500, {claim: EPOCH})
    assert [(row.member, row.role, row.state, row.name) for row in rows] == [
        ("m1", "active", "fresh", "web-1"),
        ("m2", "vacant", None, None),
        (None, "standby", "fresh", "web-2"),
    ]
    assert [(row.epoch, row.partitions, row.seen_seconds) for row in rows] == [
        (claim, 1, 1.0),
        (None, None, None),
        (None, 0, 0.5),
    ]
    assert rows[0].since == rows[2].since == datetime.fromtimestamp(EPOCH / 1000, UTC)
    assert (rows[2].host, rows[2].pid, rows[2].priority) == ("mill", 4711, 3)
    assert status.members(log.world, log.clock)[0].since is None


def test_the_liveness_of_an_instance() -> None:
    log = seated()

    def state() -> str | None:
        return status.members(log.world, log.clock)[0].state

    log.run(1.0, B)
    assert state() == "fresh"
    log.run(0.5, B)
    assert state() == "unknown"
    log.run(1.0, B)
    assert state() == "stale"
    assert status.members(log.world, log.clock + 10_000)[2].state == "silent"


def test_the_place_of_a_partition_in_one_word() -> None:
    log = seated(members=["m1"])

    def places() -> list[str]:
        return [row.state for row in progress.partitions(log.world, {}, log.clock)]

    assert places() == ["owned", "owned"]
    log.step_down("m1")
    assert places() == ["moving", "moving"]
    log.release(A, "0")
    assert places() == ["idle", "moving"]
    log.write("admin", "pause")
    log.release(A, "1")
    assert places() == ["paused", "paused"]
    log.write("admin", "resume")
    log.claim(B, "m1")
    assert places() == ["owned", "owned"]
    assert {row.state for row in progress.partitions(log.world, {}, log.clock + 10_000)} == {"idle"}


def test_a_partition_that_was_not_released_waits_until_its_new_owner_reports() -> None:
    log = seated(members=["m1"])
    log.run(2.25, B)
    log.claim(B, "m1")
    assert progress.partitions(log.world, {}, log.clock)[0].state == "waiting"
    log.report(B, "0", 1)
    assert [row.state for row in progress.partitions(log.world, {}, log.clock)] == ["owned", "waiting"]


def test_a_partition_that_was_added_is_held_until_the_older_ones_have_passed_their_ends() -> None:
    config = make(members=["m1"])
    log = Log(config)
    log.sit(A, "m1", name="web-1")
    log.reconfigure(grown(config, 3, 10))
    assert [row.state for row in progress.partitions(log.world, {}, log.clock)] == ["owned", "owned", "held"]


def test_partitions_are_shown_with_what_the_broker_holds_of_them() -> None:
    log = seated(members=["m1"])
    log.later(0.5).report(A, "0", 5, parked={"k": 2})
    rows = progress.partitions(
        log.world,
        {"0": Ends(1, 9, 4, log.clock - 1500)},
        log.clock,
        progress.last_progress(log.entries),
    )
    known, unknown = rows
    assert (known.partition, known.member, known.owner, known.position) == ("0", "m1", "web-1 a-0001", 5)
    assert (known.end, known.lag, known.lag_seconds, known.parked) == (9, 4, 1.5, 1)
    assert known.last_progress == datetime.fromtimestamp(log.clock / 1000, UTC)
    assert (unknown.end, unknown.lag, unknown.lag_seconds, unknown.last_progress) == (None, None, None, None)


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    log = Log(make(12))
    assert [row.partition for row in progress.partitions(log.world, {}, log.clock)] == list(map(str, range(12)))


def test_lag_ends_with_the_total_and_the_longest_wait() -> None:
    log = seated(members=["m1"])
    ends = {"0": Ends(1, 9, 4, log.clock - 1500), "1": Ends(1, 9, 0)}
    rows = progress.lag(log.world, ends, log.clock)
    assert [(row.partition, row.lag, row.lag_seconds) for row in rows] == [
        ("0", 4, 1.5),
        ("1", 0, 0.0),
        ("total", 4, 1.5),
    ]
    assert [row.partition for row in progress.lag(log.world, {}, log.clock)] == ["total"]


def test_cuts_and_their_parts() -> None:
    log = seated(members=["m1"])
    log.report(A, "0", 5, parked={"k": 2})
    cut = log.write("admin", "cut")
    log.later(0.5).part(A, "0", "1", cut=cut, states={"1": "c3RhdGU="})
    [row] = kept.cuts(log.world)
    assert (row.cut, row.kind, row.partitions, row.parked) == (cut, "asked", 2, 1)
    assert [(part.partition, part.position, part.parked) for part in kept.cut_parts(log.world, cut)] == [
        ("0", 5, 1),
        ("1", 0, 0),
    ]
    assert row.saved_bytes == sum(part.saved_bytes for part in kept.cut_parts(log.world, cut))


@pytest.mark.parametrize(("skip", "asked"), [(False, "retry"), (True, "skip")])
def test_parked_keys_come_by_sequence_with_what_was_asked_for_them(skip: bool, asked: str) -> None:
    log = seated(members=["m1"], on_failure="park")
    log.report(A, "0", 9, parked={"late": 7, "soon": 3})
    assert [(row.partition, row.key, row.sequence, row.asked) for row in kept.parked(log.world)] == [
        ("0", "soon", 3, None),
        ("0", "late", 7, None),
    ]
    log.write("admin", "unpark", partition="0", keys=["late"], skip=skip)
    assert [row.asked for row in kept.parked(log.world)] == [None, asked]

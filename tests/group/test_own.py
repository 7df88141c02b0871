"""What an instance knows of itself: its lease, what it has read when, its counter, its runs, its snapshots."""

from itertools import pairwise

from echelon.group.own import Own
from echelon.group.records import Heartbeat, Progress, Release
from echelon.group.world import load
from tests.group.builders import GARBAGE, INTERVAL, Log, Member, make


def sitting(**options: object) -> Member:
    """`a`, which holds m1 and runs both partitions."""
    member = Member(Log(make(members=["m1"], **options)), "a", "m1")
    member.settle()
    assert set(member.own.runs) == {"0", "1"}
    return member


def fenced(member: Member) -> bool:
    return member.own.fenced(INTERVAL, member.now)


def beat() -> Heartbeat:
    return Heartbeat(group="g", sender="a")


# The lease


def test_an_instance_is_fenced_until_it_has_read_back_a_record_of_its_own() -> None:
    member = Member(Log(make()), "a", "m1")
    member.read()
    assert fenced(member)
    member.act()
    assert fenced(member)
    member.read()
    assert not fenced(member)


def test_the_lease_runs_for_one_interval_from_sending_and_not_from_reading_back() -> None:
    member = sitting()
    member.later(0.2).send(beat())
    member.later(0.9).read()
    assert not fenced(member)
    member.later(0.1)
    assert not fenced(member)
    member.later(0.001)
    assert fenced(member)


def test_sending_alone_renews_nothing() -> None:
    member = sitting()
    for _ in range(5):
        member.later(0.25).send(beat())
    assert fenced(member)


def test_the_lease_runs_from_the_first_time_that_a_record_was_sent_however_often_it_is_sent_again() -> None:
    member = sitting()
    member.later(0.5)
    member.send(beat())
    again = member.log.entries[-1].data
    del member.log.entries[-1]
    member.later(0.7)
    member.log.append(again)
    member.read()
    member.later(0.31)
    assert fenced(member)


def test_the_newest_of_the_records_that_were_read_back_counts() -> None:
    member = sitting()
    member.later(0.4).send(beat())
    member.later(0.4).send(beat())
    member.read()
    member.later(1)
    assert not fenced(member)


def test_a_record_that_did_not_count_renews_nothing() -> None:
    member = sitting()
    member.log.run(0.25)
    member.log.write("b", "join", profile={"name": "b"})
    member.log.write("b", "leave", gone="a")
    member.later(0.8).send(beat())
    member.read()
    member.later(0.3)
    assert fenced(member)


def test_records_of_others_renew_nothing() -> None:
    member = sitting()
    member.log.join("b", "m1")
    for _ in range(5):
        member.later(0.25)
        member.log.beat("b")
        member.read()
    assert fenced(member)


def test_an_instance_whose_world_is_void_is_fenced_until_it_reads_back_a_new_record() -> None:
    member = sitting()
    member.send(beat())
    member.own.start_over(member.now)
    assert fenced(member)
    member.read()
    assert fenced(member)
    member.send(beat())
    member.read()
    assert not fenced(member)


# Counters


def test_counters_grow_with_every_record_and_over_a_void_world() -> None:
    own = Member(Log(make()), "a").own
    counters = [own.stamp(beat(), 0).counter for _ in range(3)]
    own.start_over(0)
    counters.append(own.stamp(beat(), 0).counter)
    assert counters == [1, 2, 3, 4]


# What was read when


def test_a_record_is_read_when_it_was_read_and_not_when_it_was_written() -> None:
    member = sitting()
    sequence = member.log.append(GARBAGE)
    member.later(0.7).read()
    read = member.now
    member.later(0.2)
    member.log.append(GARBAGE)
    member.read()
    assert member.own.read_at(sequence) == read


def test_what_was_not_read_itself_counts_as_read_when_the_instance_first_read_anything() -> None:
    log = Log(make())
    for _ in range(5):
        log.append(GARBAGE)
    member = Member(log, "a")
    member.later(1)
    member.own.heard(log.world, log.entries[-1], None, counted=False, now=member.now)
    assert member.own.read_at(2) == member.now


def test_records_that_were_read_together_were_read_at_one_moment() -> None:
    member = sitting()
    first = member.log.append(GARBAGE)
    member.log.append(GARBAGE)
    member.later(1).read()
    assert member.own.read_at(first) == member.now


def test_old_readings_are_forgotten_only_when_nobody_has_to_wait_for_them_any_more() -> None:
    member = sitting()
    sequences: list[int] = []
    moments: list[int] = []
    for _ in range(400):
        sequences.append(member.later(0.02).log.append(GARBAGE))
        member.read()
        moments.append(member.now)
    for sequence, moment in zip(sequences, moments, strict=True):
        exact = member.now - moment <= 2 * INTERVAL
        read = member.own.read_at(sequence)
        assert read == moment if exact else read >= moment and member.now - read >= 2 * INTERVAL
    assert len(member.own._read) < 300


# Runs


def test_a_release_is_remembered_even_for_a_partition_that_was_never_started() -> None:
    own = Own("a", Member(Log(make()), "a").own.profile, began=0)
    own.stamp(Release(group="g", sender="a", progress={"0": Progress(7, 3)}), 5)
    assert (own.runs["0"].epoch, own.runs["0"].released, own.runs["0"].state) == (7, True, "draining")


def test_a_void_world_halts_all_runs_and_keeps_what_was_released_released() -> None:
    member = sitting()
    epoch = member.run("1").epoch
    member.own.stamp(Release(group="g", sender="a", progress={"1": Progress(epoch, 0)}), member.now)
    member.own.start_over(member.now)
    assert {name: run.state for name, run in member.own.runs.items()} == {"0": "halted", "1": "halted"}
    assert member.run("0").epoch != epoch
    assert (member.run("1").epoch, member.run("1").released) == (epoch, True)


def test_a_partition_is_started_at_the_worlds_position_with_its_parked_keys() -> None:
    member = sitting()
    member.log.report("a", "0", 9, parked={"k": 4}, counter=member.own.counter + 1)
    member.own.counter += 1
    member.read()
    run = member.own.start(member.world.partitions["0"], member.now, idle=False)
    assert (run.position, run.parked, run.state) == (9, {"k": 4}, "running")


# Snapshots


def test_the_fresh_instance_with_the_lowest_id_makes_a_snapshot_every_so_many_records() -> None:
    log = Log(make(snapshot_every=100))
    a, b = Member(log, "a", "m1"), Member(log, "b", "m2")
    while a.own.picture is None and b.own.picture is None:
        log.later(0.1)
        for member in (a, b):
            member.now += 100
            member.read()
            member.act()
    assert b.own.picture is None
    assert a.own.picture is not None
    assert 100 <= a.own.picture.as_of <= 105


def test_a_snapshot_is_of_the_world_as_of_a_record_that_it_names() -> None:
    member = sitting(snapshot_every=100)
    while member.own.picture is None:
        member.later(0.125).read()
        if member.own.picture is None:
            member.act()
    picture = member.own.picture
    named = member.log.entries[picture.as_of - 1]
    assert load(picture.world) == member.world
    assert member.world.sequence == picture.as_of == named.sequence
    assert f'"counter":{picture.as_of_counter}'.encode() in named.data
    assert f'"sender":"{picture.as_of_sender}"'.encode() in named.data


def test_a_snapshot_that_was_read_back_counts_and_the_next_is_made_as_many_records_later() -> None:
    member = sitting(snapshot_every=100)
    seen: list[int] = []
    while len(seen) < 3:
        member.later(0.125).read()
        member.act()
        if member.log.world.snapshot and member.log.world.snapshot not in seen:
            seen.append(member.log.world.snapshot)
    assert all(99 <= later - earlier <= 110 for earlier, later in pairwise(seen))

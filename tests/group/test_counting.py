"""Which records count: identity, counters, what the sender has read, versions, compare and set."""

import pytest
from msgspec import structs

from echelon.errors import UnknownVersion
from echelon.group.fold import apply
from echelon.group.records import Leave
from echelon.model import Entry
from tests.group.builders import EPOCH, GARBAGE, Log, grown, make

# Identity


def test_the_first_configure_draws_the_identity_with_its_broker_time() -> None:
    log = Log(make())
    assert (log.world.identity, log.world.made) == ("g", EPOCH)


def test_a_record_before_the_first_configure_does_nothing() -> None:
    log = Log()
    log.join("a", "m1")
    log.append(GARBAGE)
    assert (log.world.config, log.world.instances, log.world.senders) == (None, {}, {})


def test_an_invalid_first_configure_makes_no_group_and_the_next_one_does() -> None:
    log = Log(make(interval=0.01))
    assert log.world.config is None
    log.write("maker", "configure", config=make())
    assert log.world.config == make()


def test_a_record_with_another_identity_is_ignored() -> None:
    log = Log(make())
    log.write("a", "join", group="another", profile={"name": "a"})
    assert not log.counted
    assert log.world.instances == {}


def test_a_second_group_cannot_be_made_in_the_same_log() -> None:
    log = Log(make())
    log.write("other", "configure", group="another", config=make(members=["x"]))
    assert (log.world.identity, log.world.config) == ("g", make())


# Counters


@pytest.mark.parametrize("counter", [1, 2])
def test_a_record_whose_counter_is_not_above_its_senders_last_is_ignored(counter: int) -> None:
    log = Log(make())
    log.join("a", "m1")
    log.beat("a")
    log.write("a", "claim", member="m1", counter=counter)
    assert not log.counted
    assert log.holder("m1") is None


def test_counters_may_skip_numbers() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.write("a", "claim", member="m1", counter=50)
    assert log.holder("m1") == "a"


def test_a_repeated_append_does_nothing() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.write("admin", "pause")
    log.write("admin", "resume")
    log.append(log.entries[-2].data)
    assert not log.counted
    assert log.world.paused is None


def test_counters_are_kept_for_administrators() -> None:
    log = Log(make())
    log.write("admin", "pause", counter=7)
    log.write("admin", "resume", counter=6)
    assert log.world.paused is not None


def test_counters_are_kept_after_a_leave() -> None:
    log = Log(make())
    log.join("a", "m1")
    joined = log.entries[-1].data
    log.write("a", "leave")
    log.append(joined)
    assert not log.counted
    assert "a" not in log.world.instances


def test_an_ignored_record_does_not_raise_the_counter() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.write("a", "heartbeat", group="another", counter=99)
    log.write("a", "claim", member="m1", counter=3)
    assert log.holder("m1") == "a"


def test_a_record_without_effect_raises_the_counter_all_the_same() -> None:
    log = Log(make())
    log.sit("a", "m1")
    log.join("b", "m1")
    log.write("b", "claim", member="m1", counter=9)
    log.write("b", "leave", counter=8)
    assert "b" in log.world.instances


# What the sender has read


@pytest.mark.parametrize("kind", ["join", "pause"])
def test_who_has_read_nothing_for_more_than_ten_intervals_is_ignored(kind: str) -> None:
    log = Log(make())
    log.join("a", "m1")
    read = log.world.sequence
    log.run(11, "a")
    log.write("late", kind, read=read, profile={"name": "late"})
    assert not log.counted


@pytest.mark.parametrize("kind", ["join", "pause"])
def test_who_has_read_within_ten_intervals_counts(kind: str) -> None:
    log = Log(make())
    log.join("a", "m1")
    log.run(3, "a")
    read = log.world.sequence
    log.run(9, "a")
    log.write("late", kind, read=read, profile={"name": "late"})
    assert log.counted


def test_a_late_join_does_nothing_even_after_its_senders_counter_is_forgotten() -> None:
    log = Log(make())
    log.join("a", "m1")
    joined = log.entries[-1].data
    log.join("b", "m1")
    log.run(12, "b")
    assert "a" not in log.world.senders
    log.append(joined)
    assert "a" not in log.world.instances


def test_counters_within_ten_intervals_are_kept() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.join("b", "m1")
    log.run(9, "b")
    assert log.world.senders["a"].counter == 1


@pytest.mark.parametrize("kind", ["claim", "heartbeat", "advance", "release", "cut_part", "leave", "snapshot"])
def test_a_record_of_an_instance_that_has_not_joined_is_ignored(kind: str) -> None:
    log = Log(make())
    unread = log.world.copy()
    log.later(0.2).write(
        "a", kind, member="m1", progress={}, cut=1, as_of=1, as_of_sender="", as_of_counter=1, world={}
    )
    apply(unread, log.entries[-1], None)
    assert log.world == unread


@pytest.mark.parametrize(
    "kind", ["configure", "step_down", "pause", "resume", "cut", "cut_abort", "reset", "retire", "unpark", "delete"]
)
def test_an_administrator_need_not_join(kind: str) -> None:
    log = Log(make())
    log.write("admin", kind, config=make(), epoch=1, cut=1, positions={}, partition="0", keys=[])
    assert log.counted
    assert log.world.instances == {}


# Versions


def test_a_reader_that_does_not_know_the_groups_version_stops_with_a_clear_error() -> None:
    with pytest.raises(UnknownVersion, match=r"version 2 of the protocol; this program knows up to 1\. Upgrade"):
        Log().write("maker", "configure", version=2, config="new")


def test_a_reader_stops_when_the_group_goes_on_in_a_version_it_does_not_know() -> None:
    log = Log(make())
    with pytest.raises(UnknownVersion):
        log.reconfigure(make(), version=2)


def test_a_configure_of_a_newer_version_that_replaces_another_is_ignored() -> None:
    log = Log(make())
    log.reconfigure(make(), version=2, replaces=77)
    assert log.world.config == make()


def test_a_configure_of_a_newer_version_with_another_identity_is_ignored() -> None:
    log = Log(make())
    log.reconfigure(make(), version=2, group="another")
    assert log.world.config == make()


def test_a_record_of_a_higher_version_than_the_groups_is_ignored_though_it_can_be_read() -> None:
    log = Log(make())
    log.join("a", "m1")
    log.write("a", "claim", member="m1", version=2)
    assert not log.counted
    assert log.holder("m1") is None


def test_who_can_read_a_newer_record_and_who_cannot_have_equal_worlds() -> None:
    log = Log(make())
    log.sit("a", "m1")
    one, other = log.world.copy(), log.world.copy()
    entry = Entry(9, EPOCH + 300, b"")
    apply(one, entry, None)
    apply(other, entry, Leave(group="g", sender="a", counter=99, version=2))
    assert one == other
    assert one.time == 300


# Compare and set


def test_a_configure_that_names_the_one_in_force_replaces_it() -> None:
    log = Log(make())
    sequence = log.reconfigure(make(members=["m3"]))
    assert log.world.configured == sequence
    assert set(log.world.seats) == {"m3"}


@pytest.mark.parametrize("replaces", [0, 77])
def test_a_configure_that_names_another_than_the_one_in_force_is_ignored(replaces: int) -> None:
    log = Log(make())
    log.reconfigure(make(members=["m3"]), replaces=replaces)
    assert log.world.config == make()


def test_two_administrators_cannot_lose_each_others_change() -> None:
    log = Log(make())
    both_saw = log.world.configured
    log.reconfigure(make(members=["m1", "m2", "m3"]))
    log.write("other", "configure", config=make(members=["m1"]), replaces=both_saw)
    assert set(log.world.seats) == {"m1", "m2", "m3"}


def test_an_invalid_change_is_ignored() -> None:
    log = Log(make())
    log.reconfigure(make(interval=2.0))
    assert (log.world.config, log.world.interval) == (make(), 1000)
    log.reconfigure(structs.replace(grown(make(), 3, 5), ends=()))
    assert log.world.config == make()

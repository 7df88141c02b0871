"""Records: what they carry, who may write them, which count. They are read as they stand in the log."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from echelon.errors import UnknownVersion
from echelon.group.config import Config, Stream
from echelon.group.fold import apply
from echelon.group.records import (
    VERSION,
    AnyRecord,
    Backlog,
    Configure,
    Leave,
    Machine,
    Newer,
    Profile,
    Progress,
    Record,
    decode,
    encode,
)
from echelon.group.world import World, dump
from echelon.keys import HeaderKey, RecordKey, SubjectKey, TokensKey
from echelon.model import Entry
from tests.group.builders import EPOCH, GARBAGE, Log, grown, make

KINDS: tuple[type[Record], ...] = get_args(AnyRecord)
NUMBERS = st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(max_size=5)


def by_name(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, values, max_size=2)


STREAMS = st.builds(
    Stream,
    name=NAMES,
    partitions=NUMBERS,
    key=st.sampled_from([SubjectKey(), HeaderKey("h"), RecordKey(), TokensKey("a.*.*", (2, 1))]),
    partitioning=st.sampled_from(["token", "derived", "computed", "native"]),
    identity=NAMES,
)
CONFIGS = st.builds(
    Config,
    streams=st.lists(STREAMS, max_size=2).map(tuple),
    positions=by_name(NUMBERS),
    members=st.none() | st.lists(NAMES, max_size=3).map(tuple),
    mapping=st.none() | by_name(st.lists(NAMES, max_size=2).map(tuple)),
    ends=st.lists(by_name(NUMBERS), max_size=2).map(tuple),
    delivery=st.sampled_from(["at_most_once", "at_least_once", "exactly_once"]),
    cut_every=st.none() | st.floats(0, 1e9),
    backoff=st.tuples(st.floats(0, 1), st.floats(1, 2)),
)
PROFILES = st.builds(
    Profile,
    name=NAMES,
    member=st.none() | NAMES,
    priority=NUMBERS,
    min_pending=st.none() | NUMBERS,
    min_ack_pending=st.none() | NUMBERS,
    machine=st.none() | st.just(Machine("boot", "ns", ((17, 4), (18, 5)))),
    sole=st.booleans(),
    checkpoint=st.booleans(),
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "group": NAMES,
    "sender": NAMES,
    "counter": NUMBERS,
    "version": st.just(VERSION),
    "read": NUMBERS,
    "config": CONFIGS,
    "replaces": NUMBERS,
    "profile": PROFILES,
    "gone": st.none() | NAMES,
    "member": NAMES,
    "progress": by_name(st.builds(Progress, NUMBERS, NUMBERS, st.none() | by_name(NUMBERS))),
    "backlog": by_name(st.builds(Backlog, NUMBERS, NUMBERS)),
    "epoch": NUMBERS,
    "until": st.none() | NUMBERS,
    "periodic": st.booleans(),
    "cut": NUMBERS,
    "states": by_name(st.binary()),
    "positions": by_name(NUMBERS),
    "keep": st.booleans(),
    "as_of": NUMBERS,
    "as_of_sender": NAMES,
    "as_of_counter": NUMBERS,
    "world": st.just(msgspec.Raw(dump(World()))),
}


def records(kind: type[Record]) -> st.SearchStrategy[Record]:
    """Records of a kind, with every field drawn."""
    return st.fixed_dictionaries({name: FIELDS[name] for name in kind.__struct_fields__}).map(
        lambda fields: kind(**fields)
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=50)
@given(data=st.data())
def test_every_record_survives_the_log(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    assert decode(encode(record)) == record


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=50)
@given(data=st.data())
def test_unknown_fields_are_ignored(kind: type[Record], data: st.DataObject) -> None:
    record = data.draw(records(kind))
    fields = msgspec.json.decode(encode(record))
    assert decode(msgspec.json.encode(fields | {"novelty": [1, {"x": None}]})) == record


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_record_has_a_tag_of_its_own_and_carries_group_sender_and_counter(kind: type[Record]) -> None:
    same = [other for other in KINDS if other.__struct_config__.tag == kind.__struct_config__.tag]
    assert same == [kind]
    assert {"group", "sender", "counter"} <= set(kind.__struct_fields__)


def test_the_tags_are_those_of_the_protocol() -> None:
    tags = " ".join(sorted(str(kind.__struct_config__.tag) for kind in KINDS))
    assert tags == (
        "advance claim configure cut cut_abort cut_part delete heartbeat join leave pause release reset resume retire"
        " snapshot step_down"
    )


@given(st.binary())
def test_bytes_that_are_no_record_give_none(data: bytes) -> None:
    assert decode(data) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'"leave"',
        b'{"group":"g","sender":"a","counter":1}',
        b'{"type":"murmur","group":"g","sender":"a","counter":1}',
        b'{"type":"leave","sender":"a","counter":1}',
        b'{"type":"leave","group":"g","counter":1}',
        b'{"type":"leave","group":"g","sender":"a","counter":"1"}',
        b'{"type":"leave","group":"g","sender":"a","counter":1.5}',
        b'{"type":"leave","group":"g","sender":"\xff","counter":1}',
        b'{"type":"leave","group":"g","sender":"a","counter":1',
        b'{"type":"claim","group":"g","sender":"a","counter":1}',
        b'{"type":"resume","group":"g","sender":"a","counter":1}',
        b'{"type":"heartbeat","group":"g","sender":"a","counter":1,"progress":{"0":[1]}}',
        b'{"type":"configure","group":"g","sender":"a","counter":1,"read":0,"config":{}}',
    ],
)
def test_a_malformed_or_unknown_record_gives_none(data: bytes) -> None:
    assert decode(data) is None


def test_a_longer_progress_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    record = decode(b'{"type":"heartbeat","group":"g","sender":"a","counter":1,"progress":{"0":[5,9,null,"new"]}}')
    assert getattr(record, "progress", None) == {"0": Progress(5, 9)}


def test_a_configure_of_a_newer_version_is_recognised_whatever_else_it_holds() -> None:
    data = b'{"type":"configure","group":"g","sender":"a","counter":1,"version":2,"config":"new","replaces":7}'
    assert decode(data) == Newer(group="g", sender="a", counter=1, version=2, replaces=7)
    readable = Configure(group="g", sender="a", counter=1, version=2, read=0, config=make())
    assert decode(encode(readable)) == Newer(group="g", sender="a", counter=1, version=2)


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
    "kind", ["configure", "step_down", "pause", "resume", "cut", "cut_abort", "reset", "retire", "delete"]
)
def test_an_administrator_need_not_join(kind: str) -> None:
    log = Log(make())
    log.write("admin", kind, config=make(), epoch=1, cut=1, positions={})
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

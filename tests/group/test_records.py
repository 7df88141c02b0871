"""Records as they stand in the log: what they carry, and what cannot be read."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.group.config import Config, Stream
from echelon.group.records import (
    VERSION,
    AnyRecord,
    Backlog,
    Configure,
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
from tests.group.builders import make

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
    "partition": NAMES,
    "keys": st.lists(NAMES, max_size=2).map(tuple),
    "skip": st.booleans(),
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


def test_the_records_of_the_protocol_have_the_tags_that_it_gives_them() -> None:
    tags = {
        *("configure", "join", "leave", "claim", "heartbeat", "advance", "release", "step_down", "pause", "resume"),
        *("cut", "cut_part", "cut_abort", "reset", "retire", "delete", "snapshot"),
    }
    assert tags <= {kind.__struct_config__.tag for kind in KINDS}


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


def test_nesting_that_is_too_deep_to_read_gives_none() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert decode(b'{"type":"leave","group":"g","sender":"a","counter":1,"novelty":' + deep + b"}") is None
    assert decode(b'{"type":"configure","group":"g","sender":"a","version":2,"config":' + deep + b"}") is None


def test_a_longer_progress_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    record = decode(b'{"type":"heartbeat","group":"g","sender":"a","counter":1,"progress":{"0":[5,9,null,"new"]}}')
    assert getattr(record, "progress", None) == {"0": Progress(5, 9)}


def test_a_configure_of_a_newer_version_is_recognised_whatever_else_it_holds() -> None:
    data = b'{"type":"configure","group":"g","sender":"a","counter":1,"version":2,"config":"new","replaces":7}'
    assert decode(data) == Newer(group="g", sender="a", counter=1, version=2, replaces=7)
    readable = Configure(group="g", sender="a", counter=1, version=2, read=0, config=make())
    assert decode(encode(readable)) == Newer(group="g", sender="a", counter=1, version=2)

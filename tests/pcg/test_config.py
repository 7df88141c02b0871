"""Configurations of JetStream-native groups: what is allowed, how they are written, who has which partitions.

The expected JSON, filters and transforms are those of the reference in Go, v0.2.1 and v0.1.0.
"""

import msgspec
import pytest

from echelon.errors import GroupError, InvalidConfig
from echelon.pcg.config import (
    ElasticConfig,
    GroupConfig,
    Kind,
    MemberMapping,
    PartitioningFilter,
    StaticConfig,
    check,
    check_names,
)
from echelon.pcg.formats import decode, encode, encode_change, recognise

M, F = MemberMapping, PartitioningFilter


@pytest.mark.parametrize(
    ("config", "kind", "json"),
    [
        (StaticConfig(max_members=2), "static", '{"max_members":2}'),
        (
            StaticConfig(max_members=2, filters=("a.>", "b.*"), members=("m2", "m1")),
            "static",
            '{"max_members":2,"filters":["a.>","b.*"],"members":["m2","m1"]}',
        ),
        (
            StaticConfig(max_members=2, member_mappings=(M("m1", (1,)), M("m2", (0,)))),
            "static",
            '{"max_members":2,"member_mappings":[{"member":"m1","partitions":[1]},{"member":"m2","partitions":[0]}]}',
        ),
        (
            StaticConfig(max_members=2, filters=(">",), members=("m",), format="v0.1"),
            "static",
            '{"max_members":2,"filter":">","members":["m"]}',
        ),
        (StaticConfig(max_members=2, format="v0.1"), "static", '{"max_members":2,"filter":""}'),
        (ElasticConfig(max_members=7), "elastic", '{"max_members":7,"partitioning_filters":null}'),
        (
            ElasticConfig(
                max_members=7,
                partitioning_filters=(F("a.*.*.>", (2, 1)), F("b.>")),
                max_buffered_msgs=5,
                max_buffered_bytes=6,
                members=("m",),
            ),
            "elastic",
            (
                '{"max_members":7,"partitioning_filters":[{"filter":"a.*.*.>","partitioning_wildcards":[2,1]},'
                '{"filter":"b.>","partitioning_wildcards":[]}],"max_buffered_msg":5,"max_buffered_bytes":6,"members":["m"]}'
            ),
        ),
        (
            ElasticConfig(max_members=7, partitioning_filters=(F("a.*", (1,)),), format="v0.1"),
            "elastic",
            '{"max_members":7,"filter":"a.*","partitioning_wildcards":[1]}',
        ),
    ],
)
def test_a_group_is_written_as_by_the_reference_and_read_back(config: GroupConfig, kind: Kind, json: str) -> None:
    assert encode(config).decode() == json
    assert decode(json.encode(), kind, "S.g") == config


def test_null_is_read_where_go_writes_it() -> None:
    json = b'{"max_members":3,"partitioning_filters":[{"filter":"a.>","partitioning_wildcards":null}],"members":null}'
    assert decode(json, "elastic", "S.g") == ElasticConfig(max_members=3, partitioning_filters=(F("a.>"),))


def test_a_change_of_members_keeps_what_newer_libraries_may_have_written() -> None:
    entry = b'{"max_members":3,"partitioning_filters":null,"unheard_of":{"x":1},"members":["a"]}'
    changed = encode_change(entry, ElasticConfig(max_members=3, member_mappings=(M("b", (0, 1, 2)),)))
    assert msgspec.json.decode(changed) == {
        "max_members": 3,
        "partitioning_filters": None,
        "unheard_of": {"x": 1},
        "member_mappings": [{"member": "b", "partitions": [0, 1, 2]}],
    }


@pytest.mark.parametrize("entry", [b"", b"{}", b"[1]", b'{"max_members":"two"}', b"\xff"])
def test_an_entry_that_cannot_be_read_is_named(entry: bytes) -> None:
    with pytest.raises(GroupError, match=r"the entry of the group S\.g cannot be read"):
        decode(entry, "elastic", "S.g")


def test_a_single_filter_is_javas_if_its_consumers_have_the_new_priority_group() -> None:
    old = StaticConfig(max_members=2, filters=("a.>",), members=("m1", "m2"), format="v0.1")
    assert recognise(old, {}).format == "v0.1"
    assert recognise(old, {"m1": "m1"}).format == "v0.1"
    assert recognise(old, {"m1": "PCG"}).format == "java"
    assert recognise(StaticConfig(max_members=2), {"m1": "PCG"}).format == "current"


def test_partitions_are_dealt_out_in_blocks_and_the_rest_one_by_one() -> None:
    def dealt(partitions: int, *members: str) -> dict[str, tuple[int, ...]]:
        config = ElasticConfig(max_members=partitions, members=members)
        return {member: config.partitions(member) for member in config.names()}

    assert dealt(6, "m3", "m1", "m2", "m1") == {"m1": (0, 1), "m2": (2, 3), "m3": (4, 5)}
    assert dealt(7, "m1", "m2", "m3") == {"m1": (0, 1, 6), "m2": (2, 3), "m3": (4, 5)}
    assert dealt(8, "m1", "m2", "m3") == {"m1": (0, 1, 6), "m2": (2, 3, 7), "m3": (4, 5)}
    assert dealt(2, "m1", "m2", "m3") == {"m1": (0,), "m2": (1,), "m3": ()}


@pytest.mark.parametrize(
    ("config", "filters"),
    [
        (ElasticConfig(max_members=3, members=("a", "m")), ("1.>",)),
        (
            ElasticConfig(max_members=3, partitioning_filters=(F("x.*", (1,)), F("y.>")), members=("m",)),
            ("0.x.*", "1.x.*", "2.x.*", "0.y.>", "1.y.>", "2.y.>"),
        ),
        # Go gives the same filter once for each of the group's here, which no server takes.
        (
            ElasticConfig(
                max_members=3,
                partitioning_filters=(F("x.*", (1,)), F("y.>")),
                member_mappings=(M("m", (2, 0)), M("n", (1,))),
            ),
            ("2.>", "0.>"),
        ),
        (ElasticConfig(max_members=3), ()),
        (
            ElasticConfig(max_members=2, partitioning_filters=(F("x.*", (1,)),), members=("m",), format="v0.1"),
            ("0.>", "1.>"),
        ),
        (StaticConfig(max_members=2, members=("m",)), ("0.>", "1.>")),
        (StaticConfig(max_members=2, filters=("a.b", "c.>"), members=("m",)), ("0.a.b", "1.a.b", "0.c.>", "1.c.>")),
        (StaticConfig(max_members=2, filters=("a.b",), members=("m",), format="java"), ("0.>", "1.>")),
        (StaticConfig(max_members=2, filters=("a.b",), members=("m",), format="v0.1"), ("0.>", "1.>")),
    ],
)
def test_the_filters_of_a_members_consumer(config: GroupConfig, filters: tuple[str, ...]) -> None:
    assert config.partition_filters("m") == filters


def test_the_transforms_of_a_work_queue() -> None:
    config = ElasticConfig(max_members=9, partitioning_filters=(F("foo.*.*.>", (1, 2)), F("bar.*"), F("b.>")))
    assert config.transforms() == [
        {"src": "foo.*.*.>", "dest": "{{Partition(9,1,2)}}.foo.{{Wildcard(1)}}.{{Wildcard(2)}}.>"},
        {"src": "bar.*", "dest": "{{Partition(9)}}.bar.{{Wildcard(1)}}"},
        {"src": "b.>", "dest": "{{Partition(9)}}.b.>"},
    ]
    assert ElasticConfig(max_members=9).transforms() == [{"src": ">", "dest": "{{Partition(9)}}.>"}]


def elastic(**fields: object) -> ElasticConfig:
    return ElasticConfig(**{"max_members": 2, **fields})  # type: ignore[arg-type]  # as the test has it


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (elastic(max_members=0), "max_members is 0"),
        (elastic(partitioning_filters=(F(""),)), "is empty"),
        (elastic(partitioning_filters=(F("a.b"),)), "matches a single subject"),
        (elastic(partitioning_filters=(F("a.*", (2,)),)), "wildcard 2 of 'a.*', which has 1"),
        (elastic(partitioning_filters=(F("a.*", (0,)),)), "wildcard 0"),
        (elastic(partitioning_filters=(F("a.*.*", (1, 1)),)), "twice"),
        (elastic(partitioning_filters=(F("a.*", (1,)), F("a.>"))), "'a.*' and 'a.>' overlap"),
        (elastic(members=("a",), member_mappings=(M("a", (0, 1)),)), "not both"),
        (elastic(member_mappings=(M("a", (0,)), M("a", (1,)))), "names a member twice"),
        (elastic(member_mappings=(M("a", (0,)),)), "1 of 2 partitions to no member"),
        (elastic(member_mappings=(M("a", (0, 1)), M("b", (1,)))), "partition 1 to member a and again to member b"),
        (elastic(member_mappings=(M("a", (0, 1, 2)),)), "no such partition"),
        (elastic(member_mappings=(M("a", (0, 1)), M("b", ()))), "no partition to member b"),
        (elastic(format="v0.1"), "has one filter"),
        (elastic(format="v0.1", partitioning_filters=(F("a.>"),)), "has one filter, with wildcards"),
        (elastic(format="java"), "static groups"),
        (StaticConfig(max_members=1, filters=("a..b",)), "'a..b' is no subject filter"),
        (StaticConfig(max_members=1, filters=("a.b", "a.*")), "overlap"),
        (StaticConfig(max_members=1, filters=("a", "b"), format="v0.1"), "one filter, not several"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_said(config: GroupConfig, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words.replace("*", r"\*")):
        check(config)


@pytest.mark.parametrize(
    ("stream", "group", "config", "words"),
    [
        ("", "g", None, "name a stream"),
        ("a.b", "g", None, "'a.b' cannot name a stream"),
        ("S", "g>", None, "'g>' cannot name a group"),
        ("S", "g", elastic(members=("a b",)), "'a b' cannot name a member"),
        ("S", "g", elastic(members=("m" * 17,), format="v0.1"), "at most 16"),
    ],
)
def test_names(stream: str, group: str, config: ElasticConfig | None, words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        check_names(stream, group, config)
    check_names("S", "g", elastic(members=("m" * 17,)))

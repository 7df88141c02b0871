"""The configuration of a group: every limit of the table, with an error that names the mistake."""

from typing import get_args, get_type_hints

import msgspec
import pytest
from msgspec import structs

from echelon.errors import InvalidConfig
from echelon.group.config import Config, Stream, check, check_change, check_group_name, check_member_name
from echelon.keys import HeaderKey, SubjectKey
from tests.group.builders import grown, make, mapped

YEAR = 365 * 86400.0


def two_streams() -> Config:
    positions = {"a/0": 0, "a/1": 0, "b/0": 0}
    return make(streams=[Stream("a", 2), Stream("b", 1)], positions=positions)


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("interval", 3.0),
        ("delivery", "at_least_once"),
        ("assignment", "sticky"),
        ("drain_time", 30.0),
        ("cut_time", 60.0),
        ("cut_every", None),
        ("cuts_kept", 10),
        ("history", 7 * 86400.0),
        ("snapshot_every", 10_000),
        ("out_of_range", "fail"),
        ("retries", 5),
        ("backoff", (0.1, 30.0)),
        ("on_failure", "stop"),
        ("parked", 1000),
        ("growth", "ordered"),
    ],
)
def test_defaults_are_those_of_the_table(name: str, default: object) -> None:
    config = Config(streams=(Stream("data", 1),), positions={"0": 0})
    assert getattr(config, name) == default


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("delivery", {"at_most_once", "at_least_once", "exactly_once"}),
        ("assignment", {"sticky", "blocks", "mapped"}),
        ("out_of_range", {"fail", "earliest"}),
        ("on_failure", {"stop", "dead_letter", "park"}),
        ("growth", {"ordered", "at_once"}),
    ],
)
def test_the_words_that_a_setting_takes_are_those_of_the_table(name: str, words: set[str]) -> None:
    assert set(get_args(get_type_hints(Config)[name])) == words


@pytest.mark.parametrize(
    "options",
    [
        {"interval": 0.1, "history": 60.0},
        {"interval": 300.0},
        {"drain_time": 0.1},
        {"drain_time": 3600.0},
        {"cut_time": 60.0, "cut_every": 60.0},
        {"cuts_kept": 1},
        {"history": 60.0},
        {"snapshot_every": 100},
        {"retries": 0},
        {"backoff": (0.001, 3600.0)},
        {"backoff": (1.0, 1.0)},
        {"parked": 0},
        {"members": ["a.b:c@d-e_1", "0"]},
        {"members": []},
        {"members": None},
    ],
)
def test_the_ends_of_the_ranges_are_allowed(options: dict[str, object]) -> None:
    check(make(**options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interval": 0.09}, "interval is 0.09 s; it must be 0.1 to 300 s"),
        ({"interval": 300.1}, "interval is 300.1 s; it must be 0.1 to 300 s"),
        ({"drain_time": 0.0}, "drain_time is 0 s; it must be 0.1 to 3600 s"),
        ({"drain_time": 3601.0}, "drain_time is 3601 s; it must be 0.1 to 3600 s"),
        ({"cut_time": 0.0}, "cut_time is 0 s"),
        ({"cut_time": 60.0, "cut_every": 59.0}, "cut_every is 59 s; it must be 60 to"),
        ({"cuts_kept": 0}, "cuts_kept is 0; it must be at least 1"),
        ({"history": 59.9}, "history is 59.9 s; it must be 60 to"),
        ({"history": 11 * YEAR}, "history is"),
        ({"snapshot_every": 99}, "snapshot_every is 99; it must be at least 100"),
        ({"retries": -1}, "retries is -1; it must be at least 0"),
        ({"backoff": (0.0, 1.0)}, "backoff is 0.0 to 1.0 s; it must grow from above 0 to at most 3600 s"),
        ({"backoff": (2.0, 1.0)}, "backoff is 2.0 to 1.0 s"),
        ({"backoff": (1.0, 3601.0)}, "backoff is 1.0 to 3601.0 s"),
        ({"on_failure": "park", "delivery": "at_most_once"}, "parked only where delivery is at least once"),
        ({"on_failure": "park", "delivery": "exactly_once"}, "parked only where delivery is at least once"),
        ({"parked": -1}, "parked is -1; it must be at least 0"),
        ({"members": ["a b"]}, "'a b' cannot name a member"),
        ({"members": [""]}, "'' cannot name a member"),
        ({"members": ["-a"]}, "'-a' cannot name a member"),
        ({"members": ["x" * 129]}, "cannot name a member"),
        ({"members": [f"m{n}" for n in range(4097)]}, "the group has 4097 members; it must be at most 4096"),
        ({"mapping": {"m1": ["0", "1"]}}, "a mapping was given"),
        ({"assignment": "mapped"}, "a mapped group has a mapping of members to partitions, and no list of members"),
        (
            {"assignment": "mapped", "mapping": {"m1": ["0", "1"]}},
            "a mapped group has a mapping of members to partitions, and no list of members",
        ),
        ({"streams": []}, "the group is over no stream"),
        ({"streams": [Stream("", 2)]}, "a stream has an empty name"),
        ({"streams": [Stream("data", 0)]}, "stream data has 0 partitions; it must be 1 to 4096"),
        ({"streams": [Stream("data", 4097)]}, "stream data has 4097 partitions; it must be 1 to 4096"),
        ({"streams": [Stream("a", 1), Stream("a", 1)]}, "a stream is named twice among a, a"),
        ({"streams": [Stream("data", 2, key=HeaderKey(""))]}, "header"),
        ({"streams": [Stream("data", 2, key=SubjectKey("a.b"))]}, "a.b"),
        ({"positions": {"0": 0}}, "positions must name each partition once; 1 is missing or is not one"),
        ({"positions": {"0": 0, "1": 0, "2": 0}}, "positions must name each partition once; 2 is missing"),
        ({"positions": {"data/0": 0, "data/1": 0}}, "positions must name each partition once"),
        ({"positions": {"0": 0, "1": -1}}, "the position of partition 1 is negative"),
    ],
)
def test_each_mistake_has_an_error_that_names_it(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check(make(**options))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "the mapping names no member"),
        ({"m1": ["0"]}, "1 of 2 partitions to no member, the first is 1"),
        ({"m1": ["0", "1"], "m2": ["1"]}, "partition 1 to member m1 and again to member m2"),
        ({"m1": ["0", "1"], "m2": []}, "no partition to member m2"),
        ({"m1": ["0", "1", "2"]}, "partition 2 to member m1; there is no such partition"),
        ({"m 1": ["0", "1"]}, "'m 1' cannot name a member"),
    ],
)
def test_a_mapping_gives_each_partition_to_one_member(mapping: dict[str, list[str]], message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check(make(members=None, assignment="mapped", mapping=mapping))
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["g", "G-1_x", "0", "_", "x" * 128])
def test_a_group_name_fits_every_broker(name: str) -> None:
    check_group_name(name)


@pytest.mark.parametrize("name", ["", "-g", "a.b", "a b", "a/b", "*", ">", "ä", "x" * 129, "g\n"])
def test_a_name_that_some_broker_refuses_is_no_group_name(name: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot name a group"):
        check_group_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "a b", ".a", "x" * 129, "a\n"])
def test_a_name_that_is_hard_to_read_is_no_member_name(name: str) -> None:
    with pytest.raises(InvalidConfig, match="cannot name a member"):
        check_member_name(name)


def test_a_config_survives_json() -> None:
    config = grown(two_streams(), 0, 7, cut_every=120.0, members=["x"], streams=[Stream("a", 2), Stream("b", 1)])
    assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config


def test_membership_follows_from_members_and_mapping() -> None:
    assert make().membership == "listed"
    assert make(members=None).membership == "auto"
    assert mapped(m1="0", m2="1").membership == "mapped"


def test_seats_are_the_listed_or_mapped_members_sorted_and_once_each() -> None:
    assert make(members=["b", "a", "b"]).seats() == ("a", "b")
    assert mapped(m2="0", m1="1").seats() == ("m1", "m2")
    assert make(members=None).seats() == ()


def test_partitions_are_ordered_by_number_not_by_letters() -> None:
    assert make(11).partitions() == tuple(str(number) for number in range(11))


def test_a_partition_is_named_by_stream_and_number_where_there_are_several_streams() -> None:
    config = two_streams()
    check(config)
    assert config.partitions() == ("a/0", "a/1", "b/0")
    assert config.locate("b/0") == (config.streams[1], 0)
    assert make(2).locate("1") == (Stream("data", 2), 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (make(), make(members=["m1", "m2", "m3"])),
        (make(), make(members=[])),
        (mapped(m1="0", m2="1"), mapped(m1="1", m2="0")),
        (mapped(m1="0", m2="1"), mapped(m3="01")),
        (make(), grown(make(), 3, 7)),
        (grown(make(), 3, 7), grown(grown(make(), 3, 7), 4, 9)),
        (make(), make()),
    ],
)
def test_membership_mapping_and_the_number_of_partitions_may_change(old: Config, new: Config) -> None:
    check_change(old, new)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("interval", 2.0),
        ("delivery", "exactly_once"),
        ("drain_time", 1.0),
        ("cut_time", 1.0),
        ("cut_every", 600.0),
        ("cuts_kept", 1),
        ("history", 60.0),
        ("snapshot_every", 100),
        ("out_of_range", "earliest"),
        ("retries", 1),
        ("backoff", (1.0, 2.0)),
        ("on_failure", "park"),
        ("parked", 1),
        ("growth", "at_once"),
    ],
)
def test_nothing_else_changes_after_the_group_is_made(name: str, value: object) -> None:
    with pytest.raises(InvalidConfig, match=f"{name} is .*; it cannot change after the group is made"):
        check_change(make(), make(**{name: value}))


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (make(members=None), "the group is listed; it cannot become auto"),
        (make(1), "partition 1 cannot be taken away"),
        (make(positions={"0": 0, "1": 5}), "partition 1 cannot be taken away, nor its first position changed"),
        (make(streams=[Stream("other", 2)]), "streams and keys cannot change"),
        (make(streams=[Stream("data", 2, identity="another")]), "streams and keys cannot change"),
        (make(streams=[Stream("data", 2, key=HeaderKey("k"))]), "streams and keys cannot change"),
        (make(streams=[Stream("data", 2, partitioning="token")]), "streams and keys cannot change"),
        (two_streams(), "streams and keys cannot change"),
        (make(ends=[{"0": 1, "1": 1}]), "ends are recorded only when partitions are added"),
        (make(3), "Record the end of each partition that was there before"),
        (grown(make(), 3, {"0": 1}), "Record the end of each partition that was there before"),
        (grown(make(), 3, {"0": 1, "1": 1, "2": 0}), "Record the end of each partition that was there before"),
        (make(members=["a b"]), "cannot name a member"),
    ],
)
def test_a_change_that_is_not_allowed_says_why(new: Config, message: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check_change(make(), new)
    assert message in str(raised.value)


def test_an_auto_group_stays_auto() -> None:
    with pytest.raises(InvalidConfig, match="the group is auto; it cannot become listed"):
        check_change(make(members=None), make())


def test_ends_recorded_before_stay() -> None:
    once = grown(make(), 3, 7)
    forgotten = structs.replace(grown(once, 4, 9), ends=(dict.fromkeys("012", 9),))
    with pytest.raises(InvalidConfig, match="partitions were added"):
        check_change(once, forgotten)


def test_a_mapped_group_grows_only_with_a_mapping_that_covers_the_added_partitions() -> None:
    old = mapped(m1="0", m2="1")
    with pytest.raises(InvalidConfig, match="1 of 3 partitions to no member, the first is 2"):
        check_change(old, grown(old, 3, 7))
    check_change(old, grown(old, 3, 7, mapping={"m1": ["0", "2"], "m2": ["1"]}))

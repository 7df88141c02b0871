"""What users write and what they see, without a broker: times, durations, keys, tables, exit codes."""

import csv
import json
import logging
import re
from collections.abc import Iterator

import pytest

from echelon import errors
from echelon.cli.create import pairs, settings
from echelon.cli.exits import exit_code
from echelon.cli.logs import set_up, tell_progress
from echelon.cli.output import Format, show, show_one, table
from echelon.cli.root import options_first
from echelon.cli.times import duration, moment
from echelon.errors import EchelonError, InvalidConfig

NOON = 1_700_049_600_000  # 2023-11-15 12:00 UTC


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("2d", 172_800), ("250ms", 0.25), ("7", 7), ("1.5h", 5400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("2023-11-15T12:00", NOON),
        ("2023-11-15 13:00+01:00", NOON),
        ("2023-11-15T11:59:30.5", NOON - 29_500),
        ("11:00", NOON - 3_600_000),
        ("9:00", NOON - 3 * 3_600_000),
        ("9:00:30", NOON - 3 * 3_600_000 + 30_000),
        ("2h", NOON - 7_200_000),
        ("-2h", NOON - 7_200_000),
        ("+90s", NOON + 90_000),
    ],
)
def test_times(text: str, time: int) -> None:
    assert moment(text, NOON) == time


def test_a_duration_ahead() -> None:
    assert moment("30m", NOON, ahead=True) == NOON + 1_800_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "5 m",
        "1h30",
        "25:00",
        "99999999999999d",
        "nan",
        "inf",
        "2262-05-01",
        "1969-12-31",
        "9999-12-31T23:59-14:00",
    ],
)
def test_what_is_no_time_is_told(text: str) -> None:
    with pytest.raises(InvalidConfig):
        moment(text, NOON)


def test_settings_and_mappings() -> None:
    assert settings(["retries=3", "growth=at_once", "backoff=[1,2]"], ("backoff", "growth", "retries")) == {
        "retries": 3,
        "growth": "at_once",
        "backoff": (1, 2),
    }
    assert pairs(["m1=0,1", "m2="]) == {"m1": ("0", "1"), "m2": ()}
    for wrong in (["m1"], ["=1"], ["m1=0", "m1=1"]):
        with pytest.raises(InvalidConfig):
            pairs(wrong)


def test_options_of_the_root_come_first_but_not_after_a_double_dash() -> None:
    assert options_first(["ls", "--broker", "u", "-o", "json", "--no-color"]) == [
        "--broker",
        "u",
        "--no-color",
        "ls",
        "-o",
        "json",
    ]
    assert options_first(["a", "--context=x", "--", "--broker", "u"]) == ["--context=x", "a", "--", "--broker", "u"]


def test_a_table_has_numbers_to_the_right_and_makes_trouble_stand_out() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "state": "idle", "count": 5},
        {"name": "bcd", "state": "owned", "count": None},
    ]
    assert [_plain(line) for line in table(rows)] == [
        "NAME  STATE  COUNT",
        "a     IDLE       5",
        "bcd   owned      -",
    ]
    assert "\x1b[31m" in table(rows)[1]
    assert "\x1b" not in table(rows)[2]


def test_a_table_has_ids_in_short_and_no_column_of_which_nothing_is_known() -> None:
    rows: list[dict[str, object]] = [
        {"name": "a", "instance": "0123456789abcdef0123456789abcdef", "epoch": None, "details": {}},
        {"name": "b", "instance": None, "epoch": None, "details": {}},
    ]
    assert table(rows, wide=("details",)) == ["NAME  INSTANCE", "a     012345", "b     -"]


def test_what_has_parts_is_json_in_csv_and_told_apart_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "a", "streams": ({"key": {"from": "tokens", "wildcards": (1, 2)}},), "none": None}
    show([row], Format.csv)
    [line] = csv.DictReader(capsys.readouterr().out.splitlines())
    assert json.loads(line["streams"]) == [{"key": {"from": "tokens", "wildcards": [1, 2]}}]
    assert line["none"] == ""
    show_one(row, Format.table)
    assert "streams  (key=(from=tokens, wildcards=[1, 2]))" in capsys.readouterr().out


@pytest.fixture
def _own_logging() -> Iterator[None]:
    root, part = logging.getLogger(), logging.getLogger("echelon.part")
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    part.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("_own_logging")
def test_progress_is_told_in_plain_lines_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        set_up(as_json=as_json, verbose=False)
        tell_progress("echelon.part")
        logging.getLogger("echelon.part").info("downloading")
        logging.getLogger("echelon.other").info("is not told")
    plain, line = capsys.readouterr().err.splitlines()
    assert plain == "downloading"
    assert (json.loads(line)["level"], json.loads(line)["message"]) == ("info", "downloading")


def test_nothing_is_an_empty_list_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    show([], Format.json, empty="there is nothing")
    show([], Format.csv, empty="there is nothing")
    assert json.loads(capsys.readouterr().out) == []
    show([], Format.table, empty="there is nothing")
    assert capsys.readouterr() == ("", "there is nothing\n")


def test_every_error_has_an_exit_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, EchelonError)]
    codes = {kind.__name__: exit_code(kind.__new__(kind)) for kind in kinds}
    documented = {
        "EchelonError": 1,
        "InvalidConfig": 2,
        "UnknownName": 3,
        "MissingComponent": 9,
        "GroupError": 1,
        "GroupExists": 4,
        "GroupNotFound": 3,
        "GroupDeleted": 4,
        "WrongState": 4,
        "Unsupported": 7,
        "UnknownVersion": 8,
        "LogBroken": 8,
        "NotReversible": 4,
        "BrokerError": 1,
        "Unreachable": 5,
        "Denied": 6,
        "StreamNotFound": 3,
        "NotPartitionable": 2,
        "OutOfRange": 1,
        "TooLarge": 1,
        "StorageFull": 1,
    }
    assert codes | documented == codes


def _plain(line: str) -> str:
    return re.sub("\x1b\\[[0-9;]*m", "", line)

"""`audit`: what a table lacks, or has twice, is found, and shown in each form."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException

from echelon.cli.audit import show_audit
from echelon.cli.output import Format
from echelon.spark.audit import Audit, Offender
from echelon.spark.launch import java_home
from tests.cli.place import Place
from tests.cli.several import Several
from tests.servers import skip_if_missing

_COUNTS = {
    "messages": 40,
    "processed": 39,
    "lost": 1,
    "duplicated": 1,
    "out_of_order": 0,
    "unexpected": 0,
    "unjudged": 0,
}


def test_an_audit_with_a_real_spark_names_what_is_lost_and_what_is_there_twice(place: Place, tmp_path: Path) -> None:
    with skip_if_missing():
        java_home()
    stream = place.stream()
    place.publish(stream, 40)
    group = place.group(stream, "--members", "m1")
    printed = place.echelon("join", group, "--count", "40", "-o", "json").out.splitlines()
    lost, *rest, doubled = [(row["partition"], row["sequence"]) for row in map(json.loads, printed)]
    _write(tmp_path / "table", [*rest, doubled, doubled])
    with Several() as several:
        words = ("--broker", place.url, "audit", group, "--master", "local[2]", "--delta", str(tmp_path / "table"))
        counts, offenders = _parsed(several.run(*words, code=11))
    assert counts == _COUNTS
    assert sorted(offenders) == [("duplicated", *doubled), ("lost", *lost)]


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is started fails the test."""
    monkeypatch.setattr("echelon.spark.session.build_session", lambda *_, **__: pytest.fail("Spark was started"))


@pytest.mark.usefixtures("without_spark")
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--stream", "NOWHERE"], 3, "there is no stream NOWHERE"),
        (["--postgres", "postgresql://alice:wonderland@127.0.0.1:1/x", "--table", "t"], 5, "PostgreSQL at 127.0.0.1: "),
        (["--postgres", "wonderland", "--table", "t"], 2, "that is no PostgreSQL connection string"),
        (["--delta", "FOLDER/nothing"], 3, "there is no Delta table at FOLDER/nothing"),
        (["--delta", "FOLDER"], 3, "there is no Delta table at FOLDER"),
        (["--delta", "FOLDER/file"], 1, "the Delta table FOLDER/file: "),
        (["--delta", "FOLDER/colours"], 2, "the Delta table FOLDER/colours has no columns partition and sequence"),
        (["--delta", "nowhere://x"], 3, "there is no Delta table at nowhere://x"),
    ],
)
def test_a_sink_that_cannot_be_audited_is_told_before_spark_starts(
    place: Place, quiet: str, tmp_path: Path, words: list[str], code: int, told: str
) -> None:
    (tmp_path / "file").touch()
    write_deltalake(tmp_path / "colours", pa.table({"colour": ["red"]}))
    done = place.echelon("audit", quiet, *(word.replace("FOLDER", str(tmp_path)) for word in words), code=code)
    assert done.err.startswith(f"error: {told.replace('FOLDER', str(tmp_path))}")
    assert "wonderland" not in done.err
    assert not (tmp_path / "nothing").exists()


def test_that_spark_fails_is_told_in_a_line(place: Place, quiet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PySparkException("[FAILED] pages\n  File x.py\nechelon.errors.OutOfRange: 5 is gone\nof Java")

    monkeypatch.setattr("echelon.spark.session.build_session", fails)
    stream = place.stream()
    done = place.echelon("audit", quiet, "--stream", stream.name, code=1)
    assert done.err == "error: the audit failed: echelon.errors.OutOfRange: 5 is gone\n"


def test_an_audit_is_shown_in_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    lost, doubled = Offender("lost", "0", 3, b"k3", 0), Offender("duplicated", "1", 5, None, 2)
    found = Audit(**_COUNTS, offenders=(lost, doubled))

    def told(form: Format) -> str:
        show_audit(found, form)
        return capsys.readouterr().out

    offenders = [
        {"problem": "lost", "partition": "0", "sequence": 3, "key": "k3", "results": 0},
        {"problem": "duplicated", "partition": "1", "sequence": 5, "key": None, "results": 2},
    ]
    assert json.loads(told(Format.json)) == {**_COUNTS, "offenders": offenders}
    assert list(csv.DictReader(told(Format.csv).splitlines())) == [{name: str(n) for name, n in _COUNTS.items()}]
    assert _parsed(told(Format.table)) == (_COUNTS, [("lost", "0", 3), ("duplicated", "1", 5)])


def _parsed(table: str) -> tuple[dict[str, int], list[tuple[str, str, int]]]:
    """The counts and the offenders of a table for people."""
    summary, _, offenders = table.partition("\n\n")
    counts = [line.rpartition("  ") for line in summary.splitlines()]
    head, *rows = (line.split() for line in offenders.splitlines())
    assert head == ["PROBLEM", "PARTITION", "SEQUENCE", "KEY", "RESULTS"]
    named = [(problem, partition, int(sequence)) for problem, partition, sequence, *_ in rows]
    return {name.strip().replace(" ", "_"): int(count) for name, _, count in counts}, named


def _write(path: Path, rows: list[tuple[str, int]]) -> None:
    """A table with a result of each of these messages."""
    columns = {"partition": [name for name, _ in rows], "sequence": [sequence for _, sequence in rows]}
    write_deltalake(path, pa.table(columns))

"""Every example runs as its docstring says, on a real server, and does what it says with every message."""

import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from echelon.local import KafkaServer
from tests.docs.stage import ROOT, Stage, commands, until
from tests.servers import NatsServers, skip_if_missing
from tests.spark.jvm import quick_java

READINGS = 24
WRITTEN = [(number + 1, f"sensor.{number % 4}.temp", f"{20 + number % 10}.5") for number in range(READINGS)]
"""Sequence, subject and data of all readings that an example finds."""

# Reads without a group, and then runs the pipeline, in one process: starting Spark takes longer than both.
_BOTH = """
import runpy, sys
runpy.run_path("examples/spark_source.py")
sys.argv = ["echelon", *sys.argv[1:]]
from echelon.cli import main
main()
"""


@pytest.fixture
def stage(tmp_path: Path, nats_servers: NatsServers) -> Stage:
    """A server with the stream of the examples, and a folder to run them in."""
    made = Stage(tmp_path, nats_servers().url)
    assert made.run("python", "examples/sensors.py", str(READINGS)) == f"wrote {READINGS} readings\n"
    return made


def check_order(found: Sequence[tuple[str, str]]) -> None:
    """Check that subjects and data are those that were written, each once, and those of a sensor in order."""
    for sensor in range(4):
        subject = f"sensor.{sensor}.temp"
        assert [data for each, data in found if each == subject] == [w[2] for w in WRITTEN if w[1] == subject]
    assert len(found) == READINGS


def test_the_first_member_gets_everything_in_order_by_key(stage: Stage) -> None:
    with stage.example("first_member.py") as printed:
        until(lambda: len(printed()) == READINGS)
    lines = [line.split() for line in printed()]
    check_order([(f"sensor.{key[2:-1]}.temp", data[2:-1]) for _, _, key, data in lines])
    assert sorted(int(sequence) for _, sequence, _, _ in lines) == [sequence for sequence, _, _ in WRITTEN]


def test_the_first_member_runs_on_kafka_as_the_readme_says(tmp_path: Path, kafka_server: KafkaServer) -> None:
    stage = Stage(tmp_path, kafka_server.url)
    assert stage.run("python", "examples/sensors.py", str(READINGS)) == f"wrote {READINGS} readings\n"
    stage.run("echelon", "create", "first", "SENSORS", "--start", "earliest")
    with stage.started("python", "examples/first_member.py") as printed:
        until(lambda: len(printed()) == READINGS)
    lines = [line.split() for line in printed()]
    check_order([(f"sensor.{key[2:-1]}.temp", data[2:-1]) for _, _, key, data in lines])


def test_the_async_member_gets_everything_in_order_by_key_and_tells_what_comes_and_goes(stage: Stage) -> None:
    with stage.example("async_member.py") as printed:
        until(lambda: sum(line.startswith("reading") for line in printed()) == READINGS)
    lines = printed()
    readings = [line.split() for line in lines if line.startswith("reading")]
    check_order([(subject, data) for _, subject, data in readings])
    for number in range(4):
        assert f"partition {number} is given up" in lines
        assert any(line.startswith(f"partition {number} from 1 on, epoch ") for line in lines)


def test_what_is_no_number_becomes_a_dead_letter_and_the_rest_is_handled(stage: Stage) -> None:
    def dead() -> list[dict[str, object]]:
        letters: list[dict[str, object]] = json.loads(stage.run("echelon", "dead", "list", "checked", "-o", "json"))
        return letters

    with stage.example("dead_letters.py") as printed:
        until(lambda: len(printed()) == READINGS)
        until(lambda: bool(dead()))
    check_order([(subject, data) for subject, data in (line.split() for line in printed())])
    [letter] = dead()
    assert (letter["sequence"], letter["subject"], letter["attempts"]) == (READINGS + 1, "sensor.1.temp", 3)


def test_sqlite_has_every_reading_once_also_after_a_restart_and_a_reset(stage: Stage) -> None:
    def rows() -> list[tuple[int, str, str]]:
        try:
            connection = sqlite3.connect(f"file:{stage.folder / 'readings.db'}?mode=ro", uri=True)
            found = connection.execute("SELECT sequence, subject, value FROM readings ORDER BY sequence").fetchall()
            connection.close()
        except sqlite3.OperationalError:  # It is not there yet.
            return []
        return [(sequence, subject, str(value)) for sequence, subject, value in found]

    with stage.example("exactly_once_sqlite.py"):
        until(lambda: len(rows()) >= READINGS)
    assert rows() == WRITTEN
    stage.run("echelon", "reset", "stored", "--to-initial", "--execute")
    more = [(READINGS + 1, "sensor.0.temp", "20.5")]
    stage.run("python", "examples/sensors.py", "1")
    with stage.started(*commands("exactly_once_sqlite.py")[-1]):
        until(lambda: rows() == WRITTEN + more)


def test_batches_hold_every_reading(stage: Stage) -> None:
    def numbers(lines: list[str]) -> list[int]:
        return [int(line.split()[0]) for line in lines]

    with stage.example("batches.py") as printed:
        until(lambda: sum(numbers(printed())) >= READINGS)
    assert sum(numbers(printed())) == READINGS
    means = [float(line.split()[-1]) for line in printed()]
    total = sum(count * mean for count, mean in zip(numbers(printed()), means, strict=True))
    assert total == pytest.approx(sum(float(data) for _, _, data in WRITTEN), abs=0.05 * READINGS)


def test_spark_reads_without_a_group_and_runs_a_pipeline_exactly_once(stage: Stage) -> None:
    assert commands("spark_source.py") == [["python", "examples/spark_source.py"]]
    [run] = commands("spark_to_delta.py")
    with skip_if_missing():
        stage.environment |= quick_java()
    table = stage.folder / "readings"

    def rows() -> list[dict[str, object]]:
        if not DeltaTable.is_deltatable(str(table)):
            return []
        found: list[dict[str, object]] = DeltaTable(table).to_pyarrow_table().sort_by("sequence").to_pylist()
        return found

    with stage.started(sys.executable, "-c", _BOTH, *run[1:]) as printed:
        until(lambda: len(rows()) >= READINGS, 90)
    assert printed()[0] == f"the folder has {READINGS} rows"
    expected = [(sequence, subject, float(data)) for sequence, subject, data in WRITTEN]
    assert [(row["sequence"], row["subject"], row["value"]) for row in rows()] == expected
    read = parquet.read_table(stage.folder / "rows").sort_by("sequence").to_pylist()
    assert [(row["sequence"], row["subject"], row["data"]) for row in read] == WRITTEN


def test_every_example_is_listed_and_tested() -> None:
    listed = (ROOT / "examples" / "README.md").read_text()
    tests = Path(__file__).read_text()
    for file in (ROOT / "examples").glob("*.py"):
        assert f"[{file.name}]({file.name})" in listed
        assert file.name in tests

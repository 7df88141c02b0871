"""`run` with a real Spark: a pipeline file becomes rows of a table, of which an audit tells."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from echelon.local import KafkaServer
from echelon.spark.launch import java_home
from tests.brokers.harnesses import KafkaHarness
from tests.cli.place import Place, invoke
from tests.cli.several import Several
from tests.servers import skip_if_missing
from tests.spark.jvm import quick_java

_MESSAGES = 300
_MORE = 200
_ENDING = ["draining", "left the seat of m1"]

_PIPELINE = """\
from echelon.spark import DeltaSink, pipeline


@pipeline(
    group="{group}",
    stream="{stream}",
    sink=DeltaSink("{folder}/table"),
    checkpoint="{folder}/checkpoints",
    options={{"members": ("m1",), "interval": 1.0}},
)
def keep(frame):
    {body}
"""


def started(*words: str) -> "subprocess.Popen[str]":
    """A command as a process of its own, with a JVM that starts quickly."""
    command = [sys.executable, "-m", "echelon.cli", *words]
    environment = {**os.environ, **quick_java()}
    return subprocess.Popen(
        command, process_group=0, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: "subprocess.Popen[str]") -> None:
    """End it if it still runs, and with it all that it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def ended(process: "subprocess.Popen[str]", code: int) -> tuple[str, str]:
    """What it printed, once it has ended with that exit code, without a traceback."""
    try:
        out, err = process.communicate(timeout=180)
    finally:
        end(process)
    assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err, err
    return out, err


@pytest.fixture
def several() -> Iterator[Several]:
    with skip_if_missing():
        quick_java()
    with Several() as process:
        yield process


def test_a_pipeline_runs_until_ctrl_c_and_an_audit_counts_from_a_reset_that_kept_the_output(
    kafka_server: KafkaServer, several: Several, tmp_path: Path
) -> None:
    place = Place(KafkaHarness(kafka_server), kafka_server.url, tmp_path)
    stream, folder = place.stream(), tmp_path / "sink"
    place.publish(stream, _MESSAGES)
    group, file, wrong = f"run-{stream.name}", tmp_path / "keep.py", tmp_path / "wrong.py"
    file.write_text(
        _PIPELINE.format(
            group=group,
            stream=stream.name,
            folder=folder,
            body='return frame.selectExpr("partition", "sequence", "cast(data as string) as data")',
        )
    )
    wrong.write_text(
        _PIPELINE.format(
            group=f"wrong-{stream.name}", stream=stream.name, folder=folder, body='return frame.select("colour")'
        )
    )

    def run(path: Path) -> tuple[str, ...]:
        return ("--broker", place.url, "run", str(path), "--member", "m1", "--master", "local[2]")

    def audit(code: int = 0) -> dict[str, Any]:
        words = ("audit", group, "--delta", str(folder / "table"), "--master", "local[2]", "-o", "json")
        found: dict[str, Any] = json.loads(several.run("--broker", place.url, *words, code=code))
        return found

    def until_done(rows: int) -> None:
        place.until(lambda: len(_rows(folder)) >= rows or running.poll() is not None, 120)
        place.until(lambda: place.one("info", group)["lag"] == 0 or running.poll() is not None)

    running = started(*run(file))
    try:
        assert "colour" in several.done(*run(wrong), code=1).err
        until_done(_MESSAGES)
        assert place.rows("members", group)[0]["role"] == "active"
        assert sorted(int(row["data"]) for row in _rows(folder)) == list(range(_MESSAGES))

        assert audit() == {**_exact(_MESSAGES), "unexpected": 0, "unjudged": 0, "offenders": []}

        between = datetime.now(UTC).isoformat()
        place.publish(stream, _MORE)
        until_done(_MESSAGES + _MORE)
        place.echelon("reset", group, "--to-time", between, "--keep-output", "--execute")
        until_done(_MESSAGES + 2 * _MORE)
        os.killpg(running.pid, signal.SIGINT)  # As a terminal does.
        _, told = ended(running, 0)
        assert "the seat of m1 is taken" in told
        assert [line for line in told.splitlines() if line in _ENDING] == _ENDING
        batches = [line for line in told.splitlines() if line.startswith("batch ")]
        assert len(batches) == len(set(batches))
        assert place.rows("members", group)[0]["role"] == "vacant"
        rows = sorted(int(row["data"]) for row in _rows(folder))
        assert rows == sorted([*range(_MESSAGES), *range(_MORE), *range(_MORE)])

        assert audit() == {**_exact(_MORE), "unexpected": 0, "unjudged": 0, "offenders": []}
        last = max(_rows(folder), key=lambda row: int(row["sequence"]))
        _append(folder / "table", last)
        offender = {"problem": "duplicated", "key": f"k{int(last['data']) % 8}", "results": 2}
        assert audit(code=11)["offenders"] == [
            {**offender, "partition": last["partition"], "sequence": last["sequence"]}
        ]
    finally:
        end(running)


def _exact(messages: int) -> dict[str, int]:
    return {"messages": messages, "processed": messages, "lost": 0, "duplicated": 0, "out_of_order": 0}


def _rows(folder: Path) -> list[dict[str, Any]]:
    """What the table holds now."""
    if not DeltaTable.is_deltatable(str(folder / "table")):
        return []
    found: list[dict[str, Any]] = DeltaTable(folder / "table").to_pyarrow_table().to_pylist()
    return found


def _append(path: Path, row: dict[str, Any]) -> None:
    """Write a row once more."""
    schema = DeltaTable(path).to_pyarrow_table().schema
    write_deltalake(path, pa.Table.from_pylist([row], schema=schema), mode="append")


@pytest.mark.parametrize(
    ("text", "words", "code", "told"),
    [
        (None, [], 2, "there is no Python file"),
        ("x = 1", [], 2, "declares no pipeline"),
        ("raise ValueError('bad luck')", [], 2, "cannot be run: ValueError: bad luck"),
        ("def (", [], 2, "SyntaxError"),
        ("TWO", [], 2, "declares 2 pipelines"),
        ("TWO", [":third"], 2, "declares no pipeline third"),
        ("COLOUR", [], 2, "a pipeline has no declaration 'colour'"),
        ("TWO", [":one"], 2, "no broker is named"),
        ("TWO", [":one", "--broker", "nats://127.0.0.1:1"], 5, "127.0.0.1:1"),
        ("TWO", [":one", "--context", "nowhere"], 3, "there is no context nowhere"),
    ],
)
def test_mistakes_in_a_pipeline_file_are_told(
    tmp_path: Path, text: str | None, words: list[str], code: int, told: str
) -> None:
    file = tmp_path / "mistaken.py"
    declared = (
        'from echelon.spark import DeltaSink, pipeline\n\n@pipeline(group="g", stream="S", sink=DeltaSink("t"))\n'
    )
    if text in ("TWO", "COLOUR"):
        functions = [f"{declared}def {name}(frame):\n    return frame\n" for name in ("one", "two")]
        text = "\n".join(functions).replace('group="g"', 'group="g", colour=1' if text == "COLOUR" else 'group="g"')
    if text is not None:
        file.write_text(text)
    name, *rest = words or [""]
    assert told in invoke("run", f"{file}{name}", *rest, code=code).err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "an audit is of one sink"),
        (["--delta", "x", "--stream", "y"], "an audit is of one sink"),
        (["--postgres", "postgresql://localhost/x"], "--postgres needs a table"),
    ],
)
def test_mistakes_in_an_audit_are_told_before_spark_starts(words: list[str], told: str) -> None:
    assert told in invoke("--broker", "nats://127.0.0.1:1", "audit", "g", *words, code=2).err


def test_a_demo_tells_what_the_readme_shows_and_of_every_message_at_its_end() -> None:
    with skip_if_missing():
        java_home()
    out, err = ended(started("demo", "--json", "--messages", "2000"), 0)
    [line] = out.splitlines()
    result = json.loads(line)
    assert {name: result[name] for name in _exact(2000)} == _exact(2000)
    assert 0 < result["failover_seconds"] < result["seconds"]
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    captured = re.search(r"^```\n( +0\.0 s .*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert captured is not None
    shown = _without_numbers(captured[1])
    assert [each for each in _without_numbers(err) if each in shown] == shown


def _without_numbers(text: str) -> list[str]:
    """The lines of a demo without what is different each time."""
    for pattern, word in ((r"\b(first|second)\b", "NTH"), (r"sensor\.\S+:", "SENSOR:"), (r"-?[\d.,]*\d", "N")):
        text = re.sub(pattern, word, text)
    return [line.strip() for line in text.splitlines() if line.strip()]

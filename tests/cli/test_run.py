"""`run` and `audit` with a real Spark: a pipeline file becomes rows of a table, and damage to the table is found."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from echelon.local import NatsServer
from echelon.spark.launch import java_home
from tests.brokers.nats.harness import NatsHarness
from tests.cli.place import Place, invoke
from tests.servers import skip_if_missing

_MESSAGES = 300

_PIPELINE = """\
from echelon.spark import DeltaSink, pipeline


@pipeline(
    group="{group}",
    stream="{stream}",
    key="tokens:{stream}.*:1",
    partitions=4,
    sink=DeltaSink("{folder}/table"),
    checkpoint="{folder}/checkpoints",
    options={{"members": ("m1",), "interval": 0.4}},
)
def keep(frame):
    {body}
"""


def started(*words: str) -> "subprocess.Popen[str]":
    """A command as a process of its own, with a JVM that starts quickly."""
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx700m"}
    command = [sys.executable, "-m", "echelon.cli", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def end(process: "subprocess.Popen[str]") -> None:
    """End it if it still runs, and with it all that it has started."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def ended(process: "subprocess.Popen[str]", code: int) -> tuple[str, str]:
    """What it printed, once it has ended with that exit code."""
    try:
        out, err = process.communicate(timeout=180)
    finally:
        end(process)
    assert process.returncode == code, f"{process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err or "pyspark/daemon.py" in err  # Workers complain when a session ends.
    return out, err


@pytest.mark.timeout(240)
def test_a_pipeline_runs_until_sigterm_and_an_audit_finds_what_is_damaged(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    with skip_if_missing():
        java_home()
    place = Place(NatsHarness(nats_server, "derived"), nats_server.url, tmp_path)
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
    running = started("--broker", place.url, "run", str(file), "--member", "m1", "--master", "local[2]")
    failing = started("--broker", place.url, "run", str(wrong), "--member", "m1", "--master", "local[2]")
    try:
        place.until(lambda: _rows(folder) >= _MESSAGES or running.poll() is not None, 60)
        assert place.rows("members", group)[0]["role"] == "active"
        place.until(lambda: place.one("info", group)["lag"] == 0 or running.poll() is not None)
        running.send_signal(signal.SIGTERM)
        _, told = ended(running, 0)
        assert "the seat of m1 is taken" in told
        _, told = ended(failing, 1)
        assert "colour" in told
    finally:
        end(running)
        end(failing)
    assert place.rows("members", group)[0]["role"] == "vacant"
    table = DeltaTable(folder / "table")
    data = table.to_pyarrow_table()["data"].to_pylist()
    assert sorted(map(int, data)) == list(range(_MESSAGES))

    words = ("--broker", place.url, "audit", group, "--delta", str(folder / "table"), "--master", "local[2]")
    as_table, as_json = started(*words), started(*words, "-o", "json")
    try:
        out, told = (ended(process, 0)[0] for process in (as_table, as_json))
    finally:
        end(as_json)
    lines = dict(line.split() for line in out.replace("out of order", "out_of_order").splitlines())
    exact = {"messages": _MESSAGES, "processed": _MESSAGES, "lost": 0, "duplicated": 0, "out_of_order": 0}
    assert {name: int(lines[name]) for name in exact} == exact
    found = json.loads(told)
    assert found == {**exact, "unexpected": 0, "unjudged": 0, "offenders": []}

    lost, doubled = table.to_pyarrow_table().sort_by("sequence").slice(100, 2).to_pylist()
    table.delete(f"sequence = {lost['sequence']}")
    write_deltalake(folder / "table", pa.Table.from_pylist([doubled], schema=pa.schema(_schema(table))), mode="append")
    out, _ = ended(started(*words, "-o", "json"), 11)
    found = json.loads(out)
    assert (found["lost"], found["duplicated"], found["processed"]) == (1, 1, _MESSAGES - 1)
    keys = [f"k{int(row['data']) % 8}" for row in (doubled, lost)]
    assert [(each["problem"], each["sequence"], each["key"], each["results"]) for each in found["offenders"]] == [
        ("duplicated", doubled["sequence"], keys[0], 2),
        ("lost", lost["sequence"], keys[1], 0),
    ]


def _rows(folder: Path) -> int:
    return DeltaTable(folder / "table").count() if DeltaTable.is_deltatable(str(folder / "table")) else 0


def _schema(table: DeltaTable) -> list[pa.Field]:
    return list(table.to_pyarrow_table().schema)


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


@pytest.mark.timeout(240)
def test_a_demo_tells_of_every_message_at_its_end() -> None:
    with skip_if_missing():
        java_home()
    out, err = ended(started("demo", "--json", "--messages", "2000"), 0)
    [line] = out.splitlines()
    result = json.loads(line)
    assert {name: result[name] for name in ("messages", "processed", "lost", "duplicated", "out_of_order")} == {
        "messages": 2000,
        "processed": 2000,
        "lost": 0,
        "duplicated": 0,
        "out_of_order": 0,
    }
    assert 0 < result["failover_seconds"] < result["seconds"]
    assert "kill -9" in err

"""The command line answers at once, and says so plainly when it cannot work."""

import asyncio
import json
import os
import pty
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from echelon.cli.app import app
from tests.brokers.nats.harness import call
from tests.cli.place import ON_BOTH, Place, invoke

HEAVY = {"asyncio", "confluent_kafka", "msgspec", "nats", "pandas", "pyarrow", "pyspark", "rich"}


def _python(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((sys.executable, *words), capture_output=True, text=True, check=False)


def _modules(*words: str) -> set[str]:
    """The packages that a command imports."""
    done = _python("-X", "importtime", "-m", "echelon.cli", *words)
    assert done.returncode == 0, done.stderr
    names = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {name.partition(".")[0] for name in names}


def test_help_imports_nothing_heavy() -> None:
    loaded = _modules("--help")
    assert "typer" in loaded
    assert not loaded & HEAVY


@ON_BOTH
def test_views_import_only_what_their_broker_needs(place: Place, quiet: str) -> None:
    for words in (("ls",), ("lag", quiet)):
        loaded = _modules("--broker", place.url, *words)
        assert ("confluent_kafka" in loaded, "nats" in loaded) == (place.is_kafka, not place.is_kafka)
        assert not loaded & {"pandas", "pyarrow", "pyspark", "rich"}


@ON_BOTH
def test_help_and_a_listing_come_at_once(place: Place) -> None:
    """In half a second by the clock; on a slow machine, in as many times what Python takes to start with asyncio.

    What else the machine does may hold up some of many, but not all of them.
    """
    limit = max(0.5, 8 * min(_seconds("-c", "import asyncio, ssl") for _ in range(5)))
    for words in (("--help",), ("--broker", place.url, "ls")):
        seconds: list[float] = []
        while min(seconds, default=limit) >= limit and len(seconds) < 10:
            seconds.append(_seconds("-m", "echelon.cli", *words))
        assert min(seconds) < limit, (words, seconds)


def _seconds(*words: str) -> float:
    """How long a Python takes."""
    began = time.monotonic()
    done = _python(*words)
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


def test_version_is_told() -> None:
    assert _python("-m", "echelon.cli", "--version").stdout.startswith("echelon")


def test_without_typer_the_remedy_is_told() -> None:
    done = _python("-c", "import sys; sys.modules['typer'] = None; from echelon.cli import main; main()")
    assert done.returncode == 9
    assert done.stderr == "error: the command line needs typer\npip install 'echelon[cli]'\n"


def test_every_command_has_help_whose_first_line_is_told_whole() -> None:
    commands = [[command.name or ""] for command in app.registered_commands]
    for family in app.registered_groups:
        assert family.typer_instance is not None
        commands += [
            [family.name or "", command.name or command.callback.__name__]
            for command in family.typer_instance.registered_commands
            if command.callback is not None
        ]
    assert len(commands) > 40
    for words in ([], *([family.name or ""] for family in app.registered_groups), *commands):
        told = invoke(*words, "--help").out
        assert told.startswith(f"Usage: {' '.join(['echelon', *words])} ")
        assert "..." not in told.partition("Commands:")[2], "a line was cut off"


def test_options_of_the_root_stand_anywhere(quiet: str, place: Place) -> None:
    assert quiet in invoke("ls", "--names", "--broker", place.url).out
    assert quiet in invoke("ls", f"--broker={place.url}", "--no-color").out


@pytest.mark.parametrize(
    ("words", "variable", "colours"), [((), "", True), (("--no-color",), "", False), ((), "1", False)]
)
def test_colours_are_for_terminals_that_want_them(
    place: Place, quiet: str, words: tuple[str, ...], variable: str, colours: bool
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "echelon.cli", "--broker", place.url, "members", quiet, *words]
    environment = {**os.environ, "NO_COLOR": variable}
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        assert process.wait(30) == 0
    told = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "VACANT" in told
    assert ("\x1b[31m" in told) == colours


def test_a_broker_that_does_not_answer_is_told_without_the_password() -> None:
    done = invoke("--broker", "nats://me:secret@127.0.0.1:1", "ls", code=5)
    assert "127.0.0.1:1" in done.err
    assert "secret" not in done.err


def test_the_error_that_ends_a_command_is_json_where_logs_are() -> None:
    [line] = invoke("--broker", "nats://127.0.0.1:1", "--log-format", "json", "ls", code=5).err.splitlines()
    told = json.loads(line)
    assert (told["level"], told["code"]) == ("error", 5)
    assert "127.0.0.1:1" in told["message"]
    assert told["remedy"]


def test_no_broker_at_all_is_told_with_the_ways_to_name_one() -> None:
    err = invoke("ls", code=2).err
    assert "no broker is named" in err
    assert "--broker" in err
    assert "echelon local up" in err


def test_completion_is_offered(place: Place, quiet: str) -> None:
    words = f"echelon --broker {place.url} info {quiet[:3]}"
    environment = {**os.environ, "_ECHELON_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    program = Path(sys.executable).with_name("echelon")
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert quiet in done.stdout.split(), done.stderr


def test_what_is_logged_can_be_json(place: Place) -> None:
    """The member finds that messages are gone which it has not processed, and goes on behind them."""
    stream = place.stream()
    group = place.group(stream, "--members", "m1", "--set", "out_of_range=earliest")
    place.publish(stream, 8)
    place.until(lambda: place.one("info", group)["lag"] == 8)
    trim(place, group)
    done = place.echelon("--log-format", "json", "join", group, "--count", "4", "-o", "json")
    assert [json.loads(line)["data"] for line in done.out.splitlines()]
    [line, *_] = map(json.loads, done.err.splitlines())
    assert (line["level"], line["logger"]) == ("warning", "echelon.members.failures")
    assert "going on at" in line["message"]
    assert datetime.fromisoformat(line["time"]).tzinfo is not None


def trim(place: Place, group: str) -> None:
    """Have the server forget the first messages of the group's stream."""
    asyncio.run(call(place.url, f"STREAM.PURGE.ECHELON-{group}", {"keep": 4}))


@pytest.mark.parametrize("words", [("run", "pipeline.py"), ("demo",), ("audit", "g", "--delta", "table")])
def test_what_needs_spark_says_so_where_it_is_not_installed(words: tuple[str, ...]) -> None:
    begin = "import sys; sys.modules['pyspark'] = None; from echelon.cli import main; main()"
    done = _python("-c", begin, *words)
    assert done.returncode == 9, done.stderr
    assert "pip install 'echelon[spark]'" in done.stderr
    assert "Traceback" not in done.stderr

"""The command line answers at once, and says so plainly when it cannot work."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.place import Place, invoke

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


def test_a_listing_imports_only_what_its_broker_needs(place: Place) -> None:
    loaded = _modules("--broker", place.url, "ls")
    assert ("confluent_kafka" in loaded, "nats" in loaded) == (place.is_kafka, not place.is_kafka)
    assert not loaded & {"pandas", "pyarrow", "pyspark", "rich"}


def test_help_and_a_listing_come_at_once(place: Place) -> None:
    """The least of a few tries: a busy machine may take its time with the others."""
    for words in (("--help",), ("--broker", place.url, "ls")):
        seconds = []
        for _ in range(5):
            began = time.perf_counter()
            done = _python("-m", "echelon.cli", *words)
            seconds.append(time.perf_counter() - began)
            assert done.returncode == 0, done.stderr
        assert min(seconds) < 0.5, (words, seconds)


def test_version_is_told() -> None:
    assert _python("-m", "echelon.cli", "--version").stdout.startswith("echelon")


def test_without_typer_the_remedy_is_told() -> None:
    done = _python("-c", "import sys; sys.modules['typer'] = None; from echelon.cli import main; main()")
    assert done.returncode == 9
    assert done.stderr == "error: the command line needs typer\npip install 'echelon[cli]'\n"


def test_every_command_has_help() -> None:
    for words in ([], ["ls"], ["reset"], ["cut", "take"], ["dead", "retry"], ["context", "add"], ["member", "add"]):
        assert "Usage:" in invoke(*words, "--help").out


def test_options_of_the_root_stand_anywhere(quiet: str, place: Place) -> None:
    assert quiet in invoke("ls", "--names", "--broker", place.url).out
    assert quiet in invoke("ls", f"--broker={place.url}", "--no-color").out


def test_a_broker_that_does_not_answer_is_told_without_the_password() -> None:
    done = invoke("--broker", "nats://me:secret@127.0.0.1:1", "ls", code=5)
    assert "127.0.0.1:1" in done.err
    assert "secret" not in done.err


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


def test_logs_can_be_json(place: Place, quiet: str) -> None:
    done = place.echelon("--log-format", "json", "--verbose", "info", quiet)
    assert all(line.startswith("{") for line in done.err.splitlines())

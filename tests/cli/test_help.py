"""The command line answers at once, and says so plainly when it cannot work."""

import subprocess
import sys
import time

HEAVY = {"confluent_kafka", "msgspec", "nats", "pyarrow", "pyspark", "rich"}


def _python(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run((sys.executable, *words), capture_output=True, text=True, check=False)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, echelon.cli.app; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(_python("-c", code).stdout.split())
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_help_comes_at_once() -> None:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        done = _python("-m", "echelon.cli", "--help")
        seconds.append(time.perf_counter() - began)
        assert done.returncode == 0
        assert "local" in done.stdout
    assert min(seconds) < 0.5


def test_version_is_told() -> None:
    assert _python("-m", "echelon.cli", "--version").stdout.startswith("echelon")


def test_without_typer_the_remedy_is_told() -> None:
    done = _python("-c", "import sys; sys.modules['typer'] = None; from echelon.cli import main; main()")
    assert done.returncode == 1
    assert done.stderr == "error: the command line needs typer\npip install 'echelon[cli]'\n"

"""How commands end that cannot go on: interrupted, with nowhere to write to, or asked for what there is not."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from echelon.cli.connection import confirm
from tests.cli.place import invoke

_INTERRUPTED = """\
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

from echelon.cli import main
sys.meta_path.insert(0, Finder())
main()
"""


@pytest.mark.parametrize("name", ["echelon.cli.exits", "typer", "echelon.cli.app", "echelon.cli.top"])
def test_ctrl_c_while_it_starts_is_quiet(name: str) -> None:
    words = [sys.executable, "-c", _INTERRUPTED.format(name=name), "--help"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("words", [("--help",), ("context", "ls", "-o", "json")])
def test_output_that_cannot_be_written_is_told(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "echelon.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_closed_pipe_is_quiet() -> None:
    theirs, ours = os.pipe()
    os.close(theirs)
    words = [sys.executable, "-m", "echelon.cli", "context", "ls", "-o", "json"]
    done = subprocess.run(words, stdout=ours, stderr=subprocess.PIPE, text=True, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_demo_that_is_told_to_end_ends_what_it_had_started_and_is_quiet() -> None:
    command = [sys.executable, "-m", "echelon.cli", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        [address] = re.findall(r"nats-server is up at nats://127.0.0.1:(\d+)", demo.stdout.readline())
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(60) == 143
        assert "Traceback" not in demo.stderr.read()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", int(address))):
        pass


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("ls", "--bogus"), "No such option: --bogus"),
        (("lst",), "No such command 'lst'. Did you mean 'list', 'ls'?"),
        (("ls", "-o", "xml"), "Invalid value for '-o' / '--output'"),
        (("info",), "Missing argument"),
        (("--bogus", "ls"), "No such option: --bogus"),
    ],
)
def test_a_mistake_in_the_command_line_is_json_where_logs_are(words: tuple[str, ...], told: str) -> None:
    for option in (("--log-format", "json"), ("--log-format=json",)):
        [line] = invoke(*words, *option, code=2).err.splitlines()
        found = json.loads(line)
        assert (found["level"], found["code"]) == ("error", 2)
        assert told in found["message"]
        assert "-h' for help" in found["remedy"]
    assert told in invoke(*words, code=2).err.splitlines()[-1]


def test_help_is_no_mistake() -> None:
    assert invoke("--log-format", "json", "cut", code=2).err == invoke("cut", code=2).err


def test_who_cannot_be_asked_does_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for stdin in (None, io.TextIOWrapper(io.BytesIO(b"\xff\n"), encoding="utf-8")):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(typer.Exit) as ended:
            confirm("Delete it?", force=False)
        assert ended.value.exit_code == 10


@pytest.mark.parametrize(
    ("answer", "agrees"), [("y", True), (" YES ", True), ("n", False), ("", False), ("yeah", False)]
)
def test_a_question_is_no_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, agrees: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{answer}\n"))
    with nullcontext() if agrees else pytest.raises(typer.Exit):
        confirm("Delete it?", force=False)
    assert capsys.readouterr() == ("", "Delete it? [y/N]: " + ("" if agrees else "nothing was done\n"))

"""The tutorial is a session that really runs: what it shows is what the commands print."""

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from tests.docs.stage import ROOT, own_environment

_TUTORIAL: Final = ROOT / "docs" / "tutorial.md"
_READING: Final = ("echelon ls", "echelon members", "echelon lag", "echelon partitions", "echelon why", "cat", "tail")
"""Commands that change nothing: what they show may take a moment to become true."""
_PATIENCE: Final = 20.0
_OWN_COLUMNS: Final = frozenset(
    {"HOST", "PID", "INSTANCE", "SINCE", "EPOCH", "SEEN-SECONDS", "LAG-SECONDS", "LAST-PROGRESS", "CUT", "TAKEN"}
)
"""Columns of which a reader's own values are different."""
# What differs each time. First come lines of logs, and what bash says of killed jobs.
_OWN_WORDS: Final = (
    (re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ [A-Z]+ .*\n?", re.MULTILINE), ""),
    (re.compile(r"^bash: line \d+: +\d+ Killed .*\n?", re.MULTILINE), ""),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+"), "TIME"),
    (re.compile(r"\b(anna|bela|carl) \(?[0-9a-f]{6}\b\)?"), r"\1 ID"),
    (re.compile(r"as (bela|carl) ID saw"), "as a neighbour saw"),
    (re.compile(r"\brecord \d+"), "record N"),
    (re.compile(r"for \d+\.\d s"), "for N s"),
)


class Step(Struct, frozen=True):
    """A command of the tutorial, and what it prints."""

    command: str
    printed: str


def steps() -> list[Step]:
    """All commands of the tutorial, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", _TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [Step(*part.rstrip("\n").partition("\n")[::2]) for part in parts]


def normal(text: str, *, sort: bool = False) -> list[list[str]]:
    """The cells of each line, without what differs each time and without the widths of columns.

    With `sort`, lines keep no order but that of each key: members print the messages of several keys.
    """
    for pattern, word in _OWN_WORDS:
        text = pattern.sub(word, text)
    lines = [re.split(r" {2,}", line.strip()) for line in text.splitlines()]
    if lines and all(cell == cell.upper() for cell in lines[0]):
        own = [place for place, head in enumerate(lines[0]) if head in _OWN_COLUMNS]
        for line in lines[1:]:
            for place in own:
                if place < len(line) and line[place] != "-":
                    line[place] = "*"
    return sorted(lines, key=lambda line: line[2:3]) if sort else lines


class Shell:
    """One bash for the whole session, since later commands use what earlier ones have started."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=own_environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, command: str) -> str:
        """What a command prints, on both outputs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = "--- end of the command ---"
        self._process.stdin.write(f"{{ {command}\n}} 2>&1\necho '{end}'\n")
        self._process.stdin.flush()
        lines: list[str] = []
        while (line := self._process.stdout.readline().rstrip("\n")) != end:
            assert self._process.poll() is None, lines
            lines.append(line)
        return "\n".join(lines)

    def close(self) -> None:
        """End everything that the session has started and did not end."""
        self.run("kill -9 $anna $bela $carl; echelon local down nats --data tutorial/nats")
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    made = Shell(tmp_path)
    yield made
    made.close()


def test_the_tutorial_prints_what_it_shows(shell: Shell) -> None:
    session = steps()
    assert len(session) > 20
    for step in session:
        sort = step.command.startswith(("cat", "tail", "echelon join readings --name"))
        expected = normal(step.printed, sort=sort)
        until = time.monotonic() + (_PATIENCE if step.command.startswith(_READING) else 0)
        found = normal(shell.run(step.command), sort=sort)
        while found != expected and time.monotonic() < until:
            found = normal(shell.run(step.command), sort=sort)
        assert found == expected, step.command

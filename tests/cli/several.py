"""Runs one command after the other in a process of its own: those with Spark then share a JVM.

Run as `python -m tests.cli.several`. Each line of its input is a command, as a JSON list of words; each line of its
output is what the command printed, and its exit code.
"""

import os
import subprocess
import sys
from typing import Self

import msgspec
from typer.testing import CliRunner

from echelon.cli.app import app
from tests.cli.place import Done
from tests.spark.jvm import quick_java


class Several:
    """The process. Leaving it ends the process."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.several"],
            env={**os.environ, **quick_java()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=30)
        finally:
            self._process.kill()

    def run(self, *words: str, code: int = 0) -> str:
        """What a command printed; it ended with this exit code."""
        return self.done(*words, code=code).out

    def done(self, *words: str, code: int) -> Done:
        """What a command printed, on standard error too; it ended with this exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{msgspec.json.encode(words).decode()}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"it ended with {self._process.wait()}"
        done = msgspec.json.decode(line, type=Done)
        assert done.code == code, done
        return done


def main() -> None:
    for line in sys.stdin:
        result = CliRunner().invoke(app, msgspec.json.decode(line, type=list[str]), catch_exceptions=False)
        done = Done(result.stdout, result.stderr, result.exit_code)
        sys.stdout.write(f"{msgspec.json.encode(done).decode()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

"""Where what the docs show is run: a folder with the examples in it, and an environment that nobody else uses."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def own_environment(folder: Path) -> dict[str, str]:
    """An environment whose home, settings and servers are in `folder`, with this Python and its commands."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ECHELON_", "XDG_"))}
    places = {f"XDG_{each}_HOME": str(folder / each.lower()) for each in ("CONFIG", "STATE", "CACHE", "DATA")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**kept, **places, "HOME": str(folder), "PATH": path, "NO_COLOR": "1"}


def commands(example: str) -> list[list[str]]:
    """The commands that the docstring of an example tells to run; the last is the example itself."""
    docstring = (ROOT / "examples" / example).read_text().split('"""')[1]
    return [shlex.split(line) for line in re.findall(r"^\$ (.*)$", docstring, re.MULTILINE)]


class Stage:
    """A folder with a copy of the examples, on a server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.environment = {**own_environment(folder), "ECHELON_URL": url}
        shutil.copytree(ROOT / "examples", folder / "examples")

    def run(self, *words: str) -> str:
        """What a command prints; it must end with 0."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def started(self, *words: str) -> Iterator[Callable[[], list[str]]]:
        """Start a command, and end it with SIGTERM, which it must take well. Gives what it has printed so far."""
        printed, errors = self.folder / "printed.txt", self.folder / "errors.txt"
        with printed.open("wb") as out, errors.open("wb") as err:
            process = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=out, stderr=err)
        try:
            yield lambda: printed.read_text().splitlines()
            process.terminate()
            assert process.wait(30) == 0, errors.read_text()
        finally:
            process.kill()
            process.wait()
            sys.stderr.write(errors.read_text()[-2000:])  # Shown only if the test fails.

    @contextmanager
    def example(self, name: str) -> Iterator[Callable[[], list[str]]]:
        """Do as the docstring of an example says."""
        *before, last = commands(name)
        for words in before:
            self.run(*words)
        with self.started(*last) as printed:
            yield printed


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not in {seconds} s"
        time.sleep(0.05)

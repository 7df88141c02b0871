"""Finds a Java that is new enough."""

import os
import re
import shutil
import subprocess

from echelon.errors import MissingComponent

_NEEDED = 17
_REMEDY = f"Install Java {_NEEDED} or later (a JRE is enough), on the PATH or named by JAVA_HOME"


def find_java() -> str:
    """The `java` program of JAVA_HOME, or else of the PATH. Raises MissingComponent if it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if program is None:
        raise MissingComponent(f"Java is not {'in JAVA_HOME' if home else 'on this machine'}", remedy=_REMEDY)
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    if version is None:
        raise MissingComponent(f"{program} does not tell its version: {answer.stderr.strip()}", remedy=_REMEDY)
    if int(version[1]) < _NEEDED:
        raise MissingComponent(f"{program} is Java {version[1]}, which is too old", remedy=_REMEDY)
    return program

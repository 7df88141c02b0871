"""The Kafka broker's jars: resolved from Maven Central once, then taken from a cache.

PySpark ships Ivy, which resolves them with nothing but Java; Maven does it too. The cache is filled in a folder
beside it that is renamed when all is there, so a broken download is never taken for whole.
"""

import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from echelon.errors import MissingComponent
from echelon.local.lock import locked

KAFKA_VERSION = "4.1.0"

# The second is what makes the broker's log readable: without it slf4j drops every line.
_WANTED = (("org.apache.kafka", "kafka_2.13", KAFKA_VERSION), ("org.slf4j", "slf4j-simple", "1.7.36"))
_FOLDER_VARIABLE = "ECHELON_KAFKA_JARS"

log = logging.getLogger(__name__)


def kafka_jars(java: str) -> Path:
    """The folder with the broker's jars; the first time they are downloaded, which takes about a minute.

    Two programs at once do it once. The variable ECHELON_KAFKA_JARS names a folder to use instead. Raises
    MissingComponent if they cannot be had.
    """
    given = os.environ.get(_FOLDER_VARIABLE)
    if given:
        _check(Path(given))
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echelon"
    folder = cache / f"kafka-{KAFKA_VERSION}"
    try:
        if not folder.exists():
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache / f"{folder.name}.lock", waiting_for=f"downloads Kafka {KAFKA_VERSION}"):
                _fill(folder, java)
    except OSError as error:
        raise _unavailable(f"cannot be kept in {cache}", [str(error)]) from error
    return folder


def _fill(folder: Path, java: str) -> None:
    """Make the folder with all the jars in it at once, unless another program did so meanwhile."""
    if folder.exists():
        return
    for left_by_a_crash in folder.parent.glob(f"{folder.name}-*"):
        shutil.rmtree(left_by_a_crash, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as work:
        _resolve(java, Path(work))
        _check(Path(work) / "lib")
        (Path(work) / "lib").rename(folder)


def _resolve(java: str, work: Path) -> None:
    """Put the jars into `work/lib`."""
    ivy = _find_ivy()
    maven = shutil.which("mvn")
    if ivy is not None:
        (work / "ivy.xml").write_text(_ivy_module())
        pattern = f"{work}/lib/[artifact]-[revision](-[classifier]).[ext]"
        command = [java, "-jar", str(ivy), "-ivy", f"{work}/ivy.xml", "-cache", f"{work}/cache", "-retrieve", pattern]
    elif maven is not None:
        (work / "pom.xml").write_text(_maven_project())
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={work}/lib", "-DincludeScope=runtime"]
        command = [maven, "-B", "-f", f"{work}/pom.xml", *goal]
    else:
        raise MissingComponent(
            f"the jars of Kafka {KAFKA_VERSION} are not on this machine, nor is anything that can download them",
            remedy=f"pip install pyspark (it ships Ivy), or install Maven, or set {_FOLDER_VARIABLE} to the libs "
            "folder of an unpacked Kafka",
        )
    log.info("Downloading Kafka %s from Maven Central, once: about 45 MB, a minute", KAFKA_VERSION)
    _run(command)


def _run(command: Sequence[str]) -> None:
    """Run the command, and log what it downloads."""
    output: list[str] = []
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            output.append(line)
            jar = re.match(r"(?:downloading|\[INFO\] Downloading) .*/([^/\s]+\.jar)\b", line)
            if jar is not None:
                log.info("  %s", jar[1])
    if process.returncode != 0:
        errors = [line for line in output if re.search(r"\berror\b|: not found", line, re.IGNORECASE)]
        raise _unavailable("could not be downloaded from Maven Central", errors[:4] or output[-4:])


def _check(folder: Path) -> None:
    jars = sorted(folder.glob("*.jar"))
    broken = [jar.name for jar in jars if not zipfile.is_zipfile(jar)]
    if broken:
        raise _unavailable(f"are broken in {folder}", broken)
    if not any(jar.name.startswith("kafka_") for jar in jars):
        raise _unavailable(f"are not in {folder}", [])


def _unavailable(what: str, details: Sequence[str]) -> MissingComponent:
    text = "".join(f"\n  {line.strip()}" for line in details)
    return MissingComponent(
        f"the jars of Kafka {KAFKA_VERSION} {what}{':' if text else ''}{text}",
        remedy=f"Check the network and try again, or set {_FOLDER_VARIABLE} to the libs folder of an unpacked Kafka",
    )


def _find_ivy() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"), None)


def _ivy_module() -> str:
    wanted = "".join(f'<dependency org="{o}" name="{n}" rev="{r}" conf="*->default"/>' for o, n, r in _WANTED)
    info = '<info organisation="echelon" module="local"/>'
    return f'<ivy-module version="2.0">{info}<dependencies>{wanted}</dependencies></ivy-module>'


def _maven_project() -> str:
    wanted = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
        for g, a, v in _WANTED
    )
    own = "<groupId>echelon</groupId><artifactId>local</artifactId><version>1</version>"
    return f"<project><modelVersion>4.0.0</modelVersion>{own}<dependencies>{wanted}</dependencies></project>"

"""Builds a Spark session with the settings that suit streams of small batches."""

import atexit
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

import echelon
from echelon.spark.launch import java_home, quick_home
from echelon.spark.source import register

_SETTINGS: Final = {
    # With the next one, half of what a small batch costs.
    "spark.python.unix.domain.socket.enabled": "true",
    # It finds a second driver on a checkpoint later than the default does. The seat sees to that here.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Results of a batch without messages would have no position to be committed with.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A broker's URL may hold a password.
    "spark.sql.redaction.options.regex": "(?i)url|broker",
}

_PATIENCE: Final = 2.0
"""Seconds for which the end of Python processes is waited for."""


def build_session(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with the `echelon` format; the one that this process has, if it has one.

    Settings win over ours. On a cluster (a master that is not local), this package is shipped to the executors;
    what it depends on has to be installed there. Starting takes some seconds. Raises MissingComponent if there is no
    Java 17 or later.
    """
    is_local = master.startswith("local")
    home = java_home()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    if is_local:
        os.environ.setdefault("SPARK_HOME", str(quick_home()))
    # Otherwise workers take the first python3 on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    # State and shuffles by key need no more tasks than there are processors; a query keeps what it began with.
    few = {"spark.sql.shuffle.partitions": str(min(8, os.cpu_count() or 2))} if is_local else {}
    for key, value in {**_SETTINGS, **few, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    register(session)
    if not is_local:
        _ship(session)
    return session


def stop_session(session: SparkSession) -> None:
    """Stop it. Nothing may run in it any more.

    Its Python processes are ended first: each that waits for a task when Spark hangs up on it prints a traceback, so
    that a program that went well would seem to end in errors.
    """
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark has no other way to its process
    children = jvm.java.lang.ProcessHandle.current().children().toArray()
    workers = [child for child in children if child.pid() != os.getpid()]  # With spark-submit this process is one, too.
    for worker in workers:
        worker.destroy()
    until = time.monotonic() + _PATIENCE
    while any(worker.isAlive() for worker in workers) and time.monotonic() < until:
        time.sleep(0.01)
    session.stop()


def archive_package(folder: Path) -> Path:
    """A zip file of this package, from which Python can import it."""
    package = Path(echelon.__file__).parent
    archive = folder / "echelon.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        for file in sorted(package.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                opened.write(file, file.relative_to(package.parent))
    return archive


def _ship(session: SparkSession) -> None:
    """Give the executors this package. They fetch it when they need it, so it stays until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="echelon-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    session.sparkContext.addPyFile(str(archive_package(folder)))

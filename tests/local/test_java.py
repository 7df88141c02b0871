"""Which Java is taken, and what is said if there is none that will do."""

from pathlib import Path

import pytest

from echelon.errors import MissingComponent
from echelon.local.java import find_java


def _java(folder: Path, says: str) -> Path:
    """A program that tells its version as Java does."""
    program = folder / "java"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_java_home_wins_over_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = _java(tmp_path / "home/bin", 'openjdk version "21.0.1" 2023-10-17')
    on_path = _java(tmp_path / "path", 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert find_java() == str(on_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(at_home)


@pytest.mark.parametrize("says", ['java version "1.8.0_402"', 'openjdk version "11.0.22" 2024-01-16'])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str) -> None:
    monkeypatch.setenv("PATH", str(_java(tmp_path, says).parent))
    with pytest.raises(MissingComponent, match="too old") as raised:
        find_java()
    assert "Java 17 or later" in raised.value.remedy


def test_no_java_is_told_with_the_way_to_get_one() -> None:
    with pytest.raises(MissingComponent, match="Java is not on this machine") as raised:
        find_java()
    assert "Java 17 or later" in raised.value.remedy


def test_a_java_home_without_java_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MissingComponent, match="JAVA_HOME"):
        find_java()

"""Each layer imports only what stands below it, and the contract that says so can fail."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def lint_imports(place: Path) -> "subprocess.CompletedProcess[str]":
    """Check the contracts of this project for the package `echelon` in `place`."""
    program = Path(sysconfig.get_path("scripts"), "lint-imports")
    return subprocess.run(
        [program, "--no-cache", "--config", ROOT / "pyproject.toml"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


def test_layers_hold() -> None:
    done = lint_imports(ROOT / "src")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("errors", "model"),
        ("model", "keys"),
        ("keys", "assignment"),
        ("assignment", "group.config"),
        ("group.config", "brokers.base"),
        ("brokers.base", "brokers.memory.any"),
        ("brokers.memory.any", "brokers.nats.any"),
        ("brokers.nats.any", "brokers.kafka.any"),
        ("brokers.kafka.any", "members.any"),
        ("members.any", "spark.any"),
        ("pcg.any", "spark.any"),
        ("spark.any", "testing.any"),
        ("testing.any", "ops.any"),
        ("ops.any", "cli.any"),
    ],
)
def test_an_import_upwards_or_sideways_is_found(tmp_path: Path, importer: str, imported: str) -> None:
    shutil.copytree(ROOT / "src" / "echelon", tmp_path / "echelon", ignore=shutil.ignore_patterns("__pycache__"))
    for module in (importer, imported):
        file = tmp_path.joinpath("echelon", *module.split(".")).with_suffix(".py")
        file.parent.mkdir(exist_ok=True)
        file.parent.joinpath("__init__.py").touch()
        file.touch()
    with tmp_path.joinpath("echelon", *importer.split(".")).with_suffix(".py").open("a") as source:
        source.write(f"\nimport echelon.{imported}\n")
    done = lint_imports(tmp_path)
    assert done.returncode == 1
    assert f"echelon.{importer} -> echelon.{imported}" in done.stdout

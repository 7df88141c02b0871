"""Finds the pipeline in a Python file."""

import importlib.util
import sys
from pathlib import Path

from pyspark import cloudpickle

from echelon.errors import EchelonError, InvalidConfig
from echelon.spark.pipeline import Pipeline


def load_pipeline(file: str) -> Pipeline:
    """The pipeline that a file declares; `file.py:name` if it declares several. Runs the file.

    Raises InvalidConfig if there is no such file, it cannot be run, or does not declare one pipeline.
    """
    path, _, name = file.partition(":")
    module = _run_file(Path(path))
    found = {key: value for key, value in vars(module).items() if isinstance(value, Pipeline)}
    if name:
        if name not in found:
            raise InvalidConfig(f"{path} declares no pipeline {name}", remedy=_choices(found))
        return found[name]
    if len(found) != 1:
        how_many = "no pipeline" if not found else f"{len(found)} pipelines"
        raise InvalidConfig(f"{path} declares {how_many}", remedy=_choices(found, path))
    return next(iter(found.values()))


def _choices(found: dict[str, Pipeline], path: str = "") -> str:
    if not found:
        return "Declare one with @pipeline(group=…, stream=…, sink=…) from echelon.spark"
    return f"Name one of them: {', '.join(f'{path}:{name}' if path else name for name in sorted(found))}"


def _run_file(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(f"echelon_pipeline_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InvalidConfig(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Workers have no such file: functions that it defines travel to them whole.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # PySpark's copy has no types
    try:
        spec.loader.exec_module(module)
    except EchelonError:
        raise
    except Exception as error:
        raise InvalidConfig(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    return module

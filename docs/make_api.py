"""Writes docs/api.md from the docstrings of the public modules: python docs/make_api.py."""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

MODULES = (
    "echelon.model",
    "echelon.errors",
    "echelon.keys",
    "echelon.assignment",
    "echelon.group.config",
    "echelon.group.records",
    "echelon.group.fold",
    "echelon.group.advisories",
    "echelon.brokers.connect",
    "echelon.brokers.base",
    "echelon.members.sync",
    "echelon.members.iterate",
    "echelon.members.member",
    "echelon.members.sitting",
    "echelon.members.options",
    "echelon.members.events",
    "echelon.members.counters",
    "echelon.members.admin",
    "echelon.members.sinks.base",
    "echelon.members.sinks.sqlite",
    "echelon.members.sinks.postgres",
    "echelon.members.sinks.kafka",
    "echelon.members.sinks.nats",
    "echelon.pcg.found",
    "echelon.pcg.groups",
    "echelon.pcg.config",
    "echelon.pcg.member",
    "echelon.pcg.options",
    "echelon.pcg.ledger",
    "echelon.pcg.postgres",
    "echelon.brokers.nats.pull_consumers",
    "echelon.brokers.nats.pull_config",
    "echelon.brokers.nats.pull",
    "echelon.brokers.nats.pull_request",
    "echelon.brokers.nats.pull_message",
    "echelon.brokers.nats.pull_advisories",
    "echelon.spark.pipeline",
    "echelon.spark.output",
    "echelon.spark.session",
    "echelon.spark.source",
    "echelon.spark.run",
    "echelon.spark.member",
    "echelon.spark.order",
    "echelon.spark.audit",
    "echelon.spark.results",
    "echelon.spark.sinks.base",
    "echelon.spark.sinks.delta",
    "echelon.spark.sinks.postgres",
    "echelon.spark.sinks.kafka",
    "echelon.spark.sinks.nats",
    "echelon.local",
    "echelon.testing.contract",
    "echelon.testing.simulate",
)
_HEAD = "# API\n\nWritten by `python docs/make_api.py` from the docstrings of the public modules.\n"


def make_api() -> str:
    """The text of docs/api.md."""
    return _HEAD + "".join(_module(importlib.import_module(name)) for name in MODULES)


def _module(module: ModuleType) -> str:
    own = {name: value for name, value in vars(module).items() if _is_public(module, name, value)}
    entries = "".join(_entry(name, value) for name, value in own.items())
    return f"\n## {module.__name__}\n\n{_text(module)}\n{entries}"


def _is_public(module: ModuleType, name: str, value: object) -> bool:
    """Whether it is a class or function that this module defines, or (`__all__`) offers."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    named = getattr(module, "__all__", None)
    if named is not None:
        return name in named
    return not name.startswith("_") and value.__module__ == module.__name__


def _entry(name: str, value: object) -> str:
    if not inspect.isclass(value):
        return f"\n### {name}{_signature(value)}\n\n{_text(value)}\n"
    bases = ", ".join(base.__name__ for base in value.__bases__ if base.__module__.startswith("echelon"))
    lines = [f"- `{told}`: {' '.join(_text(method).split())}" for told, method in _methods(value)]
    methods = "\n".join(["", *lines, ""]) if lines else ""
    return f"\n### class {name}{f'({bases})' if bases else ''}\n\n{_text(value)}\n{methods}"


def _methods(kind: type) -> Iterator[tuple[str, object]]:
    for name, value in vars(kind).items():
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if name.startswith("_") or not inspect.getdoc(plain):
            continue
        if isinstance(plain, property):
            yield name, plain
        elif inspect.isfunction(plain):
            yield f"{name}{_signature(plain)}", plain


def _signature(value: object) -> str:
    """The names of the parameters; their types are in the source."""
    assert callable(value)
    return f"({', '.join(name for name in inspect.signature(value).parameters if name not in ('self', 'cls'))})"


def _text(value: object) -> str:
    """The docstring, each paragraph on one line; drawings and what is indented keep their lines."""
    return "\n\n".join(_paragraph(part) for part in inspect.cleandoc(value.__doc__ or "").split("\n\n"))


def _paragraph(text: str) -> str:
    if re.search(r"^[├└│]", text, re.MULTILINE):
        return f"```\n{text}\n```"
    return text if re.search(r"^( {2}|```)", text, re.MULTILINE) else " ".join(text.split())


if __name__ == "__main__":
    Path(__file__).with_name("api.md").write_text(make_api())

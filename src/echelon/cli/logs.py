"""What the library logs, on stderr: as lines for people, or as JSON for programs."""

import json
import logging
from datetime import UTC, datetime
from typing import Final

_TOLD_TWICE: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Through these PySpark logs, with a traceback, what it raises as well."""


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told)


def error_line(what: str, remedy: str, code: int) -> str:
    """The error that ends a command, for those who want their logs as JSON."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    told = {"time": time, "level": "error", "logger": "echelon.cli", "message": what, "remedy": remedy, "code": code}
    return json.dumps(told)


def tell_progress(name: str) -> None:
    """Also show what a part of the library logs while all goes well; to people in plain lines."""
    logging.getLogger(name).setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        if not isinstance(handler.formatter, _Json):
            handler.setFormatter(logging.Formatter("%(message)s"))


def set_up(*, as_json: bool, verbose: bool) -> None:
    """Log warnings, or (`verbose`) also what goes well."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if as_json else plain)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbose else logging.WARNING)
    for name in _TOLD_TWICE:
        logging.getLogger(name).disabled = True

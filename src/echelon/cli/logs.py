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

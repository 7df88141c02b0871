"""The forms in which a reading command shows what it found: a table for people, JSON and CSV for programs."""

import csv
import io
import json
import re
from collections.abc import Callable
from typing import Any, Final

_MOVING: Final = {"last_record", "last_record_time", "seen_seconds", "lag_seconds", "rate", "pending", "state"}
"""What differs from one look to the next though nothing happens."""


def shown(run: Callable[..., str], *words: str, anew: bool = False) -> list[dict[str, Any]]:
    """The rows that a command shows as JSON. It shows the same as CSV, and what people want of it as a table.

    `run` runs it and returns what it printed. With `anew` it makes something new each time: only columns stay.
    """
    told = run(*words, "-o", "json")
    rows = _rows(told)
    cells = list(csv.DictReader(io.StringIO(run(*words, "-o", "csv"))))
    assert [list(line) for line in cells] == [list(row) for row in rows]
    for row, line in zip(rows, cells, strict=True):
        same = set() if anew else row.keys() - _MOVING
        assert {name: line[name] for name in same} == {name: _cell(row[name]) for name in same}
    table = run(*words).splitlines()
    if told.startswith("{\n"):
        _check_fields(table, rows[0])
    else:
        _check_table(table, rows, anew=anew)
    return rows


def _rows(told: str) -> list[dict[str, Any]]:
    """A list, one thing, or a line for each row."""
    if told.startswith(("[", "{\n")):
        found: list[dict[str, Any]] | dict[str, Any] = json.loads(told)
        return found if isinstance(found, list) else [found]
    return [json.loads(line) for line in told.splitlines()]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, dict | list | bool) else str(value)


def _check_fields(lines: list[str], row: dict[str, Any]) -> None:
    """One thing is shown as a line for each field; why something is so, as a sentence."""
    if "sentence" in row:
        assert lines == [row["sentence"]]
        return
    names = [name.replace("_", " ") for name in row]
    assert [re.split(" {2,}", line)[0] for line in lines] == names


def _check_table(lines: list[str], rows: list[dict[str, Any]], *, anew: bool) -> None:
    if not rows:
        assert lines == []
        return
    columns = [name.upper().replace("_", "-") for name in rows[0]]
    head, *body = [re.split(" {2,}", line.strip()) for line in lines]
    assert head == [column for column in columns if column in head]
    assert head[0] == columns[0]
    names = [name.lower().replace("-", "_") for name in head]
    for line, row in zip(body, rows, strict=True):
        if row[names[-1]] == "":  # Of a record that did not count there is nothing more to tell.
            line.append("")
        assert len(line) == len(names)
        if not anew:
            told = {name: cell for name, cell in zip(names, line, strict=True) if name not in _MOVING}
            wrong = {name: (cell, row[name]) for name, cell in told.items() if not _tells(cell, row[name])}
            assert not wrong, wrong


def _tells(cell: str, value: object) -> bool:
    """Whether a cell of a table is a value, which may be shortened there, or made loud."""
    if value is None:
        return cell == "-"
    if isinstance(value, bool | float | dict | list):  # Told in words, rounded, or in parts.
        return bool(cell)
    return str(value).lower().startswith((cell.lower(), cell.lower().replace(" ", "t")))  # A time has a T in JSON.

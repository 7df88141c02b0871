"""How commands show what they found: as a table for people, as JSON or CSV for programs."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer


class Format(StrEnum):
    """What `-o` takes."""

    table = "table"
    json = "json"
    csv = "csv"


FormatOption = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]

_LOUD: Final = {"idle", "silent", "stale", "broken", "deleted", "vacant"}
_ID: Final = re.compile("[0-9a-f]{32}")
_WARY: Final = {"paused", "unknown", "moving", "waiting", "held", "cutting", "empty"}


def show(
    rows: Sequence[object], form: Format, *, empty: str = "", like: type | None = None, wide: Collection[str] = ()
) -> None:
    """Print rows of the same columns: mappings, or structs whose fields are the columns. `wide` are not in a table.

    What is None is `-` in a table, and columns of which nothing is known are left out. Where a table would have no
    rows, `empty` is told on stderr instead; CSV has then the columns of the struct `like`.
    """
    found = [as_mapping(row) for row in rows]
    match form:
        case Format.json:
            typer.echo(json.dumps([_plain(row) for row in found], indent=2))
        case Format.csv:
            _show_csv(found, getattr(like, "__struct_fields__", ()))
        case Format.table if found:
            typer.echo("\n".join(table(found, wide)))
        case Format.table if empty:
            typer.echo(empty, err=True)


def show_one(row: object, form: Format) -> None:
    """Print one thing: a line for each field of it, a JSON object, or a CSV of one row."""
    found = as_mapping(row)
    if form is Format.json:
        typer.echo(json.dumps(_plain(found), indent=2))
    elif form is Format.csv:
        _show_csv([found])
    else:
        width = max(map(len, found), default=0)
        for name, value in found.items():
            typer.echo(f"{name.replace('_', ' ').ljust(width)}  {_styled(value, _cell(value))}")


def one_by_one(form: Format) -> Callable[[object], None]:
    """What prints rows as they come, for what goes on and on: each a line of JSON, or of CSV under one head."""
    if form is Format.json:
        return lambda row: typer.echo(json.dumps(_plain(as_mapping(row))))
    heads = iter((True,))
    return lambda row: _show_csv([as_mapping(row)], head=next(heads, False))


def table(rows: Sequence[Mapping[str, object]], wide: Collection[str] = ()) -> list[str]:
    """The lines of a table; numbers stand to the right, and what needs attention stands out.

    Of an instance's id it has the beginning, which is enough to name it by. A key may look like one, and is whole.
    """
    columns = [name for name in rows[0] if name not in wide and any(row[name] is not None for row in rows)]
    heads = [name.upper().replace("_", "-") for name in columns]
    cells = [[_cell(row[name]) if name == "key" else _short(_cell(row[name])) for name in columns] for row in rows]
    widths = [max(len(head), *(len(line[place]) for line in cells)) for place, head in enumerate(heads)]
    right = [all(_is_number(row[name]) for row in rows) for name in columns]

    def line(words: Sequence[str]) -> list[str]:
        return [w.rjust(width) if r else w.ljust(width) for w, width, r in zip(words, widths, right, strict=True)]

    lines = ["  ".join(line(heads)).rstrip()]
    for row, words in zip(rows, cells, strict=True):
        styled = [_styled(row[name], word) for name, word in zip(columns, line(words), strict=True)]
        lines.append("  ".join(styled).rstrip())
    return lines


def _is_number(value: object) -> bool:
    """Whether a cell stands to the right; one of which nothing is known does as the others do."""
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def as_mapping(row: object) -> Mapping[str, object]:
    """The row by its columns."""
    if isinstance(row, Mapping):
        return row
    fields: Sequence[str] = getattr(row, "__struct_fields__", ())
    return {name: getattr(row, name) for name in fields}


def _show_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[str] = (), *, head: bool = True) -> None:
    import csv
    import io

    text = io.StringIO()
    names = list(rows[0]) if rows else columns
    writer = csv.DictWriter(text, names, lineterminator="\n")
    if head and names:
        writer.writeheader()
    for row in rows:
        writer.writerow({name: _csv(value) for name, value in row.items()})
    typer.echo(text.getvalue(), nl=False)


def _csv(value: object) -> object:
    """A value as a cell of CSV: what has parts is JSON, and so is a truth value."""
    plain = _plain(value)
    return json.dumps(plain) if isinstance(plain, dict | list | bool) else plain


def _plain(value: object) -> object:
    """A value as JSON has it: times as ISO 8601 in UTC, structs as objects."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return _plain(as_mapping(value))
    if hasattr(value, "isoformat"):
        return str(value.isoformat(timespec="milliseconds")).replace("+00:00", "Z")
    return value if isinstance(value, int | float | str | None) else str(value)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value.upper() if value in _LOUD else value
    if isinstance(value, list | tuple):
        return ", ".join(_part(each) for each in value) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_part(each)}" for name, each in value.items()) or "-"
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ", timespec="milliseconds")).replace("+00:00", "")
    return str(value)


def _short(text: str) -> str:
    return text[:6] if _ID.fullmatch(text) else text


def _part(value: object) -> str:
    """A cell within a cell."""
    if isinstance(value, Mapping):
        return f"({_cell(value)})"
    return f"[{_cell(value)}]" if isinstance(value, list | tuple) else _cell(value)


def _styled(value: object, text: str) -> str:
    """The text in a colour if the value needs attention; `typer.echo` takes colours out where there is no terminal."""
    if not isinstance(value, str) or value not in _LOUD | _WARY:
        return text
    return typer.style(text, fg="red", bold=True) if value in _LOUD else typer.style(text, fg="yellow")

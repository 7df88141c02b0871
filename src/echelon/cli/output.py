"""How commands show what they found: as a table for people, or as JSON for programs."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """What `-o` takes."""

    table = "table"
    json = "json"


FormatOption = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]


def show(rows: Sequence[Mapping[str, object]], form: Format) -> None:
    """Print rows of the same columns. What is None is `-` in a table."""
    if form is Format.json:
        typer.echo(json.dumps(list(rows), indent=2))
        return
    if not rows:
        return
    lines = [[name.upper() for name in rows[0]]]
    lines += [["-" if value is None else str(value) for value in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

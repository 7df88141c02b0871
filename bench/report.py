"""What every benchmark reports: our figure beside a peer's, and the least ratio of the two that is good.

A benchmark is a script in this folder that ends with `main(run)`. With `--json` its last line of output is
a JSON list of rows; `run_all.py` collects them.
"""

import argparse
from collections.abc import Callable, Sequence

import msgspec


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measured figure. `ratio` is that of the two figures, the way round that makes a larger one better.

    Where there is no peer, the bound that must hold stands in its place. A target of 0: the row only tells.
    """

    name: str
    ours: float
    peer_name: str
    peer: float
    unit: str
    ratio: float
    target: float

    @property
    def is_good(self) -> bool:
        """Whether the target is met."""
        return self.ratio >= self.target


def row(
    name: str, ours: float, unit: str, *, peer_name: str, peer: float, target: float = 1.0, less_is_better: bool = False
) -> Row:
    """A row with its ratio. `less_is_better` is for durations and sizes, otherwise more is."""
    ratio = peer / ours if less_is_better else ours / peer
    return Row(name=name, ours=ours, peer_name=peer_name, peer=peer, unit=unit, ratio=ratio, target=target)


def table(rows: Sequence[Row]) -> str:
    """The rows as lines of aligned text, under a heading."""
    cells = [("name", "ours", "peer", "unit", "peer is", "ratio", "target")]
    cells += [
        (r.name, _figure(r.ours), _figure(r.peer), r.unit, r.peer_name, f"{r.ratio:.2f}", _target(r.target))
        for r in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def main(run: Callable[[], list[Row]]) -> None:
    """Measure, and print the rows: as a table, or with `--json` as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    as_json = parser.parse_args().json
    rows = run()
    print(msgspec.json.encode(rows).decode() if as_json else table(rows))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _target(value: float) -> str:
    return f"{value:.2f}" if value else "-"

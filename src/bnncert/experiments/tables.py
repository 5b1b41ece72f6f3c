"""The rows of an experiment as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bnncert.experiments.run import Row

CROSSED = ("method", "network", "eps")
LOWER = "lower"  # the column of what is certified, in percent


def table(rows: Sequence[Row]) -> Table:
    """A line a method and a column a network and ε, of what is certified, where that says it all.

    Else a line a row; lists, which figures are drawn from, are left out.
    """
    made = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    places = [tuple(row.get(name) for name in CROSSED) for row in rows]
    crossed = all(None not in place for place in places) and len(set(places)) == len(places) > 1
    names, lines = _crossed(rows) if crossed else _plain(rows)
    for name in names:
        made.add_column(name, justify="right" if name != "method" else "left", no_wrap=True)
    for line in lines:
        made.add_row(*map(_shown, line))
    return made


def _crossed(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    columns = dict.fromkeys((row["network"], row["eps"]) for row in rows)
    known = {tuple(row[name] for name in CROSSED): row[LOWER] for row in rows}
    heads = [f"{network}, ε {eps:g}" for network, eps in columns]
    methods = dict.fromkeys(row["method"] for row in rows)
    lines = [[name, *(known.get((name, *column)) for column in columns)] for name in methods]
    return ["method", *heads], lines


def _plain(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    names = list(
        dict.fromkeys(
            name for row in rows for name, value in row.items() if not isinstance(value, list)
        )
    )
    return names, [[row.get(name) for name in names] for row in rows]


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

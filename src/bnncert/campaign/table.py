"""Tables of a run folder: every result, as results.jsonl, CSV or Parquet, and `status`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnncert.campaign.bundle import BUNDLES
from bnncert.campaign.store import KEPT, WHERE, Store
from bnncert.console import percent
from bnncert.errors import InputError
from bnncert.files.tensors import write_atomically
from bnncert.results.answers import AT_LEAST, status
from bnncert.results.folder import RESULTS
from bnncert.results.rows import Answer, Status, columns
from bnncert.version import __version__

# Where each fact of a record comes from: a posterior, an item or a result.
SOURCES = {
    "name": "p.name",
    "posterior": "p.posterior",
    "index": "i.idx",
    "label": "i.label",
    "eps": "i.eps",
    "input": "i.input",
    "spec": "i.spec",
} | {name: f"r.{name}" for name in ("method", "config", *KEPT, *WHERE)}
JOINED = """
ON r.posterior = p.model AND r.input = i.input AND r.spec = i.spec AND r.method = m.method
   AND r.config = m.config AND r.version = ?
"""
# Posteriors, items and methods in their order; of each the result, where there is one.
TABLE = f"""
SELECT {", ".join(SOURCES.values())}
FROM posteriors p CROSS JOIN items i CROSS JOIN methods m JOIN results r {JOINED}
ORDER BY p.rank, i.rank, m.rank
"""
COLUMNS = [
    "name",
    "posterior",
    *columns(Answer),
    "certificate",
    "config",
    "reason",
    "input",
    "spec",
]


def records(store: Store) -> Iterator[dict[str, Any]]:
    """Every result of the folder's campaign, in order.

    Statuses speak of the campaign's threshold, which may not be the one of the run that found the
    bounds.
    """
    at_least = store.about("at_least") or str(AT_LEAST)
    seed = int(store.about("seed") or 0)
    for row in store.connection.execute(TABLE, (__version__,)):
        found = dict(zip(SOURCES, row, strict=True))
        found |= {"seed": seed, "target": json.loads(found["spec"]).get("target")}
        found |= {"at_least": at_least}
        if found["status"] != Status.ERROR:
            bounds = found["lower"], found["upper"]
            found["status"] = str(status(found["label"], found["predicted"], *bounds, at_least))
        member = found["member"]
        found["certificate"] = f"{BUNDLES}/{found['bundle']}/{member}" if member else None
        yield {name: found[name] for name in COLUMNS}


def write_results(store: Store) -> int:
    """results.jsonl, which makes the run folder a result folder: the checker and the report read
    it. Its lines."""
    lines = [json.dumps(record, allow_nan=False) + "\n" for record in records(store)]
    _write(store.folder / RESULTS, "".join(lines).encode())
    return len(lines)


def export_csv(store: Store, path: Path) -> int:
    found = list(records(store))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(found[0]) if found else COLUMNS)
    writer.writeheader()
    writer.writerows(found)  # numbers as their shortest decimals, which are exact
    _write(path, text.getvalue().encode())
    return len(found)


def export_parquet(store: Store, path: Path) -> int:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise InputError(
            "--parquet needs pyarrow: pip install 'bnncert[campaign]', or use --csv"
        ) from error
    found = list(records(store))
    kinds = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    known = columns(Answer)
    names = list(found[0]) if found else COLUMNS
    schema = pyarrow.schema(
        [(name, kinds[known[name].kind if name in known else str]) for name in names]
    )
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.Table.from_pylist(found, schema), buffer)
    _write(path, buffer.getvalue().to_pybytes())
    return len(found)


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except OSError as error:
        raise InputError(
            f"{str(path)!r} cannot be written ({error.strerror}); name another place"
        ) from error


@dataclass(frozen=True)
class Line:
    """Of one posterior and radius: how many items have a result, and the mean of what all methods
    together certify.

    Items without a result count as 0 to 1.
    """

    name: str
    eps: float
    items: int
    stored: int
    errors: int
    lower: float
    upper: float


EACH_ITEM = f"""
SELECT p.rank AS rank, p.name AS name, i.eps AS eps,
       count(r.status) > 0 AS stored, max(r.status IS 'error') AS error,
       max(coalesce(r.lower, 0)) AS lower, min(coalesce(r.upper, 1)) AS upper
FROM posteriors p CROSS JOIN items i CROSS JOIN methods m LEFT JOIN results r {JOINED}
GROUP BY p.rank, i.rank
"""
LINES = f"""
SELECT name, eps, count(*), sum(stored), sum(error), avg(lower), avg(upper) FROM ({EACH_ITEM})
GROUP BY rank, eps ORDER BY rank, eps
"""
COUNTS = f"""
SELECT m.method, m.config, count(r.status)
FROM posteriors p CROSS JOIN items i CROSS JOIN methods m LEFT JOIN results r {JOINED}
GROUP BY m.rank ORDER BY m.rank
"""


def summary(store: Store) -> list[Line]:
    return [Line(*row) for row in store.connection.execute(LINES, (__version__,))]


def export_markdown(store: Store, path: Path) -> int:
    """A row for each posterior and radius: what has a result, and the certified means in percent,
    rounded outward; its rows."""
    lines = ["| posterior | ε | inputs | stored | at least | at most |", "|---" * 6 + "|"]
    found = summary(store)
    for line in found:
        means = f"{percent(line.lower)} | {percent(line.upper, up=True)}"
        lines.append(f"| {line.name} | {line.eps:g} | {line.items} | {line.stored} | {means} |")
    _write(path, ("\n".join(lines) + "\n").encode())
    return len(found)


def method_counts(store: Store) -> list[tuple[str, int]]:
    """The methods in their order, with their options, and how many results each has."""
    rows = store.connection.execute(COUNTS, (__version__,))
    return [(f"{name} {config}", int(count)) for name, config, count in rows]


def reasons(store: Store) -> list[tuple[int, str]]:
    """Why items ended in error, and how many."""
    statement = (
        "SELECT count(*), reason FROM results WHERE status = 'error' AND version = ? "
        "GROUP BY reason ORDER BY 1 DESC"
    )
    return [
        (int(count), str(reason))
        for count, reason in store.connection.execute(statement, (__version__,))
    ]

"""What a map's folder says: map.json, the question, the cuts and the shares; cells.jsonl, a line a
cell; cells.csv, the same as a table with names and units."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from bnncert.data.regions import Dimension, OperatingRegion
from bnncert.errors import InputError
from bnncert.files.digest import canonical_json
from bnncert.files.tensors import write_atomically
from bnncert.map.cells import Cell
from bnncert.map.proving import Prover
from bnncert.map.run import cell_line, leaves_of
from bnncert.map.store import Store
from bnncert.numerics.rounding import toward
from bnncert.results.rows import Status
from bnncert.version import __version__

MAP, CELLS, TABLE = "map.json", "cells.jsonl", "cells.csv"
FORMAT = "bnncert-map/1"
STATUSES = (Status.CERTIFIED, Status.FALSIFIED, Status.UNDECIDED)


def question_of(
    prover: Prover, region: OperatingRegion, box: Cell, at_least: str
) -> dict[str, Any]:
    """What is asked, in full."""
    return {
        "schema": FORMAT,
        "digests": {
            "architecture": prover.network.digest,
            "posterior": prover.posterior.digest,
        },
        "at_least": at_least,
        "condition": prover.condition.described(),
        "region": [
            _side(dimension, float(low), float(high))
            for dimension, low, high in zip(region.dimensions, box.lower, box.upper, strict=True)
        ],
    }


def _side(dimension: Dimension, low: float, high: float) -> dict[str, Any]:
    """As it was written, exactly, and what the network reads there."""
    return {
        "name": dimension.name,
        "unit": dimension.unit,
        "low": str(dimension.low),
        "high": str(dimension.high),
        "center": str(dimension.center),
        "scale": str(dimension.scale),
        "lower": low.hex(),
        "upper": high.hex(),
    }


def identity(question: dict[str, Any], options: dict[str, Any], sizes: Sequence[float]) -> str:
    """Equal for runs that go on with each other."""
    how = {"options": options, "smallest": [size.hex() for size in sizes], "version": __version__}
    return canonical_json(question | how)


@dataclass(frozen=True, eq=False)
class MapCell:
    """A line of cells.jsonl."""

    cell: Cell
    status: Status
    label: int | None
    lower: float
    upper: float
    certificates: tuple[str, ...]
    point: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class Map:
    """A map as its folder says it."""

    question: dict[str, Any]
    region: OperatingRegion
    box: Cell
    cells: tuple[MapCell, ...]

    @property
    def text(self) -> str:
        return str(self.question["condition"]["text"])

    @property
    def at_least(self) -> str:
        return str(self.question["at_least"])

    def shares(self) -> dict[Status, Fraction]:
        """Of the volume, exactly, by status."""
        found = dict.fromkeys(STATUSES, Fraction(0))
        for each in self.cells:
            found[each.status] += exact_share(each.cell, self.box)
        return found

    def mean(self) -> tuple[Fraction, Fraction]:
        """The means over the volume of the lower and of the upper bounds."""
        shares = [exact_share(each.cell, self.box) for each in self.cells]
        lower = sum(
            (s * Fraction(each.lower) for s, each in zip(shares, self.cells, strict=True)),
            Fraction(0),
        )
        upper = sum(
            (s * Fraction(each.upper) for s, each in zip(shares, self.cells, strict=True)),
            Fraction(0),
        )
        return lower, upper


def exact_share(cell: Cell, box: Cell) -> Fraction:
    """Of the region's volume; sides of length 0 have no say."""
    found = Fraction(1)
    for low, high, first, last in zip(cell.lower, cell.upper, box.lower, box.upper, strict=True):
        if first < last:
            found *= (Fraction(high) - Fraction(low)) / (Fraction(last) - Fraction(first))
    return found


def worst(found: Map) -> list[MapCell]:
    """Falsified cells, the smallest upper bound first; then undecided ones, by their lower."""
    falsified = [each for each in found.cells if each.status is Status.FALSIFIED]
    undecided = [each for each in found.cells if each.status is Status.UNDECIDED]
    falsified.sort(key=lambda each: (each.upper, each.cell.number))
    undecided.sort(key=lambda each: (each.lower, each.cell.number))
    return falsified + undecided


def write_map(store: Store, question: dict[str, Any], box: Cell) -> None:
    """cells.jsonl and map.json of what is stored; a cell that is still open claims nothing."""
    lines = []
    for cell, line in leaves_of(store, box):
        open_line = json.dumps(cell_line(cell, Status.UNDECIDED, (0.0, 1.0), None))
        lines.append((line or open_line) + "\n")
    write_atomically(store.folder / CELLS, "".join(lines).encode())
    children: dict[int, list[int]] = {}  # below and above, as they were numbered
    cuts = []
    for node in store.nodes():
        if node.parent is not None:
            children.setdefault(node.parent, []).append(node.number)
        if node.at is not None:
            cuts.append((node.number, node.dimension, node.at.hex()))
    shares = _read(store.folder, question | {"cuts": [], "shares": {}}).shares()
    about = question | {
        "cuts": [[*cut, *children[cut[0]]] for cut in cuts],
        "shares": {str(status): _around(exact) for status, exact in shares.items()},
    }
    write_atomically(store.folder / MAP, json.dumps(about, allow_nan=False).encode())


def _around(exact: Fraction) -> list[float]:
    """The floats next to a fraction: it lies between them."""
    return [toward(exact, -math.inf), toward(exact, math.inf)]


def read_map(folder: Path) -> Map:
    """The map in a folder; an `InputError` where it is none."""
    path = folder / MAP
    try:
        question = json.loads(path.read_text(encoding="utf-8"))
        if question["schema"] != FORMAT:
            raise ValueError(f"schema is {question['schema']!r}")
        return _read(folder, question)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{str(path)!r} is no map ({error}); map again") from error


def _read(folder: Path, question: dict[str, Any]) -> Map:
    dimensions = tuple(
        Dimension(
            side["name"],
            Fraction(side["low"]),
            Fraction(side["high"]),
            side["unit"],
            Fraction(side["center"]),
            Fraction(side["scale"]),
        )
        for side in question["region"]
    )
    ends = [
        np.array([float.fromhex(side[name]) for side in question["region"]])
        for name in ("lower", "upper")
    ]
    text = (folder / CELLS).read_text(encoding="utf-8")
    cells = tuple(_cell(json.loads(line)) for line in text.splitlines())
    return Map(question, OperatingRegion(dimensions), Cell(0, *ends), cells)


def _cell(line: dict[str, Any]) -> MapCell:
    certificates = [path for path in line["below"] if path is not None]
    if line["above"] is not None:
        certificates += [p for p in line["above"]["certificates"] if p not in certificates]
    return MapCell(
        Cell(line["cell"], np.array(line["low"]), np.array(line["high"])),
        Status(line["status"]),
        line["class"],
        float(line["lower"]),
        float(line["upper"]),
        tuple(certificates),
        None if line["point"] is None else tuple(line["point"]),
    )


def write_table(folder: Path, found: Map) -> None:
    """cells.csv: the ends of every cell in their units, its share, status and bounds."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    sides = found.region.dimensions
    heads = [f"{side.name} [{side.unit}]" if side.unit else side.name for side in sides]
    sided = (f"{head} {end}" for head in heads for end in ("from", "to"))
    about = ("share", "status", "class", "at least", "at most")
    writer.writerow(["cell", *sided, *about, *(f"worst {head}" for head in heads)])
    for each in found.cells:
        ends = zip(sides, each.cell.lower, each.cell.upper, strict=True)
        values = [side.value(end) for side, low, high in ends for end in (low, high)]
        at = [""] * len(sides)
        if each.point is not None:
            at = [repr(s.value(v)) for s, v in zip(sides, each.point, strict=True)]
        exact = float(exact_share(each.cell, found.box))
        label = "" if each.label is None else each.label
        known = (str(each.status), label, each.lower, each.upper)
        writer.writerow([each.cell.number, *values, exact, *known, *at])
    write_atomically(folder / TABLE, text.getvalue().encode())

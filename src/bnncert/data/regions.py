"""Operating regions: boxes in input space whose sides have names and units, from a file.

    .toml   [[dimension]] tables in the order of the network's inputs
    .csv    a row for each, under a header with the same keys
    .npz    lower and upper of the network's shape; names, units and smallest if wanted

A dimension has `low` and `high`, and if wanted `name`, `unit`, `smallest` (cells are cut no finer),
and `center` and `scale` where the network reads (value - center) / scale. Decimals are exact
fractions, and a side is rounded outward: the box of floats contains the region that is written.
"""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError, closest
from bnncert.files.npz import read_arrays
from bnncert.model.box import Box
from bnncert.numerics.rounding import toward

KEYS = ("name", "unit", "low", "high", "center", "scale", "smallest")
RADIUS = "eps"  # of a file of radii
ENDINGS = ".toml, .csv or .npz"
DIGITS = 999  # of an exponent, before or behind the point
HINT = 'write low and high of every input, under [[dimension]] or a header "name,low,high,unit"'


@dataclass(frozen=True)
class Dimension:
    """One side of a region, in its own unit; the network reads (value - center) / scale."""

    name: str
    low: Fraction
    high: Fraction
    unit: str = ""
    center: Fraction = Fraction(0)
    scale: Fraction = Fraction(1)
    smallest: Fraction | None = None  # size of a cell

    @property
    def ends(self) -> tuple[float, float]:
        """What the network reads there, rounded outward."""
        low, high = ((end - self.center) / self.scale for end in (self.low, self.high))
        return _towards(low, -math.inf), _towards(high, math.inf)

    def value(self, read: float) -> float:
        """In its unit, what the network reads."""
        return float(Fraction(read) * self.scale + self.center)


@dataclass(frozen=True)
class OperatingRegion:
    """A box in input space, side by side in the row-major order of the network's inputs.

    >>> altitude = Dimension("altitude", Fraction(-100), Fraction(100), "m", scale=Fraction(1000))
    >>> OperatingRegion((altitude,)).box((1,)).upper
    tensor([[0.1000]], dtype=torch.float64)
    """

    dimensions: tuple[Dimension, ...]

    def box(self, shape: tuple[int, ...]) -> Box:
        """The box [1, *shape] of what a network of this input shape reads."""
        if len(self.dimensions) != math.prod(shape):
            raise InputError(
                f"the region has {len(self.dimensions)} dimensions, the network takes {shape}; "
                "give one for each input"
            )
        lower, upper = zip(*(dimension.ends for dimension in self.dimensions), strict=True)
        ends = (
            torch.tensor(side, dtype=torch.float64).reshape(1, *shape) for side in (lower, upper)
        )
        return Box(*ends)


def load_region(path: str | Path) -> OperatingRegion:
    """The region in a .toml, .csv or .npz file; an `InputError` says what is wrong with it."""
    path = Path(path)
    try:
        if path.suffix == ".npz":
            return OperatingRegion(_from_arrays(path))
        tables = _tables(path)
        found = tuple(_dimension(table, i) for i, table in enumerate(tables))
        _require_names([dimension.name for dimension in found])
        return OperatingRegion(found)
    except InputError as error:
        raise InputError(f"region {str(path)!r}: {error}") from error


def load_radii(path: str | Path, shape: tuple[int, ...]) -> Tensor:
    """A radius for each entry of an input, as what the network reads: an array `eps` of its shape
    in an .npz, or `eps` of every dimension, in its unit. Rounded outward."""
    path = Path(path)
    try:
        if path.suffix == ".npz":
            values = _array(path, RADIUS).flatten().tolist()
        else:
            values = [_radius(table, i) for i, table in enumerate(_tables(path))]
        if len(values) != math.prod(shape):
            raise InputError(
                f"there are {len(values)} radii, the network takes {shape}; give one per input"
            )
        if not all(value >= 0 for value in values):
            raise InputError("a radius is below 0; give radii of at least 0")
    except InputError as error:
        raise InputError(f"radii {str(path)!r}: {error}") from error
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def _tables(path: Path) -> list[Mapping[str, Any]]:
    """The dimensions of a text file, as they are written."""
    if path.suffix not in (".toml", ".csv"):
        raise InputError(f"{path.suffix or 'no'} ending is not known; give a file {ENDINGS}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the file cannot be read ({error}); check the path") from error
    tables = _from_toml(text) if path.suffix == ".toml" else _from_csv(text)
    if not tables:
        raise InputError(f"there is no dimension in it; {HINT}")
    return tables


def _from_toml(text: str) -> list[Mapping[str, Any]]:
    try:
        found = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"this is no TOML ({error})") from error
    tables = found.get("dimension", [])
    others = sorted(set(found) - {"dimension"})
    if others:
        raise InputError(f"{others[0]!r} is not known; give [[dimension]] tables alone")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError("'dimension' is no list of tables; write [[dimension]] above each")
    return tables


def _from_csv(text: str) -> list[Mapping[str, Any]]:
    rows = list(csv.reader(text.splitlines()))
    if not rows:
        return []
    header = [name.strip() for name in rows[0]]
    if "low" not in header and RADIUS not in header:
        raise InputError(f"its first line names no column 'low'; {HINT}")
    if len(set(header)) < len(header):
        raise InputError("its first line names a column twice")
    tables: list[Mapping[str, Any]] = []
    for i, row in enumerate(rows[1:], 2):
        if len(row) != len(header):
            raise InputError(f"line {i} has {len(row)} cells, its first line {len(header)}")
        cells = (cell.strip() for cell in row)
        tables.append({name: cell for name, cell in zip(header, cells, strict=True) if cell})
    return tables


def _dimension(table: Mapping[str, Any], i: int) -> Dimension:
    name = table.get("name", f"x{i}")
    unit = table.get("unit", "")
    if not isinstance(name, str) or not isinstance(unit, str):
        raise InputError(f"name or unit of dimension {i} is no text; put it in quotes")
    for key in table:
        if key not in (*KEYS, RADIUS):
            hint = closest(key, KEYS) or f"it may have {', '.join(KEYS)}"
            raise InputError(f"dimension {name!r} has {key!r}, which is not known ({hint})")
    for key in ("low", "high"):
        if key not in table:
            raise InputError(f"dimension {name!r} has no {key!r}; {HINT}")
    numbers = {key: _number(table[key], key, name) for key in KEYS[2:] if key in table}
    return _checked(Dimension(name, unit=unit, **numbers))


def _checked(found: Dimension) -> Dimension:
    if not found.low <= found.high:
        raise InputError(
            f"dimension {found.name!r} goes from {float(found.low):g} to {float(found.high):g}; "
            "give the smaller end as low"
        )
    if not found.scale > 0:
        raise InputError(f"scale of dimension {found.name!r} is not above 0; give a positive one")
    if found.smallest is not None and not found.smallest > 0:
        raise InputError(f"smallest of dimension {found.name!r} is not above 0; give a size")
    return found


def _radius(table: Mapping[str, Any], i: int) -> float:
    name = table.get("name", f"x{i}")
    if RADIUS not in table:
        raise InputError(f"dimension {name!r} has no {RADIUS!r}; give a radius for each")
    scale = _number(table["scale"], "scale", name) if "scale" in table else Fraction(1)
    if not scale > 0:
        raise InputError(f"scale of dimension {name!r} is not above 0; give a positive one")
    return _towards(_number(table[RADIUS], RADIUS, name) / scale, math.inf)


def _number(value: Any, key: str, name: object) -> Fraction:
    """Exactly what is written."""
    wrong = InputError(f"{key} of dimension {name!r} is {str(value)!r}; give a finite number")
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise wrong
    try:
        found = Decimal(value)
    except InvalidOperation as error:
        raise wrong from error
    if not found.is_finite() or abs(found.adjusted()) > DIGITS or len(str(found)) > DIGITS:
        raise wrong
    return Fraction(found)


def _from_arrays(path: Path) -> tuple[Dimension, ...]:
    lower, upper = (_array(path, name).flatten() for name in ("lower", "upper"))
    if len(lower) != len(upper) or not len(lower):
        raise InputError(f"lower has {len(lower)} entries and upper {len(upper)}; give as many")
    arrays = read_arrays(path)
    names = _words(arrays, "names", [f"x{i}" for i in range(len(lower))])
    units = _words(arrays, "units", [""] * len(lower))
    smallest: list[Fraction | None] = [None] * len(lower)
    if "smallest" in arrays:
        values = _array(path, "smallest").flatten().tolist()
        if len(values) != len(lower):
            raise InputError(f"smallest has {len(values)} entries, lower {len(lower)}")
        smallest = [Fraction(value) for value in values]
    _require_names(names)
    return tuple(
        _checked(Dimension(name, Fraction(low), Fraction(high), unit, smallest=least))
        for name, low, high, unit, least in zip(
            names, lower.tolist(), upper.tolist(), units, smallest, strict=True
        )
    )


def _array(path: Path, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    arrays = read_arrays(path)
    if name not in arrays:
        raise InputError(f"the array {name!r} is missing; save it with numpy.savez")
    found = np.asarray(arrays[name])
    if not np.issubdtype(found.dtype, np.floating) or not np.isfinite(found).all():
        raise InputError(f"the array {name!r} is {found.dtype} or not finite; give finite numbers")
    return found.astype(np.float64)


def _words(arrays: Mapping[str, Any], name: str, otherwise: list[str]) -> list[str]:
    if name not in arrays:
        return otherwise
    found = np.asarray(arrays[name])
    if found.dtype.kind != "U" or found.size != len(otherwise):
        raise InputError(f"the array {name!r} is not {len(otherwise)} texts")
    return [str(word) for word in found.flatten()]


def _require_names(names: list[str]) -> None:
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InputError(f"two dimensions are called {name!r}; give each a name of its own")


def _towards(value: Fraction, end: float) -> float:
    try:
        return toward(value, end)
    except OverflowError as error:
        raise InputError("a number is larger than every float; give a larger scale") from error

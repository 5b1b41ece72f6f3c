"""Tables of numbers: `.csv` files with a line of column names."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bnncert.errors import InputError

WHOLE = re.compile(r"\s*[0-9]{1,18}\s*")  # a class, or a target that looks like one


@dataclass(frozen=True, eq=False)
class Table:
    """Columns by name, and of each whether all of it is written in whole numbers."""

    path: str
    values: dict[str, NDArray[np.float64]]
    whole: frozenset[str]

    def columns(self, names: Sequence[str]) -> NDArray[np.float64]:
        """Some of the columns, [N, k]."""
        for name in names:
            if name not in self.values:
                raise InputError(
                    f"{self.path!r} has no column {name!r}; it has {', '.join(self.values)}"
                )
        return np.stack([self.values[name] for name in names], 1)

    def targets(self, names: Sequence[str]) -> NDArray[np.generic]:
        """[N] of one column, [N, k] of several; class labels where it is whole numbers."""
        found = self.columns(names)
        if len(names) > 1:
            return found
        (one,) = names
        return found[:, 0].astype(np.int64) if one in self.whole else found[:, 0]


def read_table(path: Path) -> Table:
    """A file of comma-separated numbers whose first line names the columns."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{str(path)!r} cannot be read as CSV ({error}); check it") from error
    if len(lines) < 2:
        raise InputError(
            f"{str(path)!r} has {len(lines)} lines; give one of column names, then one per example"
        )
    names = [name.strip() for name in lines[0]]
    if all(_is_number(name) for name in names):
        raise InputError(f"{str(path)!r} begins with numbers; its first line must name the columns")
    if len(set(names)) < len(names) or "" in names:
        raise InputError(f"{str(path)!r} has columns without a name or of one name; name each")
    rows = [_numbers(line, names, number, path) for number, line in enumerate(lines[1:], 2)]
    texts = dict(zip(names, zip(*lines[1:], strict=True), strict=True))
    whole = (name for name, column in texts.items() if all(map(WHOLE.fullmatch, column)))
    return Table(str(path), dict(zip(names, np.array(rows).T, strict=True)), frozenset(whole))


def _numbers(line: list[str], names: list[str], number: int, path: Path) -> list[float]:
    if len(line) != len(names):
        raise InputError(
            f"line {number} of {str(path)!r} has {len(line)} entries for {len(names)} columns; "
            "separate numbers by commas"
        )
    for text, name in zip(line, names, strict=True):
        if not _is_number(text):
            raise InputError(
                f"line {number} of {str(path)!r} has {text!r} for {name}; "
                "give numbers, and leave out examples that lack some"
            )
    return [float(text) for text in line]


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False

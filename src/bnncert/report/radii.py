"""Certified radii on a page: up to which each input is certified and from which on it is falsified,
and the shares of inputs by radius.

An end counts where the checker accepted it, or was not asked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from bnncert.console import radius_text
from bnncert.errors import InputError
from bnncert.model.standardisation import Column
from bnncert.report.entries import ACCEPT, CHECK, check_command
from bnncert.report.statement import name_of
from bnncert.results.folder import RADII

WIDE = 1_000  # units of the chart across


@dataclass(frozen=True)
class Ends:
    """A line of radii.jsonl, and whether the checker accepted it (None: not asked)."""

    index: int
    label: int | None
    at_least: str
    certified: float | None
    falsified: float | None
    accepted: bool | None

    @property
    def believed(self) -> tuple[float | None, float | None]:
        return (None, None) if self.accepted is False else (self.certified, self.falsified)


def read_radii(folder: Path) -> list[Ends]:
    """Empty for folders that are not of `radius`."""
    path = folder / RADII
    if not path.is_file():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        accepted = _accepted(folder, len(lines))
        return [_ends(line, said) for line, said in zip(lines, accepted, strict=True)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(path)!r} is not what radius wrote ({error}); search again, or check again: "
            f"{check_command(folder)}"
        ) from error


def _accepted(folder: Path, count: int) -> list[bool | None]:
    path = folder / CHECK
    if not path.is_file():
        return [None] * count
    verdicts = json.loads(path.read_text(encoding="utf-8"))["certificates"]
    own = [said for said in verdicts if f"{RADII}:" in said["path"]]
    if [said["path"].rpartition(":")[2] for said in own] != [str(i + 1) for i in range(count)]:
        raise ValueError(f"{CHECK} holds {len(own)} verdicts for {count} lines")
    return [said["status"] == ACCEPT for said in own]


def _ends(line: dict[str, Any], accepted: bool | None) -> Ends:
    radii = line["certified"], line["falsified"]
    for radius in radii:
        if radius is not None and not (type(radius) in (int, float) and 0 <= radius < math.inf):
            raise ValueError(f"{radius!r} is no radius")
    index, label = line["index"], line["label"]
    if type(index) is not int or type(label) not in (int, type(None)):
        raise ValueError(f"input {index!r} has label {label!r}")
    return Ends(index, label, str(line["at_least"]), *radii, accepted)


def radii_section(radii: Sequence[Ends], outputs: Sequence[Column]) -> dict[str, Any] | None:
    """What a page shows of them."""
    if not radii:
        return None
    believed = [each.believed for each in radii]
    some = sum(certified is not None for certified, _ in believed)
    return {
        "at_least": radii[0].at_least,
        "count": len(radii),
        "some": some,
        "median": f"{median(certified or 0.0 for certified, _ in believed):.4g}",
        "refused": sum(each.accepted is False for each in radii),
        "chart": _chart(believed),
        "rows": [
            {
                "index": each.index,
                "label": "–" if each.label is None else name_of(outputs, each.label, "class"),
                "ends": [radius_text(each.certified), radius_text(each.falsified, up=True)],
                "refused": each.accepted is False,
            }
            for each in radii
        ],
    }


def _chart(believed: Sequence[tuple[float | None, float | None]]) -> dict[str, str]:
    """The areas below the share of inputs that are certified at a radius, and above that of those
    that are not falsified; at a radius itself an input is still certified, and already falsified.
    """
    known = sorted({eps for ends in believed for eps in ends if eps is not None})
    last = 1.1 * (known[-1] if known and known[-1] > 0 else 1.0)
    places = [0.0, *known, last]

    def height(count: int) -> str:
        return f"{100 - 100 * count / len(believed):.2f}"

    safe, unsafe = "M0 100", "M0 0"
    for left, right in pairwise(places):
        sure = sum(certified is not None and certified >= right for certified, _ in believed)
        maybe = sum(falsified is None or falsified > left for _, falsified in believed)
        across = f"H{WIDE * right / last:.1f}"
        safe += f"V{height(sure)}{across}"
        unsafe += f"V{height(maybe)}{across}"
    return {"safe": f"{safe}V100Z", "unsafe": f"{unsafe}V0Z", "last": f"{last:.3g}"}

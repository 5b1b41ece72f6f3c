"""Evidence of kind `networks`: which of a list are verified, and where others are refuted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors, Written

KIND = "networks"
COUNT, VERIFIED, REFUTED, POINTS = "networks", "verified", "refuted", "points"


@dataclass(frozen=True, eq=False)
class Networks:
    """Of `count` networks those verified, and those refuted by (network, point, row)."""

    count: int
    verified: tuple[int, ...]
    refuted: tuple[tuple[int, int, int], ...]
    points: Tensor


def write(found: Networks) -> Written:
    refuted = [list(entry) for entry in found.refuted]
    value = {COUNT: found.count, VERIFIED: list(found.verified), REFUTED: refuted}
    return Written(KIND, value, {POINTS: found.points})


def read(value: Any, tensors: Tensors) -> Networks:
    refuted = tuple((s, p, r) for s, p, r in value[REFUTED])
    return Networks(value[COUNT], tuple(value[VERIFIED]), refuted, tensors[POINTS])

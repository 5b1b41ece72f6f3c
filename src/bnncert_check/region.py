"""Input regions: a ball around x intersected with a clip range, or an explicit box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from bnncert_check.arithmetic import Array, dot_down, dot_up, down, sqrt_up, up
from bnncert_check.files import Tensors, numbers
from bnncert_check.verdict import CannotCheck, Rejected

NORMS = ("linf", "l2", "l1")


@dataclass(frozen=True)
class Region:
    """Flat vectors: the region lies in [lower, upper], and for norm l2 or l1 in the ball of radius eps around x too."""

    norm: str
    x: Array
    eps: float  # inf for an explicit box
    lower: Array
    upper: Array

    @property
    def is_box(self) -> bool:
        return self.norm in ("linf", "box")

    def minimum(self, rows: Array) -> Array:
        """min over the region of rows·x [R] from below: A⁺ l + A⁻ u, for balls also A·x - eps |A|_dual."""
        best = dot_down(rows, np.where(rows > 0, self.lower, self.upper))
        if self.is_box:
            return best
        size = np.abs(rows)
        dual = sqrt_up(dot_up(size, size)) if self.norm == "l2" else size.max(-1)
        return np.maximum(best, down(dot_down(rows, self.x) - up(self.eps * dual)))

    def contains(self, point: Array, clip: tuple[float, float] | None) -> bool:
        """In rational arithmetic."""
        if self.norm == "box":
            return bool(((self.lower <= point) & (point <= self.upper)).all())
        if clip is not None and not ((clip[0] <= point) & (point <= clip[1])).all():
            return False
        offsets = [
            abs(Fraction(p) - Fraction(c)) for p, c in zip(point.tolist(), self.x.tolist(), strict=True) if p != c
        ]
        eps = Fraction(self.eps)
        match self.norm:
            case "linf":
                return max(offsets, default=Fraction(0)) <= eps
            case "l2":
                return sum(offset**2 for offset in offsets) <= eps**2
        return sum(offsets) <= eps


def point_region(point: Array) -> Region:
    return Region("linf", point, 0.0, point, point)


def read_region(
    described: dict[str, Any], tensors: Tensors, shape: tuple[int, ...]
) -> tuple[Region, tuple[float, float] | None]:
    """The region of a certificate, rounded outward, and its clip range."""
    norm, clip, x = described["norm"], described["clip"], numbers(tensors, "x", shape).reshape(-1)
    if norm == "box":
        lower, upper = (numbers(tensors, name, shape).reshape(-1) for name in ("lower", "upper"))
        eps = math.inf
    elif norm in NORMS:
        eps = float.fromhex(described["eps"])
        if not 0 <= eps < math.inf:
            raise CannotCheck("malformed", f"eps is {eps}")
        lower, upper = (down(x - eps), up(x + eps)) if eps > 0 else (x, x)
    else:
        raise CannotCheck("unsupported", f"norm {norm!r} is not known")
    if clip is not None:
        clip = (float(clip[0]), float(clip[1]))
        lower, upper = np.maximum(lower, clip[0]), np.minimum(upper, clip[1])
    if not (lower <= upper).all():
        raise Rejected("region-empty", "the input region is empty")
    return Region(norm, x, eps, lower, upper), clip

"""Input regions: a ball around x intersected with a clip range, or an explicit box."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array, dot_down, dot_up, down, sqrt_up, up
from bnncert_check.grammar import Tensors, exact, listed, members, number
from bnncert_check.verdict import CannotCheck, Rejected

Clip: TypeAlias = tuple[float, float] | None

# Whether the differences of a point to x keep within eps, exactly.
WITHIN: dict[str, Callable[[list[Fraction], Fraction], bool]] = {
    "linf": lambda offsets, eps: max(offsets, default=Fraction(0)) <= eps,
    "l2": lambda offsets, eps: sum(offset**2 for offset in offsets) <= eps**2,
    "l1": lambda offsets, eps: sum(offsets) <= eps,
}


@dataclass(frozen=True)
class Region:
    """Flat vectors: the region lies in [lower, upper], and for norm l2 or l1 in the ball of radius
    eps around x too."""

    norm: str
    x: Array
    eps: float  # of a box its largest half-width
    lower: Array
    upper: Array
    clip: Clip = None

    @property
    def is_box(self) -> bool:
        return self.norm in ("linf", "box")

    def minimum(self, rows: Array) -> Array:
        """min over the region of rows·x [R] from below: A⁺ l + A⁻ u, for balls also A·x - eps
        |A|_dual."""
        best = dot_down(rows, np.where(rows > 0, self.lower, self.upper))
        if self.is_box:
            return best
        size = np.abs(rows)
        dual = sqrt_up(dot_up(size, size)) if self.norm == "l2" else size.max(-1)
        return np.maximum(best, down(dot_down(rows, self.x) - up(self.eps * dual)))

    def contains(self, point: Array) -> bool:
        """In rational arithmetic."""
        if self.norm == "box":
            return bool(((self.lower <= point) & (point <= self.upper)).all())
        if self.clip is not None and not ((self.clip[0] <= point) & (point <= self.clip[1])).all():
            return False
        return self._within(point)

    def room(self, point: Array) -> Array:
        """How far every coordinate of one of its points may move to either side and all stay within
        a region that is a box, from below."""
        lower, upper = self.lower, self.upper
        if self.norm != "box":
            lower, upper = up(self.x - self.eps), down(self.x + self.eps)
        if self.clip is not None:
            lower, upper = np.maximum(lower, self.clip[0]), np.minimum(upper, self.clip[1])
        return np.maximum(np.minimum(down(upper - point), down(point - lower)), 0.0)

    @property
    def is_empty(self) -> bool:
        """Whether the box misses the ball, by its point that is nearest to x."""
        return not self.is_box and not self._within(np.clip(self.x, self.lower, self.upper))

    def _within(self, point: Array) -> bool:
        pairs = zip(point.tolist(), self.x.tolist(), strict=True)
        return WITHIN[self.norm](
            [abs(Fraction(p) - Fraction(c)) for p, c in pairs if p != c], Fraction(self.eps)
        )

    def describe(self) -> str:
        if self.norm == "box":
            return "a box"
        return f"{self.norm} ball of radius {self.eps!r}{self.clipped}"

    @property
    def clipped(self) -> str:
        return f" within [{self.clip[0]!r}, {self.clip[1]!r}]" if self.clip else ""


def point_region(point: Array) -> Region:
    return Region("linf", point, 0.0, point, point)


def read_region(described: Any, tensors: Tensors, shape: tuple[int, ...]) -> Region:
    """The region of a certificate, rounded outward."""
    found = members(described, "the region", ("norm", "clip", "eps"))
    norm, clip, x = found["norm"], _clip(found["clip"]), tensors.numbers("x", shape).reshape(-1)
    if norm == "box":
        lower, upper = (tensors.numbers(name, shape).reshape(-1) for name in ("lower", "upper"))
        if found["eps"] is not None or clip is not None:
            raise CannotCheck("malformed", "a box has neither a radius nor a clip range")
        _require_points(lower, upper)
        if not ((lower <= x) & (x <= upper)).all():
            raise CannotCheck("malformed", "the input lies outside its box")
        radius = float(((upper - lower) / 2).max())
        if not math.isfinite(radius):
            raise CannotCheck("not-finite", "the input box is too wide; rescale it")
        return Region(norm, x, radius, lower, upper)
    if type(norm) is not str or norm not in WITHIN:
        raise CannotCheck("unsupported", f"norm {str(norm)[:40]!r} is not known")
    eps = exact(found["eps"], "eps")
    if not eps >= 0:
        raise CannotCheck("malformed", f"eps is {eps}")
    lower, upper = (down(x - eps), up(x + eps)) if eps > 0 else (x, x)
    if clip is not None:
        lower, upper = np.maximum(lower, clip[0]), np.minimum(upper, clip[1])
    _require_points(lower, upper)
    region = Region(norm, x, eps, lower, upper, clip)
    if region.is_empty:
        raise Rejected("region-empty", "the ball and the clip range have no point in common")
    return region


def _clip(value: Any) -> Clip:
    if value is None:
        return None
    low, high = (
        number(end, "an end of the clip range") for end in listed(value, "the clip range", 2)
    )
    return low, high


def _require_points(lower: Array, upper: Array) -> None:
    if not (lower <= upper).all():
        raise Rejected("region-empty", "the input region is empty")

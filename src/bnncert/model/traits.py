"""Traits: what bounds, proofs and training ask of an activation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Traits:
    """What bounds need to know of an activation f.

    slopes: the least and the largest slope. kinks: where the slope jumps. pieces: the slopes of f
    from left to right, if it is linear between its kinks; else None. largest: a bound of |f|;
    growth: (a, b) with |f(z)| <= a |z| + b. valley: (z, f(z)), rounded down, where f is least, if
    it falls before and rises after; None where f never falls. flat_below: 0 below 0, so that how
    far below does not matter; what certificates are checked by, so that a leaky ReLU whose slope
    happens to be 0 is not.
    """

    slopes: tuple[float, float]
    kinks: tuple[float, ...] = ()
    pieces: tuple[float, ...] | None = None
    largest: float = math.inf
    growth: tuple[float, float] = (1.0, 0.0)
    valley: tuple[float, float] | None = None
    flat_below: bool = False

    @property
    def bent(self) -> bool:
        """Linear on both sides of 0 and 0 there, steeper above: what optimised slopes are for."""
        return self.kinks == (0.0,) and self.splits == self.kinks

    @property
    def splits(self) -> tuple[float, ...]:
        """The kinks that branching splits at: of one that is linear between them, where the slope
        rises at the first and, if there is another, falls there."""
        rises = tuple(left <= right for left, right in pairwise(self.pieces or ()))
        return self.kinks if rises in ((True,), (True, False)) else ()

    @property
    def steepest(self) -> float:
        """A bound of |f'|."""
        return max(map(abs, self.slopes))


def is_number(value: object, least: float, most: float = math.inf) -> bool:
    """Whether it is a finite number within the limits."""
    return type(value) in (int, float) and math.isfinite(value) and least <= value <= most  # type: ignore[arg-type, operator]

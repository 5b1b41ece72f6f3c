"""Probability of a weight box under independent weights, and of a union of boxes, in Arb.

Per weight P(l <= w <= u) is 1 - tail - tail where the interval holds the centre and a difference of tails elsewhere.
Arguments z = (end - centre) / scale are first rounded, against the claim, to GRID bits: boxes that grow by multiples of
the scale then need few evaluations instead of one a weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, Array, down, lower_float, normal_tail, up, upper_float
from bnncert_check.model import Posterior
from bnncert_check.verdict import Rejected

GRID = 40  # bits of z
DOWN, UP = 0, 1
Tail: TypeAlias = Callable[[arb], arb]


@dataclass(frozen=True)
class WeightBox:
    """[lower, upper], both exact floats; flat."""

    lower: Array
    upper: Array

    def intersection(self, other: WeightBox) -> WeightBox | None:
        """None where it is empty."""
        lower, upper = np.maximum(self.lower, other.lower), np.minimum(self.upper, other.upper)
        return WeightBox(lower, upper) if (lower <= upper).all() else None


def mass(posterior: Posterior, box: WeightBox, side: int) -> float:
    """P(w in box) from below (DOWN) or above (UP)."""
    random = posterior.random
    inside = (box.lower <= posterior.center) & (posterior.center <= box.upper)
    if not (inside | random).all():
        return 0.0
    keys = _keys(posterior, box, side)[random]
    distinct, counts = np.unique(keys, axis=0, return_counts=True)
    logs = [_log_probability(posterior.family, side, *key) for key in distinct.tolist()]
    if -math.inf in logs:
        return 0.0
    product = sum((count * arb(log) for count, log in zip(counts.tolist(), logs, strict=True)), arb(0)).exp()
    return lower_float(product) if side == DOWN else upper_float(product)


def _keys(posterior: Posterior, box: WeightBox, side: int) -> Array:
    """What the probability of each weight's interval depends on, [n, keys]."""
    fields = posterior.fields
    if posterior.family in ("uniform", "truncated-normal"):
        return np.stack([box.lower, box.upper, *fields.values()], -1)
    center, scale = posterior.center, np.where(posterior.spread > 0, posterior.spread, 1.0)
    inward = 1 if side == DOWN else -1
    ends = [_standardised(box.lower, center, scale, inward), _standardised(box.upper, center, scale, -inward)]
    return np.stack([*ends, *([fields["df"]] if "df" in fields else [])], -1)


def _standardised(end: Array, center: Array, scale: Array, direction: int) -> Array:
    """(end - center) / scale, rounded to GRID bits upward (direction 1) or downward (-1)."""
    bound = up if direction == 1 else down
    z = bound(bound(end - center) / scale)
    fraction, exponent = np.frexp(z)
    step = np.ceil if direction == 1 else np.floor
    coarse = np.ldexp(step(np.ldexp(fraction, GRID)), exponent - GRID)
    return np.where(end == center, 0.0, np.where(np.isfinite(z), coarse, z))


@lru_cache(maxsize=2**18)
def _log_probability(family: str, side: int, *key: float) -> float:
    with ctx.workprec(BITS):
        probability = _PROBABILITIES[family](*key)
        if side == UP:
            bound = upper_float(probability)
            return -math.inf if bound <= 0 else upper_float(arb(bound).log())
        return lower_float(probability.log()) if probability > 0 else -math.inf


def _between(tail: Tail, a: arb, b: arb) -> arb:
    """P(a <= Z <= b) for a law that is symmetric about 0."""
    if a <= 0 and b >= 0:
        return 1 - tail(-a) - tail(b)
    if a > b:
        return arb(0)
    return tail(a) - tail(b) if a > 0 else tail(-b) - tail(-a)


def _normal(a: float, b: float) -> arb:
    return _between(normal_tail, arb(a), arb(b))


def _laplace(a: float, b: float) -> arb:
    return _between(lambda z: (-z).exp() / 2, arb(a), arb(b))


def _student_t(a: float, b: float, df: float) -> arb:
    """P(T > z) = I(df / (df + z²); df/2, 1/2) / 2 for z >= 0, from whichever argument keeps its digits."""

    def tail(z: arb) -> arb:
        n, half, square = arb(df), arb(1) / 2, z * z
        if square > n:
            return (n / (n + square)).beta_lower(n / 2, half, 1) / 2
        return (1 - (square / (n + square)).beta_lower(half, n / 2, 1)) / 2

    return _between(tail, arb(a), arb(b))


def _uniform(l: float, u: float, low: float, high: float) -> arb:
    overlap = arb(min(u, high)) - arb(max(l, low))
    return overlap / (arb(high) - arb(low)) if overlap > 0 else arb(0)


def _truncated_normal(l: float, u: float, mean: float, std: float, low: float, high: float) -> arb:
    if max(l, low) > min(u, high):
        return arb(0)
    if l <= low and u >= high:
        return arb(1)
    ends = [(arb(end) - arb(mean)) / arb(std) for end in (max(l, low), min(u, high), low, high)]
    return _between(normal_tail, ends[0], ends[1]) / _between(normal_tail, ends[2], ends[3])


_PROBABILITIES: dict[str, Callable[..., arb]] = {
    "normal": _normal,
    "laplace": _laplace,
    "student-t": _student_t,
    "uniform": _uniform,
    "truncated-normal": _truncated_normal,
}


def cut(parent: WeightBox, cuts: list[tuple[int, float, float]]) -> WeightBox:
    """The cell that is left of a box when some weights are restricted: (weight, low, high)."""
    lower, upper = parent.lower.copy(), parent.upper.copy()
    for weight, low, high in cuts:
        if not (parent.lower[weight] <= low and high <= parent.upper[weight]):
            raise Rejected("cell-outside-parent", f"a cell leaves its box in weight {weight}")
        if not low <= high:
            raise Rejected("box-empty", f"a cell is empty in weight {weight}")
        lower[weight], upper[weight] = low, high
    return WeightBox(lower, upper)


def cells_mass(posterior: Posterior, cells: list[WeightBox], separators: dict[tuple[int, int], int]) -> arb:
    """The sum over cells, every two of which lie apart in some weight; sharing an end is apart unless it is an atom."""
    for j, i in combinations(range(len(cells)), 2):
        weight = separators.get((i, j))
        if weight is None:
            raise Rejected("cells-overlap", f"no weight is named that keeps cells {i} and {j} apart")
        first, second = sorted((float(c.lower[weight]), float(c.upper[weight])) for c in (cells[i], cells[j]))
        if not (first[1] < second[0] or (first[1] == second[0] and posterior.random[weight])):
            raise Rejected("cells-overlap", f"cells {i} and {j} overlap in weight {weight}")
    return sum((arb(mass(posterior, cell, DOWN)) for cell in cells), arb(0))


def alternating_mass(posterior: Posterior, boxes: list[WeightBox], depth: int) -> arb:
    """Σ over sets S of at most `depth` boxes of (-1)^(|S|+1) P(∩S), from below: a lower bound of the union if depth is
    even or all of them."""
    terms = (
        arb(mass(posterior, joint, DOWN)) if size % 2 else -arb(mass(posterior, joint, UP))
        for joint, size in _intersections(boxes, depth)
    )
    return sum(terms, arb(0))


def _intersections(boxes: list[WeightBox], depth: int) -> Iterator[tuple[WeightBox, int]]:
    """Every non-empty intersection of at most `depth` boxes, with the number of boxes in it."""
    open_sets: list[tuple[WeightBox, int, int]] = [(box, i, 1) for i, box in enumerate(boxes)]
    while open_sets:
        joint, last, size = open_sets.pop()
        yield joint, size
        if size < depth:
            for i in range(last + 1, len(boxes)):
                common = joint.intersection(boxes[i])
                if common is not None:
                    open_sets.append((common, i, size + 1))

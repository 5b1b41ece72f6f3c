"""Probability of a weight box under independent weights, and of a union of boxes.

Per weight P(l <= w <= u) is 1 - tail - tail where the interval holds the centre and a difference of
tails elsewhere: from a table for Gaussians with both ends beyond one standard deviation, else one
by one in Arb. Over the weights, failures join pairwise, F = f + f' - f f', which keeps the digits
of a failure however many weights there are; the plain product of probabilities keeps those of a
small mass. Both are bounds: the better one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import (
    BITS,
    Array,
    as_probability,
    down,
    gamma,
    lower_float,
    up,
    upper_float,
)
from bnncert_check.model import Posterior
from bnncert_check.tails import normal_tail, normal_tails_down, normal_tails_up
from bnncert_check.verdict import Rejected

DOWN, UP = 0, 1
SMALLEST = 1e-290  # of a product that did not underflow on the way
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
    failures, probabilities = _weights(posterior, box, side)
    failures, probabilities = failures[random], probabilities[random]
    slack = gamma(len(probabilities))
    product = float(probabilities.prod())  # of factors up to 1: it is never below a partial product
    failure = _joint(failures, up if side == DOWN else down)
    if failure == 0:
        return 1.0
    if side == DOWN:
        product = math.nextafter(product * (1 - slack), 0.0) if product > SMALLEST else 0.0
        return max(math.nextafter(1 - failure, 0.0), product)
    return min(math.nextafter(1 - failure, math.inf), product * (1 + 2 * slack) + SMALLEST)


def _joint(failures: Array, bound: Callable[[Array], Array]) -> float:
    """1 - Π (1 - f_i), rounded by `up` or `down` at every step."""
    while len(failures) > 1:
        if len(failures) % 2:
            failures = np.append(failures, 0.0)
        first, second = failures[::2], failures[1::2]
        failures = np.clip(bound(first + bound(second * bound(1 - first))), 0.0, 1.0)
    return float(failures[0]) if len(failures) else 0.0


def _weights(posterior: Posterior, box: WeightBox, side: int) -> tuple[Array, Array]:
    """Each weight's failure from above and probability from below (DOWN), or the other way round
    (UP)."""
    failures, probabilities = np.empty_like(box.lower), np.empty_like(box.lower)
    quick = np.zeros(len(failures), bool)
    if posterior.family == "normal":
        center, scale = posterior.center, np.where(posterior.random, posterior.spread, 1.0)
        bound, tails, other = (
            (down, normal_tails_up, up) if side == DOWN else (up, normal_tails_down, down)
        )
        left, right = (
            bound(bound(end) / scale) for end in (center - box.lower, box.upper - center)
        )
        quick = posterior.random & (left >= 1) & (right >= 1)
        failures[quick] = other(tails(left[quick]) + tails(right[quick]))
        probabilities[quick] = bound(1 - failures[quick])
    fields = np.stack([box.lower, box.upper, *posterior.fields.values()], -1)
    slow = np.flatnonzero(posterior.random & ~quick)
    for i, weight in zip(slow.tolist(), fields[slow].tolist(), strict=True):
        failures[i], probabilities[i] = _one_weight(posterior.family, side, *weight)
    return failures, probabilities


@lru_cache(maxsize=2**15)
def _one_weight(family: str, side: int, *weight: float) -> tuple[float, float]:
    with ctx.workprec(BITS):
        probability = _PROBABILITIES[family](*weight)
        if side == DOWN:
            ends = upper_float(1 - probability), lower_float(probability)
        else:
            ends = lower_float(1 - probability), upper_float(probability)
        return as_probability(ends[0]), as_probability(ends[1])


def _between(tail: Tail, a: arb, b: arb) -> arb:
    """P(a <= Z <= b) for a law that is symmetric about 0."""
    if a <= 0 and b >= 0:
        return 1 - tail(-a) - tail(b)
    return tail(a) - tail(b) if a > 0 else tail(-b) - tail(-a)


def _normal(l: float, u: float, mean: float, std: float) -> arb:
    return _between(normal_tail, *((arb(end) - arb(mean)) / arb(std) for end in (l, u)))


def _laplace(l: float, u: float, loc: float, scale: float) -> arb:
    return _between(
        lambda z: (-z).exp() / 2, *((arb(end) - arb(loc)) / arb(scale) for end in (l, u))
    )


def _student_t(l: float, u: float, loc: float, scale: float, df: float) -> arb:
    """P(T > z) = I(df / (df + z²); df/2, 1/2) / 2 for z >= 0, from whichever argument keeps its
    digits."""

    def tail(z: arb) -> arb:
        n, half, square = arb(df), arb(1) / 2, z * z
        if z > 1:
            return (n / (n + square)).beta_lower(n / 2, half, 1) / 2
        return (1 - (square / (n + square)).beta_lower(half, n / 2, 1)) / 2

    return _between(tail, *((arb(end) - arb(loc)) / arb(scale) for end in (l, u)))


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


def cut(parent: WeightBox, cuts: Sequence[tuple[int, float, float]]) -> WeightBox:
    """The cell that is left of a box when some weights are restricted: (weight, low, high)."""
    lower, upper = parent.lower.copy(), parent.upper.copy()
    for weight, low, high in cuts:
        if not (parent.lower[weight] <= low and high <= parent.upper[weight]):
            raise Rejected("cell-outside-parent", f"a cell leaves its box in weight {weight}")
        if not low <= high:
            raise Rejected("box-empty", f"a cell is empty in weight {weight}")
        lower[weight], upper[weight] = low, high
    return WeightBox(lower, upper)


def cells_mass(
    posterior: Posterior, cells: list[WeightBox], separators: dict[tuple[int, int], int]
) -> arb:
    """The sum over cells, every two of which lie apart in some weight; sharing an end is apart
    unless it is an atom."""
    for j, i in combinations(range(len(cells)), 2):
        weight = separators.get((i, j))
        if weight is None:
            raise Rejected(
                "cells-overlap", f"no weight is named that keeps cells {i} and {j} apart"
            )
        first, second = sorted(
            (float(c.lower[weight]), float(c.upper[weight])) for c in (cells[i], cells[j])
        )
        if not (first[1] < second[0] or (first[1] == second[0] and posterior.random[weight])):
            raise Rejected("cells-overlap", f"cells {i} and {j} overlap in weight {weight}")
    return sum((arb(mass(posterior, cell, DOWN)) for cell in cells), arb(0))


def alternating_mass(posterior: Posterior, boxes: list[WeightBox], depth: int) -> arb:
    """Σ over sets S of at most `depth` boxes of (-1)^(|S|+1) P(∩S), from below: a lower bound of
    the union if depth is even or all of them."""
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

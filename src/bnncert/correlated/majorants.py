"""Functions G above what fails, given a and q, whose mean can be bounded.

    G(a, q) = A + B a + D a² + C q + Σ_k M_k exp(-λ_k q),   D >= 0, M_k >= 0,

above F(a, q), the chance that N(a, q) is outside of an interval, or inside, for all a and
0 <= q <= q⁺: then P <= A + B E a + D E a² + C E q + Σ_k M_k E exp(-λ_k q). A linear program finds G
on a grid, and boxes in (a, q), cut until F is below G on each, show that it is above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

from bnncert.correlated.moments import Known
from bnncert.correlated.setting import Array
from bnncert.correlated.tails import Tail

FAR = 64.0  # √q⁺ beyond the interval, where a's last boxes begin
LEVELS, PLACES, BEYOND = 48, 121, 16  # of the grid: of q, of a, and of a far away
NEAR = 10.0  # √q⁺ that the fine grid reaches
FINER, PASSES, ADDED, CLOSE = 4, 6, 200, 1e-4  # where the grid is refined
LIFTS = (2e-4, 1e-3, 4e-3)  # of A: what the boxes need
MARGIN = 2.0**-30  # by which the boxes show more than a checker needs
ROUNDS, BOXES = 64, 2**15  # of cuts; of boxes in all


# Of the normal density's first three derivatives: the largest.
SECOND, THIRD, FOURTH = 0.242, 0.399, 0.551
Numbers: TypeAlias = tuple[float, float, float, float]
Box: TypeAlias = tuple[Array, Array, Array, Array]


@dataclass(frozen=True)
class Interval:
    """F: of N(a, q) outside of [low, high], ends that may be infinite, or inside."""

    low: float
    high: float
    inside: bool

    @property
    def center(self) -> float:
        """In the middle, or at the one end that is finite."""
        ends = [end for end in (self.low, self.high) if math.isfinite(end)]
        return sum(ends) / len(ends)

    @property
    def even(self) -> bool:
        """About the centre."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True, eq=False)
class Majorant:
    """numbers (A, B, D, C), and M of the tails."""

    numbers: Numbers
    weights: Array
    tails: tuple[Tail, ...]
    chance: float


def majorant(asked: Interval, known: Known, tails: Sequence[Tail], most: float) -> Majorant | None:
    """The best that is shown; most: q⁺."""
    shift = asked.center
    own = Interval(asked.low - shift, asked.high - shift, asked.inside)
    found = _program(own, known, tails, most)
    if found is None:
        return None
    numbers, weights = found
    kept = [k for k, weight in enumerate(weights) if weight > 0]
    some, heavy = tuple(tails[k] for k in kept), weights[kept]
    rates = np.array([one.rate for one in some])
    for lift in LIFTS:
        a, b, d, c = numbers
        lifted = a + lift, b, d, c
        if _is_above(own, lifted, heavy, rates, most):
            means = (1.0, known.first, known.second, known.noise)
            chance = sum(x * y for x, y in zip(lifted, means, strict=True))
            chance += float(np.abs(lifted[1:]) @ known.vague)
            logs = np.array([one.log for one in some])
            return Majorant(lifted, heavy, some, float(chance + heavy @ np.exp(logs)))
    return None


def _program(
    own: Interval, known: Known, tails: Sequence[Tail], most: float
) -> tuple[Numbers, Array] | None:
    """Where G is below F between the points of the grid, these join it."""
    root, half = math.sqrt(most), _half(own)
    rates, logs = (np.array([getattr(one, name) for one in tails]) for name in ("rate", "log"))
    scale = np.array([1.0, root, most, most])
    means = np.array([1.0, known.first, known.second, known.noise]) / scale
    slope = (0.0, 0.0) if own.even else (None, None)
    bends = (0.0, 0.0) if own.inside and own.even else (1e-9, None)
    bounds = [(None, None), slope, bends, (None, None), *[(0.0, None)] * len(rates)]
    # The parabola turns before a is far away.
    turning = np.zeros((2, 4 + len(rates)))
    turning[:, 2], turning[:, 1] = -2 * (half / root + FAR), (1.0, -1.0)
    q, a = _grid(own, most, LEVELS, PLACES)
    fine_q, fine_a = _grid(own, most, FINER * LEVELS, FINER * PLACES)
    fine, needed = (
        _columns(fine_q, fine_a, scale, rates),
        _most(own, fine_a, fine_a, fine_q, fine_q),
    )
    costs, best = np.concatenate([means, np.exp(logs)]), np.zeros(len(means) + len(rates))
    for _ in range(PASSES):
        lines = np.concatenate([-_columns(q, a, scale, rates), turning])
        limits = np.concatenate([-_most(own, a, a, q, q), np.zeros(2)])
        solved = linprog(costs, lines, limits, bounds=bounds)
        if solved.x is None:
            return None
        best = np.asarray(solved.x)
        short = needed - fine @ best
        worst = np.argsort(short)[-ADDED:]
        if short[worst[-1]] <= CLOSE:
            break
        q, a = np.concatenate([q, fine_q[worst]]), np.concatenate([a, fine_a[worst]])
    a0, b, d, c = (best[:4] / scale).tolist()
    return (a0, b, d, c), best[4:]


def _half(own: Interval) -> float:
    return max(abs(x) for x in (own.low, own.high) if math.isfinite(x))


def _grid(own: Interval, most: float, levels: int, places: int) -> tuple[Array, Array]:
    """Points (q, a)."""
    root, half = math.sqrt(most), _half(own)
    near = np.linspace(-half - NEAR * root, half + NEAR * root, places)
    ends = np.array([x for x in (own.low, own.high) if math.isfinite(x)])
    far = np.geomspace(half + NEAR * root, half + FAR * root, BEYOND)
    every = np.zeros(1) if own.inside and own.even else np.concatenate([near, ends, far, -far])
    q, a = np.meshgrid(most * (np.arange(levels + 1) / levels) ** 2, every)
    return q.ravel(), a.ravel()


def _columns(q: Array, a: Array, scale: Array, rates: Array) -> Array:
    powers = np.stack([np.ones_like(a), a, a**2, q], -1) / scale
    return np.concatenate([powers, np.exp(-np.outer(q, rates))], 1)


def _tail(x: Array, low: Array, high: Array) -> Array:
    """sup of Φ(x/√q) over q in [low, high]."""
    q = np.where(x >= 0, low, high)
    return np.where(q > 0, ndtr(x / np.sqrt(np.where(q > 0, q, 1.0))), (x >= 0).astype(float))


def _signed(own: Interval) -> list[tuple[float, float]]:
    """F = Σ Φ(s (a - end)/√q), less 1 where it is inside of two ends: (s, end) of each."""
    ends = ((1.0, own.low), (-1.0, own.high)) if own.inside else ((-1.0, own.low), (1.0, own.high))
    return [(sign, end) for sign, end in ends if math.isfinite(end)]


def _most(own: Interval, a: Array, b: Array, low: Array, high: Array) -> Array:
    """sup of F over boxes [a, b] x [low, high], by each end."""
    total = np.full_like(a, -float(own.inside and own.even))
    for sign, end in _signed(own):
        total += _tail(b - end if sign > 0 else end - a, low, high)
    return total


def _is_above(own: Interval, numbers: Numbers, weights: Array, rates: Array, most: float) -> bool:
    """By boxes: whatever is not above yet is cut in two."""
    far = _half(own) + FAR * math.sqrt(most)
    a = np.array([-np.inf, -far, 0.0, far])
    b = np.array([-far, 0.0, far, np.inf])
    low, high = np.zeros(4), np.full(4, most)
    seen = 0
    for _ in range(ROUNDS):
        if not len(a):
            return True
        seen += len(a)
        if seen > BOXES:
            return False
        box = a, b, low, high
        apart = _least(numbers, weights, rates, box) - _most(own, *box)
        apart = np.fmax(apart, _by_tangents(own, numbers, weights, rates, box))
        left = ~(apart >= MARGIN)
        a, b, low, high = _cut(*(part[left] for part in box))
    return False


def _cut(a: Array, b: Array, low: Array, high: Array) -> Box:
    """Boxes in two, across what is longer in units of the deviation."""
    with np.errstate(invalid="ignore"):
        along, across = (a + b) / 2, (low + high) / 2
        first = np.isfinite(along) & ((b - a) / np.sqrt(high) > (high - low) / high)
    return (
        np.concatenate([a, np.where(first, along, a)]),
        np.concatenate([np.where(first, along, b), b]),
        np.concatenate([low, np.where(first, low, across)]),
        np.concatenate([np.where(first, high, across), high]),
    )


def _least(numbers: Numbers, weights: Array, rates: Array, box: Box) -> Array:
    """inf of G: it is convex in a, by its parabola, and in q, by a tangent."""
    level, slope, bend, noise = numbers
    a, b, low, high = box
    if bend > 0:
        at = np.clip(-slope / (2 * bend), a, b)
        along = slope * at + bend * at**2
    else:
        along = np.zeros_like(a) if slope == 0 else np.full_like(a, -np.inf)
    q = (low + high) / 2
    powers = np.exp(-np.outer(q, rates)) * weights
    tilt = noise - powers @ rates
    return np.asarray(level + along + noise * q + powers.sum(-1) - np.abs(tilt) * (high - low) / 2)


def _by_tangents(own: Interval, numbers: Numbers, weights: Array, rates: Array, box: Box) -> Array:
    """inf of G - F: G is above its tangent at the middle, and F's second derivatives are bounded.

    Of Φ(x/√q), with φ the normal density: F_q = F_aa/2, and |F_aa|, |F_aq| and |F_qq| are at most
    SECOND/q, THIRD/2q^(3/2) and FOURTH/4q².
    """
    level, slope, bend, noise = numbers
    a, b, low, high = box
    with np.errstate(all="ignore"):
        at, q, da, dq = (a + b) / 2, (low + high) / 2, (b - a) / 2, (high - low) / 2
        powers = np.exp(-np.outer(q, rates)) * weights
        value = level + slope * at + bend * at**2 + noise * q + powers.sum(-1)
        along, across = slope + 2 * bend * at, noise - powers @ rates
        for sign, end in _signed(own):
            z = sign * (at - end) / np.sqrt(q)
            density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
            value = value - ndtr(z)
            along = along - sign * density / np.sqrt(q)
            across = across + z * density / (2 * q)
        value = value + float(own.inside and own.even)
        u, w = da / np.sqrt(low), dq / low
        bent = len(_signed(own)) * (SECOND * u**2 / 2 + THIRD * u * w / 2 + FOURTH * w**2 / 8)
        return np.asarray(value - np.abs(along) * da - np.abs(across) * dq - bent)

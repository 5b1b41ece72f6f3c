"""Lines of curves: of F = f or -f, from below.

The least of F(z) - a z over [l, u] is at an end, at a turn, or inside a part [p, q] where F is
convex, and there for every c

    F(z) - a z  >=  F(c) - a c + min(d (p - c), d (q - c)),    d = F'(c) - a.

Values and slopes are enclosed in Arb; which c, and which a, needs no trust.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array, lower_float
from bnncert_check.curves import Curve

HALVINGS, POSITIONS = 6, 12  # of a search


def least(curve: Curve, sign: int, slope: Array, l: Array, u: Array) -> Array:
    """min over [l, u] of sign f(z) - slope z, from below."""
    slope, l, u = np.broadcast_arrays(slope, l, u)
    found = np.full(l.shape, -math.inf)
    hints = np.stack([l, u, *(_critical(curve, sign, slope, l, u, *p) for p in curve.convex(sign))])
    for place in np.ndindex(l.shape):
        a, ends = float(slope[place]), (float(l[place]), float(u[place]))
        found[place] = _least(curve, sign, a, ends, hints[(slice(2, None), *place)].tolist())
    return found


def _least(
    curve: Curve, sign: int, slope: float, ends: tuple[float, float], hints: list[float]
) -> float:
    a, (l, u) = arb(slope), ends
    values = [lower_float(_above(curve, sign, a, z)) for z in ends]
    for low, high in curve.turns:
        if low <= u and high >= l:
            change = (arb(high) - arb(low)) * (arb(curve.steepest) + abs(a))
            nearest = min(max(low, l), u)
            values.append(lower_float(_above(curve, sign, a, nearest) - change))
    for (left, right), hint in zip(curve.convex(sign), hints, strict=True):
        low, high = max(left, l), min(right, u)
        if low < high:
            c = min(max(hint, low), high)
            change = sign * curve.slope(arb(c)) - a
            at = _above(curve, sign, a, c)
            values += [lower_float(at + change * (arb(z) - arb(c))) for z in (low, high)]
    # numpy's minimum: Python's would pass over a NaN
    return float(np.min(values))


def _above(curve: Curve, sign: int, a: arb, z: float) -> arb:
    return sign * _value(curve, z) - a * arb(z)


@lru_cache(maxsize=2**14)
def _value(curve: Curve, z: float) -> arb:
    """Two lines and the range want the values at the same ends."""
    return curve.value(arb(z))


def image(curve: Curve, l: Array, u: Array) -> tuple[Array, Array]:
    """The range over [l, u]: between the values at the ends, but where f is least inside."""
    low, high = (np.array(list(map(_value_down(curve, sign), *(l, u)))) for sign in (1, -1))
    return low, -high


def _value_down(curve: Curve, sign: int) -> Callable[[float, float], float]:
    """min over [l, u] of sign f, where f falls before its valley and rises after it."""

    def found(l: float, u: float) -> float:
        values = [lower_float(sign * _value(curve, z)) for z in (l, u)]
        if sign > 0 and curve.valley is not None:
            low, high = curve.valley
            if low <= u and high >= l:
                change = (arb(high) - arb(low)) * arb(curve.steepest)
                values.append(lower_float(_value(curve, low) - change))
        return float(np.min(values))

    return found


def hull_slope(points: list[Array], values: list[Array]) -> Array:
    """The slope, at the middle of [first, last], of the largest convex function that is at most the
    values at the points, which rise; 0 where all points are the same."""
    middle = points[0] / 2 + points[-1] / 2
    lowest, slope = np.full_like(middle, np.inf), np.zeros_like(middle)
    for i, j in combinations(range(len(points)), 2):
        width = points[j] - points[i]
        own = (values[j] - values[i]) / np.where(width > 0, width, 1.0)
        at_middle = values[i] + own * (middle - points[i])
        better = (points[i] <= middle) & (middle <= points[j]) & (width > 0) & (at_middle < lowest)
        lowest, slope = np.where(better, at_middle, lowest), np.where(better, own, slope)
    return slope


def best_slope(curve: Curve, sign: int, l: Array, u: Array) -> Array:
    """Of the line below sign f on [l, u] that is closest at the middle, nearly."""
    points = [l, *(np.clip(np.full_like(l, kink), l, u) for kink in curve.kinks), u]
    middle = l / 2 + u / 2
    slope = hull_slope(points, [sign * curve.near_value(z) for z in points])
    slope = np.where(l < u, slope, sign * curve.near_slope(middle))
    for left, right in curve.convex(sign):
        a, b = np.maximum(l, left), np.minimum(u, right)
        first, last = _touching(curve, sign, a, b, l), _touching(curve, sign, b, a, u)
        touched = np.minimum(np.maximum(middle, first), np.maximum(last, first))
        # Beyond an end of the part, f has a kink there, and the points know better.
        inside = ((touched > a) | (middle >= a)) & ((touched < b) | (middle <= b))
        valid = (a < b) & (first <= last) & inside
        slope = np.where(valid, sign * curve.near_slope(touched), slope)
    first_slope, last_slope = sorted(sign * end for end in curve.slopes)
    return np.clip(slope, first_slope, last_slope)


def _touching(curve: Curve, sign: int, near: Array, far: Array, end: Array) -> Array:
    """The point of a convex part from `near` to `far`, nearest to the end of the interval that lies
    beyond `near`, at which the tangent passes below F at the end; infinitely far where none
    does."""

    def under(t: Array, z: Array) -> Array:
        return sign * (curve.near_value(z) - curve.near_value(t) - curve.near_slope(t) * (z - t))

    reached = (near == end) | (under(near, end) >= 0)
    found = np.where(reached, near, np.where(far >= near, np.inf, -np.inf))
    between = ~reached & (under(far, end) >= 0)
    start, stop = (np.clip(z[between], -curve.reach, curve.reach) for z in (near, far))
    found[between] = _root(lambda t: under(t, end[between]), start, stop)
    return found


def _critical(
    curve: Curve, sign: int, slope: Array, l: Array, u: Array, left: float, right: float
) -> Array:
    """Where the rising F' nearly reaches the slope on a convex part of [l, u], or the end that is
    nearest to it."""
    a, b = np.maximum(l, left), np.minimum(u, right)
    at_a, at_b = (sign * curve.near_slope(z) for z in (a, b))
    found = np.where(at_a >= slope, a, b)
    between = (a < b) & (at_a < slope) & (at_b > slope)
    start, stop = (np.clip(z[between], -curve.reach, curve.reach) for z in (a, b))
    wanted = slope[between]
    found[between] = _root(lambda z: sign * curve.near_slope(z) - wanted, start, stop)
    return found


def _root(rising: Callable[[Array], Array], start: Array, stop: Array) -> Array:
    """Where something that is negative at `start` and not at `stop` is nearly 0: halvings, then
    false positions (Illinois)."""
    for _ in range(HALVINGS):
        middle = start / 2 + stop / 2
        above = rising(middle) >= 0
        start, stop = np.where(above, start, middle), np.where(above, middle, stop)
    low, high, z = rising(start), rising(stop), stop
    before: NDArray[np.bool_] | None = None
    for _ in range(POSITIONS):
        z = (start * high - stop * low) / (high - low)
        z = np.where(np.isfinite(z), z, stop)
        value = rising(z)
        above = value >= 0
        again = np.zeros_like(above) if before is None else above == before
        low, high = (
            np.where(above, np.where(again, low / 2, low), value),
            np.where(above, value, np.where(again, high / 2, high)),
        )
        start, stop = np.where(above, start, z), np.where(above, z, stop)
        before = above
    return z

"""Activations between two lines: any slope is sound once its intercept is the extreme of f(z) -
slope z on [l, u].

Where f is linear between kinks the extreme is at an end or a kink, in float64. For tanh and the
sigmoid it is at an end or where f' equals the slope, in Arb; for other curves see `tangents`.
Slopes need no trust.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from flint import arb

from bnncert_check import tangents
from bnncert_check.arithmetic import Array, down, lower_float, up, upper_float
from bnncert_check.layers import Activation

Curve: TypeAlias = tuple[float, float, float]


@dataclass(frozen=True)
class Lines:
    """lower_slope z + lower <= f(z) <= upper_slope z + upper for z in [l, u]."""

    lower_slope: Array
    lower: Array
    upper_slope: Array
    upper: Array


def lines(
    activation: Activation, l: Array, u: Array, lower_slope: Array, upper_slope: Array
) -> Lines:
    """The lines with these slopes [n] or [rows, n]."""
    below = lower_intercept(activation, lower_slope, l, u)
    above = upper_intercept(activation, upper_slope, l, u)
    return Lines(lower_slope, below, upper_slope, above)


def lower_intercept(activation: Activation, slope: Array, l: Array, u: Array) -> Array:
    """Of the highest line with this slope below f on [l, u], from below."""
    return _intercept(activation, slope, l, u)


def upper_intercept(activation: Activation, slope: Array, l: Array, u: Array) -> Array:
    """Of the lowest line with this slope above f on [l, u], from above."""
    return -_intercept(activation, slope, -u, -l, mirror=True)


def image(activation: Activation, l: Array, u: Array) -> tuple[Array, Array]:
    """The range over [l, u]: between the values at the ends, and where f is least if it falls
    before."""
    traits, alpha = activation.traits, activation.below
    if traits.form is not None:
        return tangents.image(traits.form, l, u)
    if traits.ends is not None:
        return np.clip(l, *traits.ends), np.clip(u, *traits.ends)
    if alpha is not None:
        low = np.minimum(_bent_down(alpha, l), _bent_down(alpha, u))
        high = np.minimum(_bent_down_mirrored(alpha, -l), _bent_down_mirrored(alpha, -u))
        return np.where((l < 0) & (u > 0), np.minimum(low, 0.0), low), -high
    curve = traits.curve
    return _elementwise(curve, lower_float)(l), _elementwise(curve, upper_float)(u)


def default_slopes(activation: Activation, l: Array, u: Array) -> tuple[Array, Array]:
    """Good slopes for a lower and an upper line."""
    traits, alpha = activation.traits, activation.below
    if traits.form is not None:
        form = traits.form
        return tangents.best_slope(form, 1, l, u), -tangents.best_slope(form, -1, l, u)
    if traits.ends is not None:
        return _clip_slopes(*traits.ends, l, u)
    if alpha is not None:
        return _bent_slopes(alpha, l, u)
    _, height, rate = traits.curve
    scale = height * rate
    return scale * _tangent(rate * l, rate * u), scale * _tangent(-rate * u, -rate * l)


def _bent_slopes(alpha: float | Array, l: Array, u: Array) -> tuple[Array, Array]:
    """The chord, and the steeper side or the flatter one, whichever leaves less: above and below
    where f is convex, below and above where it is concave."""
    width = np.where(u > l, u - l, 1.0)
    rise = np.where(u >= 0, u, alpha * u) - np.where(l >= 0, l, alpha * l)
    chord = np.clip(rise / width, np.minimum(alpha, 1.0), np.maximum(alpha, 1.0))
    chord = np.where(l >= 0, 1.0, np.where(u <= 0, alpha, chord))
    side = np.where((l >= 0) | (u > np.maximum(-l, 0)), 1.0, alpha)
    convex = np.asarray(alpha) <= 1
    return np.where(convex, side, chord), np.where(convex, chord, side)


def _clip_slopes(low: float, high: float, l: Array, u: Array) -> tuple[Array, Array]:
    """Edges of the hulls of f at the ends and kinks."""
    points = [l, np.clip(np.full_like(l, low), l, u), np.clip(np.full_like(l, high), l, u), u]
    values = [np.clip(z, low, high) for z in points]
    below, above = (
        sign * tangents.hull_slope(points, [sign * v for v in values]) for sign in (1, -1)
    )
    inside, flat = (l >= low) & (u <= high), (u <= low) | (l >= high)
    below, above = (np.where(inside, 1.0, np.where(flat, 0.0, own)) for own in (below, above))
    return below, above


def _intercept(
    activation: Activation, slope: Array, l: Array, u: Array, mirror: bool = False
) -> Array:
    """min over [l, u] of f(z) - slope z from below; `mirror`: of -f(-z) instead of f(z)."""
    traits, sign = activation.traits, -1 if mirror else 1
    if traits.form is not None:
        low, high = (-u, -l) if mirror else (l, u)
        return tangents.least(traits.form, sign, sign * slope, low, high)
    if traits.ends is not None:
        first, last = traits.ends
        return _clip_intercept(*((-last, -first) if mirror else (first, last)), slope, l, u)
    alpha = activation.below
    if alpha is None:  # a stretched tanh
        found = np.frompyfunc(
            lambda a, lo, hi: _curve_intercept(traits.curve, sign, a, lo, hi), 3, 1
        )
        return np.asarray(found(slope, l, u), np.float64)
    bent = _bent_down_mirrored if mirror else _bent_down
    ends = [down(bent(alpha, z) - up(slope * z)) for z in (l, u)]
    return np.minimum(np.minimum(*ends), np.where((l < 0) & (u > 0), 0.0, np.inf))


def _clip_intercept(low: float, high: float, slope: Array, l: Array, u: Array) -> Array:
    """At an end or at a kink: at kinks f(z) = z."""
    found = np.minimum(*(down(np.clip(z, low, high) - up(slope * z)) for z in (l, u)))
    for kink in (low, high):
        at = down(kink - up(slope * kink))
        found = np.minimum(found, np.where((l < kink) & (kink < u), at, np.inf))
    return found


def _bent_down(alpha: float | Array, z: Array) -> Array:
    """z or αz from below."""
    return np.where(z >= 0, z, np.where(np.asarray(alpha) == 0, 0.0, down(alpha * z)))


def _bent_down_mirrored(alpha: float | Array, z: Array) -> Array:
    """-f(-z) = z or αz from below."""
    return np.where(z <= 0, z, np.where(np.asarray(alpha) == 0, 0.0, down(alpha * z)))


def _at(curve: Curve, z: arb) -> arb:
    """f(z) = lift + height tanh(rate z)"""
    lift, height, rate = map(arb, curve)
    return lift + height * (rate * z).tanh()


def _elementwise(curve: Curve, end: Callable[[arb], float]) -> Callable[[Array], Array]:
    return lambda z: np.array([end(_at(curve, arb(value))) for value in z.tolist()], np.float64)


def _curve_intercept(curve: Curve, sign: int, slope: float, l: float, u: float) -> float:
    """min over [l, u] of sign f(sign z) - slope z: at an end, or at -c, where f' has the slope's
    value.

    With root = sqrt(1 - slope / (height rate)) that is c = atanh(root) / rate, and f(±c) = lift ±
    height root.
    """
    lift, height, rate = map(arb, curve)
    a = arb(slope)
    values = [sign * _at(curve, sign * arb(z)) - a * arb(z) for z in (l, u)]
    share = 1 - a / (height * rate)
    if slope > 0 and share >= 0:
        root = share.sqrt()
        c = root.atanh() / rate
        if not c.is_finite():
            # The slope is near 2^-BITS, so c > 40 / rate: f is above its infimum, the line falls by
            # at most slope |u|.
            if rate * l < -40:
                values.append(sign * lift - height - abs(a * arb(u)))
        elif not (-c < l or -c > u):
            values.append(sign * lift - height * root + a * c)
    return min(lower_float(value) for value in values)


def _tangent(l: Array, u: Array) -> Array:
    """The best lower slope for tanh: the chord where it stays below, else the tangent at the middle
    or to (u, f(u))."""
    chord = np.where(
        u - l > 1e-6, (np.tanh(u) - np.tanh(l)) / np.maximum(u - l, 1e-6), _steepness(u)
    )
    left, right = np.minimum(l, 0.0), np.zeros_like(l)
    for _ in range(40):
        d = (left + right) / 2
        fits = np.tanh(d) + _steepness(d) * (u - d) <= np.tanh(u)
        left, right = np.where(fits, d, left), np.where(fits, right, d)
    tangent = np.where(u <= 0, _steepness((l + u) / 2), _steepness(left))
    return np.clip(np.where((l >= 0) | (chord <= _steepness(l)), chord, tangent), 0.0, 1.0)


def _steepness(z: Array) -> Array:
    """tanh'(z)"""
    return np.asarray(np.cosh(np.clip(z, -300, 300)) ** -2.0)

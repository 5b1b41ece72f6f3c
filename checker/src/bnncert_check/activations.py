"""Activations between two lines: any slope is sound once its intercept is the extreme of f(z) -
slope z on [l, u].

For max(z, αz) the extreme is at an end or at 0, in float64. For tanh and the sigmoid it is at an
end or where f' equals the slope, in Arb. Slopes need no trust.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from flint import arb

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
    below, above = (
        _intercept(activation, lower_slope, l, u),
        -_intercept(activation, upper_slope, -u, -l, mirror=True),
    )
    return Lines(lower_slope, below, upper_slope, above)


def image(activation: Activation, l: Array, u: Array) -> tuple[Array, Array]:
    """The range over [l, u]: every activation here is nondecreasing."""
    if activation.slope is not None:
        return _bent_down(activation.slope, l), -_bent_down_mirrored(activation.slope, -u)
    curve = activation.traits.curve
    return _elementwise(curve, lower_float)(l), _elementwise(curve, upper_float)(u)


def default_slopes(activation: Activation, l: Array, u: Array) -> tuple[Array, Array]:
    """Good slopes for a lower and an upper line."""
    alpha = activation.slope
    if alpha is not None:
        width = np.where(u > l, u - l, 1.0)
        chord = np.clip((np.maximum(u, alpha * u) - np.maximum(l, alpha * l)) / width, alpha, 1.0)
        upper = np.where(l >= 0, 1.0, np.where(u <= 0, alpha, chord))
        return np.where((l >= 0) | (u > np.maximum(-l, 0)), 1.0, alpha), upper
    _, height, rate = activation.traits.curve
    scale = height * rate
    return scale * _tangent(rate * l, rate * u), scale * _tangent(-rate * u, -rate * l)


def _intercept(
    activation: Activation, slope: Array, l: Array, u: Array, mirror: bool = False
) -> Array:
    """min over [l, u] of f(z) - slope z from below; `mirror`: of -f(-z) instead of f(z)."""
    if activation.slope is None:  # a curve
        sign = -1 if mirror else 1
        found = np.frompyfunc(
            lambda a, lo, hi: _curve_intercept(activation.traits.curve, sign, a, lo, hi), 3, 1
        )
        return np.asarray(found(slope, l, u), np.float64)
    bent = _bent_down_mirrored if mirror else _bent_down
    ends = [down(bent(activation.slope, z) - up(slope * z)) for z in (l, u)]
    return np.minimum(np.minimum(*ends), np.where((l < 0) & (u > 0), 0.0, np.inf))


def _bent_down(alpha: float, z: Array) -> Array:
    """max(z, αz) from below."""
    return np.where(z >= 0, z, down(alpha * z) if alpha else 0.0)


def _bent_down_mirrored(alpha: float, z: Array) -> Array:
    """-max(-z, -αz) = min(z, αz) from below."""
    return np.where(z <= 0, z, down(alpha * z) if alpha else 0.0)


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

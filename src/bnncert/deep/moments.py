"""Exponential moments of rectified Gaussians, in logarithms.

For z ~ N(m, v) and h = relu(z), with d = 1 - Bv,

    I(A, B; H) = E[exp(Ah + Bh²/2); h <= H]
               = Φ(-m/√v) + exp((2Am + A²v + Bm²) / 2d) / √d · P(0 < N((m + Av)/d, v/d) <= H).

Where Bv is large, Bh² <= BHh on [0, H] is used first: the result is then an upper bound.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

Array: TypeAlias = NDArray[np.float64]

STEEP = 0.5  # the largest B v that is integrated exactly
LARGEST = 1e10  # of an exponent: beyond it a tail of the same size leaves too few digits
ROUNDING = 2.0**-48  # of exponents, that tails of the same size cancel


def log_between(lower: Array, upper: Array) -> Array:
    """log P(lower < Z <= upper) of a standard normal, in the tail where it is accurate."""
    swap = lower > 0
    right, left = np.where(swap, -lower, upper), np.where(swap, -upper, lower)
    whole = log_ndtr(right)
    found: Array = whole + np.log1p(-np.exp(np.minimum(log_ndtr(left) - whole, -(2.0**-56))))
    return found


def log_positive(mean: Array, variance: Array, a: Array, b: Array, cap: Array) -> Array:
    """log E[exp(az + bz²/2); 0 < z <= cap] for z ~ N(mean, variance); cap may be infinite.

    From above: roundings are charged, and where b variance >= 1 or floats say too little it is the
    largest value on (0, cap].
    """
    d = 1 - b * variance
    with np.errstate(all="ignore"):
        scale = np.sqrt(variance / d)
        center = (mean + a * variance) / d
        exponent = (2 * a * mean + a * a * variance + b * mean * mean) / (2 * d) - np.log(d) / 2
        mass = log_between(-center / scale, (cap - center) / scale)
        size = (np.abs(a * mean) + a * a * variance + np.abs(b) * mean * mean) / d
        largest = np.maximum(a, 0) * cap + np.maximum(b, 0) * cap * cap / 2
    known = (d > 0) & (size < LARGEST)
    inside = np.where(known, exponent + mass + ROUNDING * size, largest)
    found: Array = np.where(cap > 0, np.where(np.isnan(inside), np.inf, inside), -np.inf)
    return found


def log_moment(mean: Array, variance: Array, a: Array, b: Array, cap: Array) -> Array:
    """log I(a, b; cap), or a little more where b is steep; arrays broadcast."""
    steep = b * variance > STEEP
    with np.errstate(invalid="ignore"):
        a = np.where(steep, a + b * cap / 2, a)
    b = np.where(steep, 0.0, b)
    off = log_ndtr(-mean / np.sqrt(variance))
    found: Array = np.logaddexp(off, log_positive(mean, variance, a, b, cap))
    return found


def tilted(mean: Array, variance: Array, a: Array, b: Array, cap: Array) -> tuple[Array, Array]:
    """Mean and variance of h under the law tilted by exp(ah + bh²/2), nearly: by differences.

    Where moments are not known, those of z: anything will do.
    """
    step = 1e-3 / np.sqrt(variance)
    at = [log_moment(mean, variance, a + s * step, b, cap) for s in (-1, 0, 1)]
    with np.errstate(invalid="ignore"):
        first, second = (at[2] - at[0]) / (2 * step), (at[2] + at[0] - 2 * at[1]) / step**2
    center = np.clip(np.where(np.isfinite(first), first, mean), 0, cap)
    return center, np.maximum(np.where(np.isfinite(second), second, variance), 1e-9)

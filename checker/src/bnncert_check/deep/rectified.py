"""Exponential moments of rectified Gaussians, in Arb.

For z ~ N(m, v) and h = relu(z), with d = 1 - bv,

    E[exp(ah + bh²/2); h <= H] = Φ(-m/√v) + E[exp(az + bz²/2); 0 < z <= H],
    E[exp(az + bz²/2); 0 < z <= H]
        = exp((2am + a²v + bm²) / 2d) / √d · P(0 < N((m + av)/d, v/d) <= H).
"""

from __future__ import annotations

from dataclasses import dataclass

from flint import arb

from bnncert_check.tails import normal_tail

STEEP = arb(1) / 2  # the largest bv that is integrated as it is


@dataclass(frozen=True)
class Gaussian:
    """Mean and variance of z."""

    mean: arb
    variance: arb


def positive(z: Gaussian, a: arb, b: arb, cap: arb | None) -> arb:
    """E[exp(az + bz²/2); 0 < z <= cap]; no cap: all z > 0. NaN unless bv < 1 is certain."""
    d = 1 - b * z.variance
    if not d > 0:
        return arb("nan")
    center, scale = (z.mean + a * z.variance) / d, (z.variance / d).sqrt()
    square = a * (2 * z.mean + a * z.variance) + b * z.mean * z.mean
    mass = between(-center / scale, None if cap is None else (cap - center) / scale)
    return (square / (2 * d)).exp() / d.sqrt() * mass


def moment(z: Gaussian, a: arb, b: arb, cap: arb) -> arb:
    """E[exp(ah + bh²/2); h <= cap], or where b is steep more: there bh² <= b cap h, as b > 0. NaN
    where b is too uncertain to say which."""
    if not b * z.variance <= STEEP:
        if not b > 0:
            return arb("nan")
        a, b = a + b * cap / 2, arb(0)
    off = normal_tail(z.mean / z.variance.sqrt())
    return off + positive(z, a, b, cap) if cap > 0 else off


def between(lower: arb | None, upper: arb | None) -> arb:
    """P(lower < Z <= upper), by the tails on the side where they are small; None: no such end."""
    if lower is None or (upper is not None and not lower > 0):
        below = arb(0) if lower is None else normal_tail(-lower)
        return (arb(1) if upper is None else normal_tail(-upper)) - below
    return normal_tail(lower) - (arb(0) if upper is None else normal_tail(upper))

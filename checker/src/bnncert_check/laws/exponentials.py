"""exp, log and the normal density of many numbers at once, from tables of Arb's values.

exp(i + k/1024 + d) = exp(i) exp(k/1024) (1 + d + d²/2 + d³/6 + d⁴/24) with |d| <= 2^-11: the rest
is below 2^-61, and a dozen roundings of 2^-53 below 2^-48 together.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, Array, up
from bnncert_check.tails import normal_tails_down, normal_tails_up

LEAST, MOST = -700, 700  # exponents of the table
STAGES = 10
PARTS = 2**STAGES
RELATIVE = 2.0**-48  # error of exp
DENSITY = 2.0**-46  # of the density, whose exponent is rounded too
ROOT = 0.3989422804014327  # 1/√(2π)


def exp_up(x: Array) -> Array:
    """e^x from above; below the table by its first value, infinite beyond its last and for NaN."""
    inside = np.clip(np.nan_to_num(x, nan=MOST), LEAST, MOST)
    return np.where(x <= MOST, up(_exp(inside) * (1 + RELATIVE)), np.inf)


def exponential(x: Array) -> Array:
    """e^x with a relative error of at most RELATIVE; beyond the table by its first and last
    values."""
    return _exp(np.clip(x, LEAST, MOST))


def log_up(x: Array) -> Array:
    """log x from above, x > 0: for any y, log x <= y + (x e^{-y} - 1)."""
    guess = np.clip(np.log(x), LEAST, MOST)
    return up(guess + up(up(x * exp_up(-guess)) - 1)) + 2.0**-52


def density(z: Array) -> Array:
    """φ(z), with a relative error of at most DENSITY for |z| <= 12."""
    return np.asarray(_exp(-z * z / 2) * ROOT)


def signed_tails_up(z: Array) -> Array:
    """P(Z > z) from above."""
    size = np.abs(z)
    return np.where(z >= 0, normal_tails_up(size), up(1 - normal_tails_down(size)))


def _exp(x: Array) -> Array:
    steps = np.rint(x * PARTS)
    d = x - steps / PARTS
    places = steps.astype(np.int64)
    wholes, parts = _table()
    found = wholes[(places >> STAGES) - LEAST] * parts[places & (PARTS - 1)]
    return np.asarray(found * (1 + d * (1 + d / 2 * (1 + d / 3 * (1 + d / 4)))))


@cache
def _table() -> tuple[Array, Array]:
    with ctx.workprec(BITS):
        wholes = np.array([float(arb(i).exp()) for i in range(LEAST, MOST + 1)])
        return wholes, np.array([float((arb(k) / PARTS).exp()) for k in range(PARTS)])

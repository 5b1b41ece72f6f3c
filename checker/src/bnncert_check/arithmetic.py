"""Rigorous float64: sums and products that are surely above or below the real value, and Arb for
everything else.

With u = 2^-53, η = 2^-1074 and γ_n = nu / (1 - nu), a dot product of length n, summed in any order
and with or without fused operations, satisfies

    |fl(x·y) - x·y| <= γ_n |x|·|y| + nη.

A single +, -, *, / or sqrt is correctly rounded, so the neighbouring float bounds it. Overflow
gives inf or NaN, which no comparison here takes for a proof.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.verdict import CannotCheck

Array: TypeAlias = NDArray[np.float64]

UNIT, ETA = 2.0**-53, 2.0**-1074
BITS = 128  # of Arb's working precision
SPARE = 16  # roundings around a dot product that are charged with it


def up(x: Array) -> Array:
    return np.nextafter(x, math.inf)


def down(x: Array) -> Array:
    return np.nextafter(x, -math.inf)


def gamma(n: int) -> float:
    """γ_{n + SPARE}, rounded up: SPARE >= 4 also pays for |x|·|y| being computed, and for this
    division."""
    return (n + SPARE) * UNIT / (1 - (n + SPARE + 4) * UNIT)


def floor_of_errors(n: int) -> float:
    """Every underflow in a dot product of length n and in the bound of its error."""
    return 4 * (n + SPARE) * ETA


def sum_error(terms: int, total: Array) -> Array:
    """A bound of the rounding in sums of so many products, whose magnitudes sum to `total` (as
    computed).

    It also pays for SPARE / 2 further roundings, of factors before or of sums after.
    """
    return up(gamma(terms) * total + floor_of_errors(terms))


def dot_down(a: Array, b: Array) -> Array:
    """Σ_j a_j b_j over the last axis from below; a and b broadcast."""
    terms = a * b
    n = terms.shape[-1]
    error = gamma(n) * np.abs(terms).sum(-1) + floor_of_errors(n)
    return down(terms.sum(-1) - up(error))


def dot_up(a: Array, b: Array) -> Array:
    return -dot_down(-a, b)


def sqrt_up(x: Array) -> Array:
    return up(np.sqrt(x))


def lower_float(x: arb) -> float:
    """The largest float surely below the ball x, exact where x is a float; NaN if x is unknown."""
    end = x.lower()
    value = float(end)
    return value if arb(value) <= end else math.nextafter(value, -math.inf)


def upper_float(x: arb) -> float:
    return -lower_float(-x)


def as_probability(bound: float) -> float:
    """A bound of a probability, moved to 0 or 1 where it is beyond. NaN stays NaN: max(x, 0.0) and
    max(0.0, x) differ there."""
    return 0.0 if bound < 0 else 1.0 if bound > 1 else bound


def require_ieee_arithmetic() -> None:
    """Refuse to go on where subnormals are flushed or digits lost: some libraries switch a whole
    process to that."""
    tiny, one = np.full(2, ETA), np.array([[1.0, 2.0**-52]])
    # By their bits: where subnormals are read as 0, they also compare as equal to it.
    honest = ((tiny * 1.0).view(np.int64) == 1).all() and ((tiny + tiny).view(np.int64) == 2).all()
    if not (honest and (one @ one.T)[0, 0] >= 1 and float((one @ np.ones(2))[0]) == 1 + 2.0**-52):
        raise CannotCheck(
            "arithmetic", "float64 arithmetic is not IEEE 754 here: subnormals or digits are lost"
        )

"""Exact numbers to compare with."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf
from numpy.typing import NDArray

U, ETA = 2.0**-53, 2.0**-1074


def exact(values: Any) -> list[Fraction]:
    return [Fraction(value) for value in np.asarray(values, float).ravel().tolist()]


def inner(a: Any, b: Any) -> Fraction:
    return sum((p * q for p, q in zip(exact(a), exact(b), strict=True)), Fraction(0))


def random_floats(seed: int, *shape: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


@cache
def upper_tail(z: Any) -> mpf:
    """Q(z) with 60 digits."""
    return mpmath.erfc(mpf(z) / mpmath.sqrt(2)) / 2

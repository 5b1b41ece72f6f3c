"""A-priori error of float64 arithmetic: what the prover gives away so that its bounds hold in real
arithmetic.

With u = 2^-53, a sum or dot product of n terms, in any order and with or without fused operations,
is within gamma(n) = n u / (1 - n u) times the sum of the terms' magnitudes of the exact value. Each
function here errs on the generous side; the independent checker, not this file, is the authority.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

UNIT = 2.0**-53
# Stands for every underflow error; below any number that matters, far above the subnormals.
TINY = 2.0**-1000

# Of p(1 - p): what a claim gives away beyond the rounding of its own computation.
ALLOWANCE = 2.0**-26
# Of the magnitudes that a mean is a sum of: means have no scale of their own.
MEAN_ALLOWANCE = 2.0**-42
LEAST = 2.0**-900  # of a probability worth claiming


def gamma(terms: int) -> float:
    """Relative error of a sum of `terms` products."""
    return terms * UNIT / (1 - terms * UNIT)


def allow(lower: float, upper: float) -> tuple[float, float]:
    """Certified bounds a little wider, so that a checker whose roundings differ still supports
    them; 0 and 1 stay.

    A lower bound near the underflow threshold says nothing and becomes 0.
    """
    lower = lower if lower > LEAST else 0.0
    return lower - ALLOWANCE * lower * (1 - lower), upper + ALLOWANCE * upper * (1 - upper)


def toward(value: Fraction, end: float) -> float:
    """The nearest float that does not lie on the other side of the value, seen from this infinity.

    OverflowError where the value is larger than every float.
    """
    found = float(value)
    beyond = found > value if end < 0 else found < value
    return math.nextafter(found, end) if beyond else found


def round_down(value: Tensor) -> Tensor:
    """The next float below."""
    return torch.nextafter(value, torch.full_like(value, -math.inf))


def round_up(value: Tensor) -> Tensor:
    """The next float above."""
    return torch.nextafter(value, torch.full_like(value, math.inf))

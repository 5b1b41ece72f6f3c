"""Answers from bounds: thresholds, and several regions together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from bnncert.errors import InputError


def jointly(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bounds of the probability that a network is safe on all of several regions at once, from
    those of each.

    max(0, 1 - Σ (1 - lower_i)) <= P(safe on all) <= min upper_i, however the events depend on each
    other.
    """
    if not bounds:
        return 1.0, 1.0
    exact = 1 - sum(1 - Fraction(lower) for lower, _ in bounds)
    lower = float(max(exact, Fraction(0)))
    return math.nextafter(lower, 0) if lower > exact else lower, min(upper for _, upper in bounds)


def answer(lower: float, upper: float, at_least: float | Decimal) -> str:
    """Whether P_safe >= at_least, in the words of verification competitions, which ask for a
    counterexample.

    "unsat" if lower >= at_least: it holds. "sat" if upper < at_least: it does not. Else "unknown".
    """
    # Decimals hold every float, so that a threshold typed as 0.95 is compared as 95/100.
    threshold = Decimal(at_least)
    if not (threshold.is_finite() and 0 <= threshold <= 1):
        raise InputError(f"threshold is {at_least}; give a probability from 0 to 1")
    return (
        "unsat"
        if Decimal(lower) >= threshold
        else "sat"
        if Decimal(upper) < threshold
        else "unknown"
    )

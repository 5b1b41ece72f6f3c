"""Answers from bounds: what they settle, by which status, and several regions together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Final, TypeAlias

from bnncert.errors import InputError
from bnncert.numerics.rounding import toward
from bnncert.results.rows import Status

Threshold: TypeAlias = str | float | Decimal

DIGITS = 999  # of a threshold behind the point
AT_LEAST: Final = Decimal("0.95")  # what P_safe is asked to reach, where nothing else is said

# In the words of verification competitions, which ask for a counterexample.
ANSWERS = {Status.CERTIFIED: "unsat", Status.FALSIFIED: "sat", Status.UNDECIDED: "unknown"}


def threshold(asked: Threshold) -> Decimal:
    """A probability, exactly as it was typed; of a float its shortest decimal, so that 0.95 is
    95/100.

    >>> threshold(0.95) == threshold("0.95") == Decimal(95) / 100
    True
    """
    try:
        found = Decimal(str(asked))
    except InvalidOperation:
        found = Decimal("nan")
    exponent = found.as_tuple().exponent  # a letter of what is no number
    if not (isinstance(exponent, int) and exponent >= -DIGITS and 0 <= found <= 1):
        raise InputError(
            f"threshold (at least) {str(asked)!r} is not a probability; "
            "give a number from 0 to 1, for example 0.95"
        )
    return found


def settled(lower: float, upper: float, at_least: Threshold) -> Status:
    """What certified bounds say of P_safe >= at_least.

    Certified if lower >= at_least, falsified if upper < at_least, else undecided.

    >>> settled(0.97, 1.0, 0.95), settled(0.0, 0.01, 0.95), settled(0.9, 1.0, 0.95)
    (<Status.CERTIFIED: 'certified'>, <Status.FALSIFIED: 'falsified'>, <Status.UNDECIDED: \
'undecided'>)
    """
    # Decimals hold every float, so that nothing is rounded in the comparison.
    asked = threshold(at_least)
    if Decimal(lower) >= asked:
        return Status.CERTIFIED
    return Status.FALSIFIED if Decimal(upper) < asked else Status.UNDECIDED


def status(
    label: int | None, predicted: int | None, lower: float, upper: float, at_least: Threshold
) -> Status:
    """The status of an input: misclassified where the central network is already wrong, else what
    its bounds settle."""
    return Status.MISCLASSIFIED if label != predicted else settled(lower, upper, at_least)


def jointly(bounds: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Bounds of the probability that a network is safe on all of several regions at once, from
    those of each.

    max(0, 1 - Σ (1 - lower_i)) <= P(safe on all) <= min upper_i, however the events depend on each
    other.
    """
    if not bounds:
        return 1.0, 1.0
    exact = Fraction(1) - sum(1 - Fraction(lower) for lower, _ in bounds)
    lower = toward(max(exact, Fraction(0)), -math.inf)
    return lower, min(upper for _, upper in bounds)


def answer(lower: float, upper: float, at_least: Threshold) -> str:
    """What is settled of P_safe >= at_least: "unsat" (it holds: there is no counterexample), "sat"
    (it does not) or "unknown"."""
    return ANSWERS[settled(lower, upper, at_least)]

"""Answers about several boxes together."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest

from bnncert import InputError, Status
from bnncert.results.answers import answer, jointly, settled, status, threshold


def test_bounds_of_several_boxes_together() -> None:
    """1 - Σ (1 - lower), rounded down, and the smallest upper."""
    assert jointly([(0.75, 1.0)]) == (0.75, 1.0)
    assert jointly([(0.75, 1.0), (0.5, 0.875)]) == (0.25, 0.875)
    assert jointly([(0.25, 0.5), (0.5, 0.75)]) == (0.0, 0.5)
    choose = random.Random(0)
    for count in range(1, 40):
        lowers = [1 - 10 ** choose.uniform(-18, -2) for _ in range(count)]
        exact = 1 - sum(1 - Fraction(lower) for lower in lowers)
        lower, _ = jointly([(lower, 1.0) for lower in lowers])
        assert Fraction(lower) <= exact < Fraction(math.nextafter(lower, 2))


def test_answers() -> None:
    """A word of competitions for every status that bounds can settle."""
    found = [(0.5, 1), (0.4, 0.49), (0.4, 0.5), (0, 1)]
    assert [answer(*bounds, 0.5) for bounds in found] == ["unsat", "sat", "unknown", "unknown"]


def test_what_bounds_settle() -> None:
    """Ends at the threshold: >= certifies, < falsifies; a threshold of 0 holds of everything."""
    assert settled(0.5, 1, 0.5) == Status.CERTIFIED
    assert settled(0.4, math.nextafter(0.5, 0), 0.5) == Status.FALSIFIED
    assert settled(0.4, 0.5, 0.5) == Status.UNDECIDED
    assert settled(0, 1, 0) == Status.CERTIFIED
    assert settled(0.99, 1, 1) == Status.UNDECIDED
    assert status(3, 5, 0.99, 1.0, 0.95) == Status.MISCLASSIFIED
    assert status(None, None, 0.0, 0.01, 0.95) == Status.FALSIFIED


def test_thresholds_are_decimals() -> None:
    """As they were typed: the float 0.95 is less than 95/100."""
    assert threshold(0.95) == Decimal("0.95")
    assert settled(0.95, 1, "0.95") == settled(0.95, 1, 0.95) == Status.UNDECIDED
    assert settled(math.nextafter(0.95, 1), 1, 0.95) == Status.CERTIFIED
    assert settled(0, 1, "1e-999") == Status.UNDECIDED
    for wrong in (-0.1, 1.1, math.nan, math.inf, "1e-1000", "a half", ""):
        with pytest.raises(InputError, match="threshold"):
            threshold(wrong)

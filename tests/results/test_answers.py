"""Answers about several boxes together."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from bnncert import InputError
from bnncert.results.answers import answer, jointly


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
    """Thresholds are the decimals that were typed: the float 0.95 is less than 95/100."""
    from decimal import Decimal

    assert [
        answer(lower, upper, 0.5) for lower, upper in ((0.5, 1), (0.4, 0.49), (0.4, 0.5), (0, 1))
    ] == [
        "unsat",
        "sat",
        "unknown",
        "unknown",
    ]
    assert answer(0.95, 1, 0.95) == "unsat"
    assert answer(0.95, 1, Decimal("0.95")) == "unknown"
    assert answer(0, 1, Decimal("1e-999999")) == "unknown"
    for wrong in (-0.1, 1.1, math.nan, math.inf):
        with pytest.raises(InputError, match="threshold"):
            answer(0, 1, wrong)

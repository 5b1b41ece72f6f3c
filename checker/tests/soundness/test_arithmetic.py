"""Sums, products, floats of balls and tails are never on the wrong side."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from flint import arb
from mpmath import mpf

from bnncert_check import arithmetic as ar
from bnncert_check.tails import expected_magnitude, normal_tails_down, normal_tails_up
from bnncert_check.weighted import Dense as Linear
from bnncert_check.weighted import pull_error, pull_up
from soundness.forging import ETA, Array, Random, trap_vectors


@pytest.mark.parametrize(
    "kind", ["plain", "wild", "cancelling", "subnormal", "underflowing", "zero"]
)
def test_sums_and_products_are_never_on_the_wrong_side(kind: str) -> None:
    """Strictly: a row of exactly 0 must come out negative. And within 4γ and 16 (n + 16) η of the
    truth."""
    rng = np.random.default_rng(7)
    for _ in range(60):
        a, b = trap_vectors(kind, rng)
        terms = [Fraction(x) * Fraction(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        exact, size = sum(terms), sum(map(abs, terms))
        slack = 4 * Fraction(ar.gamma(len(a))) * size + 16 * (len(a) + 16) * Fraction(ETA)
        low, high = (Fraction(float(f(a, b))) for f in (ar.dot_down, ar.dot_up))
        assert exact - slack <= low < exact < high <= exact + slack
        magnitudes = np.abs(b)[None], np.abs(a)[None]
        layer = Linear(
            0, len(b), True, 0
        )  # one row of weights: its transposed map is the dot product
        assert size < Fraction(float(pull_up(layer, *magnitudes)[0, 0])) <= size + slack
        naive = Fraction(float((a[None] @ b[:, None])[0, 0]))
        assert abs(naive - exact) < Fraction(float(pull_error(layer, *magnitudes)[0, 0])) <= slack


def test_gamma_pays_for_sixteen_more_roundings() -> None:
    for share in (Fraction(n + 16) / 2**53 for n in (0, 1, 2, 100, 10**4, 10**7)):
        exact = share / (1 - share)
        assert (
            exact <= Fraction(ar.gamma(int(share * 2**53) - 16)) <= exact * (1 + Fraction(2) ** -46)
        )


def test_floats_of_balls_are_exact_or_neighbours() -> None:
    largest = 1.7976931348623157e308
    for value in [0.0, -0.0, 1.0, -1.5, ETA, -ETA, 3 * ETA, 2.0**-1022, largest, 0.1, -1e-310]:
        assert ar.lower_float(arb(value)) == value == ar.upper_float(arb(value))
        assert Fraction(float(ar.sqrt_up(np.array(abs(value))))) ** 2 >= abs(Fraction(value))
    tiny, huge = arb(10) ** -400, arb(10) ** 400
    assert [f(end) for end in (tiny, -tiny) for f in (ar.lower_float, ar.upper_float)] == [
        0.0,
        ETA,
        -ETA,
        0.0,
    ]
    assert (ar.lower_float(huge), ar.upper_float(huge)) == (largest, math.inf)
    assert math.isnan(ar.lower_float(arb("nan")))
    for numerator, denominator in product((1, -1, 2, 5, 10**30), (3, 7, 11, 3 * 10**320)):
        low, high = (f(arb(numerator) / arb(denominator)) for f in (ar.lower_float, ar.upper_float))
        assert Fraction(low) < Fraction(numerator, denominator) < Fraction(high)
        assert math.nextafter(low, math.inf) == high


def places(rng: Random, last: float) -> Array:
    """At the table's nodes, between them, halfway, about its end and beyond."""
    nodes = rng.integers(0, 12 * 1024, 60) / 1024
    far = [0, 1e-300, 1e-8, 11.99999, 12, math.nextafter(12, 13), 1e9]
    return np.concatenate(
        [nodes, nodes + 2.0**-11, 12 * rng.random(100), 12 + (last - 12) * rng.random(20), far]
    )


def test_expected_magnitude_is_never_below_the_truth() -> None:
    """Its excess is below 1e-13 s and 4 ulp of a."""
    rng = np.random.default_rng(2)
    for s in (1.0, 0.3, 1e-9, 1e-160, 2.0**-1060, ETA, 1e140):
        a = rng.choice([-1, 1]) * places(rng, 50) * s
        for mean, found in zip(
            a.tolist(), expected_magnitude(a, np.full_like(a, s)).tolist(), strict=True
        ):
            z = mpf(mean) / mpf(s)
            density = mpmath.exp(-(z**2) / 2) * mpmath.sqrt(2 / mpmath.pi)
            truth = mpf(s) * density + mpf(mean) * mpmath.erf(z / mpmath.sqrt(2))
            assert truth <= found <= truth + 1e-13 * s + 2.0**-51 * abs(mean) + 4 * ETA, (mean, s)


def test_tails_from_the_table_enclose_the_truth() -> None:
    rng = np.random.default_rng(11)
    z = np.concatenate([places(rng, 40), 11 + rng.random(3000)])  # where the series loses most
    for at, low, high in zip(
        z.tolist(), normal_tails_down(z).tolist(), normal_tails_up(z).tolist(), strict=True
    ):
        truth = mpmath.erfc(mpf(at) / mpmath.sqrt(2)) / 2
        assert low <= truth <= high
        assert at > 12 or high - low <= 2.0**-46 * truth

"""Masses where arithmetic ends: infinite ends, underflow, overflow, points, narrow supports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mpf

from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.posteriors.independent import (
    DOWN,
    UP,
    Independent,
    Laplace,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)
from masses import (
    INF,
    assert_bracketed,
    deterministic,
    every_family,
    exact_log,
    interval,
    make,
    shaped,
)
from scenarios import vector

# ---- infinite ends, underflow, overflow ----------------------------------------------------------


@every_family
def test_the_whole_line_has_mass_one(family: str) -> None:
    """Infinite ends give log mass 0 between DOWN and UP, with nothing worth naming lost."""
    posterior = make(family, 2)
    box = Box(vector(-INF, -INF), vector(INF, INF))
    assert_bracketed(posterior, box, mpf(0))
    assert float(posterior.log_mass(box)) >= -1e-100


@every_family
@pytest.mark.parametrize("end", [-INF, INF])
def test_a_box_at_infinity_has_no_mass(family: str, end: float) -> None:
    """[inf, inf] is a legal box that no finite weight is in."""
    assert float(make(family, 1).log_mass(interval(end, end))) == -INF


@pytest.mark.parametrize("shape", ["symmetric", "right", "left", "right tail", "left tail"])
def test_normal_tails_that_underflow_are_bracketed(shape: str) -> None:
    """Q(z) is subnormal from z = 37.5 and 0 from 38.6 on: few or no digits, but still a bound."""
    posterior = Normal(vector(0.0), vector(1.0))
    for z in (37.6, 37.8, 38.0, 38.2, 38.4, 38.6, 39.0):
        box = shaped(0.0, 1.0, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("shape", ["symmetric", "right", "left", "right tail", "left tail"])
def test_laplace_tails_that_underflow_are_bracketed(shape: str) -> None:
    """exp(-z) is subnormal from z = 708 and 0 from 746 on."""
    posterior = Laplace(vector(0.0), vector(1.0))
    for z in (700.0, 715.0, 740.0, 744.0, 750.0):
        box = shaped(0.0, 1.0, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
def test_arguments_that_underflow_are_bracketed(kind: type[Independent]) -> None:
    """A box of width 1e-20 under a scale of 1e+300: z is subnormal."""
    try:
        posterior = kind(vector(0.0), vector(1e300))
    except InputError:
        return
    for box in (
        interval(-3e-21, 7e-21),
        interval(3e-21, 7e-21),
        interval(3e-21, INF),
        interval(0.0, 1e-30),
    ):
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=700))


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
@pytest.mark.parametrize(
    ("lower", "upper"), [(-1.7e308, 1.7e308), (-1.7e308, 1e308), (-1.7e308, -1.2e308)]
)
def test_distances_that_overflow_are_bracketed(
    kind: type[Independent], lower: float, upper: float
) -> None:
    """l - mean = -2.7e308 is no float, but only 2.7 σ: taking it for -inf would forget a tail. Or
    it is refused."""
    try:
        posterior = kind(vector(1e308), vector(1e308))
    except InputError:
        return
    box = interval(lower, upper)
    assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.7e308), (-1e308, 1e308), (0.0, 1.0)])
def test_a_uniform_width_that_overflows_is_bracketed(lower: float, upper: float) -> None:
    """high - low = 3.4e308 is no float: half the support must not count as all of it. Or it is
    refused."""
    try:
        posterior = Uniform(vector(-1.7e308), vector(1.7e308))
    except InputError:
        return
    box = interval(lower, upper)
    assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("df", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("z", [1e3, 1e5, 1e6, 1e7, 1e8, 1e9, 1e12])
def test_student_half_lines_are_bracketed(z: float, df: float) -> None:
    """P(0 < T < z) for large z: the tail that is missing from 1/2 is far above the rounding of
    z²/(df + z²)."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for box in (interval(0.0, z), interval(-z, 0.0), interval(-z, z), interval(z, 3 * z)):
        assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("df", [1.0, 3.0])
@pytest.mark.parametrize("end", [1e140, 1e160, 1e300, INF])
def test_student_ends_whose_square_overflows_are_bracketed(end: float, df: float) -> None:
    """z² is no float beyond 1e154, and the tail there is still positive."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for box in (interval(-end, end), interval(0.0, end), interval(1e120, end)):
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=700))


@pytest.mark.parametrize("df", [1e3, 1e5, 1e6, 1e8, 1e10])
def test_student_with_many_degrees_of_freedom_is_bracketed(df: float) -> None:
    """df/(df + z²) is near 1 and keeps few digits of z²: the bounds must not depend on them."""
    posterior = StudentT(vector(0.0), vector(1.0), vector(df))
    for z in np.random.default_rng(29).uniform(0.3, 7, size=20).tolist():
        for box in (interval(-z, z), interval(z, z + 1)):
            assert_bracketed(posterior, box, exact_log(posterior, box))


# ---- degenerate weights and boxes ----------------------------------------------------------------


@deterministic
@pytest.mark.parametrize("ends", [(1.0, 2.0), (1.25, 2.0), (1.0, 1.25), (1.25, 1.25)])
def test_a_deterministic_weight_inside_or_touching_counts_one(
    posterior: Independent, ends: tuple[float, float]
) -> None:
    """Spread 0: the box is closed, so a face through the weight holds it; the mass is the other
    weight's."""
    box = Box(vector(ends[0], -0.4), vector(ends[1], 0.7))
    assert float(posterior.log_masses(box)[0]) == 0.0
    assert_bracketed(posterior, box, exact_log(posterior, box))
    assert float(posterior.log_mass(box)) > -INF


@deterministic
@pytest.mark.parametrize(
    "ends",
    [(math.nextafter(1.25, 2.0), 2.0), (0.0, math.nextafter(1.25, 0.0)), (-INF, 1.0), (3.0, INF)],
)
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_a_deterministic_weight_outside_counts_zero(
    posterior: Independent, ends: tuple[float, float], direction: int
) -> None:
    """One ulp outside is outside, whatever the direction of rounding."""
    assert (
        float(posterior.log_mass(Box(vector(ends[0], -0.4), vector(ends[1], 0.7)), direction))
        == -INF
    )


def test_nothing_random_has_mass_exactly_one() -> None:
    """All spreads 0 and all weights inside: log mass 0 in both directions."""
    posterior = Normal(vector(0.0, 1.0), vector(0.0, 0.0))
    box = Box(vector(0.0, 0.0), vector(0.0, 2.0))
    assert float(posterior.log_mass(box)) == float(posterior.log_mass(box, UP)) == 0.0


@every_family
@pytest.mark.parametrize("offset", [0.0, 0.1, -0.3])
def test_a_point_has_no_mass_where_nothing_is_deterministic(family: str, offset: float) -> None:
    """l = u: exactly 0 rounded down, and at most rounding noise rounded up."""
    posterior = make(family, 1)
    point = Box.point(posterior.center + offset * posterior.spread)
    assert float(posterior.log_mass(point)) == -INF
    assert float(posterior.log_mass(point, UP)) <= math.log(1e-9)


@pytest.mark.parametrize("kind", [Normal, Laplace], ids=lambda kind: kind.family)
@pytest.mark.parametrize("mean", [0.0, 1.0, -1e100])
def test_subnormal_spread_is_neither_zero_nor_an_error(
    kind: type[Independent], mean: float
) -> None:
    """σ = 5e-324: all mass near the mean, none off it, and half on each side of it."""
    posterior = kind(vector(mean), vector(5e-324))
    above, below = math.nextafter(mean, INF), math.nextafter(mean, -INF)
    assert (
        -1e-300
        <= float(posterior.log_mass(interval(mean - 1 - abs(mean), mean + 1 + abs(mean))))
        <= 0
    )
    assert float(posterior.log_mass(interval(mean, mean))) == -INF
    assert float(posterior.log_mass(interval(mean, INF))) == pytest.approx(math.log(0.5), rel=1e-12)
    for box in (
        interval(below, above),
        interval(above, above + 1 + abs(mean)),
        interval(below, mean),
    ):
        assert_bracketed(posterior, box, exact_log(posterior, box))


def test_a_uniform_of_subnormal_width_is_no_point_mass() -> None:
    """[0, 5e-324] is not an atom: {0} has no mass in it. Or it is refused."""
    try:
        posterior = Uniform(vector(0.0), vector(5e-324))
    except InputError:
        return
    assert_bracketed(posterior, interval(0.0, 0.0), -mpf(INF))
    assert_bracketed(posterior, interval(0.0, 5e-324), mpf(0))


# ---- truncation and bounded support --------------------------------------------------------------


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
@pytest.mark.parametrize("margin", [0.0, 1e-9, 5.0, INF])
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_the_whole_support_has_mass_exactly_one(family: str, margin: float, direction: int) -> None:
    """A box that holds [low, high] loses nothing to rounding."""
    posterior = make(family, 5)
    assert (
        float(posterior.log_mass(Box(posterior.low - margin, posterior.high + margin), direction))
        == 0.0
    )


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
@pytest.mark.parametrize("direction", [DOWN, UP])
def test_outside_the_support_there_is_no_mass(family: str, direction: int) -> None:
    """Beyond either end by one ulp: -inf, whatever the direction."""
    posterior = make(family, 1)
    low, high = float(posterior.low), float(posterior.high)
    for box in (
        interval(math.nextafter(high, INF), high + 1),
        interval(low - 1, math.nextafter(low, -INF)),
    ):
        assert float(posterior.log_mass(box, direction)) == -INF


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_touching_the_support_has_no_mass(family: str) -> None:
    """A face in common is a point, and a point has no mass."""
    posterior = make(family, 1)
    low, high = float(posterior.low), float(posterior.high)
    assert float(posterior.log_mass(interval(high, high + 1))) == -INF
    assert float(posterior.log_mass(interval(low - 1, low))) == -INF


@pytest.mark.parametrize(
    ("low", "high"), [(5.0, 6.0), (30.0, 31.0), (-31.0, -30.0), (36.0, 37.0), (-37.0, -30.0)]
)
def test_far_tail_truncation_is_bracketed(low: float, high: float) -> None:
    """Conditioning on a far tail: a ratio of two tiny masses, each rounded against the claim."""
    posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))
    for start, end in [
        (0.0, 0.01),
        (0.0, 0.5),
        (0.3, 0.4),
        (0.9, 1.0),
        (1e-9, 1.0),
        (0.0, 1 - 1e-9),
    ]:
        box = interval(low + start * (high - low), low + end * (high - low))
        assert_bracketed(posterior, box, exact_log(posterior, box))


def test_slivers_cut_from_the_support_are_bracketed() -> None:
    """Nearly the whole support: the ratio is so near 1 that roundings in the same direction would
    show."""
    rng = np.random.default_rng(37)
    for _ in range(100):
        low, high = np.sort(rng.normal(0, 2, 2)).tolist()
        posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(low), vector(high))
        for cut in (10 ** rng.uniform(-15, -5, 2) * (high - low)).tolist():
            for box in (interval(low + cut, high), interval(low, high - cut)):
                assert_bracketed(posterior, box, exact_log(posterior, box))


@pytest.mark.parametrize("width", [1e-5, 1e-50, 1e-150, 1e-200, 1e-250, 1e-300])
def test_narrow_truncation_is_bracketed(width: float) -> None:
    """A support far narrower than σ: both log masses are large, their difference is not."""
    posterior = TruncatedNormal(vector(0.0), vector(1.0), vector(-width), vector(width))
    for fraction in np.random.default_rng(31).uniform(-0.9, 0.99, size=40).tolist():
        box = interval(-width * fraction, width)
        assert_bracketed(posterior, box, exact_log(posterior, box, digits=400))

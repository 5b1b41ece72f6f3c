"""Relaxations: both lines and the range against exact arithmetic, on intervals of every kind."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import pytest
import torch

from bnncert.bounds.relaxations import Relaxation, image, relax, smooth_intercept
from bnncert.layers import Hardtanh, LeakyReLU, PReLU, ReLU, Sigmoid, Tanh
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from curves import curve
from scenarios import CURVES, EVERY, KINKED, PIECEWISE_LINEAR, uniform, vector

TINY, SUBNORMAL, NEXT = 1e-300, 5e-324, math.nextafter(1.0, 2.0)
SPECIAL = [
    *[
        (z, z)
        for z in (
            0.0,
            -0.0,
            1.0,
            -1.0,
            20.0,
            -20.0,
            TINY,
            -TINY,
            SUBNORMAL,
            -SUBNORMAL,
            1e300,
            -1e300,
        )
    ],
    *[
        (0.0, 1.0),
        (-0.0, 1.0),
        (-1.0, 0.0),
        (-1.0, -0.0),
        (-0.0, 0.0),
        (0.0, SUBNORMAL),
        (-SUBNORMAL, 0.0),
    ],
    *[
        (-TINY, TINY),
        (-SUBNORMAL, SUBNORMAL),
        (1.0, NEXT),
        (-NEXT, -1.0),
        (-TINY, 1.0),
        (-1.0, TINY),
    ],
    *[
        (-1.0, 1.0),
        (-1.0, 3.0),
        (-3.0, 1.0),
        (0.5, 2.0),
        (-2.0, -0.5),
        (-1e-9, 1e-9),
        (-1e-20, 1.0),
        (-1.0, 1e-20),
    ],
    *[
        (-40.0, 0.1),
        (-0.1, 40.0),
        (-300.0, 300.0),
        (-1e300, 1e300),
        (-1e300, 1.0),
        (-1.0, 1e300),
        (1e299, 1e300),
    ],
    *[
        (18.0, 19.0),
        (-19.0, 20.0),
        (299.0, 301.0),
        (-1.0, 1e6),
        (-1e6, 1.0),
        (-1.0, 1e17),
        (-1e17, 1e17),
    ],
]


def random_intervals(count: int) -> Iterator[tuple[float, float]]:
    """Ends of either sign whose sizes differ by up to 2^60."""
    choose = random.Random(0)
    for _ in range(count):
        ends = [choose.uniform(-1, 1) * 2.0 ** choose.randint(-57, 4) for _ in range(2)]
        yield min(ends), max(ends)


INTERVALS = SPECIAL + list(random_intervals(250))
BOX = Box(*(vector(*ends) for ends in zip(*INTERVALS, strict=True)))


def grid(l: float, u: float) -> list[float]:
    """Ends and their neighbours, the kink, and points between, all floats of the interval."""
    points = [
        l,
        u,
        math.nextafter(l, math.inf),
        math.nextafter(u, -math.inf),
        *(0.0, 0.5 * l, 0.5 * u),
        *(-3.0, -1.5, -1.19, -1.0, -0.75, 0.5, 1.0, 2.0, 3.0, 6.0),
    ]
    points += [l + (u / 16 - l / 16) * i for i in range(1, 16)]
    return sorted({z for z in points if l <= z <= u})


def exact(activation: Activation, z: float) -> Fraction | mpmath.mpf:
    """f(z): rational for a piecewise linear activation, to the working precision otherwise."""
    match activation:
        case ReLU():
            return max(Fraction(z), Fraction(0))
        case LeakyReLU(slope=slope):
            return max(Fraction(z), Fraction(slope) * Fraction(z))
        case Tanh():
            return mpmath.tanh(mpmath.mpf(z))
        case Sigmoid():
            return 1 / (1 + mpmath.exp(-mpmath.mpf(z)))
        case Hardtanh(low=low, high=high):
            return min(max(Fraction(z), Fraction(low)), Fraction(high))
        case PReLU(slopes=(slope,)):
            return Fraction(z) * (1 if z >= 0 else Fraction(slope))
        case _:
            return curve(activation)(mpmath.mpf(z))


def lines(relaxation: Relaxation) -> list[tuple[float, float, float, float]]:
    """(lower slope, lower intercept, upper slope, upper intercept) of each interval."""
    columns = (
        relaxation.lower_slope,
        relaxation.lower_intercept,
        relaxation.upper_slope,
        relaxation.upper_intercept,
    )
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("activation", EVERY, ids=str)
def test_no_line_crosses_its_activation(activation: Activation) -> None:
    """lower line <= f <= upper line in exact arithmetic (60 digits for tanh and sigmoid), with no
    tolerance."""
    number = Fraction if activation in (*PIECEWISE_LINEAR, *KINKED) else mpmath.mpf
    wrong = []
    with mpmath.workdps(60):
        for (l, u), found in zip(INTERVALS, lines(relax(activation, BOX)), strict=True):
            a, b, c, d = (number(value) for value in found)
            for z in grid(l, u):
                f, x = exact(activation, z), number(z)
                if not (a * x + b <= f <= c * x + d):
                    wrong.append((l, u, z))
    assert not wrong, f"{len(wrong)} points, the first: {wrong[0]}"


@pytest.mark.parametrize("activation", [*EVERY, PReLU((1000.0,))], ids=str)
def test_no_line_is_steeper_than_its_activation(activation: Activation) -> None:
    """Not by a rounding either: evidence with such slopes is refused."""
    generator = torch.Generator().manual_seed(0)
    center, size, width = uniform(3, 100_000, generator=generator)
    lower = (2 * center - 1) * 10 ** (6 * size - 4)
    upper = lower + lower.abs() * 10 ** (22 * width - 18)
    found = relax(activation, Box(lower.unsqueeze(0), upper.unsqueeze(0)))
    least, most = activation.traits.slopes
    for slopes in (found.lower_slope, found.upper_slope):
        assert bool(((slopes >= least) & (slopes <= most)).all())


@pytest.mark.parametrize("activation", EVERY, ids=str)
def test_the_range_is_covered(activation: Activation) -> None:
    """f(l), f(u) and the least value between them, if f is not monotone, lie in the image; it is
    wider by rounding only."""
    found = image(activation, BOX)
    valley = activation.traits.valley
    with mpmath.workdps(60):
        for (l, u), low, high in zip(
            INTERVALS, found.lower.tolist(), found.upper.tolist(), strict=True
        ):
            values = [exact(activation, z) for z in (l, u)]
            if valley is not None and l <= valley[0] <= u:
                values.append(exact(activation, valley[0]))
            bottom, top = min(values), max(values)
            kind = type(bottom)
            assert kind(low) <= bottom
            assert top <= kind(high)
            slack = 1e-14 * max(abs(low), abs(high)) + 1e-299
            if activation in CURVES:  # far below 0, where exponentials lose digits
                lost = min(abs(activation.turns.rate * l), 50) ** 2
                slack = 1e-14 * max(abs(low), abs(high)) * (1 + lost) + 1e-299
            assert float(bottom) - low <= slack
            assert high - float(top) <= slack


@pytest.mark.parametrize("activation", EVERY, ids=str)
@pytest.mark.parametrize("z", [-5.0, -1e-9, 0.0, 1e-9, 0.3, 5.0])
def test_a_point_is_no_relaxation(activation: Activation, z: float) -> None:
    """On a degenerate interval both lines pass through the activation."""
    (a, b, c, d) = lines(relax(activation, Box.point(vector(z))))[0]
    value = float(activation(vector(z)))
    assert a * z + b == pytest.approx(value, rel=1e-13, abs=1e-13)
    assert c * z + d == pytest.approx(value, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("activation", EVERY, ids=str)
@pytest.mark.parametrize(
    "ends", [(-1.0, 3.0), (-3.0, 1.0), (-2.0, 2.0), (0.5, 2.0), (-2.0, -0.5), (-0.1, 4.0)]
)
def test_lines_touch_the_activation(activation: Activation, ends: tuple[float, float]) -> None:
    """Neither line could be moved closer: each meets f somewhere on the interval."""
    (a, b, c, d) = lines(relax(activation, Box(vector(ends[0]), vector(ends[1]))))[0]
    kinks = vector(0.0, *activation.traits.kinks).clamp(*ends)
    z = torch.cat([torch.linspace(*ends, 20001, dtype=torch.float64), kinks])
    assert float((activation(z) - (a * z + b)).min()) == pytest.approx(0.0, abs=1e-6)
    assert float((c * z + d - activation(z)).min()) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((-1.0, 3.0), (1.0, 0.0, 0.75, 0.75)),
        ((-3.0, 1.0), (0.0, 0.0, 0.25, 0.75)),
        ((-1.0, 1.0), (0.0, 0.0, 0.5, 0.5)),
        ((0.0, 2.0), (1.0, 0.0, 1.0, 0.0)),
        ((1.0, 2.0), (1.0, 0.0, 1.0, 0.0)),
        ((-2.0, 0.0), (0.0, 0.0, 0.0, 0.0)),
        ((-2.0, -1.0), (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_relu_by_hand(
    ends: tuple[float, float], expected: tuple[float, float, float, float]
) -> None:
    """Below: slope 1 if u > -l, else 0. Above: the chord, exact where the neuron is stable."""
    found = lines(relax(ReLU(), Box(vector(ends[0]), vector(ends[1]))))[0]
    assert found == pytest.approx(expected, rel=1e-14, abs=0)


def test_leaky_relu_by_hand() -> None:
    """Slope 1/4 on [-4, 4]: the chord from (-4, -1) to (4, 4) is 5/8 z + 3/2."""
    found = lines(relax(LeakyReLU(0.25), Box(vector(-4.0), vector(4.0))))[0]
    assert found == pytest.approx((0.25, 0.0, 0.625, 1.5), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("slope", [0.01, 0.3, 1 / 3])
def test_a_leaky_slope_keeps_its_digits(dtype: torch.dtype, slope: float) -> None:
    """Whatever torch's default dtype, the stable lines have the slope that was given, as
    float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        found = relax(LeakyReLU(slope), Box(vector(-2.0, -3.0), vector(-1.0, 1.0)))
        values = LeakyReLU(slope)(vector(-1.0))
    finally:
        torch.set_default_dtype(before)
    assert found.lower_slope.tolist() == [slope, slope]
    assert found.upper_slope[0].item() == slope
    assert values.item() == -slope
    parts = (found.lower_slope, found.lower_intercept, found.upper_slope, found.upper_intercept)
    assert {part.dtype for part in parts} == {torch.float64}


def test_tanh_intercept_holds_for_any_slope() -> None:
    """The intercept alone carries the soundness: slopes from 0 to 1, and on either side of both
    tangents."""
    slopes = [0.0, 1e-320, 1e-20, 1e-9, 0.1, 0.42, 0.9, 1 - 1e-9, 1 - 2.0**-53, 1.0]
    ends = [
        (-3.0, 2.0),
        (-1e-5, 1e-5),
        (-30.0, 25.0),
        (1.0, 2.0),
        (-2.0, -1.0),
        (0.0, 0.0),
        (-500.0, 1.0),
        (-1e17, 1e17),
    ]
    with mpmath.workdps(60):
        for l, u in ends:
            found = smooth_intercept(
                Tanh(), vector(*slopes), vector(*[l] * len(slopes)), vector(*[u] * len(slopes))
            )
            for slope, intercept in zip(slopes, found.tolist(), strict=True):
                for i in range(101):
                    z = mpmath.mpf(l) + (mpmath.mpf(u) - mpmath.mpf(l)) * i / 100
                    assert mpmath.mpf(slope) * z + mpmath.mpf(intercept) <= mpmath.tanh(z)


@pytest.mark.parametrize("activation", EVERY, ids=str)
def test_an_interval_without_end_is_never_bounded_by_accident(activation: Activation) -> None:
    """With an infinite end a line or a range is NaN, infinite or true: it never excludes a value of
    f."""
    for l, u in [(-math.inf, 1.0), (-1.0, math.inf), (-math.inf, math.inf), (math.inf, math.inf)]:
        (a, b, c, d) = lines(relax(activation, Box(vector(l), vector(u))))[0]
        for z in (-1e300, -1.0, 0.0, 1.0, 1e300):
            if l <= z <= u:
                value = float(activation(vector(z)))
                assert not a * z + b > value + 1e-12 * abs(value)
                assert not c * z + d < value - 1e-12 * abs(value)

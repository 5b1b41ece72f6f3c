"""Curves: values, slopes and turns by mpmath, the allowance for their rounding, and lines that are
as close as lines of any slope."""

from __future__ import annotations

import math
from itertools import pairwise

import mpmath
import pytest
import torch
from torch import Tensor

from bnncert.bounds.curves import Facing, lost, lower_intercept
from bnncert.bounds.relaxations import image, relax
from bnncert.errors import InputError
from bnncert.layers import ELU, GELU, Hardtanh, PReLU, Softplus
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.model.curves import Curve
from curves import curve
from scenarios import CURVES, KINKED, gaussian, uniform, vector


def dense() -> Tensor:
    """Points of every size and sign, more of them where exponentials lose digits."""
    generator = torch.Generator().manual_seed(0)
    parts = [
        -37 * uniform(400, generator=generator) ** 2,
        15 * uniform(200, generator=generator),
        1e-3 * gaussian(100, generator=generator),
        vector(0.0, -0.0, 3.0, -3.0, 1e-300, -1e-300, 5e-324, -5e-324, 700.0, -700.0, -745.0),
        vector(1e10, -1e10, 1e300, -1e300),
    ]
    return torch.cat(parts)


def intervals(count: int) -> Box:
    generator = torch.Generator().manual_seed(1)
    center = 3 * gaussian(count, generator=generator)
    radius = 8 * uniform(count, generator=generator) ** 3
    return Box(center - radius, center + radius)


@pytest.mark.parametrize("activation", CURVES, ids=str)
def test_values_are_within_a_quarter_of_what_is_allowed(activation: Curve) -> None:
    z = dense()
    value = activation(z)
    allowed = lost(activation, z, value)
    true = curve(activation)
    with mpmath.workdps(60):
        for at, f, most in zip(z.tolist(), value.tolist(), allowed.tolist(), strict=True):
            assert abs(f - true(mpmath.mpf(at))) <= mpmath.mpf(most) / 4, at


@pytest.mark.parametrize("activation", CURVES, ids=str)
def test_slopes_are_those_of_the_values(activation: Curve) -> None:
    z = torch.cat([torch.linspace(-12, 12, 241).double() + 0.01, vector(50.0, -50.0)])
    true = curve(activation)
    least, largest = activation.traits.slopes
    with mpmath.workdps(40):
        for at, slope in zip(z.tolist(), activation.slope(z).tolist(), strict=True):
            assert abs(mpmath.diff(true, mpmath.mpf(at)) - slope) <= 8 * 2.0**-53 * largest
            assert least <= slope <= largest


@pytest.mark.parametrize("activation", CURVES, ids=str)
def test_slopes_rise_where_a_curve_is_convex_and_fall_where_it_is_concave(
    activation: Curve,
) -> None:
    turns = activation.turns
    ends = [-30.0, *turns.places, 30.0]
    for left, right, bend in zip(ends, ends[1:], turns.bends, strict=False):
        z = torch.linspace(left, right, 4001, dtype=torch.float64)[1:-1]
        change = activation.slope(z).diff()
        assert bool((bend * change >= -(2.0**-50)).all()) if bend else bool((change == 0).all())


@pytest.mark.parametrize("activation", CURVES, ids=str)
def test_turns_are_where_the_second_derivative_changes_its_sign(activation: Curve) -> None:
    true = curve(activation)
    turns = activation.turns
    with mpmath.workdps(60):
        for place, left, right in zip(turns.places, turns.bends, turns.bends[1:], strict=False):
            gap = mpmath.mpf(2) ** -50 * max(abs(place), 1)
            for side, bend in ((-1, left), (1, right)):
                z = mpmath.mpf(place) + side * gap
                second = mpmath.diff(true, z, 2, h=mpmath.mpf(10) ** -20)
                assert mpmath.sign(second) == bend or (bend == 0 and abs(second) < 1e-12)


@pytest.mark.parametrize("activation", CURVES, ids=str)
def test_the_valley_is_where_a_curve_is_least(activation: Curve) -> None:
    true = curve(activation)
    valley = activation.traits.valley
    z = torch.linspace(-40, 40, 20001, dtype=torch.float64)
    if valley is None:
        assert bool((activation(z).diff() >= 0).all())
        return
    place, least = valley
    with mpmath.workdps(40):
        assert 0 <= true(mpmath.mpf(place)) - least <= 2.0**-52
        assert abs(mpmath.diff(true, mpmath.mpf(place))) <= 2.0**-52
    change = activation(z).diff()
    assert bool((change[z[1:] < place] <= 0).all())
    assert bool((change[z[:-1] > place] >= 0).all())


@pytest.mark.parametrize("activation", CURVES, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_intercepts_hold_for_any_slope(activation: Curve, sign: int) -> None:
    """Also for slopes that no point of f has, on intervals of every size."""
    slopes = [-2.0, -0.5, -0.1, -1e-9, 0.0, 1e-300, 1e-20, 0.1, 0.5, 1.0, 1.0 + 1e-9, 1.1, 3.0]
    ends = [(-3.0, 2.0), (-1e-5, 1e-5), (-30.0, 25.0), (1.0, 2.0), (-2.0, -1.0), (0.0, 0.0)]
    ends += [(-500.0, 1.0), (-1e17, 1e17), (-0.76, -0.75), (1.41421, 1.41422), (-3.0, 3.0)]
    facing, true = Facing(activation, sign), curve(activation)
    with mpmath.workdps(40):
        for l, u in ends:
            like = torch.ones(len(slopes), dtype=torch.float64)
            found = lower_intercept(facing, vector(*slopes), l * like, u * like)
            for i in range(41):
                z = mpmath.mpf(l) + (mpmath.mpf(u) - mpmath.mpf(l)) * i / 40
                f = sign * true(z)
                for slope, intercept in zip(slopes, found.tolist(), strict=True):
                    assert mpmath.mpf(slope) * z + mpmath.mpf(intercept) <= f, (l, u, slope)


@pytest.mark.parametrize("activation", [*CURVES, *KINKED], ids=str)
def test_no_slope_has_a_line_that_is_closer_in_the_middle(activation: Activation) -> None:
    """But for 3 % of the range, over slopes and points of a grid."""
    box = intervals(300)
    middle = box.lower / 2 + box.upper / 2
    found = relax(activation, box)
    below = found.lower_slope * middle + found.lower_intercept
    above = found.upper_slope * middle + found.upper_intercept
    share = torch.linspace(0, 1, 201, dtype=torch.float64)
    z = box.lower[:, None] + (box.upper - box.lower)[:, None] * share
    f = activation(z)
    kinks = [torch.full_like(z[:, :1], k) for k in activation.traits.kinks]
    kinks = [kink.clamp(box.lower[:, None], box.upper[:, None]) for kink in kinks]
    z = torch.cat([z, *kinks], 1)
    f = activation(z)
    least, largest = activation.traits.slopes
    size = f.amax(1) - f.amin(1) + 1e-12
    for slope in torch.linspace(least, largest, 201).tolist():
        g = f - slope * z
        assert bool((slope * middle + g.amin(1) - below <= 0.03 * size).all())
        assert bool((above - slope * middle - g.amax(1) <= 0.03 * size).all())


@pytest.mark.parametrize("activation", KINKED, ids=str)
def test_lines_of_settled_neurons_are_the_activation(activation: Activation) -> None:
    kinks = activation.traits.kinks
    for low, high in pairwise((kinks[0] - 4, *kinks, kinks[-1] + 5)):
        box = Box(vector(low), vector(high))
        found = relax(activation, box)
        assert torch.equal(found.lower_slope, found.upper_slope)
        assert torch.equal(found.lower_intercept, found.upper_intercept)
        for z in (low, low / 2 + high / 2, high):
            line = found.lower_slope * z + found.lower_intercept
            assert float(line) == pytest.approx(float(activation(vector(z))), rel=1e-15)


def test_slopes_of_their_own() -> None:
    """A channel each: of either sign, and steeper than 1."""
    layer = PReLU((0.25, -2.0, 3.0), (3, 1, 1))
    z = torch.linspace(-2, 2, 36, dtype=torch.float64).reshape(3, 3, 4).unsqueeze(0)
    f = layer(z)
    for channel, slope in enumerate(layer.slopes):
        own = PReLU(slope)(z[:, channel])
        assert torch.equal(f[:, channel], own)
        box = Box(z - 0.7, z + 0.4)
        found = relax(layer, box)
        alone = relax(PReLU(slope), Box(box.lower[:, channel], box.upper[:, channel]))
        for mine, theirs in zip(vars(found).values(), vars(alone).values(), strict=True):
            torch.testing.assert_close(mine[:, channel], theirs, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            image(layer, box).lower[:, channel],
            image(PReLU(slope), Box(box.lower[:, channel], box.upper[:, channel])).lower,
            rtol=1e-14,
            atol=0,
        )


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "1", None, True, 1e9])
def test_parameters_are_refused_by_name(value: object) -> None:
    for kind, name in ((ELU, "alpha"), (Softplus, "beta")):
        with pytest.raises(InputError, match=f"{kind.__name__} {name}"):
            kind(value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="approximate"):
        GELU(value)  # type: ignore[arg-type]
    if value not in (0, -1.0):
        with pytest.raises(InputError, match="PReLU slopes"):
            PReLU((value,))  # type: ignore[arg-type]


def test_ends_and_shapes_are_refused_by_name() -> None:
    for ends in ((1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0), ("0", 1.0)):
        with pytest.raises(InputError, match="Hardtanh has ends"):
            Hardtanh(*ends)  # type: ignore[arg-type]
    for slopes, shape in (((0.1, 0.2), ()), ((0.1,), (2,)), ((), ()), ((0.1,), (0,))):
        with pytest.raises(InputError, match="PReLU has"):
            PReLU(slopes, shape)

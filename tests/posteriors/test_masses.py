"""Posterior families: masses of boxes against 60-digit arithmetic.

Comparisons are exact: a mass rounded down may never exceed the true one, not even in the last bit.
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from bnncert.model.box import Box
from bnncert.posteriors.independent import (
    UP,
    Independent,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)
from masses import (
    KINDS,
    assert_bracketed,
    every_family,
    every_shape,
    exact_log,
    interval,
    make,
    shaped,
)
from scenarios import vector

Z = [
    1e-8,
    1e-4,
    0.03,
    0.5,
    0.6744897501960817,
    1.0,
    2.0,
    3.0,
    5.0,
    8.0,
    8.3,
    12.0,
    20.0,
    30.0,
    37.0,
]


@every_shape
@pytest.mark.parametrize(
    ("mean", "std"), [(0.0, 1.0), (0.3, 0.07), (-1e6, 1e-3), (1e-200, 1e-210), (1e100, 1e99)]
)
def test_normal_mass_is_bracketed(mean: float, std: float, shape: str) -> None:
    """z from 1e-8 to 37, straddling or on one side, at several places and scales."""
    posterior = Normal(vector(mean), vector(std))
    for z in Z:
        box = shaped(mean, std, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@every_family
@every_shape
def test_every_family_is_bracketed(family: str, shape: str) -> None:
    """The same shapes for each family, in units of its spread about its centre."""
    posterior = make(family, 1)
    center, spread = float(posterior.center), float(posterior.spread)
    for z in (1e-8, 1e-3, 0.2, 0.5, 1.0, 1.5, 3.0, 9.0, 30.0):
        box = shaped(center, spread, z, shape)
        assert_bracketed(posterior, box, exact_log(posterior, box))


@every_family
def test_random_intervals_are_bracketed(family: str) -> None:
    """Random parameters and random ends, one weight at a time."""
    rng = np.random.default_rng(17)
    for _ in range(150):
        posterior = random_weight(family, rng)
        scale = 10 ** rng.uniform(-2, 1) * max(float(posterior.spread), 1e-3)
        box = interval(*np.sort(float(posterior.center) + scale * rng.normal(size=2)))
        assert_bracketed(posterior, box, exact_log(posterior, box))


def random_weight(family: str, rng: np.random.Generator) -> Independent:
    center, scale = vector(rng.normal()), vector(10 ** rng.uniform(-3, 1))
    low, high = center - scale * rng.uniform(-2, 3), center + scale * rng.uniform(2.1, 4)
    match family:
        case "uniform":
            return Uniform(low, high)
        case "truncated-normal":
            return TruncatedNormal(center, scale, low, high)
        case "student-t":
            return StudentT(center, scale, vector(10 ** rng.uniform(0, 3)))
    return KINDS[family](center, scale)


@pytest.mark.parametrize("size", [1, 10, 1_000, 100_000, 1_000_000])
@pytest.mark.parametrize(
    ("z", "shape"), [(1e-8, "symmetric"), (4.0, "lopsided"), (30.0, "right"), (37.0, "symmetric")]
)
def test_many_equal_weights_are_bracketed(size: int, z: float, shape: str) -> None:
    """One interval repeated: the exact log mass is `size` times that of one weight, up to a million
    weights."""
    one = shaped(0.3, 0.07, z, shape)
    exact = exact_log(make("normal", 1), one, digits=80)
    box = Box(one.lower.expand(size), one.upper.expand(size))
    with mpmath.workdps(80):
        assert_bracketed(make("normal", size), box, size * exact)


@every_family
def test_mixed_weights_are_bracketed(family: str) -> None:
    """Hundreds of different weights at once, in every relation to their intervals."""
    rng = np.random.default_rng(23)
    posteriors = [random_weight(family, rng) for _ in range(200)]
    names = posteriors[0].tensors()
    posterior = KINDS[family](
        **{name: torch.cat([p.tensors()[name] for p in posteriors]) for name in names}
    )
    ends = posterior.center + posterior.spread * torch.from_numpy(
        rng.normal(size=(2, 200)) * rng.choice([0.4, 5], 200)
    )
    box = Box(ends.amin(0), ends.amax(0))
    if family == "uniform":
        box = Box(posterior.center - ends.std(0), box.upper.maximum(posterior.center))
    exact = exact_log(posterior, box)
    assert_bracketed(posterior, box, exact)


def test_a_batch_of_boxes_equals_the_boxes_one_by_one() -> None:
    """Leading dimensions are a batch; only the last one is summed."""
    posterior = Normal(vector(0.0, 1.0, -1.0), vector(1.0, 0.5, 0.0))
    centers = torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.5, -1.5], [0.0, 0.0, 3.0]]).double()
    batch = Box(centers - 1, centers + 1)
    assert posterior.log_mass(batch).tolist() == [
        float(posterior.log_mass(batch[i])) for i in range(3)
    ]


@pytest.mark.parametrize(
    ("family", "allowed"),
    [
        ("normal", 1e-11),
        ("truncated-normal", 1e-11),
        ("laplace", 1e-11),
        ("student-t", 1e-9),
        ("uniform", 1e-11),
    ],
)
@pytest.mark.parametrize("shape", ["symmetric", "lopsided", "all but the right tail"])
def test_straddling_masses_are_tight(family: str, allowed: float, shape: str) -> None:
    """Rounding costs a tiny part of the log mass when the interval holds the centre: no digits are
    lost near 1."""
    posterior = make(family, 1)
    for z in (1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0):
        box = shaped(float(posterior.center), float(posterior.spread), z, shape)
        down, up = float(posterior.log_mass(box)), float(posterior.log_mass(box, UP))
        assert up - down <= allowed * abs(down)


def test_a_thousand_weights_at_three_sigma() -> None:
    """Example 3.2 of the paper: p_3 = 0.9973002 per weight, so ±3σ in 1000 dimensions holds 0.067 <
    0.08."""
    posterior = make("normal", 1000)
    box = Box(posterior.mean - 3 * posterior.std, posterior.mean + 3 * posterior.std)
    mass = math.exp(float(posterior.log_mass(box)))
    assert mass == pytest.approx(0.9973002**1000, rel=1e-4)
    assert 0.0665 < mass < 0.0675 < 0.08

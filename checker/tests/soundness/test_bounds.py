"""Activations, linear bounds over boxes of weights, regions: against exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from mpmath import mpf

import bnncert
from bnncert import Problem
from bnncert.bounds import BOUNDS
from bnncert.model.box import Box
from bnncert_check import read_model
from bnncert_check.activations import default_slopes, image, lines
from bnncert_check.grammar import Tensors as Stored
from bnncert_check.layers import Activation
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox
from bnncert_check.region import read_region
from scenarios import paired_margins, random_problem, sample_box, sample_region, weight_boxes
from soundness.forging import ETA, Array, Random, as_explicit_box, exact_rows, exact_value

SPECIAL_INTERVALS = [
    (0, 0),
    (-0.0, 0.0),
    (0, 1),
    (-1, 0),
    (2, 2),
    (-3, -3),
    (-60, -50),
    (50, 60),
    (-800, 900),
    (-800, -90),
    (-ETA, ETA),
    (0, ETA),
    (-ETA, 0),
    (-1e-300, 1e-310),
    (-1e150, 1e150),
    (1e5, 1e6),
]


def points(kind: str, l: float, u: float, slopes: list[float], rng: Random) -> list[Any]:
    """Ends, 0, places inside, and for curves those where f' equals a slope."""
    number: Any = Fraction if kind.endswith("ReLU") else mpf
    inside = [
        number(0),
        *(number(l) + number(float(share)) * (number(u) - number(l)) for share in rng.random(4)),
    ]
    if number is mpf:
        rate = 1 if kind == "Tanh" else 2
        turns = [
            rate * mpmath.atanh(mpmath.sqrt(1 - rate**2 * mpf(a)))
            for a in slopes
            if 0 < rate**2 * a < 1
        ]
        inside += turns + [-z for z in turns]
    return [number(l), number(u), *(z for z in inside if l <= z <= u)]


@pytest.mark.parametrize(
    ("kind", "alpha"),
    [("ReLU", 0.0), ("LeakyReLU", 0.01), ("LeakyReLU", 0.3), ("Tanh", None), ("Sigmoid", None)],
)
def test_activations_never_leave_their_lines(kind: str, alpha: float | None) -> None:
    """Whatever the slopes in [0, 1]; the default ones are in [0, 1]; the image holds every
    value."""
    rng, activation = np.random.default_rng(8), Activation(kind, alpha, 1, 1)
    center, radius = rng.normal(0, 4, 60), 10 ** rng.uniform(-9, 1.5, 60)
    l, u = np.array([*SPECIAL_INTERVALS, *zip(center - radius, center + radius, strict=True)]).T
    default, (low, high) = default_slopes(activation, l, u), image(activation, l, u)
    assert all(((slopes >= 0) & (slopes <= 1)).all() for slopes in default)
    tiny = [1e-20, 2.0**-126, 2.0**-127, 2.0**-128, 2.0**-129, 2.0**-130, 2.0**-131, 1e-45, ETA]
    constant = [np.full_like(l, a) for a in (0.0, 1.0, 0.25, 1 - 2.0**-53, *tiny)]
    tried = [*constant, *rng.random((3, len(l))), 10 ** rng.uniform(-60, 0, len(l)), *default]
    found = [lines(activation, l, u, slopes, slopes) for slopes in tried]
    with mpmath.workdps(150):
        for i in range(len(l)):
            for z in points(kind, l[i], u[i], [float(slopes[i]) for slopes in tried], rng):
                f, number = exact_value(kind, alpha, z), type(z)
                assert number(float(low[i])) <= f <= number(float(high[i]))
                for slopes, line in zip(tried, found, strict=True):
                    rise = number(float(slopes[i])) * z
                    below, above = (
                        rise + number(float(end[i])) for end in (line.lower, line.upper)
                    )
                    assert below <= f <= above, (l[i], u[i], float(slopes[i]))


def checked_bounds(folder: Path, problem: Problem, box: Box) -> Array:
    """The checker's row bounds of the first input."""
    region, spec = problem.specification.region, problem.specification
    clip = None if region.clip is None else list(region.clip)
    described: dict[str, Any] = {
        "norm": region.norm,
        "clip": clip,
        "eps": float(region.eps[0]).hex(),
    }
    tensors = {"x": region.center, "lower": region.box.lower, "upper": region.box.upper}
    arrays = {name: tensor[0].numpy() for name, tensor in tensors.items()}
    bnncert.save_posterior(folder / "posterior.safetensors", problem.network, problem.posterior)
    model, weights = (
        read_model(folder / "posterior.safetensors"),
        WeightBox(box.lower[0].numpy(), box.upper[0].numpy()),
    )
    if region.norm == "box":
        described |= {"eps": None}
    own = read_region(described, Stored(arrays), problem.network.input_shape)
    return row_bounds(model, weights, own, spec.rows[0].numpy(), spec.offsets[0].numpy())


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1", "box"])
def test_row_bounds_hold_in_exact_arithmetic_and_match_the_prover(
    norm_name: str, tmp_path: Path
) -> None:
    """At the worst of 256 sampled (w, x) and at two others; at most 1e-9 below the prover's on
    these seeds."""
    for seed in range(60):
        problem = random_problem(seed, norm=norm_name if norm_name != "box" else "linf", batch=1)
        problem = as_explicit_box(problem) if norm_name == "box" else problem
        region, spec, box = (
            problem.specification.region,
            problem.specification,
            weight_boxes(problem, seed),
        )
        found, generator = (
            checked_bounds(tmp_path, problem, box),
            torch.Generator().manual_seed(seed),
        )
        weights, x = sample_box(box, 256, generator), sample_region(region, 256, generator)
        for i in {0, 1, *paired_margins(problem, weights, x)[:, 0].argmin(0).tolist()}:
            for value, bound in zip(
                exact_rows(problem, weights[i, 0], x[i, 0]), found.tolist(), strict=True
            ):
                assert value >= type(value)(bound), seed
        for name, prover in BOUNDS.items():
            if name != "lbp-forward" or region.is_box:
                theirs = prover(problem.network, box, region, spec.rows, spec.offsets)[0].numpy()
                assert (found >= theirs - 1e-9 * (1 + np.abs(theirs))).all(), (name, seed)


def test_regions_are_rounded_outward() -> None:
    rng = np.random.default_rng(12)
    for eps in (*(10 ** rng.uniform(-20, 2, 50)).tolist(), ETA, 0.0):
        x = rng.normal(size=4) * 10.0 ** rng.integers(-9, 3, 4)
        region = read_region(
            {"norm": "linf", "clip": None, "eps": eps.hex()}, Stored({"x": x}), (4,)
        )
        for low, at, high in zip(
            region.lower.tolist(), x.tolist(), region.upper.tolist(), strict=True
        ):
            assert (
                Fraction(low)
                <= Fraction(at) - Fraction(eps)
                <= Fraction(at) + Fraction(eps)
                <= Fraction(high)
            )

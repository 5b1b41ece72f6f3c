"""Networks built so that float arithmetic gets them wrong."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm

from bnncert import Problem, Sampling, Specification
from bnncert.layers import Dense, ReLU, Sigmoid, Tanh
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.specification import ball, explicit_box, half_space
from bnncert.posteriors import LowRankNormal, Normal
from bnncert_check import ACCEPT
from scenarios import vector
from soundness.forging import (
    BENT,
    BIG,
    ETA,
    LINE,
    SHIFTED,
    TWO,
    accepted,
    certified,
    constant_slopes,
    exact_rows,
    fixed,
    forged,
    lines_on_narrower_intervals,
    one_box,
    trap_vectors,
    verdict,
)


def barely_unsafe(
    network: Network, weights: list[float], x: list[float], slack: float = 0.0, **row: Any
) -> Problem:
    """The offset is the largest float that leaves the row at most 0 at x (`slack` more, if
    given)."""
    (exact,) = exact_rows(fixed(network, weights, x, **row), vector(*weights), vector(*x))
    least = float(exact)
    least = least if type(exact)(least) >= exact else math.nextafter(least, math.inf)
    return fixed(network, weights, x, slack - least, **row)


@pytest.mark.parametrize("kind", ["plain", "wild", "cancelling", "subnormal", "underflowing"])
@pytest.mark.parametrize("form", ["many inputs", "many outputs", "hidden"])
def test_no_trap_of_float_arithmetic_is_accepted(kind: str, form: str, tmp_path: Path) -> None:
    """Rows that are 0 or a hair less in exact arithmetic, positive in float64; with some slack they
    are accepted."""
    rng, deceived = np.random.default_rng(10), 0
    for _ in range(10):
        a, x = (v.tolist() for v in trap_vectors(kind, rng))
        build: Any = partial(
            barely_unsafe, Network((len(a),), (Dense(len(a), 1, bias=False),)), a, x
        )
        if form == "many outputs":
            build = partial(
                barely_unsafe, Network((1,), (Dense(1, len(a), bias=False),)), a, [1.0], row=x
            )
        elif form == "hidden":
            weights = np.stack([a, rng.permutation(a), rng.permutation(a)], -1).flatten().tolist()
            weights += [
                *(ETA * rng.integers(-3, 4, 3)).tolist(),
                *rng.choice([-1.0, 1.0, 0.5], 3).tolist(),
                0.0,
            ]
            build = partial(
                barely_unsafe,
                Network((len(a),), (Dense(len(a), 3), ReLU(), Dense(3, 1))),
                weights,
                x,
            )
        problem = build()
        assert not any(accepted(tmp_path, problem))
        deceived += float(problem.margins(problem.posterior.mean)) > 0
        slack = 1e-6 * float(np.abs(np.multiply(a, x)).sum()) + 1e-300
        assert form == "hidden" or all(accepted(tmp_path, build(slack=slack)))
    assert deceived or kind not in ("cancelling", "subnormal")


@pytest.mark.parametrize("curve", [Tanh(), Sigmoid()])
@pytest.mark.parametrize("z", [0.0, 0.3, 5.0, 17.9, 18.7, 36.0, -36.0, -700.0])
def test_rounded_curves_are_not_believed(curve: Tanh | Sigmoid, z: float, tmp_path: Path) -> None:
    """f(z) less the smallest float that is at least f(z), out to where f is 1 but for rounding."""
    problem = barely_unsafe(Network((1,), (Dense(1, 1), curve)), [1.0, 0.0], [z])
    assert not any(accepted(tmp_path, problem))


TIES = {
    "zero input": fixed(LINE, [1.0], [0.0]),
    "negative zero": fixed(BENT, [-0.0], [-0.0], -0.0),
    "relu at l = u = 0": fixed(BENT, [1.0], [0.0]),
    "relu with l = 0": fixed(BENT, [1.0], [0.5], eps=0.5, clip=(0.0, 1.0)),
    "relu with u = 0": fixed(BENT, [-1.0], [0.5], eps=0.5, clip=(0.0, 1.0)),
    "relu off": fixed(BENT, [-1.0], [5.0], eps=1.0),
    "two that cancel": fixed(TWO, [1.0, 1.0, 1.0, -1.0], [3.0], eps=0.5),
    "half a subnormal": fixed(LINE, [3 * ETA], [0.5], -2 * ETA),
    "overflow": fixed(TWO, [BIG, BIG, BIG, -BIG], [BIG]),
} | {
    f"a region below half an ulp, {name}": fixed(
        SHIFTED, [2.0**54, -(2.0**54)], [1.0], 0.5, eps=2.0**-54, norm=name
    )
    for name in ("linf", "l2", "l1")
}


@pytest.mark.parametrize("name", TIES)
def test_ties_are_not_safe(name: str, tmp_path: Path) -> None:
    assert not any(accepted(tmp_path, TIES[name]))


CANCELLING = vector(2.0**54, 1, -(2.0**54), 0).reshape(4, 1)
NOISY = {
    "noise that cancels": (
        LowRankNormal(vector(0, 0, 0, 1), vector(0, 0, 0, 0), CANCELLING),
        norm.cdf(1),
    ),
    "a mean that cancels": (Normal(vector(2.0**54, -1, -(2.0**54), 1), vector(0, 0.5, 0, 0)), 0.5),
} | {
    f"std {s}": (Normal(vector(s, 0, 0, 0), vector(s, 0, 0, 0)), norm.cdf(1))
    for s in (1e-170, 1e-300, ETA)
}


@pytest.mark.parametrize("name", NOISY)
def test_noise_is_not_rounded_away(name: str, tmp_path: Path) -> None:
    """w·x + b at x = (1, 1, 1) is Gaussian: what is supported is at most the truth."""
    posterior, truth = NOISY[name]
    region = ball(torch.ones(1, 3, dtype=torch.float64), 0.0)
    problem = Problem(
        Network((3,), (Dense(3, 1),)), posterior, half_space(region, vector(1.0), 0.0)
    )
    found = verdict(tmp_path, problem, forged(problem, constant_slopes(problem, 0.0)))
    assert (found.supported or (math.inf,))[0] <= truth
    assert not any(accepted(tmp_path, problem)[1:])


def test_a_box_that_rounds_to_a_point_has_no_mass(tmp_path: Path) -> None:
    """1 ± 2^-60 is 1 in float64: w ~ N(1, 2^-120) is there with probability 0, not 0.68."""
    specification = half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.5)
    problem = Problem(LINE, Normal(vector(1.0), vector(2.0**-60)), specification)
    found = verdict(tmp_path, problem, forged(problem, one_box(), (0.5, 1.0)))
    assert (found.status, found.supported) == ("REJECT", (0.0, 1.0))


def test_a_slope_at_the_end_of_arbs_precision_is_not_believed(tmp_path: Path) -> None:
    """atanh of a ball that holds 1 is NaN, and Python's min() would drop it: the sigmoid's line
    would rise by 1e-37.

    y = sigmoid(x) - 2^-82 (sigmoid(2^-46 x) - 1/2) - 1e-37 on [-200, -30] is -3.2e-38 at x = -89.
    """
    region = explicit_box(Box(vector(-200.0).reshape(1, 1), vector(-30.0).reshape(1, 1)))
    rows, offsets = (
        vector(1.0, -(2.0**-82)).reshape(1, 1, 2),
        vector(2.0**-83 - 1e-37).reshape(1, 1),
    )
    posterior = Normal(vector(1.0, 2.0**-46), vector(0.0, 0.0))
    network = Network((1,), (Dense(1, 2, bias=False), Sigmoid()))
    problem = Problem(network, posterior, Specification(region, rows, offsets))
    assert exact_rows(problem, posterior.mean, vector(-89.0))[0] < 0
    evidence, _ = constant_slopes(problem, 0.0)
    slopes = {f"c0.{side}_slopes1": vector(2.0**-130, 0.25) for side in ("lower", "upper")}
    assert (
        verdict(tmp_path, problem, forged(problem, (evidence, slopes), (1.0, 1.0))).status != ACCEPT
    )


def test_tighter_intervals_are_not_better_lines(tmp_path: Path) -> None:
    """So the checker tries the prover's intervals too."""
    assert certified(
        tmp_path, lines_on_narrower_intervals(697, 1.13722), Sampling(samples=1, step=8.0), 0
    )

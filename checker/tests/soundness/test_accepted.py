"""The checker accepts what bnncert writes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bnncert
from bnncert import GIE, PIE, Concentration, Problem, Sampling
from bnncert.bounds import BOUNDS
from bnncert.methods import Method
from bnncert.model.network import mlp
from bnncert.model.specification import ball, half_space
from bnncert.posteriors import Normal
from scenarios import gaussian, random_problem, uniform, vector
from soundness.forging import (
    FAMILIES,
    as_explicit_box,
    certified,
    gaussian_problem,
    lines_on_narrower_intervals,
    verdict,
    with_margin,
)


def in_family(problem: Problem, family: str) -> Problem:
    mean, std = problem.posterior.mean, problem.posterior.std
    made = {
        "normal": problem.posterior,
        "laplace": bnncert.posteriors.Laplace(mean, std),
        "student-t": bnncert.posteriors.StudentT(mean, std, 1 + 5 * mean.abs()),
        "uniform": bnncert.posteriors.Uniform(mean - std, mean + 2 * std),
        "truncated-normal": bnncert.posteriors.TruncatedNormal(
            mean, std, mean - 2 * std, mean + std
        ),
    }
    return replace(problem, posterior=made[family])


@pytest.mark.parametrize("bound", BOUNDS)
def test_certificates_of_boxes_are_accepted(bound: str, tmp_path: Path) -> None:
    """Every family, norm, specification and method; networks that flatten, end in an activation,
    lack a bias."""
    options: dict[str, Any] = {"budget": 16, "bound": bound}
    twice = GIE(
        samples=3, rho=0.7, zero_gradient_only=True, walk="bisection", mean_first=False, **options
    )
    methods = (
        Sampling(5, 0.7, **options),
        PIE(samples=4, **options),
        GIE(samples=4, **options),
        twice,
    )
    headers = []
    for seed in range(30):
        problem = random_problem(seed, norm="linf" if bound == "lbp-forward" else None, batch=2)
        problem = with_margin(in_family(problem, FAMILIES[seed % 5]), 0.4 + seed % 3)
        headers += certified(
            tmp_path,
            as_explicit_box(problem) if seed % 7 == 0 else problem,
            methods[seed % 4],
            seed,
        )
    norms = {"linf", "box"} | (set() if bound == "lbp-forward" else {"l2", "l1"})
    assert {header["region"]["norm"] for header in headers} == norms
    assert len(headers) > 30


def test_every_rule_of_unions_is_accepted(tmp_path: Path) -> None:
    """One box, cells, inclusion-exclusion and bonferroni each occur."""
    rules = set()
    for widths, samples, step in [
        ((1, 1), 1, 0.5),
        ((1, 1), 5, 0.5),
        ((2, 3, 2), 6, 1.0),
        ((4, 5, 3), 30, 1.2),
    ]:
        network, generator = mlp(*widths), torch.Generator().manual_seed(1)
        mean, std = (
            gaussian(network.size, generator=generator),
            0.05 * uniform(network.size, generator=generator),
        )
        region = ball(uniform(2, widths[0], generator=generator), 0.01)
        problem = Problem(
            network, Normal(mean, std + 0.01), half_space(region, torch.ones(widths[-1]), -30.0)
        )
        for header in certified(tmp_path, problem, Sampling(samples, step), 3):
            rules.add((header["evidence"]["union"]["rule"], "cells" in header["evidence"]["union"]))
    assert rules == {
        ("cells", False),
        ("cells", True),
        ("inclusion-exclusion", False),
        ("bonferroni", False),
    }


@pytest.mark.parametrize("effort", [0, 1])
def test_certificates_of_concentration_are_accepted(effort: int, tmp_path: Path) -> None:
    """Independent, low rank, full covariance, mixtures; lower and upper bounds."""
    headers = []
    for seed in range(30):
        problem = (
            as_explicit_box(gaussian_problem(seed)) if seed % 5 == 0 else gaussian_problem(seed)
        )
        headers += certified(tmp_path, problem, Concentration(effort=effort, upper=True), seed)
    refuted = [any(c["upper"] for c in header["evidence"]["components"]) for header in headers]
    assert min(sum(refuted), len(refuted) - sum(refuted)) > 5


@pytest.mark.parametrize("method", [Sampling(samples=2), Concentration(upper=True)])
def test_certain_claims_and_npz_files_are_accepted(method: Method, tmp_path: Path) -> None:
    """A posterior without noise is safe with probability exactly 1; an .npz is read like a
    .safetensors."""
    rng, path = np.random.default_rng(9), tmp_path / "posterior.npz"
    for noise, activation in product((0.0, 0.02), ("relu", "leaky_relu", "tanh", "sigmoid")):
        arrays = {
            name: rng.normal(size=shape)
            for name, shape in (("W0", (3, 4)), ("b0", 4), ("W1", (4, 2)))
        }
        stds = {f"{name}_std": noise * rng.random(value.shape) for name, value in arrays.items()}
        means = {f"{name}_mean": value for name, value in arrays.items()}
        np.savez(path, meta=json.dumps({"activations": [activation, "softmax"]}), **means, **stds)
        region = ball(torch.from_numpy(rng.random((2, 3))), 0.02, clip=(0.0, 1.0))
        problem = Problem(*bnncert.load_posterior(path), half_space(region, vector(1.0, -1.0), 0.0))
        for header in certified(
            tmp_path, with_margin(problem, 2.0), method, 0, path if noise else None
        ):
            assert noise or header["claim"] == {"lower": (1.0).hex(), "upper": (1.0).hex()}


def test_a_mass_that_nearly_underflows_is_not_claimed_or_accepted(tmp_path: Path) -> None:
    """The default box of 721 weights has mass 2.7e-301, less than the checker supports."""
    network = mlp(2, 180, 1)
    posterior = Normal(
        *(torch.full((network.size,), value, dtype=torch.float64) for value in (0.0, 1e-3))
    )
    problem = Problem(
        network,
        posterior,
        half_space(ball(vector(0.5, 0.5).reshape(1, 2), 0.01), vector(1.0), -5.0),
    )
    certified(tmp_path, problem, Sampling(samples=1), 0)


def test_what_only_the_forward_bound_proves_is_rejected(tmp_path: Path) -> None:
    """Known and documented: the checker has no forward bound."""
    problem, method = (
        lines_on_narrower_intervals(172, -1.8255),
        Sampling(samples=1, step=0.5, bound="lbp-forward"),
    )
    certificate = bnncert.certify(problem, method)[0].certificate
    assert certificate is not None
    assert verdict(tmp_path, problem, certificate).code == "row-not-positive"

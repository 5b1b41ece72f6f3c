"""Concentration certificates against the truth: brute force on random tiny networks, seeded
mutants."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import Concentration, certify
from bnncert.concentration import ascent as ascent_module
from bnncert.concentration import functional as functional_module
from bnncert.concentration import noise as noise_module
from bnncert.concentration import proof as proof_module
from bnncert.concentration import slopes as slopes_module
from bnncert.concentration import steps as steps_module
from bnncert.concentration import tails as tails_module
from bnncert.concentration import trace as trace_module
from bnncert.concentration.functional import Functional, Trace, functional
from bnncert.concentration.proof import prove
from bnncert.concentration.trace import trace
from bnncert.concentration.upper import refute
from bnncert.layers import Dense, Flatten, ReLU
from bnncert.model.network import Network
from bnncert.numerics.tails import normal_tail_up
from bnncert.posteriors import Mixture, Normal
from bnncert.posteriors.gaussian import Gaussian
from one_weight import best, one_weight, planted
from scenarios import (
    PIECEWISE_LINEAR,
    claimed,
    correlated,
    draw_many,
    gaussian,
    random_problem,
    wider,
    with_posterior,
)
from truth import DRAWS, assert_below_truth


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_the_tail_of_the_functional(t: float) -> None:
    """P(min over x of A z <= value - tL) <= Q(t) for one dense layer, where the minimum over a box
    is exact."""
    for seed in range(40):
        problem = wider(
            random_problem(seed, norm="linf", dense=1, activations=PIECEWISE_LINEAR), seed
        )
        layers = tuple(
            layer for layer in problem.network.layers if isinstance(layer, Dense | Flatten)
        )
        network, region = Network(problem.network.input_shape, layers), problem.specification.region
        rows = gaussian(
            len(region), 2, network.outputs, generator=torch.Generator().manual_seed(seed)
        )
        traced = trace(network, problem.posterior, region, 4.0)
        found = functional(traced, rows)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        parameters = network.split(weights)[-1]
        pulled = torch.einsum("bro,sio->sbri", rows, parameters[0])
        box = region.box.reshape(len(region), -1)
        value = (
            pulled.clamp_min(0) * box.lower[:, None] + pulled.clamp_max(0) * box.upper[:, None]
        ).sum(-1)
        if len(parameters) > 1:
            value = value + torch.einsum("bro,so->sbr", rows, parameters[1])
        share = (value < found.value - t * found.lipschitz).double().mean(0)
        limit = norm.sf(t)
        assert bool(
            (share <= limit + 4 * math.sqrt(limit * (1 - limit) / DRAWS) + 2 / DRAWS).all()
        ), seed


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
@pytest.mark.parametrize("block", range(4))
def test_never_above_brute_force(norm_name: str, block: int) -> None:
    """Tiny networks: every activation, signed inputs, σ up to 3, some weights deterministic."""
    for seed in range(1000 * block, 1000 * block + 25):
        problem = wider(random_problem(seed, norm=norm_name), seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.slow
@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
def test_thousands_never_above_brute_force(norm_name: str) -> None:
    """1,000 networks a norm, with three inputs each."""
    for seed in range(10_000, 11_000):
        problem = wider(random_problem(seed, norm=norm_name), seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.parametrize("block", range(3))
def test_correlated_posteriors_never_above_brute_force(block: int) -> None:
    for seed in range(500 * block, 500 * block + 20):
        problem = correlated(random_problem(seed), seed)
        assert_below_truth(problem, best(problem), seed)


def test_mixtures_are_weighted_sums_and_never_above_brute_force() -> None:
    for seed in range(40):
        problem = wider(random_problem(seed), seed)
        shifted = Normal(problem.posterior.mean + 0.3, problem.posterior.std)
        mixture = with_posterior(problem, Mixture((0.3, 0.7), (problem.posterior, shifted)))
        results = certify(mixture, Concentration(effort=0))
        parts = 0.3 * best(problem) + 0.7 * best(with_posterior(problem, shifted))
        lower = torch.tensor([result.lower for result in results], dtype=torch.float64)
        expected = torch.tensor([claimed(part) for part in parts.tolist()], dtype=torch.float64)
        torch.testing.assert_close(lower, expected, rtol=0, atol=1e-10)
        assert_below_truth(mixture, lower, seed)


@pytest.mark.parametrize("block", range(2))
def test_upper_bounds_hold_at_their_points(block: int) -> None:
    """Of sampled networks, at most `upper` keep the refuted row positive at x*, and x* is in the
    region."""
    found = 0
    for seed in range(300 * block, 300 * block + 25):
        problem = wider(random_problem(seed), seed)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        for i, refutation in enumerate(refute(problem, problem.posterior, seed)):
            if refutation is None:
                continue
            found += 1
            spec = problem.specification[i : i + 1]
            rows = spec.margins(problem.network.forward(weights, refutation.point.unsqueeze(0)))[
                :, 0, refutation.row
            ]
            share = float((rows > 0).double().mean())
            assert share <= refutation.upper + 4 * math.sqrt(0.25 / DRAWS), seed
            offset = (refutation.point - spec.region.center[0]).flatten()
            order = {"linf": math.inf, "l2": 2, "l1": 1}[spec.region.norm]
            assert float(torch.linalg.vector_norm(offset, order)) <= float(spec.region.eps[0])
    assert found > 20


def test_intervals_are_ordered_and_effort_never_hurts() -> None:
    for seed in range(10):
        problem = wider(random_problem(seed), seed)
        plain = certify(problem, Concentration(effort=0, upper=True), seed=1)
        better = certify(problem, Concentration(effort=1, upper=True), seed=1)
        for one, two in zip(plain, better, strict=True):
            assert 0 <= one.lower <= two.lower <= two.upper <= 1


def test_optimised_slopes_help_and_stay_below_brute_force() -> None:
    gained = 0
    for seed in range(25):
        problem = wider(random_problem(seed, activations=PIECEWISE_LINEAR), seed)
        proofs = prove(problem, problem.posterior, effort=1)
        lower = torch.tensor([found.bound for found in proofs], dtype=torch.float64)
        gained += int((lower > best(problem) + 1e-3).sum())
        assert_below_truth(problem, lower, seed)
        for found in proofs:
            for slopes in found.row_slopes.values():
                assert bool(((slopes >= 0) & (slopes <= 1)).all())
    assert gained >= 3


def forget_third_case(rows: Functional) -> Tensor:
    return normal_tail_up(rows.value / rows.lipschitz)


def check_all(seeds: range) -> None:
    """The check that the right implementation passes and every mutant must fail."""
    assert best(one_weight(0.0, 1.0, 0.05)).item() <= 2 * norm.cdf(0.05) - 1
    for seed in seeds:
        problem = wider(random_problem(seed, norm="linf"), seed)
        assert_below_truth(problem, best(problem), seed)
    for p in (0.3, 0.1, 0.01):
        assert best(planted(p, 0.1)).item() <= 1 - p


def std_for_variance(network: Network, posterior: Gaussian) -> list[noise_module.Noise]:
    return REAL_NOISES(network, Normal(posterior.mean, posterior.std**2))


def half_lipschitz(traced: Trace, rows: Tensor) -> Functional:
    found = REAL_FUNCTIONAL(traced, rows)
    return Functional(found.value, found.lipschitz / 2)


REAL_NOISES, REAL_FUNCTIONAL = noise_module.layer_noises, functional
MUTANTS = {
    "the right one": [],
    "Q of a negative number": [(tails_module, "row_failures", forget_third_case)],
    # without charges a small threshold is free, so it would win
    "no hidden charge": [
        (trace_module, "normal_tail_up", torch.zeros_like),
        (proof_module, "THRESHOLDS", (0.1,)),
    ],
    "σ for σ²": [(trace_module, "layer_noises", std_for_variance)],
    "E F forgotten": [
        (steps_module, "MEAN_OF_HALF_NORMAL", 0.0),
        (functional_module, "expected_magnitude", lambda a, _: a.abs()),
    ],
    "half of L": [(slopes_module, "functional", half_lipschitz)],
    "region forgotten": [(functional_module, "expected_magnitude", lambda a, _: 0 * a)],
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_seeded_mutants_are_killed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, wrong in MUTANTS[mutant]:
        monkeypatch.setattr(module, name, wrong)
    if mutant == "the right one":
        check_all(range(120))
    else:
        with pytest.raises(AssertionError):
            check_all(range(120))


def test_optimised_slopes_are_0_on_relus_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lower ends are not known: whichever way the optimiser goes, no line may rest on
    them."""
    monkeypatch.setattr(
        torch.optim, "Adam", lambda groups: torch.optim.SGD(groups, lr=1e2, maximize=True)
    )
    turns = itertools.count()  # each iterate is better than the one before it
    monkeypatch.setattr(ascent_module, "score", lambda found: 0 * found.value - next(turns))
    found = 0
    for seed in range(20):
        problem = wider(random_problem(seed, activations=(ReLU(),), dense=2), seed)
        traced = trace(problem.network, problem.posterior, problem.specification.region, 4.0)
        chosen, _ = slopes_module.optimise(traced, problem.specification)
        for k, slopes in chosen.items():
            off = (traced.steps[k].relaxation.upper_slope == 0).unsqueeze(1).expand_as(slopes)
            found += int(off.sum())
            assert not bool(
                (slopes[off] > 0).any()
            )  # without noise there is no gradient, and NaN is never chosen
    assert found

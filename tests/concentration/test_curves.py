"""Concentration with every activation: certificates, refinement, moments and margins against brute
force."""

from __future__ import annotations

import pytest
import torch

from bnncert import Concentration, Problem, certify
from bnncert.concentration.margin import margins
from bnncert.concentration.moments import output_norms
from bnncert.concentration.proof import prove
from bnncert.concentration.refine import Limits, refine
from bnncert.layers import Dense, Flatten, PReLU
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors import Normal
from one_weight import best
from open_problems import regression
from scenarios import (
    CURVES,
    KINKED,
    correlated,
    draw_many,
    gaussian,
    random_problem,
    sample_region,
    wider,
)
from truth import assert_below_truth

LATER = (*CURVES, *KINKED)


@pytest.mark.parametrize("activation", LATER, ids=str)
def test_never_above_brute_force(activation: Activation) -> None:
    """Tiny networks, every norm, σ up to 3, independent and correlated."""
    for seed in range(8):
        problem = random_problem(seed, activations=(activation,))
        problem = correlated(problem, seed) if seed % 4 == 3 else wider(problem, seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.slow
@pytest.mark.parametrize("activation", LATER, ids=str)
def test_hundreds_never_above_brute_force(activation: Activation) -> None:
    for seed in range(20_000, 20_100):
        problem = wider(random_problem(seed, activations=(activation,)), seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.parametrize("slope", [-2.0, -0.5])
def test_slopes_of_any_sign_are_refined(slope: float) -> None:
    """Branch and bound on the signs of parametric ReLUs: never above brute force, never worse."""
    gained = 0
    for seed in range(5):
        problem = regression(seed, PReLU(slope), std=(0.001, 0.02)[seed % 2])
        proofs = prove(problem, problem.posterior, 1)
        found = refine(problem, problem.posterior, proofs, Limits(30)).proofs
        lower = torch.tensor([proof.bound for proof in found]).double()
        before = torch.tensor([proof.bound for proof in proofs]).double()
        assert bool((lower >= before).all())
        gained += int((lower > before + 1e-3).sum())
        assert_below_truth(problem, lower, seed)
    assert gained


@pytest.mark.parametrize("activation", LATER, ids=str)
def test_output_norms_are_never_below_the_sampled_ones(activation: Activation) -> None:
    for seed in range(6):
        problem = wider(random_problem(seed, activations=(activation,)), seed)
        region = problem.specification.region
        generator = torch.Generator().manual_seed(seed)
        weights = draw_many(problem.posterior, 2000, generator)
        found = output_norms(problem.network, problem.posterior, region)
        for x in [region.center, *sample_region(region, 4, generator)]:
            sampled = problem.network.forward(weights, x).square().mean(0).sqrt()
            assert bool((sampled <= found * 1.2 + 1e-9).all())  # of means, not of samples


@pytest.mark.parametrize("activation", LATER, ids=str)
def test_margins_hold_for_sampled_inputs(activation: Activation) -> None:
    """Of one network: no row at any input of the box is below its margin."""
    network = Network((2, 2), (activation, Flatten(), Dense(4, 5), activation, Dense(5, 2)))
    generator = torch.Generator().manual_seed(0)
    for scale in (0.3, 1.0, 3.0):
        mean = scale * gaussian(network.size, generator=generator)
        center = 2 * gaussian(3, 2, 2, generator=generator)
        rows = gaussian(1, 4, 2, generator=generator)
        weights = [(tuple(parts), None) for parts in network.split(mean)]
        found = margins(network, weights, center - 0.8, center + 0.8, rows, 3.0)
        for x in sample_region(ball(center, 0.8), 300, generator):
            values = network.forward(mean.unsqueeze(0), x)[0] @ rows[0].mT
            assert bool((values >= found.value - 1e-9).all())


@pytest.mark.parametrize("activation", LATER, ids=str)
def test_margins_have_gradients(activation: Activation) -> None:
    network = Network((2,), (Dense(2, 3), activation, Dense(3, 2)))
    generator = torch.Generator().manual_seed(5)
    mean = gaussian(network.size, generator=generator).requires_grad_()
    std = (0.1 + 0.1 * gaussian(network.size, generator=generator).abs()).requires_grad_()
    x = gaussian(2, 2, generator=generator)
    rows = gaussian(2, 2, 2, generator=generator)

    def least(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
        weights = list(zip(network.split(mean), network.split(std), strict=True))
        found = margins(network, weights, x - 0.05, x + 0.05, rows, 2.0)  # type: ignore[arg-type]
        return found.value - 3 * found.lipschitz

    assert torch.autograd.gradcheck(least, (mean, std))


@pytest.mark.parametrize("activation", LATER, ids=str)
def test_a_deeper_network_is_certified(activation: Activation) -> None:
    """Something comes out, without warnings: a wide margin on a network of two hidden layers."""
    network = mlp(3, 8, 8, 2, activation=activation)
    generator = torch.Generator().manual_seed(1)
    mean = gaussian(network.size, generator=generator) / 2
    posterior = Normal(mean, torch.full_like(mean, 1e-3))
    region = ball(gaussian(4, 3, generator=generator), 1e-3)
    labels = network.forward(mean.unsqueeze(0), region.center)[0].argmax(-1)
    problem = Problem(network, posterior, class_robust(region, labels, 2))
    results = certify(problem, Concentration(effort=2, nodes=10))
    assert all(result.lower > 0.9 for result in results)

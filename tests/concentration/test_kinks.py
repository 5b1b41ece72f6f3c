"""Branch and bound over the kinks of clips: never above brute force, leaves hold what they say, and
what effort 1 leaves open is closed."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from bnncert import Network, Problem
from bnncert.concentration.domains import (
    Domains,
    Roots,
    Tightened,
    evaluate,
    halves,
    roots,
    tighten,
    whole,
)
from bnncert.concentration.proof import prove
from bnncert.concentration.refine import Limits, refine
from bnncert.concentration.trace import trace
from bnncert.layers import Add, Dense, Hardtanh, LeakyReLU, PReLU, ReLU, Residual
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.network import mlp
from bnncert.model.specification import ball, half_space
from bnncert.posteriors import Normal
from open_problems import above_least, open_problem, tight
from scenarios import (
    correlated,
    draw_many,
    gaussian,
    random_problem,
    sample_region,
    uniform,
    vector,
    wider,
)
from truth import assert_below_truth

CLIPS: tuple[Activation, ...] = (Hardtanh(), Hardtanh(0, 6), Hardtanh(-0.5, 0.25), Hardtanh(0.5, 2))
MIXED: tuple[Activation, ...] = (*CLIPS, ReLU(), LeakyReLU(0.2), PReLU(-0.5), PReLU(1.5))


def bounds(problem: Problem, nodes: int = 30) -> tuple[Tensor, Tensor]:
    """Of effort 1, and refined."""
    proofs = prove(problem, problem.posterior, 1)
    found = refine(problem, problem.posterior, proofs, Limits(nodes)).proofs
    before, after = (
        torch.tensor([proof.bound for proof in some], dtype=torch.float64)
        for some in (proofs, found)
    )
    return before, after


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("activations", [CLIPS, MIXED], ids=["clips", "mixed"])
def test_never_above_brute_force(activations: tuple[Activation, ...], block: int) -> None:
    """Tiny networks of every depth, norm and width of posterior, correlated ones too."""
    for seed in range(1000 * block, 1000 * block + 25):
        problem = random_problem(seed, activations=activations)
        problem = correlated(problem, seed) if seed % 5 == 4 else wider(problem, seed)
        assert_below_truth(problem, bounds(problem)[1], seed)


@pytest.mark.slow
def test_hundreds_never_above_brute_force() -> None:
    for seed in range(30_000, 30_400):
        problem = wider(random_problem(seed, activations=MIXED), seed)
        assert_below_truth(problem, bounds(problem, 20)[1], seed)


def residual(seed: int, activation: Activation) -> Problem:
    """A clip inside a residual block, and one behind its sum; a ReLU before."""
    inner = Residual((Dense(4, 4), activation, Dense(4, 4)))
    network = Network((3,), (Dense(3, 4), ReLU(), inner, activation, Dense(4, 1)))
    return above_least(network, seed, [0.0005, 0.01][seed % 2])


@pytest.mark.parametrize("activation", CLIPS[:3], ids=str)
def test_residual_networks_never_above_brute_force(activation: Activation) -> None:
    gained = 0
    for seed in range(4):
        problem = residual(seed, activation)
        before, after = bounds(problem, 60)
        gained += int((after > before + 1e-3).sum())
        assert bool((after >= before).all())
        assert_below_truth(problem, after, seed)
    assert gained


@pytest.mark.parametrize("activation", CLIPS[:3], ids=str)
def test_what_effort_1_leaves_open_is_closed(activation: Activation) -> None:
    """Bounds near 0 become bounds near 1; and none is above the truth."""
    closed = 0
    for seed in range(8):
        problem = tight(seed, activation, (2, 8, 1), std=[0.0005, 0.005][seed % 2])
        before, after = bounds(problem, 150)
        closed += int(((before < 0.1) & (after > 0.99)).sum())
        assert bool((after >= before).all())
        assert_below_truth(problem, after, seed)
    assert closed >= 5


def bump(low: float, high: float, offset: float, sign: float) -> Problem:
    """y = min(max(x, low), high) + min(max(-x, low), high) + offset, |x| <= 2: at least low + high
    + offset where that is negative without it; or the same from clips at -high and -low."""
    mean = vector(1.0, -1.0, 0.0, 0.0, sign, sign, offset)
    region = ball(vector(0.0).reshape(1, 1), 2)
    posterior = Normal(mean, torch.full_like(mean, 1e-6))
    network = mlp(1, 2, 1, activation=Hardtanh(*sorted((sign * low, sign * high))))
    return Problem(network, posterior, half_space(region, vector(1.0), 0.0))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 0.5), (-1.5, 0.25), (-0.5, 0.125)])
def test_a_known_answer(low: float, high: float, sign: float) -> None:
    """Exact after splits at both kinks, whatever the relaxation says."""
    before, after = bounds(bump(low, high, 0.1 - low - high, sign), 40)
    assert float(before) < 0.5
    assert float(after) == pytest.approx(1.0, abs=1e-4)
    assert float(bounds(bump(low, high, -0.1 - low - high, sign), 40)[1]) == 0.0


def random_leaves(problem: Problem, seed: int, depth: int) -> tuple[Roots, Domains, Tightened]:
    """Domains of row 0 with random splits at open places, of any signs, tightened."""
    region = problem.specification.region
    traced = trace(problem.network, problem.posterior, region, 4.0)
    base = roots(problem, problem.posterior.mean, traced)
    inputs = torch.arange(len(problem))
    domains = whole(base, inputs, torch.zeros_like(inputs))
    choose = torch.Generator().manual_seed(seed)
    for level in range(min(depth, base.open.shape[1])):
        column = (uniform(len(domains), generator=choose) * base.open.shape[1]).long()
        free = domains.splits.gather(1, column[:, None])[:, 0] == 0
        free &= base.open[domains.input].gather(1, column[:, None])[:, 0] < base.width
        if bool(free.any()):
            weight = 2 * uniform(int(free.sum()), generator=choose) - 1
            domains = halves(domains[free], column[free], weight, column[free] * 0 + level)
    return base, domains, tighten(base, domains, 8, "both")


def leaf_minimum(base: Roots, domains: Domains, weights: Tensor, points: Tensor) -> Tensor:
    """min over sampled points in the leaf [S, D] of the row; infinite where no point lies in it."""
    spec, network = base.problem.specification, base.problem.network
    least = torch.full((len(weights), len(domains)), math.inf, dtype=torch.float64)
    for x in points:
        z = x[domains.input].expand(len(weights), len(domains), -1)
        beyond = []
        for layer, parameters in zip(network.layers, network.split(weights), strict=True):
            if isinstance(layer, ACTIVATIONS):
                beyond += [z - kink for kink in layer.traits.splits]
                z = layer(z)
            else:
                z = torch.baddbmm(parameters[1].unsqueeze(1), z, parameters[0])
        row = (spec.rows[domains.input, 0] * z).sum(-1) + spec.offsets[domains.input, 0]
        sides = torch.cat([*beyond, torch.zeros_like(z[..., :1])], -1)
        own = sides.gather(2, base.open[domains.input].expand(len(weights), -1, -1))
        inside = (own * domains.splits.sign() >= 0).all(-1)
        least = torch.where(inside & (row < least), row, least)
    return least


@pytest.mark.parametrize("std", [1e-9, 0.01, 0.2])
def test_the_tail_of_a_leaf(std: float) -> None:
    """P(hidden intervals hold and the row falls below m - tL somewhere in the leaf) <= Q(t), for
    random leaves at one kink of a neuron or at both."""
    met = 0
    for seed in range(32):
        activation = CLIPS[seed % 4]
        problem = tight(seed, activation, (2, 4, 1) if seed % 2 else (2, 3, 3, 1), std)
        base, domains, found = random_leaves(problem, seed, 4)
        generator = torch.Generator().manual_seed(seed)
        weights = draw_many(problem.posterior, 500, generator)
        points = sample_region(problem.specification.region, 40, generator)
        least = leaf_minimum(base, domains, weights, points)
        met += int((least < math.inf).any(0).sum())
        charge = base.traced.charge[domains.input]
        for t in (0.0, 1.0, 2.0):
            share = (least < found.value - t * found.lipschitz).double().mean(0)
            limit = 0.5 * math.erfc(t / math.sqrt(2)) + charge
            error = 4 * (limit * (1 - limit).clamp_min(0) / 500).sqrt() + 4 / 500
            assert bool((share <= limit + error).all()), seed
    assert met > 60


def children(problem: Problem) -> Iterator[tuple[Tensor, Tensor]]:
    """Values of domains and, twice as many, of their halves before anything is searched."""
    region = problem.specification.region
    traced = trace(problem.network, problem.posterior, region, 4.0)
    base = roots(problem, problem.posterior.mean, traced)
    index = torch.arange(len(problem))
    parent = tighten(base, whole(base, index, torch.zeros_like(index)), 20, "both")
    open_still = (parent.branch >= 0).nonzero().squeeze(1)
    chosen = parent.branch[open_still], parent.weight[open_still], torch.zeros_like(open_still)
    own = halves(parent.domains[open_still], *chosen)
    yield parent.value[open_still].repeat(2), evaluate(base, own).value[:, 0]
    again = tighten(base, own, 5, "both")
    stored = evaluate(base, again.domains)
    torch.testing.assert_close(stored.value[:, 0], again.value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(stored.lipschitz[:, 0], again.lipschitz, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("activation", [Hardtanh(-0.3, 99), Hardtanh(-99, 0.3)], ids=str)
def test_children_are_at_least_as_good_as_their_parents(activation: Activation) -> None:
    """Of one kink in reach, where the slope rises or where it falls; and what is found is what is
    stored."""
    count = 0
    for seed in range(10):
        for before, after in children(open_problem(seed, (3, 8, 3), 4, 1e-8, activation)):
            assert bool((after >= before - 1e-6).all()), seed
            count += len(after)
    assert count > 20


def test_both_kinks_of_a_neuron_are_listed_and_split() -> None:
    """Places: of each layer all neurons at the first kink, then all at the second, before those of
    the next layer."""
    network = Network((2,), (Dense(2, 3), Hardtanh(), Dense(3, 2), ReLU(), Dense(2, 1)))
    mean = torch.zeros(network.size, dtype=torch.float64)
    mean[:3] = vector(2.0, 0.5, 1.5)
    region = ball(torch.zeros(1, 2, dtype=torch.float64), 1)
    problem = Problem(network, Normal(mean, mean * 0 + 1e-6), half_space(region, vector(1.0), 1.0))
    traced = trace(network, problem.posterior, region, 4.0)
    base = roots(problem, mean, traced)
    assert base.starts == {1: 0, 3: 6}
    assert base.width == 8
    assert base.open.tolist() == [[0, 2, 3, 5, 6, 7]]


def test_sums_of_clips_are_read_too() -> None:
    """A layer that reads two clipped nodes."""
    layers = (Dense(2, 3), Hardtanh(), Dense(3, 3), Hardtanh(0, 1), Add(), Dense(3, 1))
    reads = ((0,), (1,), (2,), (3,), (2, 4), (5,))
    network = Network((2,), layers, reads)
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        mean = gaussian(network.size, generator=generator)
        x = gaussian(2, 2, generator=generator)
        spec = half_space(ball(x, 0.4), vector(1.0), 2.0)
        problem = Problem(network, Normal(mean, 0.01 * mean.abs()), spec)
        assert_below_truth(problem, bounds(problem)[1], seed)

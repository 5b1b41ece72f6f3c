"""Laws against brute force: thousands of tiny networks, and the traps that have caught others."""

from __future__ import annotations

import math
import random
from itertools import count

import pytest
import torch
from torch import Tensor

from bnncert import Problem, ball, half_space, mlp
from bnncert.laws.proof import prove_laws
from bnncert.layers import ReLU, Softplus, Tanh
from bnncert.model.specification import Specification, output_interval
from bnncert.posteriors.independent import Normal
from scenarios import gaussian, normal, uniform, vector
from truth import (
    DRAWS,
    STDS,
    WIDTHS,
    assert_below,
    assert_below_truth,
    refuted_by_laws,
    robust_share,
    tiny,
)


def compared(problem: Problem, share: Tensor, seed: int) -> float:
    """The sum of what is proved, which is nowhere above the share of sampled networks."""
    assert isinstance(problem.posterior, Normal)
    lower = torch.tensor([law.bound for law in prove_laws(problem, problem.posterior)])
    assert_below(lower.double(), share, seed)
    return float(lower.sum())


@pytest.mark.parametrize("block", range(5))
def test_never_above_the_truth(block: int) -> None:
    """And not by giving nothing. Where every sampled network is safe no bound can be above."""
    sums = []
    for seed in count(1000 * block):
        problem = tiny(seed)
        share = robust_share(problem, seed)
        if float(share.min()) < 1:
            sums.append(compared(problem, share, seed))
        if len(sums) == 40:
            break
    assert sum(sums) > 25


@pytest.mark.slow
@pytest.mark.parametrize("block", range(100))
def test_thousands_never_above_the_truth(block: int) -> None:
    for seed in range(10_000 + 100 * block, 10_100 + 100 * block):
        compared(tiny(seed), robust_share(tiny(seed), seed), seed)


def one(mean: list[float], std: list[float], offset: float = 0.0, eps: float = 0.0) -> Problem:
    """y = v relu(w x + b) + β + offset > 0 near x = 1; weights w, b, v, β."""
    region = ball(vector(1.0).reshape(1, 1), eps)
    posterior = Normal(vector(*mean), vector(*std))
    return Problem(mlp(1, 1, 1), posterior, half_space(region, vector(1.0), -offset))


def bound(problem: Problem) -> float:
    assert isinstance(problem.posterior, Normal)
    (law,) = prove_laws(problem, problem.posterior)
    return law.bound


@pytest.mark.parametrize(
    ("mean", "std", "offset", "truth"),
    [
        # Cells at their midpoints give .691.
        ([1.0, 0.0, 0.0, 0.01], [1e-9, 0.0, 1.0, 0.0], 0.0, float(normal.cdf(0.01))),
        # The noise of β, sampled on a coarse lattice of frequencies, vanishes: .99998.
        ([0.0, 0.0, 0.0, 2.296], [0.0, 0.0, 0.0, 1.0], 0.0, float(normal.cdf(2.296))),
        # A coarse inversion of an atom: relu(N(0, 1)) > .01 with .496, given as .715.
        ([0.0, 0.0, 1.0, -0.01], [1.0, 0.0, 0.0, 0.0], 0.0, float(normal.sf(0.01))),
        # The sign of z is 0 at the centre of a cell, in neither half.
        ([0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], 0.0, 0.25),
        # Ties are not safe.
        ([0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], 0.0, 0.0),
        ([1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], -1.0, 0.0),
    ],
)
def test_known_answers_at_a_point(
    mean: list[float], std: list[float], offset: float, truth: float
) -> None:
    """Never above, and near."""
    found = bound(one(mean, std, offset))
    assert truth - 0.08 <= found <= truth


def test_signed_inputs_and_large_noise() -> None:
    """With |c_j| left out bound S gave .9905 for .977: κ has the sign of c here."""
    generator = torch.Generator().manual_seed(5)
    for seed in range(20):
        network = mlp(2, 2, 1)
        mean = gaussian(network.size, generator=generator)
        problem = Problem(
            network,
            Normal(mean, torch.full_like(mean, 1.0)),
            half_space(ball(-3 * uniform(1, 2, generator=generator), 0.3), vector(1.0), -8.0),
        )
        assert_below_truth(problem, torch.tensor([bound(problem)]).double(), seed)


def test_a_point_is_no_less_safe_than_a_ball() -> None:
    found = [bound(one([1.0, 0.5, 1.0, 0.5], [0.3] * 4, eps=eps)) for eps in (0, 0.1, 0.3, 2.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.99
    assert found[-1] < 0.957  # P(β > 0) = .952, and more fail far off


def interval(seed: int, eps: float) -> Problem:
    """A regression network of wide weights, and an output that is sometimes near its mean."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    activation = choose.choice((ReLU(), Tanh(), Softplus()))
    network = mlp(2, choose.choice(WIDTHS), 1, activation=activation)
    std = choose.choice(STDS[1:]) * uniform(network.size, generator=generator)
    mean = choose.choice((0.3, 1.0)) * gaussian(network.size, generator=generator)
    region = ball(gaussian(1, 2, generator=generator), eps)
    middle, width = float(network.forward(mean, region.center)), choose.choice((0.1, 0.5, 2.0))
    spec = output_interval(region, middle - width, middle + choose.choice((0.5, 1.0)) * width)
    return Problem(network, Normal(mean, std), spec)


def counted_twice(seeds: range, eps: float) -> int:
    """How often both ends count: upper bounds are not below the truth, and at points near it."""
    counted = 0
    for seed in seeds:
        problem = interval(seed, eps)
        assert isinstance(problem.posterior, Normal)
        (share,) = robust_share(problem, seed).tolist()
        error = 4 * math.sqrt(share * (1 - share) / DRAWS) + 8 / DRAWS
        (found,) = refuted_by_laws(problem, problem.posterior)
        if found is None:
            assert share > 0.95
            continue
        counted += found.opposite is not None
        assert found.upper >= share - error, seed
        assert eps or found.upper <= share + error + 0.08, (seed, found.upper, share)
    return counted


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_both_ends_of_an_interval_count(eps: float) -> None:
    assert counted_twice(range(12), eps) > 4


def test_terms_may_be_far_from_0_where_their_sum_hardly_varies() -> None:
    """Five terms of up to 2.6 whose sum has a standard deviation of .07: no window of its own size
    holds them."""
    problem = interval(1392, 0.0)
    assert isinstance(problem.posterior, Normal)
    (share,) = robust_share(problem, 0).tolist()
    (law,) = prove_laws(problem, problem.posterior)
    assert share - 0.05 < law.bound < share + 0.03
    assert counted_twice(range(1392, 1393), 0.0) == 1


@pytest.mark.slow
@pytest.mark.parametrize("eps", [0.0, 0.01, 0.1])
def test_both_ends_of_hundreds_of_intervals_count(eps: float) -> None:
    assert counted_twice(range(1000, 1400), eps) > 100


def test_ends_that_cross_are_never_both_held() -> None:
    """1 < y < -1 of a network whose y is 0 but for little noise."""
    (found,) = refuted_by_laws(*crossed())
    assert found is not None
    assert found.upper < 1e-6


def crossed() -> tuple[Problem, Normal]:
    problem = one([0.0, 0.0, 0.0, 0.0], [0.1] * 4)
    assert isinstance(problem.posterior, Normal)
    rows, offsets = vector(1.0, -1.0).reshape(1, 2, 1), vector(-1.0, -1.0).reshape(1, 2)
    spec = Specification(problem.specification.region, rows, offsets)
    return Problem(problem.network, problem.posterior, spec), problem.posterior


def test_upper_bounds_hold() -> None:
    """P_safe <= P(row > 0 at the point), by quadrature: v relu(z) + β with v = 1."""
    problem = one([1.0, 0.0, 1.0, -0.5], [1.0, 0.0, 0.0, 0.0], eps=0.2)
    assert isinstance(problem.posterior, Normal)
    (found,) = refuted_by_laws(problem, problem.posterior)
    assert found is not None
    truth = float(normal.cdf(1 - 0.5 / 0.8))  # w > .5/x at x = .8
    assert truth <= found.upper <= truth + 0.06
    assert math.isclose(float(found.point), 0.8, rel_tol=1e-6)

"""Joint laws at a point against quadrature and brute force, and what laws of single rows give."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from scipy import integrate, stats

from bnncert import Concentration, Problem, ball, certify, half_space, mlp
from bnncert.evidence.concentration import Refutation
from bnncert.joint.neurons import cells
from bnncert.joint.search import prove, refute, share
from bnncert.joint.series import chance
from bnncert.joint.setting import setting
from bnncert.laws.head import head
from bnncert.laws.proof import prove_laws
from bnncert.laws.upper import worst_points
from bnncert.layers import Hardtanh, LeakyReLU, PReLU, ReLU, Sigmoid, Tanh
from bnncert.model.activations import Activation
from bnncert.model.specification import class_robust, output_interval
from bnncert.posteriors.independent import Normal
from scenarios import draw_many, gaussian, noisy, normal, vector
from truth import DRAWS, accepted_around, assert_below, refuted_by_laws, robust_share

WIDTHS = (1, 2, 3, 5, 8, 24)
STDS = (1e-3, 0.05, 0.3, 1.0, 3.0)
ACTIVATIONS = (
    ReLU(),
    LeakyReLU(0.1),
    PReLU((-0.5,)),
    Hardtanh(-1, 2),
    Hardtanh(0, 6),
    Tanh(),
    Sigmoid(),
)
ABOVE, BELOW = -1, 1


def tiny(seed: int, eps: tuple[float, ...]) -> Problem:
    """One hidden layer of 1 to 24 neurons, σ up to 3 and some of it 0, two to four classes."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 4)
    network = mlp(inputs, choose.choice(WIDTHS), outputs, activation=choose.choice(ACTIVATIONS))
    posterior = noisy(choose, generator, network.size, STDS, (0.3, 1.0, 2.0))
    center = choose.choice((0.0, 1.0)) * gaussian(2, inputs, generator=generator)
    region = ball(center, choose.choice(eps))
    labels = network.forward(posterior.mean, center).argmax(-1)
    return Problem(network, posterior, class_robust(region, labels, outputs))


def posterior_of(problem: Problem) -> Normal:
    assert isinstance(problem.posterior, Normal)
    return problem.posterior


def sampled(problem: Problem, seed: int) -> torch.Tensor:
    """The share of networks whose rows are positive at points, or on all of a region, about."""
    region = problem.specification.region
    if bool(region.eps.any()):
        return robust_share(problem, seed)
    return safe_at(problem, region.center, seed)


def safe_at(problem: Problem, points: torch.Tensor, seed: int) -> torch.Tensor:
    """The share of networks whose rows are positive at a point of every input."""
    weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
    outputs = problem.network.forward(weights, points)
    return (problem.specification.margins(outputs) > 0).all(-1).double().mean(0)


def holds(seed: int, eps: tuple[float, ...] = (0.0,)) -> float:
    """Lower ends are not above the truth, upper ones not below; how far both are from [0, 1]."""
    problem = tiny(seed, eps)
    posterior = posterior_of(problem)
    if eps == (0.0,):
        bounds = [found.bound if found else 0.0 for found in prove(problem, posterior)]
    else:
        laws = share(problem, posterior, prove_laws(problem, posterior))
        bounds = [max(0.0, law.bound) for law in laws]
    assert_below(torch.tensor(bounds).double(), sampled(problem, seed), seed)
    gained, center = sum(bounds), problem.specification.region.center
    points = {i: one.point for i, one in worst_points(problem, posterior).items()}
    # An upper end is about its point: samples of a region are safe more often than all of it.
    asked = torch.stack([points.get(i, center[i]) for i in range(len(problem))])
    truth = safe_at(problem, asked, seed).tolist()
    for i, found in refute(problem, posterior, points, [None] * len(problem)).items():
        if found is None:
            continue
        error = 4 * math.sqrt(truth[i] * (1 - truth[i]) / DRAWS) + 8 / DRAWS
        assert found.upper >= truth[i] - error, seed
        gained += 1 - found.upper
    return gained


@pytest.mark.parametrize("block", range(4))
def test_the_truth_is_between_both_ends(block: int) -> None:
    """And they say something."""
    assert sum(holds(40 * block + k) for k in range(40)) > 20


@pytest.mark.parametrize("block", range(2))
def test_pairs_on_regions_do_not_pass_the_truth(block: int) -> None:
    assert sum(holds(500 + 12 * block + k, (0.01, 0.1, 0.3)) for k in range(12)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("block", range(50))
def test_thousands_hold_the_truth(block: int) -> None:
    for k in range(100):
        holds(20_000 + 200 * block + k)
        holds(20_100 + 200 * block + k, (0.01, 0.1))


def two_rows(activation: Activation) -> tuple[Problem, Normal]:
    """y = v f(z) + β of one neuron z ~ N(.3, 1.25), at x = 1, two classes against a third."""
    network = mlp(1, 1, 3, activation=activation)
    mean = vector(0.2, 0.1, 0.8, -0.3, 0.4, 0.2, 0.1, 0.0)
    std = vector(1.0, 0.5, 0.3, 0.4, 0.2, 0.1, 0.2, 0.3)
    spec = class_robust(ball(vector(1.0).reshape(1, 1), 0.0), torch.tensor([0]), 3)
    return Problem(network, Normal(mean, std), spec), Normal(mean, std)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("rows", [(0,), (1,), (0, 1), (1, 0)], ids=str)
def test_a_neuron_against_quadrature(activation: Activation, rows: tuple[int, ...]) -> None:
    """Given z both rows are exactly Gaussian: bounds hold, and are near."""
    problem, posterior = two_rows(activation)
    found = [bound(problem, posterior, rows, side) for side in (BELOW, ABOVE)]
    c = torch.tensor([[1.0, -1, 0], [1, 0, -1]]).double()[list(rows)]
    mean, std = posterior.mean, posterior.std

    def given(g: float) -> float:
        f = float(activation(vector(0.3 + math.sqrt(1.25) * g)))
        center = c @ (mean[2:5] * f + mean[5:])
        spread = (c * (std[2:5] ** 2 * f**2 + std[5:] ** 2)) @ c.mT
        if len(rows) == 1:
            return float(normal.cdf(0, float(center), math.sqrt(float(spread))))
        law = stats.multivariate_normal(center.numpy(), spread.numpy())
        return float(law.cdf([0, 0]))

    kinks = sorted((kink - 0.3) / math.sqrt(1.25) for kink in activation.traits.kinks)
    edges = sorted([-7.0, -3.0, -1.5, 0.0, 1.5, 3.0, 7.0, *kinks])
    truth = sum(
        integrate.fixed_quad(
            lambda gs: [given(g) * float(normal.pdf(g)) for g in gs], low, high, n=16
        )[0]
        for low, high in pairwise(edges)
    )
    assert found[0] <= truth + 1e-9
    assert truth - 1e-9 <= found[1]
    assert found[1] - found[0] < 4e-4


def bound(problem: Problem, posterior: Normal, rows: tuple[int, ...], side: int) -> float:
    net, spec = head(problem.network, posterior), problem.specification
    x = spec.region.center[0].flatten()
    own = setting(net, x, x, spec.rows[0], spec.offsets[0])
    found = chance(own, cells(own), rows, side)
    assert found is not None
    return found.bound


def at_point(problem: Problem, posterior: Normal) -> Refutation:
    found = refute(problem, posterior, {0: problem.specification.region.center[0]}, [None])[0]
    assert found is not None
    return found


def test_pairs_are_worth_what_rows_fail_together() -> None:
    """Two rivals that are nearly one: the union over rows counts their failures twice."""
    network = mlp(1, 1, 3)
    mean = vector(1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    std = vector(0.1, 0.1, 0.8, 0.3, 0.3, 0.1, 0.1, 0.1)
    posterior = Normal(mean, std)
    point = ball(vector(1.0).reshape(1, 1), 0.0)
    spec = class_robust(point, torch.tensor([0]), 3)
    problem = Problem(network, posterior, spec)
    (found,), (law,) = prove(problem, posterior), prove_laws(problem, posterior)
    assert found is not None
    (truth,) = robust_share(problem, 0, 20_000).tolist()
    assert law.bound < truth - 0.09
    assert truth - 0.02 < found.bound < truth + 0.01
    assert [one.rows for one in found.laws] == [(0,), (1,), (0, 1)]
    upper = at_point(problem, posterior).upper
    assert truth - 0.01 < upper < truth + 0.03


def test_opposite_rows_never_fail_together() -> None:
    """Both ends of an interval are added up, and the interval is the truth."""
    network = mlp(1, 3, 1)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(3))
    posterior = Normal(mean, torch.full_like(mean, 0.5))
    region = ball(vector(0.7).reshape(1, 1), 0.0)
    middle = float(network.forward(mean, region.center))
    problem = Problem(network, posterior, output_interval(region, middle - 0.5, middle + 1))
    (lower,) = prove(problem, posterior)
    upper = at_point(problem, posterior)
    assert lower is not None
    assert [one.rows for one in lower.laws] == [(0,), (1,)]
    (truth,) = robust_share(problem, 0, 20_000).tolist()
    assert lower.bound - 0.015 < truth < upper.upper + 0.015
    assert upper.upper - lower.bound < 1e-4


def test_ends_that_cross_are_not_added_up() -> None:
    """y > 0 and y < 0 - d: the rows' sum is below 0, and they do fail together."""
    network = mlp(1, 1, 1)
    posterior = Normal(vector(0.5, 0.1, 1.0, 0.0), torch.full((4,), 0.3).double())
    region = ball(vector(1.0).reshape(1, 1), 0.0)
    spec = output_interval(region, 0.0, 1.0)
    crossed = type(spec)(region, spec.rows, vector(0.0, -1e-3).reshape(1, 2))
    problem = Problem(network, posterior, crossed)
    found = refute(problem, posterior, {0: region.center[0]}, [None]).get(0)
    assert found is None or found.upper >= 0
    assert prove(problem, posterior)[0] is None


@pytest.mark.parametrize("std", [0.0, 1.0])
def test_what_a_series_cannot_say_is_left_to_others(std: float) -> None:
    """A row that is an atom, and one whose only noise is of the first layer: v relu(z) > .01."""
    posterior = Normal(vector(0.5, 0.0, 1.0, 0.0), vector(std, 0.0, 0.0, 0.0))
    region = ball(vector(1.0).reshape(1, 1), 0.0)
    problem = Problem(mlp(1, 1, 1), posterior, half_space(region, vector(1.0), 0.01))
    (found,) = prove(problem, posterior)
    truth = float(normal.sf(0.01 - 0.5)) if std else 1.0
    assert found is None or found.bound <= truth


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_on_a_gpu(eps: float) -> None:
    for seed in range(20):
        problem = tiny(seed, (eps,))
        here, there = (
            [(found.lower, found.upper) for found in certify(one, Concentration(upper=True))]
            for one in (problem, problem.to("cuda"))
        )
        assert torch.tensor(here).allclose(torch.tensor(there), rtol=0, atol=1e-5), seed


def test_a_certain_row_is_beside_others() -> None:
    """Two outputs are 1 and 0 for sure; the third is random, and laws of it are found."""
    std = vector(0.5, 0.1, 0.0, 0.0, 0.3, 0.0, 0.0, 0.2)
    posterior = Normal(vector(0.5, 0.0, 0.0, 0.0, 0.7, 1.0, 0.0, 0.3), std)
    point = ball(vector(1.0).reshape(1, 1), 0.0)
    problem = Problem(mlp(1, 1, 3), posterior, class_robust(point, torch.tensor([0]), 3))
    (truth,) = robust_share(problem, 0, 20_000).tolist()
    assert prove(problem, posterior) == [None]
    upper = at_point(problem, posterior).upper
    assert truth - 0.01 < upper < truth + 0.01


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
def test_laws_of_rows_stay_where_a_series_needs_smoothing(activation: Activation) -> None:
    """Behind a certain output the characteristic function falls slowly, and smoothing costs."""
    network = mlp(1, 8, 2, activation=activation)
    mean = gaussian(network.size, generator=torch.Generator().manual_seed(1))
    std = torch.where(torch.arange(network.size) < 16, 0.5, 0.0).double()
    posterior = Normal(mean, std)
    point = ball(vector(0.7).reshape(1, 1), 0.0)
    middle = float(network.forward(mean, point.center) @ vector(1.0, -1.0))
    problem = Problem(network, posterior, half_space(point, vector(1.0, -1.0), middle - 0.2))
    (law,), (refuted,) = prove_laws(problem, posterior), refuted_by_laws(problem, posterior)
    assert refuted is not None
    (result,) = certify(problem, Concentration(upper=True))
    assert result.lower > law.bound - 1e-4
    assert result.upper < refuted.upper + 1e-4


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_tails_of_little_noise_are_not_lost(sign: float) -> None:
    """v tanh(1) + β is Gaussian, and thousands of its deviations from 0 by its neuron alone: no
    moment of that is a float."""
    posterior = Normal(vector(1.0, 0.0, sign * 5.0, 0.0), vector(0.0, 0.0, 1e-3, 1e-3))
    point = ball(vector(1.0).reshape(1, 1), 0.0)
    f = math.tanh(1.0)
    space = half_space(point, vector(1.0), sign * 5.0 * f)
    problem = Problem(mlp(1, 1, 1, activation=Tanh()), posterior, space)
    net, x = head(problem.network, posterior), point.center[0]
    own = setting(net, x, x, space.rows[0], space.offsets[0])
    found = chance(own, cells(own), (0,), BELOW)
    assert found is not None
    (window,) = found.windows
    std = 1e-3 * math.hypot(f, 1.0)
    assert window.lost > float(normal.cdf(window.low / std) + normal.sf(window.high / std))


@pytest.mark.parametrize("activation", [ReLU(), Sigmoid()], ids=str)
@pytest.mark.parametrize("std", [1e-8, 1e-6])
def test_roundings_are_charged(tmp_path: Path, activation: Activation, std: float) -> None:
    """Where noise is next to nothing, roundings of means are much of a deviation."""
    network = mlp(4, 8, 3, activation=activation)
    mean = 3 * gaussian(network.size, generator=torch.Generator().manual_seed(5))
    posterior = Normal(mean, torch.full_like(mean, std))
    point = ball(vector(0.7, -0.3, 1.1, 0.4).reshape(1, 4), 0.0)
    row = vector(1.0, 0.3, -0.7)
    middle = float(network.forward(mean, point.center) @ row)
    problem = Problem(network, posterior, half_space(point, row, middle))
    (result,) = certify(problem, Concentration(upper=True))
    assert result.lower < 0.5 < result.upper
    assert result.upper - result.lower < 1e-2
    accepted_around(problem, *robust_share(problem, 0, 2000).tolist(), 2000, tmp_path)

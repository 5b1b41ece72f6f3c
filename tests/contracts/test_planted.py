"""Planted counterexamples: unsafe weights and inputs of a probability known in closed form, never
certified away."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from scipy import stats

from bnncert import certify
from bnncert.bounds import BOUNDS
from bnncert.layers import Dense, ReLU, Tanh
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball, class_robust, explicit_box, half_space
from bnncert.posteriors.independent import Independent, Laplace, Normal, StudentT, Uniform
from scenarios import gaussian, uniform, vector

METHODS: dict[str, Sampling | PIE | GIE] = {
    "sampling": Sampling(samples=3, step=0.6),
    "pie": PIE(samples=3, step=0.2, budget=200),
    "gie": GIE(samples=3, step=0.2, budget=200),
    "pie by bisection": PIE(samples=3, step=0.05, walk="bisection", budget=200),
}
EVERY = {**METHODS, "concentration": Concentration()}


@dataclass(frozen=True, eq=False)
class Planted:
    """A problem whose P_safe is at most `safe`: in each an unsafe (w, x) was hidden with
    probability 1 - safe."""

    problem: Problem
    safe: float


def normal(mean: list[float], std: list[float]) -> Normal:
    return Normal(vector(*mean), vector(*std))


def slope(seed: int) -> Planted:
    """y = w x + c > 0 for |x - 1| <= r, only w random: unsafe iff w <= -c / (1 + r), found at the
    far end of x."""
    choose = random.Random(seed)
    mean, std, c, r = (
        choose.uniform(-0.2, 1),
        choose.uniform(0.1, 1),
        choose.uniform(0.1, 0.5),
        choose.uniform(0, 0.9),
    )
    network = Network((1,), (Dense(1, 1),))
    spec = half_space(ball(vector(1.0).reshape(1, 1), r), vector(1.0), 0.0)
    # w (1 - r) + c > 0 follows from w (1 + r) + c > 0 for w < 0, and holds for w >= 0
    return Planted(
        Problem(network, normal([mean, c], [std, 0]), spec), stats.norm.sf(-c / (1 + r), mean, std)
    )


def trigger(seed: int) -> Planted:
    """y = 1 - k ReLU(w x - t): a neuron that is dead at the mean and wakes when w (1 + r) > t + 1 /
    k breaks safety."""
    choose = random.Random(seed)
    mean, std, t, k, r = (
        choose.uniform(-1, 1),
        choose.uniform(0.2, 1),
        choose.uniform(0.5, 2),
        3.0,
        0.25,
    )
    network = mlp(1, 1, 1)
    spec = half_space(ball(vector(1.0).reshape(1, 1), r), vector(1.0), 0.0)
    posterior = normal([mean, -t, -k, 1.0], [std, 0, 0, 0])
    return Planted(
        Problem(network, posterior, spec), stats.norm.cdf((t + 1 / k) / (1 + r), mean, std)
    )


def offset(seed: int) -> Planted:
    """A fixed ReLU network plus a random output bias b: unsafe iff b <= -min over the region,
    reached at a vertex.

    One hidden layer of non-negative outgoing weights is convex in x; its concave mirror has its
    minimum at a vertex.
    """
    generator = torch.Generator().manual_seed(seed)
    network = mlp(2, 3, 1)
    weights = gaussian(network.size, generator=generator)
    weights[9:12] = -weights[9:12].abs()
    x = uniform(1, 2, generator=generator)
    region = ball(x, 0.2)
    corners = torch.cartesian_prod(
        *(torch.stack(ends) for ends in zip(region.box.lower[0], region.box.upper[0], strict=True))
    )
    weights[12] = 0.0
    lowest = float(network.forward(weights, corners).min())
    std = torch.zeros(network.size, dtype=torch.float64)
    std[12] = 0.5
    weights[12] = -lowest + 0.4
    problem = Problem(network, Normal(weights, std), half_space(region, vector(1.0), 0.0))
    return Planted(problem, stats.norm.sf(-lowest, float(weights[12]), 0.5))


def pair(seed: int) -> Planted:
    """Two outputs, each with its own random weight; both must stay above a threshold: the masses
    multiply."""
    choose = random.Random(seed)
    means, stds = (
        [choose.uniform(0, 1) for _ in range(2)],
        [choose.uniform(0.1, 1) for _ in range(2)],
    )
    network = Network((1,), (Dense(1, 2, bias=False),))
    rows = torch.eye(2, dtype=torch.float64).unsqueeze(0)
    spec = Specification(ball(vector(1.0).reshape(1, 1), 0.0), rows, vector(0.3, 0.2).unsqueeze(0))
    safe = stats.norm.sf(-0.3, means[0], stds[0]) * stats.norm.sf(-0.2, means[1], stds[1])
    return Planted(Problem(network, normal(means, stds), spec), safe)


def saturated(seed: int) -> Planted:
    """y = b + w tanh(9 x), |x| <= 1: unsafe iff b <= |w| tanh 9; b fixed, w random."""
    choose = random.Random(seed)
    mean, std, b = choose.uniform(-0.5, 0.5), choose.uniform(0.2, 1), choose.uniform(0.3, 1)
    network = Network((1,), (Dense(1, 1, bias=False), Tanh(), Dense(1, 1)))
    spec = half_space(ball(vector(0.0).reshape(1, 1), 1.0), vector(1.0), 0.0)
    edge = b / float(vector(9.0).tanh())
    safe = stats.norm.cdf(edge, mean, std) - stats.norm.cdf(-edge, mean, std)
    return Planted(Problem(network, normal([9.0, mean, b], [0, std, 0]), spec), safe)


PLANTS: dict[str, Callable[[int], Planted]] = {
    "slope": slope,
    "trigger": trigger,
    "offset": offset,
    "pair": pair,
    "saturated": saturated,
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("seed", range(6))
def test_planted_weights_are_never_certified(plant: str, name: str, seed: int) -> None:
    """lower <= 1 - p, where p is the probability of the hidden counterexample."""
    planted = PLANTS[plant](seed)
    assert certify(planted.problem, EVERY[name], seed=seed)[0].lower <= planted.safe


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("bound", sorted(BOUNDS))
@pytest.mark.parametrize("seed", range(3))
def test_no_bound_overlooks_them(plant: str, bound: str, seed: int) -> None:
    """The same with every bound."""
    planted = PLANTS[plant](seed)
    method = replace(METHODS["gie"], bound=bound)
    assert certify(planted.problem, method, seed=seed)[0].lower <= planted.safe


@pytest.mark.parametrize("plant", PLANTS)
def test_the_plants_are_as_claimed(plant: str) -> None:
    """Of 40,000 networks drawn the share that an input grid does not break is `safe`, within five
    standard errors."""
    planted = PLANTS[plant](0)
    posterior, spec = planted.problem.posterior, planted.problem.specification
    generator = torch.Generator().manual_seed(0)
    w = posterior.mean + posterior.std * gaussian(40_000, posterior.size, generator=generator)  # type: ignore[attr-defined]
    ends = zip(spec.region.box.lower[0].tolist(), spec.region.box.upper[0].tolist(), strict=True)
    grid = torch.cartesian_prod(*(torch.linspace(l, u, 9, dtype=torch.float64) for l, u in ends))
    outputs = planted.problem.network.forward(w, grid.reshape(-1, spec.region.center.shape[1]))
    share = float(
        ((outputs @ spec.rows[0].mT + spec.offsets[0]) > 0).all(-1).all(-1).double().mean()
    )
    assert share == pytest.approx(planted.safe, abs=5 * 0.5 / 200)
    assert 0.05 < planted.safe < 0.999


def test_plants_are_nearly_found() -> None:
    """The bounds are not vacuous: fine steps along one weight reach most of the mass that is really
    safe."""
    planted = slope(0)
    box = (
        2 * stats.norm.cdf(stats.norm.isf(1 - planted.safe)) - 1
    )  # the largest box around the mean
    lower = certify(planted.problem, PIE(samples=1, step=0.01, budget=1000))[0].lower
    assert box - 0.01 <= lower <= box


def families() -> dict[str, tuple[Independent, object]]:
    """A random weight of each family around 1, with its law."""
    return {
        "normal": (Normal(vector(1.0), vector(0.6)), stats.norm(1.0, 0.6)),
        "laplace": (Laplace(vector(1.0), vector(0.6)), stats.laplace(1.0, 0.6)),
        "student-t": (StudentT(vector(1.0), vector(0.6), vector(3.0)), stats.t(3.0, 1.0, 0.6)),
        "uniform": (Uniform(vector(-0.5), vector(2.5)), stats.uniform(-0.5, 3.0)),
    }


@pytest.mark.parametrize("family", families())
@pytest.mark.parametrize("name", METHODS)
def test_planted_in_every_family(family: str, name: str) -> None:
    """w > 0 with w of any family: certified below P(w > 0), and not far below with a box up to the
    edge."""
    posterior, law = families()[family]
    spec = half_space(ball(vector(1.0).reshape(1, 1), 0.0), vector(1.0), 0.0)
    problem = Problem(Network((1,), (Dense(1, 1, bias=False),)), posterior, spec)
    lower = certify(problem, METHODS[name], seed=1)[0].lower
    assert 0.4 < lower <= law.sf(0.0)  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------- nothing is random


def fixed(network: Network, weights: torch.Tensor, spec: Specification) -> Problem:
    return Problem(network, Normal(weights, torch.zeros_like(weights)), spec)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("bound", sorted(BOUNDS))
def test_a_safe_deterministic_network_is_certain(name: str, bound: str) -> None:
    """With every σ = 0 a network that is safe on the region is safe with probability exactly 1."""
    spec = half_space(ball(vector(1.0, 1.0).unsqueeze(0), 0.25), vector(1.0), 0.0)
    problem = fixed(mlp(2, 1), vector(1.0, 1.0, -1.0), spec)  # x0 + x1 - 1 >= 0.5
    (result,) = certify(problem, replace(METHODS[name], bound=bound))
    assert (result.lower, result.upper, result.status) == (1.0, 1.0, "certified")


def unsafe_corner() -> Problem:
    """x0 + x1 - 1.5 over [0.75, 1.25]²: 0 at one vertex, a tie, and positive everywhere else."""
    spec = half_space(
        explicit_box(Box(vector(0.75, 0.75).unsqueeze(0), vector(1.25, 1.25).unsqueeze(0))),
        vector(1.0),
        0.0,
    )
    return fixed(mlp(2, 1), vector(1.0, 1.0, -1.5), spec)


def unsafe_inside() -> Problem:
    """1 - 2 ReLU(x - 0.4) - 2 ReLU(0.6 - x) over [0, 1] dips below 0 at the ends only, where the
    kinks do not show."""
    network = Network((1,), (Dense(1, 2), ReLU(), Dense(2, 1)))
    spec = half_space(
        explicit_box(Box(vector(0.0).reshape(1, 1), vector(1.0).reshape(1, 1))), vector(1.0), 0.0
    )
    return fixed(network, vector(1.0, -1.0, -0.4, 0.6, -2.0, -2.0, 1.0), spec)


def unsafe_class() -> Problem:
    """Classes x and 1 - x around x = 0.6: the second wins from 0.5 down, inside the region."""
    network = Network((1,), (Dense(1, 2),))
    spec = class_robust(ball(vector(0.6).reshape(1, 1), 0.1), [0], 2)
    return fixed(network, vector(1.0, -1.0, 0.0, 1.0), spec)


@pytest.mark.parametrize("build", [unsafe_corner, unsafe_inside, unsafe_class])
@pytest.mark.parametrize("name", EVERY)
def test_an_unsafe_deterministic_network_is_never_certified(
    build: Callable[[], Problem], name: str
) -> None:
    """One unsafe input in the region, be it a single vertex or a tie, leaves nothing to certify."""
    method: Method = EVERY[name]
    (result,) = certify(build(), method)
    assert (result.lower, result.certificate) == (0.0, None)


@pytest.mark.parametrize("bound", sorted(BOUNDS))
@pytest.mark.parametrize("build", [unsafe_corner, unsafe_inside, unsafe_class])
def test_no_bound_proves_an_unsafe_network(build: Callable[[], Problem], bound: str) -> None:
    (result,) = certify(build(), PIE(samples=1, bound=bound))
    assert result.lower == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_random_deterministic_networks_with_a_planted_input(seed: int) -> None:
    """Random networks, and a threshold that one hidden input of the region does not reach: never
    certified."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(2, 4, 1)
    weights, x = gaussian(network.size, generator=generator), uniform(1, 2, generator=generator)
    hidden = x + 0.1 * (2 * uniform(1, 2, generator=generator) - 1)
    spec = half_space(ball(x, 0.1), vector(1.0), float(network.forward(weights, hidden)) + 1e-12)
    for bound in sorted(BOUNDS):
        assert certify(fixed(network, weights, spec), PIE(samples=1, bound=bound))[0].lower == 0.0

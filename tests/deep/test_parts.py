"""Moments, programs, majorants and products, each against what it bounds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.stats import norm

from bnncert.deep.ends import Second, beyond, find
from bnncert.deep.majorants import Factors, Moments, Tails, choose, lifted
from bnncert.deep.moments import log_moment, tilted
from bnncert.deep.products import Exponent, Inputs, bound
from bnncert.deep.programs import solve


def integral(m: float, v: float, a: float, b: float, cap: float) -> float:
    """E[exp(ah + bh²/2); h <= cap] by quadrature."""
    s = v**0.5
    top = min(cap, max(m, (m + a * v) / (1 - b * v)) + 12 * s / max(1 - b * v, 0.05) ** 0.5)
    density = norm(m, s).pdf
    inside = quad(lambda z: np.exp(a * z + b * z * z / 2) * density(z), 0, max(top, 0), limit=400)
    return float(norm.cdf(-m / s) + inside[0])


@pytest.mark.parametrize(
    ("m", "v", "a", "b", "cap"),
    [
        (0.0, 1.0, 0.5, 0.0, 3.0),
        (-3.0, 1.0, 4.0, 0.1, 1.5),
        (2.0, 0.5, -3.0, -2.0, 5.0),
        (-8.0, 2.0, 0.0, 0.2, 0.0),
        (-6.0, 0.3, 9.0, 0.4, 2.0),
    ],
)
def test_moments(m: float, v: float, a: float, b: float, cap: float) -> None:
    found = log_moment(*(np.array(x) for x in (m, v, a, b, cap)))
    assert float(found) == pytest.approx(np.log(integral(m, v, a, b, cap)), abs=1e-7)


def test_steep_moments_are_above() -> None:
    found = float(log_moment(*(np.array(x) for x in (0.0, 1.0, 0.2, 0.9, 2.0))))
    exact = np.log(integral(0.0, 1.0, 0.2, 0.9, 2.0))
    assert exact <= found < exact + 0.5


def test_tilts() -> None:
    """Of relu(N(0, 1)), nearly uncut: 1/√(2π) and 1/2 - 1/2π."""
    zero = np.zeros(1)
    mean, variance = tilted(zero, zero + 1, zero, zero, zero + 9)
    assert mean[0] == pytest.approx(0.398942, abs=1e-4)
    assert variance[0] == pytest.approx(0.5 - 0.159155, abs=1e-3)


def test_programs_against_another_solver() -> None:
    generator = np.random.default_rng(0)
    rows = np.concatenate([np.ones((20, 30, 1)), generator.normal(size=(20, 30, 3))], 2)
    rows[..., 3] = rows[..., 1] ** 2
    least = generator.normal(size=(20, 30))
    cost = np.tile([1.0, 0.0, 0.0, 1.0], (20, 1))
    cost[:, 1:] = rows[:, :5, 1:].mean(1)  # of a law on the rows: bounded below
    floors = np.array([-np.inf, -np.inf, -np.inf, 0.0])
    found = solve(rows, least, cost, floors)
    for i in range(20):
        ends = [(None, None)] * 3 + [(0, None)]
        other = linprog(cost[i], A_ub=-rows[i], b_ub=-least[i], bounds=ends)
        assert cost[i] @ found[i] == pytest.approx(other.fun, abs=1e-6)
        assert (rows[i] @ found[i] >= least[i] - 1e-6).all()


@pytest.mark.parametrize("bent", [True, False])
def test_majorants_are_above_between_the_nodes(bent: bool) -> None:
    generator = np.random.default_rng(1)
    size, draws = 40, 4000
    ends = np.stack(
        [
            generator.uniform(-9, -1, size),
            generator.uniform(0, 6, size),
            generator.uniform(0.1, 1, size),
            generator.uniform(1.5, 8, size),
        ],
        1,
    )
    b, c = generator.normal(size=size), generator.uniform(0, 0.1, size)
    ceiling = np.where(generator.uniform(size=size) < 0.3, 4.0, np.inf)
    factors = Factors(b, np.where(np.isfinite(ceiling), 0, c), ceiling)
    middle = (ends[:, 0] + ends[:, 1]) / 2
    about = Moments(middle, np.full(size, 2.0), ends[:, 2:].mean(1))
    m = generator.uniform(ends[:, :1], ends[:, 1:2], (size, draws))
    t = generator.uniform(ends[:, 2:3], ends[:, 3:], (size, draws))
    for parts in (factors, Tails(np.full(size, 2.0))):
        found = lifted(parts, ends, choose(parts, ends, about, bent))
        excess = parts.log(m, t) - found.at(m, t) - found.level[:, None]
        assert (excess <= 0).all()
        if bent:
            assert excess.max(1).mean() > -0.05  # tight somewhere


def test_products_against_sampling() -> None:
    generator = np.random.default_rng(2)
    for _ in range(20):
        size = int(generator.integers(1, 5))
        inputs = Inputs(generator.normal(size=size), np.ones(size), np.full(size, 3.0))
        root = 0.3 * generator.normal(size=(3, size))
        linear, square = generator.normal(size=size) / 2, -generator.uniform(0, 0.5, size)
        center = inputs.tilted(linear, square)[0]
        found = bound(inputs, Exponent(linear, square, root.T @ root, center)).log
        h = np.maximum(generator.normal(inputs.mean, 1, (200_000, size)), 0)
        d = h - center
        exponents = d @ linear + h**2 @ square / 2 + ((d @ root.T) ** 2).sum(1) / 2
        values = np.where((h <= 3.0).all(1), np.exp(exponents), 0)
        error = values.std() / values.mean() / len(values) ** 0.5
        assert np.log(values.mean()) - 5 * error <= found <= np.log(values.mean()) + 1


def test_rare_neurons_weigh_far_out() -> None:
    """50 neurons, m = -3, τ = 1, H = 1.01, U = 1, √β = .7/H: the value is 15.2, and .002 of it lies
    within nine deviations of X."""
    size, cap = 50, 1.01
    inputs = Inputs(np.full(size, -3.0), np.ones(size), np.full(size, cap))
    coupling = np.full((size, size), (0.7 / cap) ** 2)
    nothing = np.zeros(size)
    center = inputs.tilted(nothing, nothing)[0]
    found = bound(inputs, Exponent(nothing, nothing, coupling, center)).log
    exact = _rare(size, cap, (0.7 / cap) ** 2, float(center[0]))
    assert exact > 2
    assert found >= exact


def _rare(size: int, cap: float, strength: float, center: float) -> float:
    """log E[exp(½ strength (Σδ)²); h <= cap] over how many are alive, each at a value of a grid."""
    grid = np.linspace(0, cap, 102)
    one = np.diff(norm.cdf(grid + 3))  # each cell counts as its lower end
    one[0] += norm.cdf(3.0)
    law = np.zeros(101 * size + 1)
    law[0] = 1.0
    for _ in range(size):
        law = np.convolve(law, one)[: len(law)]
    total = np.arange(len(law)) * (cap / 101) - size * center
    with np.errstate(divide="ignore"):
        return float(np.logaddexp.reduce(np.log(law) + strength * total**2 / 2))


def test_ends_hold_as_often_as_they_say() -> None:
    generator = np.random.default_rng(3)
    mean, variance = generator.normal(size=6), generator.uniform(0.2, 3, 6)
    second = Second(
        generator.normal(size=(4, 6)),
        generator.uniform(0, 0.5, (4, 6)),
        generator.normal(size=4),
        generator.uniform(0.01, 0.5, 4),
    )
    known = find(mean, variance, second, 1e-2)
    h = np.maximum(generator.normal(mean, variance**0.5, (100_000, 6)), 0)
    m, t = h @ second.weight.T + second.bias, h**2 @ second.variance.T + second.bias_variance
    low, high, near, far = known.ends.T
    left = ((h > known.inputs.cap).any(1), (m < low).any(1), (m > high).any(1), (t > far).any(1))
    assert np.mean(np.any(left, 0) | (t < near).any(1)) <= known.charge
    over, _ = beyond(known, second, np.full(4, 1.0))
    z = m + t**0.5 * generator.normal(size=t.shape)
    inside = (m >= low) & (m <= high) & (t <= far) & (h <= known.inputs.cap).all(1)[:, None]
    assert (((z > 1.0) & inside).mean(0) <= over + 0.005).all()

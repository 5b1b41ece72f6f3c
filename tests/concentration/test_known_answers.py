"""Concentration certificates by hand: one weight, quadrature, noise that cancels or is tiny."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
import torch
from scipy.stats import norm

from bnncert import Concentration, Problem, certify
from bnncert.concentration.functional import Functional, functional
from bnncert.concentration.proof import row_failures
from bnncert.concentration.trace import trace
from bnncert.layers import Dense
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, half_space
from bnncert.numerics.tails import SPECIAL, expected_magnitude
from bnncert.posteriors import LowRankNormal, Normal
from one_weight import best, one_weight, planted
from scenarios import (
    gaussian,
    paper_example,
    paper_probability,
    random_problem,
    vector,
    with_posterior,
)


def test_a_margin_below_the_mean_noise_counts_as_failure() -> None:
    """z = w x + 0.05, |x| <= 1, w ~ N(0, 1): safe iff |w| < 0.05, P = 0.040; Q of a negative number
    would say 0.227."""
    lower = best(one_weight(0.0, 1.0, 0.05)).item()
    assert lower <= 2 * norm.cdf(0.05) - 1
    assert lower == 0.0


@pytest.mark.parametrize(
    ("value", "lipschitz", "expected"),
    [
        (-1.0, 1.0, 1.0),
        (0.0, 1.0, 0.5),
        (2.0, 1.0, norm.sf(2)),
        (3.0, 0.0, 0.0),
        (0.0, 0.0, 1.0),
        (-1.0, 0.0, 1.0),
        (math.nan, 1.0, 1.0),
        (1.0, math.nan, 1.0),
        (-math.inf, 1.0, 1.0),
    ],
)
def test_row_failures_by_hand(value: float, lipschitz: float, expected: float) -> None:
    found = row_failures(
        Functional(vector(value).reshape(1, 1), vector(lipschitz).reshape(1, 1))
    ).item()
    assert expected <= found <= expected + 1e-13


def test_a_linear_network_at_a_point_is_exact() -> None:
    """z = Σ w_j x_j + b is Gaussian: P(z > 0) = Φ(m / s), and the certificate loses only
    rounding."""
    network = Network((3,), (Dense(3, 1),))
    posterior = Normal(vector(1.0, -0.5, 0.3, 0.2), vector(0.5, 0.3, 0.0, 0.1))
    region = ball(vector(1.0, 2.0, -1.0).reshape(1, 3), 0)
    mean, std = 1.0 - 1.0 - 0.3 + 0.2 + 1.0, math.sqrt(0.25 + 0.36 + 0.01)
    problem = Problem(network, posterior, half_space(region, vector(1.0), -1.0))
    assert best(problem).item() == pytest.approx(norm.cdf(mean / std), abs=1e-13)
    assert best(problem).item() <= norm.cdf(mean / std)


def test_deterministic_networks_are_certified_with_probability_one() -> None:
    assert best(one_weight(0.1, 0.0, 0.2)).item() == 1.0
    assert best(one_weight(0.3, 0.0, 0.2)).item() == 0.0


def test_shared_noise_that_cancels_is_not_rounded_away() -> None:
    """L is at least |Σ_i A_i V_i x| in exact arithmetic, where the terms cancel to the last
    bits."""
    network = Network((1,), (Dense(1, 4, bias=False),))
    region = ball(vector(1.0).reshape(1, 1), 0)
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        factor, rows = gaussian(4, generator=generator), gaussian(4, generator=generator)
        rows[3] = -(rows[:3] @ factor[:3]) / factor[3]
        posterior = LowRankNormal(
            torch.zeros_like(factor), torch.zeros_like(factor), factor.reshape(4, 1)
        )
        found = functional(trace(network, posterior, region, 4.0), rows.reshape(1, 1, 4))
        exact = abs(
            sum(
                Fraction(a) * Fraction(v)
                for a, v in zip(rows.tolist(), factor.tolist(), strict=True)
            )
        )
        assert Fraction(float(found.lipschitz)) >= exact


@pytest.mark.parametrize("std", [1e-170, 1e-300, 5e-324])
def test_noise_too_small_to_square_is_still_noise(std: float) -> None:
    """z = w x with w ~ N(std, std²) is positive with probability Φ(1), not surely; x = 1e-160
    underflows too."""
    for scale in (1.0, 1e-160):
        region = ball(vector(scale).reshape(1, 1), 0)
        network = Network((1,), (Dense(1, 1, bias=False),))
        posterior = Normal(vector(std), vector(std))
        assert best(
            Problem(network, posterior, half_space(region, vector(1.0), 0.0))
        ).item() <= norm.cdf(1.0)


def test_a_diagonal_factor_equals_independent_weights() -> None:
    """diag(std) as a factor is the same distribution: the bound may only differ by how L is put
    together."""
    for seed in range(20):
        problem = random_problem(seed, norm="linf")
        posterior = problem.posterior
        same = LowRankNormal(
            posterior.mean, torch.zeros_like(posterior.std), torch.diag(posterior.std)
        )
        torch.testing.assert_close(
            best(with_posterior(problem, same)), best(problem), rtol=1e-9, atol=1e-9
        )


def test_the_papers_example_is_inside_the_interval() -> None:
    (result,) = certify(paper_example(), Concentration(upper=True))
    assert result.lower <= paper_probability() <= result.upper


@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0])
def test_planted_counterexamples_are_never_certified_away(p: float, eps: float) -> None:
    lower = best(planted(p, eps)).item()
    assert lower <= 1 - p
    assert p > 1e-3 or lower >= 1 - p - 0.01


def test_expected_magnitude_against_quadrature() -> None:
    for a, s in [(0.0, 1.0), (1.0, 0.5), (-2.0, 0.1), (1e-9, 1e-3), (5.0, 1e-150), (-1e3, 7.0)]:
        exact = folded_mean(a, s)
        found = float(expected_magnitude(vector(a), vector(s)))
        assert found == pytest.approx(exact, rel=2 * SPECIAL, abs=0)


def test_slopes_of_the_expected_magnitude() -> None:
    a = vector(0.3, -2.0, 5.0, 1e-9).requires_grad_()
    s = vector(1.0, 0.4, 1.0, 1e-3).requires_grad_()
    assert torch.autograd.gradcheck(expected_magnitude, (a, s), eps=1e-7, atol=1e-6)
    # A mean that serves several standard deviations, and limits that must not become NaN.
    wide, tiny = vector(1.0).requires_grad_(), vector(1e-300, 1e300).requires_grad_()
    for found, given in zip(
        torch.autograd.grad(expected_magnitude(wide, tiny).sum(), (wide, tiny)),
        (wide, tiny),
        strict=True,
    ):
        assert found.shape == given.shape
        assert bool(found.isfinite().all())


def folded_mean(a: float, s: float) -> float:
    with mpmath.workdps(50):
        z = mpmath.mpf(a) / s
        return float(
            s * mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(z**2) / 2)
            + a * mpmath.erf(z / mpmath.sqrt(2))
        )


def test_the_charge_of_hidden_ends_is_float64() -> None:
    """Whole number of ends times Q(t), to float64's digits: float32 would be off by 1e-8 of it, on
    either side."""
    network = mlp(1, 999, 1)
    posterior = Normal(
        torch.full((network.size,), 1.0).double(), torch.full((network.size,), 0.01).double()
    )
    traced = trace(network, posterior, ball(vector(1.0).reshape(1, 1), 0.1), 5.5)
    assert float(traced.charge) == pytest.approx(2 * 999 * float(norm.sf(5.5)), rel=1e-12)

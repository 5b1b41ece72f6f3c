"""Posterior families: centre and spread, and samples against scipy.stats."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from bnncert.errors import InputError
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import (
    FAMILIES,
    Independent,
    Laplace,
    Normal,
    StudentT,
    TruncatedNormal,
    Uniform,
)
from masses import KINDS, REFERENCE, deterministic, every_family, make
from scenarios import vector


def test_every_family_has_a_reference() -> None:
    """A new family of independent weights must be added to the contract tests."""
    independent = {name for name, kind in FAMILIES.items() if issubclass(kind, Independent)}
    assert independent == set(KINDS) == set(REFERENCE)


@pytest.mark.parametrize(
    ("posterior", "center", "spread"),
    [
        (Normal(vector(0.5), vector(0.25)), 0.5, 0.25),
        (Uniform(vector(-1.0), vector(2.0)), 0.5, 1.5),
        (TruncatedNormal(vector(0.5), vector(0.25), vector(0.0), vector(2.0)), 0.5, 0.25),
        (TruncatedNormal(vector(0.5), vector(0.25), vector(0.75), vector(2.0)), 0.75, 0.25),
        (Laplace(vector(0.5), vector(0.25)), 0.5, 0.25),
        (StudentT(vector(0.5), vector(0.25), vector(4.0)), 0.5, 0.25),
    ],
    ids=lambda value: getattr(value, "family", ""),
)
def test_center_and_spread(posterior: Independent, center: float, spread: float) -> None:
    """Where boxes are grown from and in which unit; the centre lies in the support."""
    assert float(posterior.center) == center
    assert float(posterior.spread) == spread
    assert posterior.size == 1


@every_family
@pytest.mark.parametrize(
    ("count", "size"), [(1, 20_000), (4_000, 1)], ids=["across weights", "across draws"]
)
def test_samples_follow_the_distribution(family: str, count: int, size: int) -> None:
    """Every empirical quantile at once: by the DKW inequality P(sup |F_n - F| > e) <= 2 exp(-2 n
    e²), here 1e-6."""
    draws = np.sort(sample(make(family, size), count, seed=3).flatten().numpy())
    n = count * size
    expected = REFERENCE[family].cdf(draws)
    distance = max(np.max(np.arange(1, n + 1) / n - expected), np.max(expected - np.arange(n) / n))
    assert distance <= math.sqrt(math.log(2e6) / (2 * n))


@every_family
def test_sample_moments(family: str) -> None:
    """Mean and variance within five standard errors, sd / sqrt(n) and variance * sqrt((kurtosis +
    2) / n)."""
    n = 40_000
    draws = sample(make(family, n), 1, seed=5).numpy()
    mean, variance, kurtosis = (float(moment) for moment in REFERENCE[family].stats(moments="mvk"))
    assert abs(draws.mean() - mean) <= 5 * math.sqrt(variance / n)
    assert abs(draws.var() - variance) <= 5 * variance * math.sqrt((kurtosis + 2) / n)


@every_family
def test_weights_and_draws_are_uncorrelated(family: str) -> None:
    """Neighbouring weights of one draw, and neighbouring draws of one weight: |r| <= 5 /
    sqrt(n)."""
    n = 4_000
    ranks = REFERENCE[family].cdf(sample(make(family, 2), n, seed=11).numpy())
    assert abs(np.corrcoef(ranks[:, 0], ranks[:, 1])[0, 1]) <= 5 / math.sqrt(n)
    assert abs(np.corrcoef(ranks[:-1, 0], ranks[1:, 0])[0, 1]) <= 5 / math.sqrt(n - 1)


@every_family
def test_draw_k_depends_on_seed_and_k_alone(family: str) -> None:
    """Asked for alone, in fives or in part, draw k is the same to the last bit."""
    posterior = make(family, 17)
    five = sample(posterior, 5, seed=7)
    assert five.shape == (5, 17)
    assert torch.equal(five, torch.cat([sample(posterior, 1, seed=7, first=k) for k in range(5)]))
    assert torch.equal(five[2:], sample(posterior, 3, seed=7, first=2))
    assert torch.equal(five, sample(posterior, 5, seed=7))


@every_family
def test_different_seeds_and_indices_give_different_draws(family: str) -> None:
    """No draw repeats among the first draws of neighbouring seeds."""
    draws = torch.cat([sample(make(family, 4), 5, seed) for seed in range(5)])
    assert len({tuple(draw) for draw in draws.tolist()}) == 25


def test_large_seeds_do_not_repeat_small_ones() -> None:
    """Seeds that need more than 32 bits have a sequence of their own, or are refused."""
    posterior = make("normal", 4)
    seeds = [0, 1, 2**32, 2**32 + 1, 2**33]
    try:
        draws = torch.cat([sample(posterior, 3, seed) for seed in seeds])
    except InputError:
        return
    assert len({tuple(draw) for draw in draws.tolist()}) == 3 * len(seeds)


@every_family
def test_samples_ignore_the_global_generators(family: str) -> None:
    """Seeding or using torch's and numpy's global generators changes nothing."""
    posterior = make(family, 3)
    before = sample(posterior, 2, seed=1)
    torch.manual_seed(123)
    torch.rand(10)
    assert torch.equal(before, sample(posterior, 2, seed=1))


@deterministic
def test_a_deterministic_weight_never_moves(posterior: Independent) -> None:
    """Spread 0: every draw is the centre, while the other weight varies."""
    draws = sample(posterior, 20, seed=0)
    assert bool((draws[:, 0] == 1.25).all())
    assert len(set(draws[:, 1].tolist())) == 20


class Extreme:
    """Stands for a generator at the end of its range: every uniform number is `value`."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self, size: int) -> np.ndarray:
        return np.full(size, self.value)


@pytest.mark.parametrize("family", ["uniform", "truncated-normal", "laplace", "student-t"])
@pytest.mark.parametrize("value", [0.0, 1 - 2**-53])
def test_the_ends_of_the_generators_range_give_finite_draws(family: str, value: float) -> None:
    """Uniform numbers lie in [0, 1): exactly 0 happens, and must not become an infinite weight."""
    assert bool(make(family, 2).draw(Extreme(value)).isfinite().all())


@pytest.mark.parametrize("family", ["uniform", "truncated-normal"])
def test_bounded_families_stay_in_their_support(family: str) -> None:
    """No draw outside [low, high], ends included."""
    posterior = make(family, 1000)
    draws = sample(posterior, 20, seed=2)
    assert bool(((posterior.low <= draws) & (draws <= posterior.high)).all())


@pytest.mark.parametrize(("low", "high"), [(30.0, 31.0), (-31.0, -30.0), (8.0, 8.5)])
def test_far_tail_truncation_is_sampled(low: float, high: float) -> None:
    """Truncation to a far tail keeps the digits: the DKW bound holds there too."""
    n = 5_000
    posterior = TruncatedNormal(
        *(torch.full((n,), value, dtype=torch.float64) for value in (0.0, 1.0, low, high))
    )
    draws = np.sort(sample(posterior, 1, seed=4)[0].numpy())
    near, far = min(abs(low), abs(high)), max(abs(low), abs(high))
    distance = draws if low > 0 else -draws[::-1]
    below = (stats.norm.sf(near) - stats.norm.sf(distance)) / (
        stats.norm.sf(near) - stats.norm.sf(far)
    )
    error = max(np.max(np.arange(1, n + 1) / n - below), np.max(below - np.arange(n) / n))
    assert error <= math.sqrt(math.log(2e6) / (2 * n))

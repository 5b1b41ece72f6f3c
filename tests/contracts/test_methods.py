"""Sampling, PIE and GIE through the front door: never above the truth, conditions, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import certify
from bnncert.bounds import BOUNDS
from bnncert.boxes.growth import grow
from bnncert.errors import InputError
from bnncert.evidence.boxes import Growth
from bnncert.layers import Dense
from bnncert.methods import GIE, PIE, Sampling
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import (
    Specification,
    ball,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.independent import Normal
from box_methods import FEW, PLENTY, at, classifier, one_weight
from scenarios import (
    claimed,
    paper_example,
    paper_probability,
    random_network,
    random_posterior,
    vector,
)

# ---------------------------------------------------------------------------------------- the truth


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("bound", sorted(BOUNDS))
@pytest.mark.parametrize("eps", [0.0, 0.25])
def test_the_papers_example_is_never_overstated(name: str, bound: str, eps: float) -> None:
    """Every method and bound stays below the quadrature, at the point and on an interval of
    inputs."""
    method, truth = (
        replace(FEW[name], bound=bound, samples=4, step=0.6, budget=PLENTY),
        paper_probability(eps),
    )
    lowers = [certify(paper_example(eps), method, seed=seed)[0].lower for seed in range(4)]
    assert all(0 < lower <= truth for lower in lowers)


def test_the_quadrature_against_sampling() -> None:
    """P_safe of the example by 10^6 draws, within five standard errors."""
    w = np.random.default_rng(0).standard_normal((1_000_000, 2))
    share = float(np.mean(np.maximum(w[:, 0], 0) * w[:, 1] <= 1))
    assert paper_probability() == pytest.approx(share, abs=5 * 0.5e-3)


@pytest.mark.parametrize("seed", range(12))
def test_sampling_is_at_most_pie_is_at_most_the_truth(seed: int) -> None:
    """The paper's proposition: with the same centres, λ and enough calls every sampling box lies in
    PIE's."""
    problem, options = paper_example(), {"samples": 4, "budget": PLENTY, "mean_first": False}
    for step in (0.3, 1.0):
        pie = certify(problem, PIE(step=step, **options), seed=seed)[0].lower
        sampled = certify(problem, Sampling(step=step, **options), seed=seed)[0].lower
        assert sampled <= pie + 1e-12  # both are rounded down, by different amounts
        assert pie <= paper_probability()


@pytest.mark.parametrize("seed", range(4))
def test_pie_boxes_hold_the_sampling_boxes(seed: int) -> None:
    """Box by box: the same draws, and a fixed box only where PIE has one at least as large."""
    problem, options = paper_example(), {"samples": 5, "step": 0.5, "budget": PLENTY}
    (fixed,), _ = grow(problem, Sampling(**options).plan(), seed)
    (grown,), _ = grow(problem, PIE(**options).plan(), seed)
    rule, spread = Growth(0.5), problem.posterior.spread
    assert [box.draw for box in fixed] == [box.draw for box in grown]
    for small, large in zip(fixed, grown, strict=True):
        assert torch.equal(small.center, large.center)
        assert bool(large.box(rule, spread).contains(small.box(rule, spread)))


def test_two_weights_by_hand() -> None:
    """The example's mean box: w2 w1⁺ <= 1 holds strictly on [-j λ, j λ]² while j λ < 1; λ = 0.3
    makes 3 steps."""
    result = certify(paper_example(), PIE(samples=1, step=0.3))[0]
    assert result.bound_calls == 4
    assert result.lower == pytest.approx(claimed((2 * norm.cdf(0.9) - 1) ** 2), rel=1e-12)
    assert result.lower <= (2 * norm.cdf(0.9) - 1) ** 2


# --------------------------------------------------------------------------------------- conditions


def test_half_space() -> None:
    """w x >= -1 at x in [1, 2], w ~ N(1, 1): w > -1/2, so 1 - 2 λ j > -1 with λ = 0.4 makes j =
    3."""
    region = explicit_box(Box(vector(1.0).reshape(1, 1), vector(2.0).reshape(1, 1)))
    problem = one_weight(1.0, 1.0, lambda r: half_space(r, vector(1.0), -1.0), region)
    result = certify(problem, PIE(samples=1, step=0.4), at_least=0.7)[0]
    assert (result.status, result.label, result.predicted, result.bound_calls) == (
        "certified",
        None,
        None,
        4,
    )
    assert result.lower == pytest.approx(claimed(2 * norm.cdf(1.2) - 1), rel=1e-12)
    assert result.lower <= norm.cdf(1.5)


def test_regression_interval() -> None:
    """|w x - 2| <= 1/2 at x = 1, w ~ N(2, 0.1²): λ = 1 makes j = 4, and each input has its own
    interval."""
    spec = output_interval(at(1.0, 1.0), vector(1.5, 3.0), vector(2.5, 4.0))
    problem = Problem(
        Network((1,), (Dense(1, 1, bias=False),)), Normal(vector(2.0), vector(0.1)), spec
    )
    safe, unsafe = certify(problem, PIE(samples=1, step=1.0))
    assert safe.lower == pytest.approx(claimed(2 * norm.cdf(4) - 1), rel=1e-12)
    assert safe.lower <= 2 * norm.cdf(5) - 1
    assert (unsafe.status, unsafe.lower, unsafe.upper, unsafe.certificate) == (
        "undecided",
        0.0,
        1.0,
        None,
    )


def test_explicit_box() -> None:
    """w x > 0 for w ~ N(1, 1) on [1, 3]; a box that holds 0 admits no weight at all."""
    ends = vector(1.0, -1.0).reshape(2, 1), vector(3.0, 1.0).reshape(2, 1)
    problem = one_weight(
        1.0, 1.0, lambda r: half_space(r, vector(1.0), 0.0), explicit_box(Box(*ends))
    )
    safe, unsafe = certify(problem, PIE(samples=1, step=0.25))
    assert safe.lower == pytest.approx(claimed(2 * norm.cdf(0.75) - 1), rel=1e-12)
    assert unsafe.lower == 0.0


@pytest.mark.parametrize("value", [math.nan, 0.0, -0.0, -math.inf])
def test_only_a_strictly_positive_bound_is_safe(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bound that answers NaN, a tie or -inf for one row out of several proves nothing."""

    def one_bad_row(*arguments: object) -> Tensor:
        rows = torch.ones_like(arguments[-1])  # type: ignore[call-overload]
        rows[:, -1] = value
        return rows

    monkeypatch.setitem(BOUNDS, "lbp", one_bad_row)
    for result in certify(classifier(), PIE(samples=2)):
        assert (result.lower, result.certificate) == (0.0, None)
        assert result.status in ("undecided", "misclassified")


# ----------------------------------------------------------------------------------------- refusals


def float32_parts() -> dict[str, Callable[[], object]]:
    network, region = mlp(1, 2), at(1.0)
    return {
        "mean": lambda: Normal(torch.zeros(4), torch.ones(4).double()),
        "std": lambda: Normal(torch.zeros(4).double(), torch.ones(4)),
        "input": lambda: ball(torch.ones(1, 1), 0.1),
        "input box": lambda: explicit_box(Box(torch.zeros(1, 1), torch.ones(1, 1))),
        "rows": lambda: Specification(region, torch.ones(1, 1, 2), torch.zeros(1, 1).double()),
        "weight box": lambda: Box.point(torch.zeros(network.size)),
    }


@pytest.mark.parametrize("part", float32_parts())
def test_float32_is_refused(part: str) -> None:
    """Nothing of lower precision gets into a problem: it is refused, not converted."""
    with pytest.raises(InputError, match="float64"):
        float32_parts()[part]()


@dataclass(frozen=True, eq=False)
class Shifted(Posterior):
    """All weights share one Gaussian shift: correlated, so a box has no product mass."""

    mean: Tensor
    family: ClassVar[str] = "shifted"

    @property
    def center(self) -> Tensor:
        return self.mean

    def draw(self, generator: np.random.Generator) -> Tensor:
        return self.mean + float(generator.standard_normal())


@pytest.mark.parametrize("name", FEW)
def test_a_posterior_without_box_mass_is_refused(name: str) -> None:
    problem = classifier()
    shifted = Problem(problem.network, Shifted(problem.posterior.center), problem.specification)
    with pytest.raises(InputError, match="posterior family 'shifted' gives no mass of boxes"):
        certify(shifted, FEW[name])


@pytest.mark.parametrize("seed", range(10))
def test_any_problem_gets_a_probability(seed: int) -> None:
    """Networks of every kind: a number in [0, 1] and, where it is positive, a certificate."""
    network = random_network(seed)
    x = torch.rand(
        2, *network.input_shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    spec = half_space(ball(x, 0.01), torch.ones(network.outputs).double(), -2.0)
    for result in certify(
        Problem(network, random_posterior(seed, network), spec), GIE(samples=2, budget=20)
    ):
        assert 0 <= result.lower <= result.upper == 1
        assert (result.lower > 0) == (result.certificate is not None)

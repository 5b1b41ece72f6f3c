"""Concentration as a method: batches, refusals, attacks and estimates beside the claim."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import PIE, Concentration, certify
from bnncert import estimate as statistical
from bnncert.attack import project
from bnncert.errors import InputError
from bnncert.estimate import estimate
from bnncert.numerics import batching
from bnncert.numerics.rounding import allow
from bnncert.posteriors import Laplace
from one_weight import best, one_weight
from scenarios import correlated, gaussian, random_problem, with_posterior


def test_results_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch, single inputs and a tiny memory budget give the same bounds."""
    for seed in range(10):
        problem = random_problem(seed, batch=5)
        whole = best(problem)
        single = torch.cat([best(problem[i : i + 1]) for i in range(5)])
        monkeypatch.setattr(batching, "CPU_BUDGET", 1)
        tiny = best(problem)
        monkeypatch.undo()
        torch.testing.assert_close(single, whole, rtol=0, atol=1e-12)
        torch.testing.assert_close(tiny, whole, rtol=0, atol=1e-12)


def test_out_of_memory_halves_the_batch() -> None:
    """A slice that does not fit is cut until it does; one input that never fits is a clear
    error."""
    seen: list[slice] = []

    def compute(part: slice) -> Tensor:
        seen.append(part)
        if part.stop - part.start > 2:
            raise torch.OutOfMemoryError
        return torch.arange(part.start, part.stop)

    found = torch.cat(batching.in_batches(compute, 7, 1, torch.device("cpu")))
    assert found.tolist() == list(range(7))
    assert len(seen) > 1

    def never(_: slice) -> Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="does not fit"):
        batching.in_batches(never, 3, 1, torch.device("cpu"))


def test_families_that_are_not_gaussian_are_refused_by_name() -> None:
    problem = random_problem(3)
    laplace = Laplace(problem.posterior.mean, problem.posterior.std)
    with pytest.raises(InputError, match=r"'laplace'.*sampling, pie or gie"):
        certify(with_posterior(problem, laplace), Concentration())


def test_box_methods_refuse_correlated_posteriors_by_name() -> None:
    problem = correlated(random_problem(3), 3)
    with pytest.raises(InputError, match=r"'low-rank-normal'.*use method concentration"):
        certify(problem, PIE())


@pytest.mark.parametrize("effort", [-1, 4, 7])
def test_unknown_effort_is_refused(effort: int) -> None:
    with pytest.raises(InputError, match="effort"):
        Concentration(effort=effort)


def test_attacks_stay_inside_their_regions() -> None:
    """In exact arithmetic: |x* - x| <= eps in every norm, and inside the clip range."""
    for seed in range(60):
        problem = random_problem(seed)
        region = problem.specification.region
        far = region.center + 3 * gaussian(
            2, *region.center.shape, generator=torch.Generator().manual_seed(seed)
        )
        for point in project(region, far):
            for i in range(len(region)):
                offset = [
                    Fraction(p) - Fraction(c)
                    for p, c in zip(
                        point[i].flatten().tolist(),
                        region.center[i].flatten().tolist(),
                        strict=True,
                    )
                ]
                eps = Fraction(float(region.eps[i]))
                size = {"linf": max(map(abs, offset)), "l1": sum(map(abs, offset))}
                size["l2"] = Fraction(0)
                squared = sum(value**2 for value in offset)
                assert (squared <= eps**2) if region.norm == "l2" else (size[region.norm] <= eps)


def test_estimates_bracket_the_truth_and_never_enter_the_claim() -> None:
    problem = one_weight(1.0, 0.5, 2.0)  # safe iff |w| < 2
    truth = norm.cdf(2.0) - norm.cdf(-6.0)
    (found,) = estimate(problem, 400, seed=0)
    assert found.low <= truth <= found.high
    assert found.verified <= found.survived <= found.samples == 400
    (result,) = certify(problem, Concentration(), samples=20)
    (plain,) = certify(problem, Concentration())
    assert result.estimate is not None
    assert (result.lower, result.upper) == (plain.lower, plain.upper)
    assert "estimate" not in result.certificate.header


@pytest.mark.parametrize(
    ("count", "samples", "low", "high"),
    [(0, 10, 0.0, 0.4113), (10, 10, 0.5887, 1.0), (5, 10, 0.1283, 0.8717)],
)
def test_clopper_pearson_by_table(count: int, samples: int, low: float, high: float) -> None:
    """Limits of the 99 % interval, 1 - 0.005^(1/10) = 0.4113 for no success in ten."""
    assert statistical._low(count, samples, 0.99) == pytest.approx(low, abs=1e-4)
    assert statistical._high(count, samples, 0.99) == pytest.approx(high, abs=1e-4)


def test_claims_are_a_little_wider_than_what_was_proved() -> None:
    """Certainty and ignorance stay; what is lost in underflow is not claimed at all."""
    assert allow(0.0, 1.0) == (0.0, 1.0)
    assert allow(1.0, 1.0) == (1.0, 1.0)
    assert allow(1e-300, 1.0) == (0.0, 1.0)
    lower, upper = allow(0.25, 0.75)
    assert 0.25 - 1e-8 < lower < 0.25
    assert 0.75 < upper < 0.75 + 1e-8

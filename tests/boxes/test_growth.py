"""Growing boxes: counted calls, budgets, rates by hand, options that are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import certify
from bnncert.bounds import BOUNDS
from bnncert.boxes.growth import gradient_signs, grow
from bnncert.errors import InputError
from bnncert.evidence.boxes import Growth
from bnncert.layers import Dense, ReLU
from bnncert.methods import GIE, PIE, Sampling
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification, half_space
from bnncert.posteriors.independent import Normal
from box_methods import FEW, PLENTY, BoxMethod, at, claims, classifier, one_weight
from scenarios import claimed, vector

# ----------------------------------------------------------------------------------------- counting


@contextmanager
def counted_calls(bound: str) -> Iterator[dict[float, int]]:
    """Wraps a bound and counts, by the first pixel of the input, every box it is asked about."""
    inner, counts = BOUNDS[bound], {}

    def counting(
        network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor
    ) -> Tensor:
        for pixel in region.center.flatten(1)[:, 0].tolist():
            counts[pixel] = counts.get(pixel, 0) + 1
        return inner(network, weights, region, rows, offsets)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BOUNDS, bound, counting)
        yield counts


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("budget", [1, 2, 5, 7, 50])
def test_reported_calls_are_the_calls(name: str, budget: int) -> None:
    """Input by input, failures included, within the budget, misclassified inputs none."""
    problem, method = classifier(), replace(FEW[name], budget=budget)
    with counted_calls(method.bound) as counts:
        results = certify(problem, method)
    pixels = problem.specification.region.center[:, 0].tolist()
    assert [result.bound_calls for result in results] == [counts.get(pixel, 0) for pixel in pixels]
    assert all(result.bound_calls <= budget for result in results)
    wrong = [result for result in results if result.status == "misclassified"]
    assert [result.bound_calls for result in wrong] == [0, 0]
    assert [(result.lower, result.certificate) for result in wrong] == [(0.0, None)] * 2
    assert sum(counts.values()) > 0


def test_a_failure_is_a_call() -> None:
    """One centre, unsafe at the first step: one call, nothing proved."""
    problem = one_weight(0.0, 1.0, lambda r: half_space(r, vector(1.0), 0.0), at(1.0))
    for method in (
        Sampling(samples=1),
        PIE(samples=1),
        PIE(samples=1, walk="bisection"),
        GIE(samples=1),
    ):
        result = certify(problem, method)[0]
        assert (result.bound_calls, result.lower, result.status) == (1, 0.0, "undecided")


def test_an_endless_box_stops_at_the_budget() -> None:
    """A weight that does not matter: both walks go on until the budget is spent, and never
    overstate."""
    problem = one_weight(0.0, 1.0, lambda r: half_space(r, vector(1.0), -1.0), at(0.0))
    linear, doubling = (
        certify(problem, PIE(samples=1, budget=9, walk=w))[0] for w in ("linear", "bisection")
    )
    assert (linear.bound_calls, doubling.bound_calls) == (9, 9)
    assert linear.lower == pytest.approx(claimed(2 * norm.cdf(9 * 0.5) - 1), rel=1e-12)
    assert linear.lower < doubling.lower <= 1


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 8, 9, 30, 100])
def test_bisection_finds_the_linear_walks_box(steps: int) -> None:
    """Where safety is monotone both walks end at the same step; beyond a few steps bisection needs
    fewer calls."""
    problem = one_weight(0.0, 1.0, lambda r: half_space(r, vector(1.0), -(steps + 0.5)), at(1.0))
    found = {}
    for walk in ("linear", "bisection"):
        (boxes,), calls = grow(
            problem, PIE(samples=1, step=1.0, budget=PLENTY, walk=walk).plan(), seed=0
        )
        found[walk] = (boxes[0].steps, int(calls))
    assert found["linear"] == (steps, steps + 1)
    assert found["bisection"][0] == steps
    assert found["bisection"][1] <= 2 * math.ceil(math.log2(steps + 1)) + 1
    if steps > 8:
        assert found["bisection"][1] < found["linear"][1]


def test_an_input_may_spend_its_budget_on_several_centres() -> None:
    """Centres are tried in order until the calls run out, and a walk that is cut short keeps what
    it proved."""
    problem = one_weight(0.0, 1.0, lambda r: half_space(r, vector(1.0), -2.25), at(1.0))
    (boxes,), calls = grow(
        problem, PIE(samples=50, step=1.0, budget=5, mean_first=True).plan(), seed=1
    )
    assert int(calls) == 5
    assert (boxes[0].draw, boxes[0].steps) == (None, 2)
    assert [box.draw for box in boxes[1:]] == sorted(box.draw for box in boxes[1:])
    (first,), calls = grow(problem, PIE(samples=50, step=1.0, budget=1).plan(), seed=1)
    assert (int(calls), first[0].steps, len(first)) == (1, 1, 1)


# ------------------------------------------------------------------------------------------- growth


def test_growth_rates_by_hand() -> None:
    """λ = 1/2, ρ = 1/5, σ = (2, 4, 8), gradient (-, 0, +): v⁻ = λσ (6/5, 6/5, 1) and v⁺ = λσ (1,
    6/5, 6/5)."""
    spread, signs = vector(2, 4, 8), torch.tensor([-1, 0, 1], dtype=torch.int8)
    down, up = Growth(0.5, 0.2).rates(spread, signs)
    assert down.tolist() == pytest.approx([1.2, 2.4, 4.0], rel=1e-15)
    assert up.tolist() == pytest.approx([1.0, 2.4, 4.8], rel=1e-15)
    down, up = Growth(0.5, 0.2, zero_gradient_only=True).rates(spread, signs)
    assert down.tolist() == up.tolist() == pytest.approx([1.0, 2.4, 4.0], rel=1e-15)
    down, up = Growth(0.5).rates(spread, None)
    assert down.tolist() == up.tolist() == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (
            (1.0, 2.0),
            [-1, -1],
        ),  # y = w2 ReLU(w1), safe iff y <= 1: the margin falls with either weight
        ((1.0, -2.0), [1, -1]),
        ((-1.0, 2.0), [0, 0]),  # a dead neuron: neither weight matters
        ((1.0, 0.0), [0, -1]),
    ],
)
def test_gradient_signs_of_two_weights(weights: tuple[float, float], expected: list[int]) -> None:
    """The margin 1 - w2 ReLU(w1 x) at x = 1, by hand: E⁺, E⁻ and E⁰."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    problem = Problem(
        network, Normal(vector(0, 0), vector(1, 1)), half_space(at(1.0), vector(-1.0), -1.0)
    )
    assert gradient_signs(problem, vector(*weights)).tolist() == [expected]


def test_the_gradient_is_the_smallest_rows() -> None:
    """Two rows: each input's gradient is that of the row which is smaller at its clean input."""
    network = Network((1,), (Dense(1, 2, bias=False),))
    spec = Specification(
        at(1.0, 1.0),
        torch.eye(2, dtype=torch.float64).expand(2, 2, 2),
        vector(0, 5, 5, 0).reshape(2, 2),
    )
    problem = Problem(network, Normal(vector(1, 1), vector(1, 1)), spec)
    assert gradient_signs(problem, vector(1, 1)).tolist() == [[1, 0], [0, 1]]


def test_gie_grows_towards_safety() -> None:
    """w > 0 for w ~ N(1, 1): the gradient is positive, so the box after j steps of 0.3 is [1 - 0.3
    j, 1 + 0.36 j]."""
    problem = one_weight(1.0, 1.0, lambda r: half_space(r, vector(1.0), 0.0), at(1.0))
    plan = GIE(samples=1, step=0.3, rho=0.2).plan()
    (boxes,), _ = grow(problem, plan, seed=0)
    box = boxes[0].box(plan.growth, problem.posterior.spread)
    assert boxes[0].steps == 3
    assert (box.lower.item(), box.upper.item()) == pytest.approx((0.1, 2.08), rel=1e-14)
    lower = certify(problem, GIE(samples=1, step=0.3, rho=0.2))[0].lower
    assert lower == pytest.approx(claimed(norm.cdf(1.08) - norm.cdf(-0.9)), rel=1e-12)
    assert lower > certify(problem, PIE(samples=1, step=0.3))[0].lower


def test_rho_zero_is_pie() -> None:
    problem = classifier()
    pie, gie = certify(problem, PIE(samples=2)), certify(problem, GIE(samples=2, rho=0.0))
    assert [claim[2:5] for claim in claims(pie)] == [claim[2:5] for claim in claims(gie)]


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (PIE, {"samples": 0}, "samples is 0"),
        (PIE, {"budget": 0}, "budget is 0"),
        (Sampling, {"step": 0.0}, "step is 0.0"),
        (Sampling, {"step": -1.0}, "step is -1.0"),
        (PIE, {"step": math.nan}, "step is nan"),
        (PIE, {"step": math.inf}, "step is inf"),
        (GIE, {"rho": -0.1}, "rho is -0.1"),
        (GIE, {"rho": math.nan}, "rho is nan"),
        (PIE, {"bound": "crown"}, "bound 'crown' is not known"),
        (GIE, {"walk": "random"}, "walk 'random' is not known"),
    ],
)
def test_wrong_options_are_refused(
    kind: type[BoxMethod], options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        certify(classifier(), kind(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options", [{"seed": -1}, {"seed": 2**31}, {"indices": [1]}, {"indices": range(7)}]
)
def test_wrong_arguments_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"seed is|indices for 6 inputs"):
        certify(classifier(), PIE(samples=1), **options)  # type: ignore[arg-type]

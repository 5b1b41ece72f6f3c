"""Trunks that are certain, under Bayesian heads: what the head reads as a function of the input."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import Concentration, Problem, certify, decide
from bnncert.concentration import affine as affine_module
from bnncert.concentration import trace as trace_module
from bnncert.concentration.affine import Spread
from bnncert.concentration.functional import Trace, functional, least_std, one_layer
from bnncert.concentration.proof import known_before, prove
from bnncert.concentration.refine import Limits, refine
from bnncert.concentration.tails import row_failures
from bnncert.concentration.trace import has_random_head, joined, prefix, trace
from bnncert.concentration.upper import refute
from bnncert.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.model.specification import ball, half_space, output_interval
from bnncert.numerics import batching
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.posteriors.base import sample
from scenarios import gaussian, sample_region, vector
from trunks import HEADS, asked, head, last_weights, trunk, two_flattened, two_heads
from truth import assert_below_truth


def traced(problem: Problem) -> Trace:
    posterior = problem.posterior
    assert isinstance(posterior, Normal | LowRankNormal)
    return trace(problem.network, posterior, problem.specification.region, 4.0)


@pytest.mark.parametrize("seed", range(12))
def test_a_form_holds_what_the_trunk_gives(seed: int) -> None:
    """|h(x) - J x - b| <= e everywhere, and the error is not idle: it is reached to a tenth."""
    network = trunk(seed)
    problem = asked(seed, network, head(seed, network, HEADS[seed % 4]))
    ((node, form),) = traced(problem).forms.items()
    assert node == network.origins[-2]
    points = sample_region(problem.specification.region, 400, torch.Generator().manual_seed(seed))
    gaps = []
    for i in range(len(problem)):
        held = network.values(problem.posterior.center, points[:, i])[node].flatten(1)
        flat = points[:, i].flatten(1)
        gaps.append((held - flat @ form.matrix[i].mT - form.offset[i]).abs().amax(0))
    off = torch.stack(gaps)
    assert bool((off <= form.error).all())
    assert float((off / form.error.clamp_min(1e-12)).max()) > 0.1


@pytest.mark.parametrize("kind", HEADS)
def test_standard_deviations_on_the_input(kind: str) -> None:
    """τ_p = sqrt(J_p' Cov(A Δ) J_p), with the covariance written out."""
    network = trunk(2)
    posterior = head(2, network, kind)
    problem = asked(2, network, posterior)
    found = traced(problem)
    step = found.linear[-1]
    rows = problem.specification.rows
    assert step.form is not None
    count = last_weights(network)
    covariance = torch.diag(posterior.std[-count:] ** 2)
    if isinstance(posterior, LowRankNormal):
        covariance = covariance + posterior.factor[-count:] @ posterior.factor[-count:].mT
    width, outputs = 5, network.outputs
    tau = _seen_std(found, rows)
    for b in range(2):
        for r in range(2):
            pick = torch.kron(torch.eye(width).double(), rows[b, r].unsqueeze(0))
            own = pick @ covariance[: width * outputs, : width * outputs] @ pick.mT
            exact = torch.einsum("jp,jk,kp->p", step.form.matrix[b], own, step.form.matrix[b])
            assert bool((tau[b, r] >= exact.sqrt()).all())
            assert torch.allclose(tau[b, r], exact.sqrt(), rtol=1e-5, atol=1e-9)


def _seen_std(found: Trace, rows: Tensor) -> Tensor:
    none = torch.zeros(1, rows.shape[1], dtype=torch.float64)
    _, tally = found.linear[-1].pull(rows, affine_module_tally(none))
    assert tally.seen is not None
    return tally.seen.std


def affine_module_tally(none: Tensor):  # type: ignore[no-untyped-def]
    from bnncert.bounds.walk import Tally

    return Tally(none, none)


@pytest.mark.parametrize("seed", range(16))
def test_the_noise_is_met_at_the_input_or_by_boxes(seed: int) -> None:
    """Never worse than boxes alone, and on most networks much better."""
    network = trunk(seed)
    problem = asked(seed, network, head(seed, network, HEADS[seed % 4]))
    found = traced(problem)
    rows = problem.specification.rows
    with_form = functional(found, rows)
    by_boxes = functional(_without_forms(found), rows)
    assert bool((with_form.value >= by_boxes.value - 1e-9).all())
    assert bool((with_form.lipschitz <= by_boxes.lipschitz * (1 + 1e-9)).all())
    assert bool((with_form.value > by_boxes.value).any())


def _without_forms(found: Trace) -> Trace:
    steps = [replace(step, form=None) if step in found.linear else step for step in found.steps]
    return replace(found, steps=steps)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("seed", range(6))
def test_heads_are_never_certified_above_the_truth(kind: str, seed: int) -> None:
    network = trunk(seed)
    problem = asked(seed, network, head(seed, network, kind, 0.1 + 0.1 * (seed % 3)))
    results = certify(problem, Concentration(effort=seed % 3, upper=True, **_nodes(seed)))
    assert_below_truth(problem, torch.tensor([one.lower for one in results]).double(), seed)
    share = problem.margins(sample(problem.posterior, 4000, seed)) > 0
    clean = share.all(-1).double().mean(0)
    for one, most in zip(results, clean.tolist(), strict=True):
        assert one.upper >= one.lower
        assert one.upper > 0 or most < 0.01


def _nodes(seed: int) -> dict[str, int]:
    return {"nodes": 8} if seed % 3 == 2 else {}


@pytest.mark.parametrize("seed", range(4))
def test_two_heads_on_different_nodes(seed: int) -> None:
    """Their noises meet the input together: as independent ones, or as ones that are shared."""
    network = two_heads()
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    std = torch.zeros_like(mean)
    std[-20:] = 0.1
    posterior: Normal | LowRankNormal = Normal(mean, std)
    if seed % 2:
        factor = 0.05 * gaussian(20, 3, generator=generator)
        posterior = LowRankNormal(mean, std / 2, factor)
    problem = asked(seed, network, posterior)
    found = traced(problem)
    assert len(found.forms) == 2
    assert not has_random_head(network, posterior)
    results = certify(problem, Concentration(effort=0))
    assert_below_truth(problem, torch.tensor([one.lower for one in results]).double(), seed)


@pytest.mark.parametrize("seed", range(4))
def test_two_heads_that_flatten_the_same_node_see_the_input_through_it(seed: int) -> None:
    network = two_flattened()
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    factor = 0.1 * gaussian(36, 2, generator=generator)
    problem = asked(seed, network, LowRankNormal(mean, torch.zeros_like(mean), factor), eps=0.2)
    found = traced(problem)
    assert list(found.forms) == [2]
    assert sum(step.form is not None for step in found.linear) == 2
    with_form = functional(found, problem.specification.rows)
    by_boxes = functional(_without_forms(found), problem.specification.rows)
    assert bool((with_form.lipschitz <= by_boxes.lipschitz).all())
    results = certify(problem, Concentration(effort=0))
    assert_below_truth(problem, torch.tensor([one.lower for one in results]).double(), seed)


def head_alone(margin: float, std: float, eps: float = 0.0) -> Problem:
    """y = w relu(x + 1) + b at x = 1, w ~ N(margin / 2, std² / 4): y is N(margin, std²)."""
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1)))
    posterior = Normal(vector(1.0, 1.0, margin / 2, 0.0), vector(0.0, 0.0, std / 2, 0.0))
    region = ball(torch.ones(1, 1).double(), eps)
    return Problem(network, posterior, half_space(region, vector(1.0), 0.0))


@pytest.mark.parametrize("margin", [3.0, 0.5, 0.0, -1.0])
def test_a_head_at_a_point_is_known_from_both_sides(margin: float) -> None:
    """P(y > 0) = Φ(margin / std), whatever the sign of the margin; below 0 by the row's law."""
    (found,) = certify(head_alone(margin, 1.0), Concentration(upper=True))
    true = float(norm.cdf(margin))
    assert found.upper == pytest.approx(true, abs=1e-6)
    assert found.upper >= true
    assert true - (1e-6 if margin > 0 else 0.01) <= found.lower <= true


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.5, 3.0), (-0.1, 0.2)])
@pytest.mark.parametrize("effort", [0, 2])
def test_an_interval_at_a_point_is_known_from_both_sides(
    low: float, high: float, effort: int
) -> None:
    """P(low < y < high) of y ~ N(.5, 1): both ends count, and none of them twice."""
    alone = head_alone(0.5, 1.0)
    spec = output_interval(alone.specification.region, low, high)
    problem = Problem(alone.network, alone.posterior, spec)
    (found,) = certify(problem, Concentration(effort=effort, upper=True))
    true = float(norm.cdf(high - 0.5) - norm.cdf(low - 0.5))
    assert found.lower <= true <= found.upper
    assert found.upper == pytest.approx(true, abs=1e-6)


def test_tails_whose_variance_overflows_are_not_known() -> None:
    """P(y > 0) = Φ(1) for y = 10¹⁰⁰ w, where the variance of y has no float: no upper bound is
    below it, and there is no lower one, which no checker could compute."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    posterior = Normal(vector(1e100, 1e100), vector(0.0, 1e100))
    region = ball(torch.ones(1, 1).double(), 0.0)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    (found,) = certify(problem, Concentration(upper=True))
    assert found.upper >= norm.cdf(1)
    assert found.lower == 0


@pytest.mark.parametrize("shared", [False, True])
def test_underflow_hides_no_noise(shared: bool) -> None:
    """10⁻¹⁴⁰ w h with a standard deviation of 10⁻¹⁰⁰ of w has 10⁻¹⁰⁵ at h = 10¹³⁵, though the
    squares of the coefficient's have no float."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    mean = vector(1.0, 1.0)
    posterior: Normal | LowRankNormal = Normal(mean, vector(0.0, 1e-100))
    if shared:
        posterior = LowRankNormal(mean, torch.zeros_like(mean), vector(1e-100).reshape(1, 1))
    region = ball(torch.zeros(1, 1).double(), 1e135)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    rows = vector(1e-140).reshape(1, 1, 1)
    assert float(functional(traced(problem), rows).lipschitz) >= 1e-105
    alone = one_layer(traced(problem).linear[-1])
    assert float(alone.lipschitz[0, 0]) >= 1e35


def test_underflow_hides_no_noise_on_the_input() -> None:
    """w (10⁻²⁰⁰ x) with w ~ N(0, 1) has a standard deviation of 10⁻⁶⁰ at x = 10¹⁴⁰, though the
    square of the coefficient's on x has no float."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    mean = vector(1e-200, 0.0)
    posterior = LowRankNormal(mean, torch.zeros_like(mean), vector(1.0).reshape(1, 1))
    region = ball(torch.full((1, 1), 5e139, dtype=torch.float64), 5e139)
    problem = Problem(network, posterior, half_space(region, vector(1.0), 0.0))
    found = traced(problem)
    assert found.forms
    assert float(functional(found, problem.specification.rows).lipschitz) >= 1e-60


def test_tails_below_zero_need_a_gaussian() -> None:
    """Of a region, or of two random layers, nothing is known there."""
    problem = head_alone(0.5, 1.0, eps=0.1)
    rows = problem.specification.rows
    assert float(least_std(traced(problem), rows).max()) == 0
    both = head_alone(0.5, 1.0)
    wide = Normal(both.posterior.center, vector(0.1, 0.1, 0.5, 0.5))
    assert float(least_std(traced(replace(both, posterior=wide)), rows).max()) == 0
    assert float(least_std(traced(both), rows).max()) == pytest.approx(1.0)


def test_least_standard_deviations_are_below_the_true_ones() -> None:
    for seed in range(12):
        network = trunk(seed)
        posterior = head(seed, network, HEADS[seed % 4])
        problem = asked(seed, network, posterior, eps=0.0)
        rows = problem.specification.rows
        found = least_std(traced(problem), rows)
        drawn = problem.margins(sample(posterior, 6000, seed)).std(0)
        assert torch.equal(found > 0, drawn > 1e-12)  # none where nothing of the trunk is alive
        assert torch.allclose(found, drawn, rtol=0.08)
        most = functional(traced(problem), rows).lipschitz
        assert bool((found <= most).all())
        assert torch.allclose(found, most, rtol=1e-6)


def test_exact_tails_round_up() -> None:
    problem = head_alone(-1.0, 1.0)
    found = traced(problem)
    rows = functional(found, problem.specification.rows)
    least = least_std(found, problem.specification.rows)
    (fails,) = row_failures(rows, least).flatten().tolist()
    assert float(norm.sf(-1.0)) <= fails <= float(norm.sf(-1.0)) + 1e-9
    assert row_failures(rows).item() == 1.0


def test_every_input_of_a_head_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And branch and bound goes on where the mean network was not broken."""
    network = trunk(4)
    problem = asked(4, network, head(4, network, "full", 0.4))
    posterior = problem.posterior
    assert isinstance(posterior, LowRankNormal)
    found = refute(problem, posterior, 0)
    assert all(one is not None and one.upper < 1 for one in found)
    searched = []
    monkeypatch.setattr(
        "bnncert.concentration.method.refine",
        lambda *args, **names: searched.append(len(args[0])) or refine(*args, **names),
    )
    certify(problem, Concentration(effort=2, upper=True, nodes=4))
    unbroken = sum(one is None or one.upper > 0.5 for one in found)
    assert sum(searched) == unbroken > 0


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_what_is_known_before_is_made_in_parts(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an input, whatever is asked of it, and the same in parts as at once."""
    network = trunk(6)
    problem = asked(6, network, head(6, network, kind))
    posterior = problem.posterior
    assert isinstance(posterior, Normal | LowRankNormal)
    region = problem.specification.region
    whole = prefix(network, posterior, region)
    parts = joined([prefix(network, posterior, region[i : i + 1]) for i in range(2)], region)
    for a, b in zip(whole.traced.boxes, parts.traced.boxes, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert torch.allclose(a.lower, b.lower, rtol=0, atol=1e-12)
    assert len(whole.traced.steps) == len(parts.traced.steps)
    (form,), (other,) = whole.traced.forms.values(), parts.traced.forms.values()
    assert torch.allclose(form.matrix, other.matrix, rtol=0, atol=1e-12)

    made = []
    monkeypatch.setattr(batching, "CPU_BUDGET", 1)
    monkeypatch.setattr(
        "bnncert.concentration.proof.prefix",
        lambda *args: made.append(len(args[2])) or prefix(*args),
    )
    known = known_before(problem, posterior)
    bounds = [one.bound for one in prove(problem, posterior, 1, known)]
    refine(problem, posterior, prove(problem, posterior, 0, known), Limits(4), known=known)
    assert made == [1, 1]
    decide(problem)
    assert made == [1, 1, 1, 1]
    monkeypatch.undo()
    expected = [one.bound for one in prove(problem, posterior, 1)]
    assert bounds == pytest.approx(expected, abs=1e-9)


def test_little_noise_needs_no_form() -> None:
    network = trunk(0)
    assert traced(asked(0, network, head(0, network, "diagonal", 1e-4))).forms == {}
    assert traced(asked(0, network, head(0, network, "diagonal", 0.1))).forms


MUTANTS = {
    "noise on the input a tenth": (Spread, "through", lambda old: lambda *a: old(*a) / 10),
    "forms without their error": (
        affine_module.Affine,
        "slack",
        lambda _: property(lambda self: torch.zeros_like(self.error)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """m is above the mean of the minimum."""
    place, attribute, change = MUTANTS[name]

    assert _excess() <= 0
    monkeypatch.setattr(place, attribute, change(getattr(place, attribute)))
    assert _excess() > 0.05


def _excess() -> float:
    """By how much m exceeds the mean of the minimum on [-1, 1]: of v₁x - v₂x it is -E|v₁ - v₂| =
    -2/√π, of v₁ relu(x) + v₂ relu(-x) it is -E max(0, v₁, v₂) = -(1 + 1/√2)/√(2π)."""
    straight = (Dense(1, 2, bias=False), Dense(2, 1, bias=False))
    bent = (straight[0], ReLU(), straight[1])
    posterior = Normal(vector(1.0, -1.0, 0.0, 0.0), vector(0.0, 0.0, 1.0, 1.0))
    asked = half_space(ball(vector(0.0).reshape(1, 1), 1.0), vector(1.0), 0)
    excess = []
    for layers, least in ((straight, -math.sqrt(2)), (bent, -(1 + math.sqrt(0.5)) / 2)):
        found = traced(Problem(Network((1,), layers), posterior, asked))
        assert found.forms
        value = float(functional(found, asked.rows).value)
        excess.append(value - least * math.sqrt(2 / math.pi))
    return max(excess)


def test_the_prefix_has_no_form_of_random_nodes() -> None:
    """Behind two random layers, only what the first reads is certain."""
    network = Network((2,), (Dense(2, 3), ReLU(), Dense(3, 3), ReLU(), Dense(3, 2)))
    generator = torch.Generator().manual_seed(0)
    mean = gaussian(network.size, generator=generator)
    std = torch.full_like(mean, 0.2)
    std[:9] = 0
    found = traced(asked(0, network, Normal(mean, std)))
    assert list(found.forms) == [2]
    assert trace_module.WORTH > 0

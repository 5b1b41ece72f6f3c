"""Predictive means against the truth: known answers, and brute force on random tiny networks."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from torch import Tensor

from bnncert import (
    Decision,
    InputError,
    Network,
    Problem,
    Specification,
    ball,
    class_robust,
    decide,
    half_space,
    mlp,
    output_interval,
)
from bnncert.concentration import levels, sides
from bnncert.concentration.ascent import Climbing, climb
from bnncert.concentration.functional import Functional, Trace
from bnncert.concentration.moments import output_norms
from bnncert.concentration.slopes import Chosen, evaluate, optimise, settle
from bnncert.concentration.trace import trace
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU
from bnncert.posteriors import Empirical, Laplace, LowRankNormal, Mixture, Normal
from bnncert.results.rows import Status
from pages import blocks
from scenarios import (
    correlated,
    draw_many,
    gaussian,
    random_network,
    random_posterior,
    random_region,
    sample_region,
    uniform,
    vector,
    wider,
    with_posterior,
)

DRAWS = 2500
FAMILIES = ("normal", "wide", "correlated", "mixture")


def asked(seed: int, family: str, quantity: str) -> Problem:
    """A random tiny network with a question about its predictive mean."""
    network = random_network(seed)
    if quantity == "softmax" and network.outputs == 1:
        network = mlp(3, 4, 3)
    region, generator = (
        random_region(seed, network.input_shape),
        torch.Generator().manual_seed(seed),
    )
    if quantity == "softmax":
        labels = torch.randint(network.outputs, (len(region),), generator=generator)
        spec = class_robust(region, labels, network.outputs)
    else:
        spec = output_interval(region, -1.0, 1.0, network.outputs, seed % network.outputs)
    problem = Problem(network, random_posterior(seed, network), spec)
    match family:
        case "wide":
            return wider(problem, seed)
        case "correlated":
            return correlated(problem, seed)
        case "mixture":
            parts = (problem.posterior, wider(problem, seed).posterior)
            return with_posterior(problem, Mixture((0.3, 0.7), parts))
    return problem


def sampled(problem: Problem, seed: int) -> tuple[Tensor, Tensor]:
    """The predictive mean [points, B] and the gap to the nearest rival at points of the regions,
    each with an error."""
    generator = torch.Generator().manual_seed(seed)
    spec = problem.specification
    weights = draw_many(problem.posterior, DRAWS, generator)
    means, gaps = [], []
    for x in [spec.region.center, *sample_region(spec.region, 12, generator)]:
        outputs = problem.network.forward(weights, x)  # [draws, B, outputs]
        if spec.labels is None:
            values, leads = (outputs * spec.rows[:, 0]).sum(-1), None
        else:
            shares = outputs.softmax(-1)
            own = spec.labels.reshape(1, -1, 1).expand(DRAWS, -1, 1)
            values = shares.gather(-1, own).squeeze(-1)
            leads = values.unsqueeze(-1) - shares.scatter(-1, own, -math.inf)
        means.append(_with_error(values))
        if leads is not None:
            means_of_leads, errors = _with_error(leads.clamp_max(1))
            rival = (means_of_leads + 4 * errors).argmin(-1, keepdim=True)
            gaps.append(
                torch.stack([v.gather(-1, rival).squeeze(-1) for v in (means_of_leads, errors)])
            )
    return torch.stack(means, 1), torch.stack(gaps, 1) if gaps else torch.zeros(0)


def _with_error(values: Tensor) -> Tensor:
    return torch.stack([values.mean(0), values.std(0) / math.sqrt(DRAWS)])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("quantity", ["softmax", "mean"])
def test_sampling_never_escapes(quantity: str, family: str) -> None:
    for seed in range(5):
        problem = asked(seed, family, quantity)
        found = decide(problem, effort=int(seed % 3 == 0))
        (means, errors), gaps = sampled(problem, seed)
        for i, decision in enumerate(found):
            assert decision.quantity == quantity
            assert decision.lower <= float((means + 5 * errors)[:, i].min()) + 1e-9
            assert decision.upper >= float((means - 5 * errors)[:, i].max()) - 1e-9
            if decision.gap is not None:
                assert decision.gap <= float((gaps[0] + 5 * gaps[1])[:, i].min()) + 1e-9


def test_effort_never_hurts() -> None:
    for seed in range(4):
        problem = asked(seed, "normal", "softmax")
        for plain, optimised in zip(decide(problem, effort=0), decide(problem), strict=True):
            assert optimised.lower >= plain.lower - 1e-12
            assert optimised.upper <= plain.upper + 1e-12


def test_rows_settle_at_least_as_high_as_they_climb() -> None:
    """With one hidden layer m - τL is concave in the slopes: two ways up end at the same height,
    and rows that promise little stay where they are."""
    generator = torch.Generator().manual_seed(4)
    network = mlp(3, 12, 4)
    mean = gaussian(network.size, generator=generator)
    posterior = Normal(mean, torch.full_like(mean, 0.05))
    spec = class_robust(ball(uniform(2, 3, generator=generator), 0.3), [0, 1], 4)
    traced = trace(network, posterior, spec.region, 5.0)
    plain = evaluate(traced, spec, {})
    _, climbed = optimise(traced, spec)

    index, row = torch.ones_like(plain.value).nonzero().unbind(1)
    tau = torch.full_like(plain.value, 0.5)[index, row]
    chosen = Chosen(index, row, torch.ones_like(tau), tau)

    def worth(found: Functional) -> Tensor:
        return (found.value - 0.5 * found.lipschitz).flatten()

    slopes, settled = settle(traced, spec, chosen, 1e-4)
    assert bool((worth(settled) >= worth(climbed) - 1e-3).all())
    assert bool((worth(settled) > worth(plain) + 0.01).any())
    again = evaluate(traced, spec, {k: own.reshape(2, 3, -1) for k, own in slopes.items()})
    torch.testing.assert_close(again.value.flatten(), settled.value)
    assert torch.equal(settle(traced, spec, chosen, math.inf)[1].value, plain.value.flatten())


def test_ascent_keeps_the_best_of_what_is_asked_for() -> None:
    """m = x and L = x²: m - L / 10 is largest at x = 5, m / L at the least x."""
    x = vector(2.0)

    def found() -> Functional:
        return Functional(x * 1.0, x**2)

    def best(tau: Tensor | None) -> float:
        x.copy_(vector(2.0))
        way = Climbing(x, 1.0, lambda value: value.clamp(1.0, 9.0))
        return float(climb(found, [way], 12, tau=tau)[0].value)

    assert abs(best(vector(0.1)) - 5) < 0.5
    assert best(None) == 1.0


def test_thresholds_are_tried_while_narrower_intervals_may_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Noise that is nothing beside the radius gains nothing by narrower intervals; large noise
    does."""
    tried: list[float] = []

    def noted(*arguments: Any) -> Trace:
        tried.append(arguments[3])
        return trace(*arguments)

    monkeypatch.setattr(sides, "trace", noted)
    generator = torch.Generator().manual_seed(4)
    network = mlp(3, 12, 4)
    mean = gaussian(network.size, generator=generator)
    spec = class_robust(ball(uniform(2, 3, generator=generator), 0.05), [0, 1], 4)
    for std, expected in ((1e-6, [5.5, 5.0]), (0.2, [5.5, 5.0, 4.5, 4.0])):
        tried.clear()
        decide(Problem(network, Normal(mean, torch.full_like(mean, std)), spec))
        assert tried[:4] == expected


def test_a_linear_mean_at_a_point_is_exact() -> None:
    network = Network((2,), (Dense(2, 1),))
    posterior = Normal(vector(1.0, -0.5, 0.25), vector(0.5, 2.0, 0.1))
    spec = output_interval(ball(vector(3.0, 2.0).reshape(1, 2), 0), 2.0, 2.5)
    (decision,) = decide(Problem(network, posterior, spec))
    assert decision.lower <= 2.25 <= decision.upper
    assert decision.upper - decision.lower < 1e-11
    assert (decision.status, decision.quantity, decision.gap, decision.label) == (
        "decided",
        "mean",
        None,
        None,
    )
    for low, high in ((2.0, 2.2), (2.3, 3.0)):
        asked = output_interval(spec.region, low, high)
        assert decide(Problem(network, posterior, asked))[0].status == "undecided"


def test_a_linear_mean_over_a_region_pays_for_one_noise_only() -> None:
    """min over |x| <= 1 of E w x = -|μ|, below which the bound lies by what the adversary gains
    from seeing w."""
    problem = Problem(
        Network((1,), (Dense(1, 1, bias=False),)),
        Normal(vector(2.0), vector(0.5)),
        output_interval(ball(torch.zeros(1, 1, dtype=torch.float64), 1.0), -3.0, 3.0),
    )
    (decision,) = decide(problem)
    expected = 2 * (2 * norm.cdf(4) - 1) + 0.5 * math.sqrt(2 / math.pi) * math.exp(-8)  # E|w|
    assert decision.lower == pytest.approx(-expected, rel=1e-7)
    assert decision.upper == pytest.approx(expected, rel=1e-7)


def test_two_classes_are_a_logistic_of_a_gaussian() -> None:
    """y_0 - y_1 ~ N(m, s²): the bounds lie around E σ(N(m, s²)), and close to it when s is
    small."""
    network = Network((1,), (Dense(1, 2, bias=False),))
    for m, s, width in ((2.0, 0.01, 0.01), (1.0, 0.5, 0.2), (-1.0, 1.0, 0.4)):
        posterior = Normal(vector(m, 0.0), vector(s, 0.0))
        (decision,) = decide(
            Problem(network, posterior, class_robust(ball(vector(1.0).reshape(1, 1), 0), [0], 2))
        )
        truth = quad(lambda z, m=m, s=s: norm.pdf(z) / (1 + math.exp(-m - s * z)), -12, 12)[0]
        assert decision.lower <= truth <= decision.upper
        assert decision.upper - decision.lower < width
        assert decision.gap is not None
        assert 2 * truth - 1 - width < decision.gap <= 2 * truth - 1
        assert decision.status == ("decided" if decision.gap > 0 else "undecided")


def test_levels_by_hand() -> None:
    """Values 0.9, 0.5, 0.1 that hold with probability 0.2, 0.6, 1: 0.1 + 0.4·0.6 + 0.4·0.2."""
    values, held = vector(0.9, 0.5, 0.1).reshape(3, 1), vector(0.2, 0.6, 1.0).reshape(3, 1)
    assert levels._layered(values, held, 0.0).item() == pytest.approx(0.42, abs=1e-11)
    assert levels._layered(values, held, -1.0).item() == pytest.approx(0.42, abs=1e-11)
    raised = vector(0.3, 0.5, 0.1).reshape(
        3, 1
    )  # what holds more often may count for what holds less often
    assert levels._layered(raised, held, 0.0).item() == pytest.approx(0.34, abs=1e-11)
    below = vector(-0.5, -3.0).reshape(2, 1)
    assert levels._layered(below, vector(0.5, 1.0).reshape(2, 1), -1.0).item() == pytest.approx(
        -0.75, abs=1e-11
    )


def test_every_noisy_row_is_charged_at_every_level() -> None:
    rows = Functional(vector(1.0, 2.0, 3.0).reshape(1, 3), vector(0.5, 0.0, 1.0).reshape(1, 3))
    margins, held = levels._at_levels(vector(0.01), rows)
    for k in (0, 8, 64):
        s = k / 8
        assert margins[k, 0].tolist() == pytest.approx([1 - 0.5 * s, 2.0, 3 - s], abs=1e-10)
        assert held[k, 0].item() == pytest.approx(max(0.0, 1 - 0.01 - 2 * norm.sf(s)), abs=1e-10)
        assert held[k, 0].item() <= max(0.0, 1 - 0.01 - 2 * norm.sf(s))


def test_a_mean_pays_for_the_hidden_event_by_hand() -> None:
    """m - |m| p - (L + S) sqrt(p) with p = 0.01; without hidden events m itself."""
    rows = Functional(vector(2.0, -2.0).reshape(2, 1), vector(0.5, 0.5).reshape(2, 1))
    names, sizes = torch.tensor([1, 0]), vector(7.0, 3.0)
    found = levels.mean(vector(0.01, 0.01), rows, sizes[names])
    assert found.flatten().tolist() == pytest.approx(
        [2 - 0.02 - 3.5 * 0.1, -2 - 0.02 - 7.5 * 0.1], abs=1e-12
    )
    assert levels.mean(vector(0.0, 0.0), rows, sizes[names]).flatten().tolist() == pytest.approx(
        [2.0, -2.0]
    )


def test_the_lead_over_every_rival() -> None:
    """softmax_0 - softmax_j at the worst outputs that margins allow, over many outputs."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        outputs = 3 * gaussian(4, generator=generator)
        margins = outputs[0] - outputs[1:]
        shares = outputs.softmax(0)
        truth = float((shares[0] - shares[1:]).min())
        found = levels.lead(margins.reshape(1, 3)).item()
        assert found <= truth
        assert found <= levels.lead(margins.reshape(1, 3) + 0.1).item()
        if float(margins.min()) >= 0:
            assert found == pytest.approx(truth, abs=1e-9)


def test_nothing_known_is_nothing_claimed() -> None:
    """A row of which nothing is known (NaN) says nothing."""
    rows = Functional(vector(math.nan, 5.0).reshape(1, 2), vector(1.0, 1.0).reshape(1, 2))
    found = levels.label_and_gap(vector(0.0), rows)[0]
    assert found[0].item() <= 0
    assert found[1].item() <= -1 + 1e-9


@pytest.mark.parametrize("family", ["normal", "wide", "correlated"])
def test_second_moments_are_bounded(family: str) -> None:
    for seed in range(30):
        problem = asked(seed, family, "mean")
        generator = torch.Generator().manual_seed(seed)
        weights = draw_many(problem.posterior, DRAWS, generator)
        norms = output_norms(problem.network, problem.posterior, problem.specification.region)
        for x in sample_region(problem.specification.region, 4, generator):
            squares = problem.network.forward(weights, x) ** 2
            least = squares.mean(0) - 5 * squares.std(0) / math.sqrt(DRAWS)
            assert bool((least <= norms**2 * (1 + 1e-9)).all())


def test_second_moments_of_images() -> None:
    """By hand, where every weight and pixel is 1: a maximum counts as the sum over its window, a
    mean as itself."""
    layers = (Conv2d(1, 2, 2), ReLU(), MaxPool2d(2), Flatten(), Dense(2, 1))
    network = Network((1, 3, 3), layers)
    ones = Normal(
        torch.ones(network.size, dtype=torch.float64),
        torch.zeros(network.size, dtype=torch.float64),
    )
    region = ball(torch.ones(1, 1, 3, 3, dtype=torch.float64), 0)
    assert output_norms(network, ones, region).item() == pytest.approx(
        2 * (4 * 5) + 1
    )  # a window's sum, not its maximum
    averaged = Network((1, 3, 3), (Conv2d(1, 2, 2), ReLU(), AvgPool2d(2), Flatten(), Dense(2, 1)))
    assert output_norms(averaged, ones, region).item() == pytest.approx(2 * 5 + 1)


def test_finitely_many_networks_are_averaged() -> None:
    """At a point nothing is lost; on a region every network is bounded."""
    generator = torch.Generator().manual_seed(3)
    network, x = mlp(3, 5, 3), uniform(2, 3, generator=generator)
    samples = gaussian(7, network.size, generator=generator)
    problem = Problem(network, Empirical(samples), class_robust(ball(x, 0), [0, 2], 3))
    truth = network.forward(samples, x).softmax(-1).mean(0)
    for decision, own, label in zip(decide(problem), truth, (0, 2), strict=True):
        assert decision.lower <= float(own[label]) <= decision.upper
        assert decision.upper - decision.lower < 1e-6
        rivals = torch.cat([own[:label], own[label + 1 :]])
        assert decision.gap is not None
        assert decision.gap <= float((own[label] - rivals).min())
    wide = Problem(network, Empirical(samples), class_robust(ball(x, 0.2), [0, 2], 3))
    for i, decision in enumerate(decide(wide)):
        for point in sample_region(wide.specification.region, 50, generator):
            share = float(network.forward(samples, point).softmax(-1).mean(0)[i, (0, 2)[i]])
            assert decision.lower <= share <= decision.upper
    mean = Problem(network, Empirical(samples), output_interval(ball(x, 0), -9.0, 9.0, 3, 1))
    for decision, own in zip(decide(mean), network.forward(samples, x).mean(0), strict=True):
        assert decision.lower <= float(own[1]) <= decision.upper <= decision.lower + 1e-9


def test_wider_regions_know_less() -> None:
    problem = asked(5, "normal", "softmax")
    found: list[tuple[Decision, ...]] = []
    for eps in (0.0, 0.05, 0.2):
        region = ball(problem.specification.region.center, eps)
        assert problem.specification.labels is not None
        spec = class_robust(region, problem.specification.labels, problem.network.outputs)
        found.append(decide(Problem(problem.network, problem.posterior, spec)))
    for narrow, wide in pairwise(found):
        for a, b in zip(narrow, wide, strict=True):
            assert b.lower <= a.lower + 1e-9
            assert b.upper >= a.upper - 1e-9


def test_questions_that_have_no_predictive_mean() -> None:
    network = mlp(2, 3, 3)
    posterior = random_posterior(0, network)
    region = ball(torch.zeros(1, 2, dtype=torch.float64), 0.1)
    with pytest.raises(InputError, match="leave out the target class"):
        decide(Problem(network, posterior, class_robust(region, [0], 3, target=1)))
    two = Specification(
        region, vector(1, 0, 0, 0, 1, 0).reshape(1, 2, 3), torch.zeros(1, 2, dtype=torch.float64)
    )
    with pytest.raises(InputError, match="one direction"):
        decide(Problem(network, posterior, two))
    with pytest.raises(InputError, match="'laplace' has no predictive bounds"):
        decide(
            Problem(network, Laplace(posterior.mean, posterior.std), class_robust(region, [0], 3))
        )
    with pytest.raises(InputError, match="effort is 2"):
        decide(Problem(network, posterior, class_robust(region, [0], 3)), effort=2)
    with pytest.raises(InputError, match="2 indices for 1 inputs"):
        decide(Problem(network, posterior, class_robust(region, [0], 3)), indices=[1, 2])


def test_a_half_space_is_a_direction_too() -> None:
    network = Network((1,), (Dense(1, 2, bias=False),))
    region = ball(vector(1.0).reshape(1, 1), 0)
    problem = Problem(
        network,
        Normal(vector(1.0, 3.0), vector(0.1, 0.1)),
        half_space(region, vector(-1.0, 1.0), 1.5),
    )
    (decision,) = decide(problem)
    assert (decision.lower, decision.upper) == pytest.approx((2.0, 2.0))
    assert decision.status == "decided"
    reverse = Problem(network, problem.posterior, half_space(region, vector(-1.0, 1.0), 2.5))
    assert decide(reverse)[0].status == "undecided"


def test_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks("decisions.md")
    exec(compile(code, "decisions.md", "exec"), {})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [status for status, *_ in printed] == ["decided", "decided"]
    assert all(0 < float(lower) <= float(upper) < 1 for _, lower, upper, _ in printed)


def test_low_rank_noise_that_reaches_two_layers_is_not_independent() -> None:
    """w1 = w2 = ξ: E w2 relu(w1 x) = E ξ relu(ξ) = 1/2 at x = 1, where independent weights would
    have mean 0."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    posterior = LowRankNormal(
        vector(0.0, 0.0), vector(0.0, 0.0), torch.ones(2, 1, dtype=torch.float64)
    )
    problem = Problem(
        network, posterior, output_interval(ball(vector(1.0).reshape(1, 1), 0), -1.0, 1.0)
    )
    (decision,) = decide(problem)
    assert decision.lower <= 0.5 <= decision.upper
    assert output_norms(network, posterior, problem.specification.region).item() >= math.sqrt(
        1.5
    )  # E ξ⁴ / 2


def test_of_a_mean_that_overflows_nothing_is_known(tmp_path: Path) -> None:
    network, huge = mlp(1, 1, 1), vector(*[1e150] * 4)
    x = vector(1e100, 1.0).reshape(2, 1)
    asked = half_space(ball(x, 0.0), torch.ones(1), 0.0)
    found = decide(Problem(network, Normal(huge, huge), asked), indices=[7, 8])
    first = found[0]
    assert (first.lower, first.upper, first.status) == (-math.inf, math.inf, Status.UNDECIDED)
    assert first.certificate is None
    with pytest.raises(InputError, match="input 7, whose bounds overflow; leave it out"):
        found.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    classes = class_robust(asked.region, [0, 0], 2)
    label = decide(Problem(mlp(1, 1, 2), Normal(*[vector(*[1e150] * 6)] * 2), classes))[0]
    assert (label.lower, label.upper, label.gap, label.certificate) == (0, 1, -1, None)

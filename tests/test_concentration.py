"""Concentration certificates against the truth: known answers, brute force on random tiny networks,
seeded mutants."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import PIE, Concentration, Problem, certify
from bnncert import estimate as statistical
from bnncert.attack import project
from bnncert.concentration import ascent as ascent_module
from bnncert.concentration import functional as functional_module
from bnncert.concentration import noise as noise_module
from bnncert.concentration import proof as proof_module
from bnncert.concentration import slopes as slopes_module
from bnncert.concentration import steps as steps_module
from bnncert.concentration import tails as tails_module
from bnncert.concentration import trace as trace_module
from bnncert.concentration.functional import Functional, Trace, functional
from bnncert.concentration.proof import plain_bounds, prove, row_failures
from bnncert.concentration.trace import trace
from bnncert.concentration.upper import refute
from bnncert.errors import InputError
from bnncert.estimate import estimate
from bnncert.layers import Dense, Flatten, ReLU
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, half_space
from bnncert.numerics import batching
from bnncert.numerics.rounding import allow
from bnncert.numerics.tails import SPECIAL, expected_magnitude, normal_tail_up
from bnncert.posteriors import Laplace, LowRankNormal, Mixture, Normal
from bnncert.posteriors.gaussian import Gaussian
from scenarios import (
    PIECEWISE_LINEAR,
    claimed,
    correlated,
    draw_many,
    gaussian,
    paper_example,
    paper_probability,
    random_problem,
    sample_region,
    vector,
    wider,
    with_posterior,
)

DRAWS = 3000


def one_weight(mean: float, std: float, bias: float, eps: float = 1.0) -> Problem:
    """z = w x + b > 0 for all |x| <= eps, w ~ N(mean, std²), b fixed."""
    region = ball(torch.zeros(1, 1, dtype=torch.float64), eps)
    posterior = Normal(vector(mean, bias), vector(std, 0.0))
    return Problem(Network((1,), (Dense(1, 1),)), posterior, half_space(region, vector(1.0), 0.0))


def robust_share(problem: Problem, seed: int, draws: int = DRAWS) -> Tensor:
    """Share of sampled networks [B] whose rows are positive at many points of the region: at least
    P_safe, about."""
    generator = torch.Generator().manual_seed(seed)
    region = problem.specification.region
    points = torch.cat([region.center.unsqueeze(0), sample_region(region, 24, generator)])
    weights = draw_many(problem.posterior, draws, generator)
    safe = torch.ones(draws, len(problem), dtype=torch.bool)
    for x in points:
        safe &= (problem.specification.margins(problem.network.forward(weights, x)) > 0).all(-1)
    return safe.double().mean(0)


def assert_below_truth(problem: Problem, lower: Tensor, seed: int) -> None:
    share = robust_share(problem, seed)
    error = (share * (1 - share) / DRAWS).sqrt()
    excess = lower - share - 4 * error - 4 / DRAWS * (share < 0.5) - 8 / DRAWS * (share >= 0.5)
    assert bool((excess <= 0).all()), (
        f"seed {seed}: certified {lower.tolist()}, sampled {share.tolist()}"
    )


def best(problem: Problem) -> Tensor:
    return plain_bounds(problem, problem.posterior)[0]


def test_a_margin_below_the_mean_noise_counts_as_failure() -> None:
    """z = w x + 0.05, |x| <= 1, w ~ N(0, 1): safe iff |w| < 0.05, P = 0.040; Q of a negative number
    would say 0.227."""
    lower = best(one_weight(0.0, 1.0, 0.05)).item()
    assert lower <= 2 * norm.cdf(0.05) - 1
    assert lower == 0.0


@pytest.mark.parametrize(("value", "lipschitz", "expected"), [
    (-1.0, 1.0, 1.0), (0.0, 1.0, 0.5), (2.0, 1.0, norm.sf(2)), (3.0, 0.0, 0.0), (0.0, 0.0, 1.0), (-1.0, 0.0, 1.0),
    (math.nan, 1.0, 1.0), (1.0, math.nan, 1.0), (-math.inf, 1.0, 1.0),
])  # fmt: skip
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


@pytest.mark.parametrize("t", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_the_tail_of_the_functional(t: float) -> None:
    """P(min over x of A z <= value - tL) <= Q(t) for one dense layer, where the minimum over a box
    is exact."""
    for seed in range(40):
        problem = wider(
            random_problem(seed, norm="linf", dense=1, activations=PIECEWISE_LINEAR), seed
        )
        layers = tuple(
            layer for layer in problem.network.layers if isinstance(layer, Dense | Flatten)
        )
        network, region = Network(problem.network.input_shape, layers), problem.specification.region
        rows = gaussian(
            len(region), 2, network.outputs, generator=torch.Generator().manual_seed(seed)
        )
        traced = trace(network, problem.posterior, region, 4.0)
        found = functional(traced, rows)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        parameters = network.split(weights)[-1]
        pulled = torch.einsum("bro,sio->sbri", rows, parameters[0])
        box = region.box.reshape(len(region), -1)
        value = (
            pulled.clamp_min(0) * box.lower[:, None] + pulled.clamp_max(0) * box.upper[:, None]
        ).sum(-1)
        if len(parameters) > 1:
            value = value + torch.einsum("bro,so->sbr", rows, parameters[1])
        share = (value < found.value - t * found.lipschitz).double().mean(0)
        limit = norm.sf(t)
        assert bool(
            (share <= limit + 4 * math.sqrt(limit * (1 - limit) / DRAWS) + 2 / DRAWS).all()
        ), seed


@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
@pytest.mark.parametrize("block", range(4))
def test_never_above_brute_force(norm_name: str, block: int) -> None:
    """Tiny networks: every activation, signed inputs, σ up to 3, some weights deterministic."""
    for seed in range(1000 * block, 1000 * block + 25):
        problem = wider(random_problem(seed, norm=norm_name), seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.slow
@pytest.mark.parametrize("norm_name", ["linf", "l2", "l1"])
def test_thousands_never_above_brute_force(norm_name: str) -> None:
    """1,000 networks a norm, with three inputs each."""
    for seed in range(10_000, 11_000):
        problem = wider(random_problem(seed, norm=norm_name), seed)
        assert_below_truth(problem, best(problem), seed)


@pytest.mark.parametrize("block", range(3))
def test_correlated_posteriors_never_above_brute_force(block: int) -> None:
    for seed in range(500 * block, 500 * block + 20):
        problem = correlated(random_problem(seed), seed)
        assert_below_truth(problem, best(problem), seed)


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


def test_mixtures_are_weighted_sums_and_never_above_brute_force() -> None:
    for seed in range(40):
        problem = wider(random_problem(seed), seed)
        shifted = Normal(problem.posterior.mean + 0.3, problem.posterior.std)
        mixture = with_posterior(problem, Mixture((0.3, 0.7), (problem.posterior, shifted)))
        results = certify(mixture, Concentration(effort=0))
        parts = 0.3 * best(problem) + 0.7 * best(with_posterior(problem, shifted))
        lower = torch.tensor([result.lower for result in results], dtype=torch.float64)
        expected = torch.tensor([claimed(part) for part in parts.tolist()], dtype=torch.float64)
        torch.testing.assert_close(lower, expected, rtol=0, atol=1e-10)
        assert_below_truth(mixture, lower, seed)


@pytest.mark.parametrize("block", range(2))
def test_upper_bounds_hold_at_their_points(block: int) -> None:
    """Of sampled networks, at most `upper` keep the refuted row positive at x*, and x* is in the
    region."""
    found = 0
    for seed in range(300 * block, 300 * block + 25):
        problem = wider(random_problem(seed), seed)
        weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
        for i, refutation in enumerate(refute(problem, problem.posterior, seed)):
            if refutation is None:
                continue
            found += 1
            spec = problem.specification[i : i + 1]
            rows = spec.margins(problem.network.forward(weights, refutation.point.unsqueeze(0)))[
                :, 0, refutation.row
            ]
            share = float((rows > 0).double().mean())
            assert share <= refutation.upper + 4 * math.sqrt(0.25 / DRAWS), seed
            offset = (refutation.point - spec.region.center[0]).flatten()
            order = {"linf": math.inf, "l2": 2, "l1": 1}[spec.region.norm]
            assert float(torch.linalg.vector_norm(offset, order)) <= float(spec.region.eps[0])
    assert found > 20


def test_intervals_are_ordered_and_effort_never_hurts() -> None:
    for seed in range(10):
        problem = wider(random_problem(seed), seed)
        plain = certify(problem, Concentration(effort=0, upper=True), seed=1)
        better = certify(problem, Concentration(effort=1, upper=True), seed=1)
        for one, two in zip(plain, better, strict=True):
            assert 0 <= one.lower <= two.lower <= two.upper <= 1


def test_optimised_slopes_help_and_stay_below_brute_force() -> None:
    gained = 0
    for seed in range(25):
        problem = wider(random_problem(seed, activations=PIECEWISE_LINEAR), seed)
        proofs = prove(problem, problem.posterior, effort=1)
        lower = torch.tensor([found.bound for found in proofs], dtype=torch.float64)
        gained += int((lower > best(problem) + 1e-3).sum())
        assert_below_truth(problem, lower, seed)
        for found in proofs:
            for slopes in found.row_slopes.values():
                assert bool(((slopes >= 0) & (slopes <= 1)).all())
    assert gained >= 3


def test_the_papers_example_is_inside_the_interval() -> None:
    (result,) = certify(paper_example(), Concentration(upper=True))
    assert result.lower <= paper_probability() <= result.upper


def planted(p: float, eps: float) -> Problem:
    """y = relu(x1 + w) with w ~ N(0, 1): some x of the region has y >= b with probability exactly
    p."""
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1, bias=False)))
    bound = float(norm.isf(p)) + 0.5 + eps
    posterior = Normal(vector(1.0, 0.0, 1.0), vector(0.0, 1.0, 0.0))
    return Problem(
        network, posterior, half_space(ball(vector(0.5).reshape(1, 1), eps), vector(-1.0), -bound)
    )


@pytest.mark.parametrize("p", [0.5, 0.1, 1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("eps", [0.0, 0.1, 1.0])
def test_planted_counterexamples_are_never_certified_away(p: float, eps: float) -> None:
    lower = best(planted(p, eps)).item()
    assert lower <= 1 - p
    assert p > 1e-3 or lower >= 1 - p - 0.01


def forget_third_case(rows: Functional) -> Tensor:
    return normal_tail_up(rows.value / rows.lipschitz)


def check_all(seeds: range) -> None:
    """The check that the right implementation passes and every mutant must fail."""
    assert best(one_weight(0.0, 1.0, 0.05)).item() <= 2 * norm.cdf(0.05) - 1
    for seed in seeds:
        problem = wider(random_problem(seed, norm="linf"), seed)
        assert_below_truth(problem, best(problem), seed)
    for p in (0.3, 0.1, 0.01):
        assert best(planted(p, 0.1)).item() <= 1 - p


def std_for_variance(network: Network, posterior: Gaussian) -> list[noise_module.Noise]:
    return REAL_NOISES(network, Normal(posterior.mean, posterior.std**2))


def half_lipschitz(traced: Trace, rows: Tensor) -> Functional:
    found = REAL_FUNCTIONAL(traced, rows)
    return Functional(found.value, found.lipschitz / 2)


REAL_NOISES, REAL_FUNCTIONAL = noise_module.layer_noises, functional
MUTANTS = {
    "the right one": [],
    "Q of a negative number": [(tails_module, "row_failures", forget_third_case)],
    # without charges a small threshold is free, so it would win
    "no hidden charge": [
        (trace_module, "normal_tail_up", torch.zeros_like),
        (proof_module, "THRESHOLDS", (0.1,)),
    ],
    "σ for σ²": [(trace_module, "layer_noises", std_for_variance)],
    "E F forgotten": [
        (steps_module, "MEAN_OF_HALF_NORMAL", 0.0),
        (functional_module, "expected_magnitude", lambda a, _: a.abs()),
    ],
    "half of L": [(slopes_module, "functional", half_lipschitz)],
    "region forgotten": [(functional_module, "expected_magnitude", lambda a, _: 0 * a)],
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_seeded_mutants_are_killed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, wrong in MUTANTS[mutant]:
        monkeypatch.setattr(module, name, wrong)
    if mutant == "the right one":
        check_all(range(120))
    else:
        with pytest.raises(AssertionError):
            check_all(range(120))


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


def test_expected_magnitude_against_quadrature() -> None:
    for a, s in [(0.0, 1.0), (1.0, 0.5), (-2.0, 0.1), (1e-9, 1e-3), (5.0, 1e-150), (-1e3, 7.0)]:
        exact = folded_mean(a, s)
        found = float(expected_magnitude(vector(a), vector(s)))
        assert found == pytest.approx(exact, rel=2 * SPECIAL, abs=0)


def folded_mean(a: float, s: float) -> float:
    with mpmath.workdps(50):
        z = mpmath.mpf(a) / s
        return float(
            s * mpmath.sqrt(2 / mpmath.pi) * mpmath.exp(-(z**2) / 2)
            + a * mpmath.erf(z / mpmath.sqrt(2))
        )


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


def test_the_charge_of_hidden_ends_is_float64() -> None:
    """Whole number of ends times Q(t), to float64's digits: float32 would be off by 1e-8 of it, on
    either side."""
    network = mlp(1, 999, 1)
    posterior = Normal(
        torch.full((network.size,), 1.0).double(), torch.full((network.size,), 0.01).double()
    )
    traced = trace(network, posterior, ball(vector(1.0).reshape(1, 1), 0.1), 5.5)
    assert float(traced.charge) == pytest.approx(2 * 999 * float(norm.sf(5.5)), rel=1e-12)


def test_claims_are_a_little_wider_than_what_was_proved() -> None:
    """Certainty and ignorance stay; what is lost in underflow is not claimed at all."""
    assert allow(0.0, 1.0) == (0.0, 1.0)
    assert allow(1.0, 1.0) == (1.0, 1.0)
    assert allow(1e-300, 1.0) == (0.0, 1.0)
    lower, upper = allow(0.25, 0.75)
    assert 0.25 - 1e-8 < lower < 0.25
    assert 0.75 < upper < 0.75 + 1e-8


def test_optimised_slopes_are_0_on_relus_that_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lower ends are not known: whichever way the optimiser goes, no line may rest on
    them."""
    monkeypatch.setattr(
        torch.optim, "Adam", lambda groups: torch.optim.SGD(groups, lr=1e2, maximize=True)
    )
    turns = itertools.count()  # each iterate is better than the one before it
    monkeypatch.setattr(ascent_module, "score", lambda found: 0 * found.value - next(turns))
    found = 0
    for seed in range(20):
        problem = wider(random_problem(seed, activations=(ReLU(),), dense=2), seed)
        traced = trace(problem.network, problem.posterior, problem.specification.region, 4.0)
        chosen, _ = slopes_module.optimise(traced, problem.specification)
        for k, slopes in chosen.items():
            off = (traced.steps[k].relaxation.upper_slope == 0).unsqueeze(1).expand_as(slopes)
            found += int(off.sum())
            assert not bool(
                (slopes[off] > 0).any()
            )  # without noise there is no gradient, and NaN is never chosen
    assert found

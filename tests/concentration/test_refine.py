"""Branch and bound against the truth: leaves and tails by brute force, known answers, limits,
interrupts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bnncert import Concentration, InputError, Problem, certify
from bnncert.concentration import bisection
from bnncert.concentration import method as concentration
from bnncert.concentration import refine as refine_module
from bnncert.concentration.bisection import bisect
from bnncert.concentration.domains import (
    Domains,
    Tightened,
    evaluate,
    halves,
    roots,
    tighten,
    whole,
)
from bnncert.concentration.proof import Proof, prove
from bnncert.concentration.refine import Limits, Refined, refine
from bnncert.concentration.trace import trace
from bnncert.layers import ReLU, Sigmoid, Tanh
from bnncert.model.activations import Activation
from bnncert.model.network import mlp
from bnncert.model.specification import ball, class_robust, half_space
from bnncert.posteriors import Normal
from open_problems import open_problem, regression, shared_noise
from scenarios import (
    PIECEWISE_LINEAR,
    correlated,
    draw_many,
    gaussian,
    random_problem,
    sample_region,
    uniform,
    vector,
    wider,
)
from truth import DRAWS, assert_below_truth


def refined(problem: Problem, nodes: int = 40, **limits: float) -> Refined:
    proofs = prove(problem, problem.posterior, 1)
    return refine(problem, problem.posterior, proofs, Limits(nodes, **limits))


def lower_bounds(found: Refined) -> Tensor:
    return torch.tensor([proof.bound for proof in found.proofs], dtype=torch.float64)


@pytest.mark.parametrize("block", range(4))
def test_never_above_brute_force(block: int) -> None:
    """Tiny networks of every depth, norm and width of posterior: no refined bound above the
    truth."""
    for seed in range(1000 * block, 1000 * block + 10):
        problem = wider(random_problem(seed, activations=PIECEWISE_LINEAR), seed)
        assert_below_truth(problem, lower_bounds(refined(problem)), seed)


@pytest.mark.slow
def test_thousands_never_above_brute_force() -> None:
    """1,000 networks with three inputs each."""
    for seed in range(10_000, 11_000):
        problem = wider(random_problem(seed, activations=PIECEWISE_LINEAR), seed)
        assert_below_truth(problem, lower_bounds(refined(problem, nodes=20)), seed)


@pytest.mark.parametrize("sizes", [(2, 5, 2), (3, 8, 3), (2, 4, 4, 2), (3, 6, 6, 6, 2)])
def test_open_networks_never_above_brute_force(sizes: tuple[int, ...]) -> None:
    """Where branching does most: many open signs, narrow and wide posteriors."""
    gained = 0
    for seed in range({3: 16, 4: 8, 5: 5}[len(sizes)]):
        problem = open_problem(seed, sizes, std=[0.001, 0.02, 0.1, 0.3][seed % 4])
        before = torch.tensor(
            [p.bound for p in prove(problem, problem.posterior, 1)], dtype=torch.float64
        )
        lower = lower_bounds(refined(problem))
        gained += int((lower > before + 1e-3).sum())
        assert bool((lower >= before).all())
        assert_below_truth(problem, lower, seed)
    assert gained


@pytest.mark.parametrize("sizes", [(3, 8, 2), (3, 6, 4, 2)])
def test_common_noise_helps_and_stays_below_brute_force(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gained = 0
    for seed in range(8):
        problem = shared_noise(seed, sizes)
        together = lower_bounds(refined(problem))
        with monkeypatch.context() as patch:
            patch.setattr(refine_module, "applies", lambda _: False)
            apart = lower_bounds(refined(problem))
        assert bool((together >= apart).all())
        gained += int((together > apart + 1e-3).sum())
        assert_below_truth(problem, together, seed)
    assert gained


def test_correlated_posteriors_never_above_brute_force() -> None:
    for seed in range(8):
        problem = correlated(random_problem(seed, activations=PIECEWISE_LINEAR), seed)
        assert_below_truth(problem, lower_bounds(refined(problem)), seed)


def random_leaves(
    problem: Problem, t: float, seed: int, depth: int = 3
) -> tuple[Domains, Tightened]:
    """Domains of row 0 with random splits of open neurons, tightened."""
    base = roots(
        problem,
        problem.posterior.mean,
        trace(problem.network, problem.posterior, problem.specification.region, t),
    )
    inputs = torch.arange(len(problem))
    domains = whole(base, inputs, torch.zeros_like(inputs))
    choose = torch.Generator().manual_seed(seed)
    for level in range(min(depth, base.open.shape[1])):
        column = (uniform(len(domains), generator=choose) * base.open.shape[1]).long()
        free = domains.splits.gather(1, column[:, None])[:, 0] == 0
        free &= base.open[domains.input].gather(1, column[:, None])[:, 0] < base.width
        if bool(free.any()):
            domains = halves(
                domains[free],
                column[free],
                uniform(int(free.sum()), generator=choose),
                column[free] * 0 + level,
            )
    found = tighten(base, domains, 8, "both")
    return domains, found


def leaf_minimum(problem: Problem, domains: Domains, weights: Tensor, points: Tensor) -> Tensor:
    """min over sampled points in the leaf [S, D] of the row; infinite where no point lies in it."""
    spec, network = problem.specification, problem.network
    least = torch.full((len(weights), len(domains)), math.inf, dtype=torch.float64)
    base = roots(
        problem, problem.posterior.mean, trace(network, problem.posterior, spec.region, 4.0)
    )
    for x in points:
        z, values = x[domains.input], []
        for k, (layer, parameters) in enumerate(
            zip(network.layers, network.split(weights), strict=True)
        ):
            if k in base.starts:
                values.append(z.expand(len(weights), *z.shape[-2:]))
            z = (
                torch.baddbmm(
                    parameters[1].unsqueeze(1), z.expand(len(weights), *z.shape[-2:]), parameters[0]
                )
                if parameters
                else layer(z)
            )
        row = (spec.rows[domains.input, 0] * z).sum(-1) + spec.offsets[domains.input, 0]
        pre = torch.cat([*values, torch.zeros(len(weights), len(domains), 1).double()], -1)
        own = pre.gather(2, base.open[domains.input].expand(len(weights), -1, -1))
        inside = (own * domains.splits.sign() >= 0).all(-1)
        least = torch.where(inside & (row < least), row, least)
    return least


@pytest.mark.parametrize("std", [0.01, 0.1, 0.4])
def test_the_tail_of_a_leaf(std: float) -> None:
    """P(hidden intervals hold and the row falls below m - tL somewhere in the leaf) <= Q(t), for
    random leaves."""
    leaves = 0
    for seed in range(30):
        problem = open_problem(seed, (2, 5, 2) if seed % 2 else (2, 3, 3, 2), std=std)
        domains, found = random_leaves(problem, 4.0, seed)
        generator = torch.Generator().manual_seed(seed)
        weights = draw_many(problem.posterior, 1000, generator)
        least = leaf_minimum(
            problem, domains, weights, sample_region(problem.specification.region, 30, generator)
        )
        charge = trace(
            problem.network, problem.posterior, problem.specification.region, 4.0
        ).charge[domains.input]
        leaves += len(domains)
        for t in (0.0, 1.0, 2.0):
            share = (least < found.value - t * found.lipschitz).double().mean(0)
            limit = 0.5 * math.erfc(t / math.sqrt(2)) + charge
            assert bool(
                (
                    share <= limit + 4 * (limit * (1 - limit).clamp_min(0) / 1000).sqrt() + 4 / 1000
                ).all()
            ), seed
    assert leaves > 80


def test_children_are_at_least_as_good_as_their_parents() -> None:
    """Nearly without noise, a child starts with its parent's bound or better; and what is found is
    what is stored."""
    for seed in range(10):
        problem = open_problem(seed, (3, 8, 3), std=1e-8)
        base = roots(
            problem,
            problem.posterior.mean,
            trace(problem.network, problem.posterior, problem.specification.region, 4.0),
        )
        index = torch.arange(len(problem))
        parent = tighten(base, whole(base, index, torch.zeros_like(index)), 20, "both")
        splittable = (parent.branch >= 0).nonzero().squeeze(1)
        chosen = (
            parent.branch[splittable],
            parent.weight[splittable],
            torch.zeros_like(splittable),
        )
        children = halves(parent.domains[splittable], *chosen)
        assert bool(
            (
                evaluate(base, children).value[:, 0] >= parent.value[splittable].repeat(2) - 1e-6
            ).all()
        )
        child = tighten(base, children, 5, "both")
        again = evaluate(base, child.domains)
        torch.testing.assert_close(again.value[:, 0], child.value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(again.lipschitz[:, 0], child.lipschitz, rtol=1e-12, atol=1e-12)


def triangle(offset: float, std: float = 1e-6) -> Problem:
    """y = relu(x) + relu(-x) - relu(x) + offset on |x| <= 1: at least `offset`, but the relaxation
    loses half."""
    network = mlp(1, 2, 1)
    mean = vector(
        1.0, -1.0, 0.0, 0.0, -1.0, 1.0, offset
    )  # W0 [1, 2], b0, W1 [2, 1], b1: y = |x| part
    return Problem(
        network,
        Normal(mean, torch.full_like(mean, std)),
        half_space(ball(vector(0.0).reshape(1, 1), 1), vector(1.0), 0.0),
    )


def test_a_known_answer() -> None:
    """y = relu(-x) - relu(x) + 1.2 >= 0.2 on [-1, 1]: exact after one split, whatever the
    relaxation says."""
    (before,) = prove(triangle(1.2), triangle(1.2).posterior, 1)
    (after,) = refined(triangle(1.2)).proofs
    assert after.bound >= before.bound
    assert after.bound == pytest.approx(1.0, abs=1e-4)
    found = refined(triangle(0.8))
    assert found.proofs[0].bound == 0.0
    assert 0.8 < abs(float(found.counterexamples[0])) <= 1 + 1e-15


def test_limits_are_kept_and_more_is_never_worse() -> None:
    for seed in range(8):
        problem = open_problem(seed, (4, 12, 3), std=0.02)
        few, many = refined(problem, nodes=12), refined(problem, nodes=150)
        assert bool((lower_bounds(many) >= lower_bounds(few) - 1e-12).all())
        rows = problem.specification.rows.shape[1]
        assert all(
            count <= max(12 + 2 * refine_module.AT_ONCE["cpu"], rows) for count in few.domains
        )
        none = refined(problem, seconds=0.0)
        assert none.domains == [0] * len(problem)


def test_a_closed_interval_ends_the_search() -> None:
    """Where all that is left to gain is below the precision; and no precision but 0 costs more than
    it says."""
    wasted = 0
    for seed in range(6):
        problem = open_problem(seed, (3, 8, 3), std=[0.005, 0.02, 0.05][seed % 3])
        found = {
            p: certify(problem, Concentration(effort=2, nodes=200, precision=p))
            for p in (0.0, 1e-3, 0.1, None)
        }
        for all_of_it, quick, quicker, usual in zip(*found.values(), strict=True):
            assert usual.lower == quick.lower
            assert quicker.bound_calls <= quick.bound_calls <= all_of_it.bound_calls
            if all_of_it.lower > 1 - 1e-4:
                assert quick.lower > 1 - 2e-3
            wasted += quick.bound_calls < all_of_it.bound_calls
    assert wasted


def test_cutting_a_region_ends_where_it_gains_nothing() -> None:
    """Noise decides: 20,000 parts are no better than a few."""
    generator = torch.Generator().manual_seed(0)
    network = mlp(3, 16, 16, 5)
    mean = 0.7 * gaussian(network.size, generator=generator)
    x = uniform(64, 3, generator=generator)
    spec = class_robust(ball(x, 0.02), network.forward(mean, x).argmax(-1), 5)
    problem = Problem(network, Normal(mean, torch.full_like(mean, 0.003)), spec)
    results = certify(problem, Concentration(effort=3, upper=True))
    assert sum(result.bound_calls for result in results) < 1000
    assert sum(result.lower for result in results) / 64 > 0.915


def test_a_threshold_ends_the_search() -> None:
    stopped = everything = 0
    for seed in range(12):
        problem = open_problem(seed, (4, 12, 3), std=0.03)
        full, quick = refined(problem, nodes=300), refined(problem, nodes=300, enough=0.5)
        for a, b in zip(lower_bounds(full).tolist(), lower_bounds(quick).tolist(), strict=True):
            assert (a >= 0.5) == (b >= 0.5)
        stopped, everything = stopped + sum(quick.domains), everything + sum(full.domains)
    assert stopped < everything


def test_an_interrupt_keeps_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = open_problem(8, (4, 12, 3), std=0.02)
    calls = 0

    def interrupted(*arguments: object) -> Tightened:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return tighten(*arguments)

    whole_search = lower_bounds(refined(problem, nodes=500))
    monkeypatch.setattr(refine_module, "tighten", interrupted)
    found = lower_bounds(refined(problem, nodes=500))
    before = torch.tensor(
        [p.bound for p in prove(problem, problem.posterior, 1)], dtype=torch.float64
    )
    assert calls == 3
    assert bool((found >= before).all() & (found <= whole_search + 1e-9).all())


def test_counterexamples_feed_the_upper_bound() -> None:
    """Efforts 2 and 3 give ordered intervals, at least as good as those of effort 1."""
    better = 0
    for seed in range(12):
        problem = open_problem(seed, (3, 8, 3), std=0.01)
        first = certify(problem, Concentration(effort=1, upper=True))
        for effort in (2, 3)[: 1 + (seed == 0)]:
            second = certify(problem, Concentration(effort=effort, upper=True, nodes=200))
            for one, two in zip(first, second, strict=True):
                assert one.lower - 1e-9 <= two.lower <= two.upper <= one.upper + 1e-9
                better += two.upper - two.lower < one.upper - one.lower - 1e-3
                assert two.bound_calls >= one.bound_calls
    assert better


def test_samples_agree_with_the_interval() -> None:
    """Of 3,000 networks the share that is right on sampled points is not below the lower bound of
    effort 2."""
    for seed in range(6):
        problem = open_problem(seed, (3, 8, 3), std=0.05)
        results = certify(problem, Concentration(effort=2, upper=True, nodes=100))
        assert_below_truth(
            problem, torch.tensor([r.lower for r in results], dtype=torch.float64), seed
        )
    assert DRAWS == 3000


def test_many_inputs_are_searched_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same intervals, input by input, however many are searched at once."""
    problem = open_problem(8, (9, 10, 3), batch=5, std=0.02)
    method = Concentration(effort=2, upper=True, nodes=20)
    whole = certify(problem, method)
    monkeypatch.setattr(concentration, "AT_ONCE", 2)
    for one, other in zip(whole, certify(problem, method), strict=True):
        assert (one.lower, one.upper) == pytest.approx((other.lower, other.upper), abs=1e-3)


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("activation", [Tanh(), ReLU(), Sigmoid()])
def test_bisection_of_the_region_never_above_brute_force(activation: Activation, norm: str) -> None:
    """Any activation, narrow and wide posteriors; parts gain where slopes and signs do not."""
    gained = 0
    for seed in range(8):
        problem = regression(seed, activation, [0.005, 0.1][seed % 2], norm)
        before = prove(problem, problem.posterior, 1)
        known = Refined(before, {}, [0] * len(problem))
        found = bisect(problem, problem.posterior, known, Limits(30))
        lower = lower_bounds(found)
        gained += sum(a > b.bound + 1e-3 for a, b in zip(lower.tolist(), before, strict=True))
        assert bool((lower >= lower_bounds(known)).all())
        assert_below_truth(problem, lower, seed)
        for i, point in found.counterexamples.items():
            assert (
                float(
                    problem.specification[i : i + 1]
                    .margins(problem.network.forward(problem.posterior.mean, point[None]))
                    .min()
                )
                < 0
            )
    assert gained or norm == "l2" or isinstance(activation, Sigmoid)


def test_bisection_keeps_its_limits_and_what_is_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = regression(6, Tanh(), 0.005)
    known = Refined(prove(problem, problem.posterior, 1), {}, [0] * len(problem))
    late = bisect(problem, problem.posterior, known, Limits(100, seconds=0.0))
    assert late.domains == [0] * len(problem)
    full = bisect(problem, problem.posterior, known, Limits(100))
    assert max(full.domains) > 4
    calls = 0

    def interrupted(*arguments: Any) -> list[Proof]:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise KeyboardInterrupt
        return prove(*arguments)

    monkeypatch.setattr(bisection, "prove", interrupted)
    cut_short = bisect(problem, problem.posterior, known, Limits(100))
    assert cut_short.interrupted
    assert bool((lower_bounds(known) <= lower_bounds(cut_short)).all())
    assert bool((lower_bounds(cut_short) <= lower_bounds(full) + 1e-12).all())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"nodes": 0}, "nodes"),
        ({"time_limit": 0.0}, "time limit"),
        ({"at_least": 1.5}, "threshold"),
    ],
)
def test_limits_that_make_no_sense_are_refused(options: dict[str, float], word: str) -> None:
    with pytest.raises(InputError, match=word):
        Concentration(effort=2, **options)

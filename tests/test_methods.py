"""Sampling, PIE and GIE through the front door: never above the truth, counted calls, certificates,
determinism."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import certify
from bnncert.bounds import BOUNDS
from bnncert.boxes.growth import gradient_signs, grow
from bnncert.errors import InputError
from bnncert.evidence.boxes import Growth
from bnncert.evidence.certificate import read_certificate
from bnncert.files.digest import canonical_json
from bnncert.layers import Dense, ReLU
from bnncert.methods import GIE, PIE, Sampling
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import (
    Region,
    Specification,
    ball,
    class_robust,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert.numerics import batching
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.independent import Normal
from bnncert.results.folder import line
from bnncert.results.rows import Result
from scenarios import (
    claimed,
    paper_example,
    paper_probability,
    random_network,
    random_posterior,
    vector,
)

BoxMethod = Sampling | PIE | GIE
PLENTY = 1000
FEW: dict[str, BoxMethod] = {
    "sampling": Sampling(samples=2, step=0.7),
    "pie": PIE(samples=2, step=0.4),
    "pie by bisection": PIE(samples=2, step=0.4, walk="bisection"),
    "gie": GIE(samples=2, step=0.4),
    "gie by bisection": GIE(samples=2, step=0.4, walk="bisection"),
    "gie as published": GIE(samples=2, step=0.4, zero_gradient_only=True, bound="lbp-forward"),
}


def classifier(seed: int = 0, batch: int = 6, width: float = 0.2) -> Problem:
    """A 3-4-3 network on inputs in the unit cube; about two in three are given the class of the
    mean network."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(3, 4, 3)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64)
    posterior = Normal(
        mean, width * torch.rand(network.size, generator=generator, dtype=torch.float64)
    )
    x = torch.rand(batch, 3, generator=generator, dtype=torch.float64)
    labels = network.forward(mean, x).argmax(-1)
    wrong = torch.arange(batch) % 3 == 1
    return Problem(
        network, posterior, class_robust(ball(x, 0.02, clip=(0.0, 1.0)), (labels + wrong) % 3, 3)
    )


def one_weight(
    mean: float, std: float, spec: Callable[[Region], Specification], region: Region
) -> Problem:
    """y = w x with w ~ N(mean, std²)."""
    return Problem(
        Network((1,), (Dense(1, 1, bias=False),)), Normal(vector(mean), vector(std)), spec(region)
    )


def at(*values: float, eps: float = 0.0) -> Region:
    return ball(vector(*values).reshape(-1, 1), eps)


def claims(results: tuple[Result, ...]) -> list[tuple[object, ...]]:
    """Everything of the results but the time they took."""
    return [
        (r.index, r.status, r.lower.hex(), r.upper.hex(), r.bound_calls, r.predicted)
        for r in results
    ]


# ------------------------------------------------------------------------------------------------- the truth


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


# ------------------------------------------------------------------------------------------------- conditions


def test_half_space() -> None:
    """w x >= -1 at x in [1, 2], w ~ N(1, 1): w > -1/2, so 1 - 2 λ j > -1 with λ = 0.4 makes j =
    3."""
    region = explicit_box(Box(vector(1.0).reshape(1, 1), vector(2.0).reshape(1, 1)))
    problem = one_weight(1.0, 1.0, lambda r: half_space(r, vector(1.0), -1.0), region)
    result = certify(problem, PIE(samples=1, step=0.4))[0]
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
        "unverified",
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
        assert result.status in ("unverified", "misclassified")


# ------------------------------------------------------------------------------------------------- counting


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
        assert (result.bound_calls, result.lower, result.status) == (1, 0.0, "unverified")


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


# ------------------------------------------------------------------------------------------------- growth


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


# ------------------------------------------------------------------------------------------------- determinism


@pytest.mark.parametrize("name", FEW)
def test_the_same_seed_gives_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together, one by one, in two unequal parts or cut to pieces by the memory budget: the same
    claims."""
    problem, method = classifier(), FEW[name]
    together = claims(certify(problem, method, seed=3, indices=range(6)))
    alone = [claims(certify(problem[i : i + 1], method, seed=3, indices=[i]))[0] for i in range(6)]
    parts = [
        claim
        for part in (range(4), range(4, 6))
        for claim in claims(certify(problem[part.start : part.stop], method, seed=3, indices=part))
    ]
    monkeypatch.setattr(batching, "CPU_BUDGET", 1)
    assert together == alone == parts == claims(certify(problem, method, seed=3, indices=range(6)))


def test_every_seed_and_every_draw_is_another_centre() -> None:
    problem, method = paper_example(), Sampling(samples=4, step=0.01, mean_first=False)
    (first,), _ = grow(problem, method.plan(), seed=0)
    (second,), _ = grow(problem, method.plan(), seed=1)
    centers = {tuple(box.center.tolist()) for box in first + second}
    assert len(centers) == len(first) + len(second) > 3


def test_the_global_generator_is_left_alone() -> None:
    """Neither read nor advanced."""
    torch.manual_seed(0)
    before, first = torch.get_rng_state(), claims(certify(paper_example(), PIE(samples=3)))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(1)
    assert claims(certify(paper_example(), PIE(samples=3))) == first


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def tf32() -> Iterator[None]:
    """Every switch that lets matrix products lose digits."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), matmul.allow_tf32, cudnn.allow_tf32
    torch.set_float32_matmul_precision("medium")
    matmul.allow_tf32 = cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        matmul.allow_tf32, cudnn.allow_tf32 = before[1:]


@contextmanager
def with_gradients() -> Iterator[None]:
    with torch.enable_grad():
        yield


SABOTAGE: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "nothing": nullcontext,
    "float64 by default": lambda: default_dtype(torch.float64),
    "float16 by default": lambda: default_dtype(torch.float16),
    "bfloat16 by default": lambda: default_dtype(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "tf32": tf32,
    "gradients": with_gradients,
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
@pytest.mark.parametrize("name", FEW)
def test_precision_cannot_be_taken_away(sabotage: str, name: str) -> None:
    """Global settings of precision, set around the problem and certify, change no bit of a
    claim."""
    with SABOTAGE[sabotage]():
        results = certify(classifier(), FEW[name])
    assert claims(results) == undisturbed(name)
    for certificate in filter(None, (result.certificate for result in results)):
        dtypes = {
            n: value.dtype for n, value in certificate.tensors.items() if not n.startswith("signs")
        }
        assert set(dtypes.values()) == {torch.float64}


@cache
def undisturbed(name: str) -> list[tuple[object, ...]]:
    return claims(certify(classifier(), FEW[name]))


# ------------------------------------------------------------------------------------------------- certificates


@pytest.mark.parametrize("name", FEW)
def test_every_claim_carries_its_certificate(name: str, tmp_path: Path) -> None:
    """certified <=> lower > 0 <=> a certificate, which survives the disk, names its problem and
    repeats the claim."""
    problem = classifier()
    results = certify(problem, FEW[name], seed=5)
    assert {result.status for result in results} >= {"certified", "misclassified"}
    for i, result in enumerate(results):
        assert (
            (result.status == "certified") == (result.lower > 0) == (result.certificate is not None)
        )
        assert 0 <= result.lower <= result.upper <= 1
        if result.certificate is not None:
            check_certificate(problem[i : i + 1], result, tmp_path / f"{i}.safetensors")


def check_certificate(problem: Problem, result: Result, path: Path) -> None:
    written = result.certificate
    assert written is not None
    written.write(path)
    read = read_certificate(path)
    assert canonical_json(read.header) == canonical_json(written.header)
    assert read.tensors.keys() == written.tensors.keys()
    assert all(torch.equal(value, written.tensors[name]) for name, value in read.tensors.items())
    header, region = read.header, problem.specification.region
    assert header["digests"] == {
        "architecture": problem.network.digest,
        "posterior": problem.posterior.digest,
        "specification": problem.specification.digest,
        "problem": problem.digest,
    }
    assert (header["claim"]["lower"], header["claim"]["upper"]) == (
        result.lower.hex(),
        result.upper.hex(),
    )
    assert (header["bound_calls"], header["seed"]) == (result.bound_calls, result.seed)
    assert header["region"] == {"norm": "linf", "clip": [0.0, 1.0], "eps": result.eps.hex()}
    assert torch.equal(read.tensors["x"], region.center[0])
    assert torch.equal(read.tensors["rows"], problem.specification.rows[0])


@pytest.mark.parametrize("name", FEW)
def test_the_boxes_of_a_certificate_are_safe(name: str) -> None:
    """Rebuilt from the certificate alone (centre, signs, steps, rule in float64), every box passes
    the bound again."""
    problem = classifier()
    posterior, spec = problem.posterior, problem.specification
    for i, result in enumerate(certify(problem, FEW[name])):
        if result.certificate is None:
            continue
        for box in certified_boxes(result, posterior):
            bound = BOUNDS[FEW[name].bound]
            rows = bound(
                problem.network,
                box,
                spec.region[i : i + 1],
                spec.rows[i : i + 1],
                spec.offsets[i : i + 1],
            )
            assert bool((rows > 0).all())
            assert float(posterior.log_mass(box).exp()) <= result.lower * (1 + 1e-7)


def certified_boxes(result: Result, posterior: Normal) -> Iterator[Box]:
    """Every box of the evidence, grown anew in plain float64 arithmetic."""
    assert result.certificate is not None
    evidence, tensors = result.certificate.header["evidence"], result.certificate.tensors
    step, rho, zero_only = (
        evidence["growth"][key] for key in ("step", "rho", "zero_gradient_only")
    )
    for k, entry in enumerate(evidence["boxes"]):
        center = posterior.center if entry["draw"] is None else tensors[f"center{k}"]
        signs = tensors.get(f"signs{k}", torch.zeros_like(center)).double()
        down, up = (signs == 0, signs == 0) if zero_only else (signs <= 0, signs >= 0)
        widths = [step * posterior.std * (1 + rho * side.double()) for side in (down, up)]
        yield Box(center - entry["steps"] * widths[0], center + entry["steps"] * widths[1])


def test_a_single_box_certificate_is_its_mass() -> None:
    """With one centre the claim is the mass of the box that the certificate describes, to the last
    digits."""
    for name in ("pie", "gie", "gie as published"):
        problem = classifier()
        for result in certify(problem, replace(FEW[name], samples=1)):
            if result.certificate is not None:
                (box,) = certified_boxes(result, problem.posterior)
                assert result.lower == pytest.approx(
                    claimed(float(problem.posterior.log_mass(box).exp())), rel=1e-12
                )


def test_a_result_is_one_json_line() -> None:
    (result,) = certify(paper_example(), PIE(samples=2), seed=4, indices=[17])
    text = line(result, "certificates/000017.safetensors")
    fields = json.loads(text)
    assert text.index("\n") == len(text) - 1
    assert fields["certificate"] == "certificates/000017.safetensors"
    assert (fields["index"], fields["status"], fields["method"], fields["seed"]) == (
        17,
        "certified",
        "pie",
        4,
    )
    assert (fields["lower"], fields["upper"], fields["bound_calls"]) == (
        result.lower,
        1.0,
        result.bound_calls,
    )


@pytest.mark.parametrize(
    "content", [b"", b"not a certificate", b"\x80\x04\x95pickle", b"\xff" * 64]
)
def test_other_files_are_not_certificates(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "false.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_certificate(path)
    with pytest.raises(InputError, match="is not a safetensors file"):
        read_certificate(tmp_path / "missing.safetensors")


# ------------------------------------------------------------------------------------------------- refusals


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

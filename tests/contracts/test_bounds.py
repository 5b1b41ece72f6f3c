"""The contract every bound keeps: no weight or input of the boxes has a row below it, in real
arithmetic."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from bnncert import PIE
from bnncert.bounds.interval import interval_rows
from bnncert.boxes.growth import grow
from bnncert.errors import InputError
from bnncert.importers import load_posterior
from bnncert.layers import Dense, Flatten, LeakyReLU, ReLU, Tanh
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball, class_robust, explicit_box, half_space
from bounding import ALL, NORM_AND_BOUND, allowance, bounded, single
from scenarios import (
    ACTIVATIONS,
    PIECEWISE_LINEAR,
    data_folder,
    mnist,
    paired_margins,
    random_posterior,
    random_problem,
    random_region,
    sample_box,
    sample_region,
    vector,
    weight_boxes,
)

# -------------------------------------------------------------------------------------- containment


@pytest.mark.parametrize(("norm", "bound"), NORM_AND_BOUND)
@pytest.mark.parametrize("seed", range(25))
def test_no_sample_escapes(norm: str, bound: str, seed: int) -> None:
    """Weights and inputs drawn from the boxes, half of them at vertices, never have a row below its
    bound."""
    problem = random_problem(seed, norm)
    boxes, generator = (
        weight_boxes(problem, seed, radius=0.3 * (1 + seed % 4)),
        torch.Generator().manual_seed(seed),
    )
    found = bounded(bound, problem, boxes)
    margins = paired_margins(
        problem,
        sample_box(boxes, 300, generator),
        sample_region(problem.specification.region, 300, generator),
    )
    assert bool((margins >= found - allowance(margins)).all())
    assert bool(found.isfinite().all())


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("seed", range(25))
def test_no_attack_escapes(bound: str, seed: int) -> None:
    """Signed gradient descent on every row, over the weights and the input at once, ends above the
    bound."""
    problem = random_problem(seed, "linf")
    boxes = weight_boxes(problem, seed)
    lowest = attack(problem, boxes, torch.Generator().manual_seed(seed))
    assert bool((lowest >= bounded(bound, problem, boxes) - allowance(lowest)).all())
    assert bool((lowest <= problem.margins(problem.posterior.center) + allowance(lowest)).any())


def attack(problem: Problem, boxes: Box, generator: torch.Generator, steps: int = 12) -> Tensor:
    """The smallest value met of each row [B, R], each from its own random start."""
    spec, lowest = problem.specification, torch.full_like(problem.specification.offsets, math.inf)
    rows = spec.rows.shape[1]
    for r in range(rows):
        w, x = (sample_box(box, 1, generator)[0] for box in (boxes, spec.region.box))
        for _ in range(steps):
            w, x = w.requires_grad_(), x.requires_grad_()
            value = paired_margins(problem, w, x)[:, r]
            lowest[:, r] = torch.minimum(lowest[:, r], value.detach())
            slopes = torch.autograd.grad(value.sum(), (w, x))
            w, x = (
                torch.lerp(v.detach(), torch.where(g > 0, box.lower, box.upper), 0.5).clamp(
                    box.lower, box.upper
                )
                for v, g, box in ((w, slopes[0], boxes), (x, slopes[1], spec.region.box))
            )
    return lowest


def exact_margins(problem: Problem, weights: Tensor, x: Tensor) -> list[list[Fraction]]:
    """Rows [B][R] in rational arithmetic, of weights [B, n] at x [B, *shape]; piecewise linear
    activations only."""
    spec = problem.specification
    return [
        [
            sum((Fraction(c) * y for c, y in zip(row, outputs, strict=True)), Fraction(d))
            for row, d in zip(rows, offsets, strict=True)
        ]
        for rows, offsets, outputs in zip(
            spec.rows.tolist(),
            spec.offsets.tolist(),
            (exact_outputs(problem.network, w, v) for w, v in zip(weights, x, strict=True)),
            strict=True,
        )
    ]


def exact_outputs(network: Network, weights: Tensor, x: Tensor) -> list[Fraction]:
    h = [Fraction(value) for value in x.flatten().tolist()]
    for layer, parameters in zip(network.layers, network.split(weights), strict=True):
        if isinstance(layer, Dense):
            columns = parameters[0].mT.tolist()
            bias = parameters[1].tolist() if layer.bias else [0.0] * layer.outputs
            h = [
                sum((Fraction(w) * v for w, v in zip(column, h, strict=True)), Fraction(b))
                for column, b in zip(columns, bias, strict=True)
            ]
        elif isinstance(layer, ReLU | LeakyReLU):
            slope = Fraction(layer.slope if isinstance(layer, LeakyReLU) else 0)
            h = [max(v, slope * v) for v in h]
    return h


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("seed", range(20))
def test_no_vertex_escapes_in_rational_arithmetic(bound: str, seed: int) -> None:
    """With no tolerance at all: at vertices of both boxes the exact row is never below its
    bound."""
    problem = random_problem(seed, "linf", PIECEWISE_LINEAR)
    boxes, generator = weight_boxes(problem, seed), torch.Generator().manual_seed(seed)
    found = bounded(bound, problem, boxes).tolist()
    for w, x in zip(
        sample_box(boxes, 4, generator),
        sample_box(problem.specification.region.box, 4, generator),
        strict=True,
    ):
        for exact, lower in zip(exact_margins(problem, w, x), found, strict=True):
            assert all(Fraction(low) <= value for value, low in zip(exact, lower, strict=True))


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("seed", range(20))
def test_a_point_is_never_rounded_up(bound: str, seed: int) -> None:
    """Even where both boxes are points, and nothing is relaxed, the bound is at most the exact
    row."""
    problem = random_problem(seed, "linf", PIECEWISE_LINEAR)
    region = ball(problem.specification.region.center, 0.0)
    spec = Specification(region, problem.specification.rows, problem.specification.offsets)
    problem = Problem(problem.network, problem.posterior, spec)
    weights = problem.posterior.center.expand(len(problem), -1)
    found = bounded(bound, problem, Box.point(weights)).tolist()
    for exact, lower in zip(exact_margins(problem, weights, region.center), found, strict=True):
        assert all(Fraction(low) <= value for value, low in zip(exact, lower, strict=True))


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_a_network_may_start_with_an_activation(
    bound: str, activation: Activation, shape: tuple[int, ...]
) -> None:
    """ReLU(act(x) W + b) V + c is a network like any other, over vectors and over images: sound, or
    refused by name."""
    first = (activation,) if len(shape) == 1 else (activation, Flatten())
    network = Network(shape, (*first, Dense(4, 3), ReLU(), Dense(3, 2)))
    region = random_region(1, shape, "linf", batch=2)
    problem = Problem(network, random_posterior(0, network), class_robust(region, [0, 1], 2))
    boxes, generator = weight_boxes(problem, 0), torch.Generator().manual_seed(0)
    try:
        found = bounded(bound, problem, boxes)
    except InputError as error:
        assert "Dense" in str(error)  # noqa: PT017 (a bound may be published for networks that start with a Dense)
        return
    assert found.shape == (2, 1)
    margins = paired_margins(
        problem, sample_box(boxes, 500, generator), sample_region(region, 500, generator)
    )
    assert bool((margins >= found - allowance(margins)).all())


@pytest.mark.parametrize("bound", ALL)
def test_the_first_activation_by_hand(bound: str) -> None:
    """y = -ReLU(x) on [-2, -1] is 0, so y - 1/2 is not positive."""
    network = Network((1,), (ReLU(), Dense(1, 1, bias=False)))
    region = explicit_box(Box(vector(-2.0).reshape(1, 1), vector(-1.0).reshape(1, 1)))
    try:
        assert single(bound, network, Box.point(vector(-1.0)), region, offset=-0.5) <= -0.5
    except InputError as error:
        assert "Dense" in str(error)  # noqa: PT017


def test_forward_bounds_refuse_what_they_cannot_do() -> None:
    """lbp-forward is published for boxes and for a dense layer between activations."""
    with pytest.raises(InputError, match="boxes only"):
        single(
            "lbp-forward",
            mlp(1, 1),
            Box.point(vector(1, 0)),
            ball(vector(1.0).reshape(1, 1), 0.1, "l2"),
        )
    twice = Network((1,), (Dense(1, 1), ReLU(), Tanh(), Dense(1, 1)))
    with pytest.raises(InputError, match="between activations"):
        single(
            "lbp-forward",
            twice,
            Box.point(vector(1, 0, 1, 0)),
            ball(vector(1.0).reshape(1, 1), 0.1),
        )


@pytest.mark.parametrize("bound", ["ibp", "lbp"])
def test_activations_may_follow_each_other(bound: str) -> None:
    network = Network((2,), (Dense(2, 2), Tanh(), ReLU(), Dense(2, 1)))
    region = random_region(0, (2,), "linf", batch=2)
    problem = Problem(network, random_posterior(0, network), half_space(region, vector(1.0), 0.0))
    boxes, generator = weight_boxes(problem, 0), torch.Generator().manual_seed(0)
    margins = paired_margins(
        problem, sample_box(boxes, 500, generator), sample_region(region, 500, generator)
    )
    assert bool((margins >= bounded(bound, problem, boxes) - allowance(margins)).all())


# ----------------------------------------------------------------------------------- ties and traps

TIES = {
    "a tie of the output": (mlp(1, 1), vector(1.0, -1.0), 1.0),
    "a negative zero": (mlp(1, 1), vector(-0.0, 0.0), 1.0),
    "a dead ReLU": (mlp(1, 1, 1), vector(-1.0, 0.0, 1.0, 0.0), 1.0),
    "a ReLU at its kink": (mlp(1, 1, 1), vector(1.0, -1.0, 1.0, 0.0), 1.0),
    "a ReLU at -0.0": (mlp(1, 1, 1), vector(-0.0, 0.0, 1.0, 0.0), 0.0),
    "an input of zero": (mlp(1, 1, 1, activation=Tanh()), vector(1.0, 0.0, 1.0, 0.0), 0.0),
}


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("row", [1.0, -1.0])
@pytest.mark.parametrize("name", TIES)
def test_a_tie_is_not_safe(bound: str, row: float, name: str) -> None:
    """Where the row is exactly 0, of either sign, the bound is not positive."""
    network, weights, x = TIES[name]
    assert (
        not single(bound, network, Box.point(weights), ball(vector(x).reshape(1, 1), 0.0), row) > 0
    )


@pytest.mark.parametrize("bound", ALL)
def test_relu_ends_at_zero(bound: str) -> None:
    """z in [-1, 0] and z in [0, 1]: ReLU(z) touches 0, so it is never proved positive, nor
    -ReLU(z)."""
    network = mlp(1, 1, 1)
    weights = Box.point(vector(1.0, 0.0, 1.0, 0.0))
    for ends in [(-1.0, 0.0), (0.0, 1.0), (-0.0, 1.0), (-1.0, -0.0), (0.0, 0.0)]:
        region = explicit_box(Box(*(vector(end).reshape(1, 1) for end in ends)))
        for row in (1.0, -1.0):
            assert not single(bound, network, weights, region, row) > 0


@pytest.mark.parametrize("bound", ALL)
def test_overflow_is_not_safe(bound: str) -> None:
    """Where the arithmetic overflows the bound is not positive, or the call is refused."""
    network = mlp(1, 1, 1)
    for weights in (vector(1e200, 0.0, -1e200, 0.0), vector(1e200, 0.0, 1e200, -1e308)):
        box = Box(weights, weights + weights.abs())
        try:
            assert not single(bound, network, box, ball(vector(1e200).reshape(1, 1), 1e200)) > 0
        except InputError as error:
            assert "NaN" in str(error)  # noqa: PT017 (either answer will do)


def cancellations() -> Iterator[tuple[list[float], list[float], float]]:
    """Terms whose exact sum with the offset is <= 0 but whose float sum in some order is
    positive."""
    big = 2.0**54
    for terms in itertools.permutations([big, -big, -1.0]):
        yield list(terms), [1.0, 1.0, 1.0], 0.5
    for terms in itertools.permutations([big, -big, -3.0, 2.0]):
        yield list(terms), [1.0, 1.0, 1.0, 1.0], 0.75
    choose = random.Random(0)
    for _ in range(40):
        half = [
            choose.uniform(-1, 1) * 2.0 ** choose.randint(0, 54)
            for _ in range(choose.randint(1, 4))
        ]
        terms = half + [-value for value in half] + [-1.0]
        choose.shuffle(terms)
        x = [choose.choice([0.5, 1.0, 3.0])] * len(terms)
        yield terms, x, x[0] * choose.choice([0.25, 0.5, 1.0])


def one_layer(terms: list[float], x: list[float]) -> tuple[Network, list[float], list[float]]:
    """Σ w x in one layer."""
    return Network((len(x),), (Dense(len(x), 1, bias=False),)), terms, x


def last_layer(terms: list[float], x: list[float]) -> tuple[Network, list[float], list[float]]:
    """Each x is a ReLU neuron of its own, and the terms cancel in the last layer."""
    n = len(x)
    identity = [float(i == j) for i in range(n) for j in range(n)]
    return (
        Network((n,), (Dense(n, n, bias=False), ReLU(), Dense(n, 1, bias=False))),
        identity + terms,
        x,
    )


def first_layer(terms: list[float], x: list[float]) -> tuple[Network, list[float], list[float]]:
    """One input into all terms, which a last layer of ones adds up: a backward walk adds the
    weights first."""
    n = len(x)
    return (
        Network((1,), (Dense(1, n, bias=False), Dense(n, 1, bias=False))),
        terms + [1.0] * n,
        x[:1],
    )


@pytest.mark.parametrize("bound", ALL)
@pytest.mark.parametrize("build", [one_layer, last_layer, first_layer])
def test_cancellation_is_never_taken_for_safety(
    bound: str,
    build: Callable[[list[float], list[float]], tuple[Network, list[float], list[float]]],
) -> None:
    """2^54-scale terms that cancel: a row that is exactly <= 0 has no positive bound, however it is
    summed."""
    for terms, x, offset in cancellations():
        exact = sum(
            (Fraction(w) * Fraction(v) for w, v in zip(terms, x, strict=True)), Fraction(offset)
        )
        assert exact <= 0
        network, weights, inputs = build(terms, x)
        region = ball(vector(*inputs).unsqueeze(0), 0.0)
        assert single(bound, network, Box.point(vector(*weights)), region, offset=offset) <= 0


def test_cancellation_in_the_rows_is_never_taken_for_safety() -> None:
    """The same where the outputs are known exactly and the rows' own coefficients cancel."""
    for terms, x, offset in cancellations():
        outputs, rows = Box.point(vector(*x).unsqueeze(0)), vector(*terms).reshape(1, 1, -1)
        assert float(interval_rows(outputs, rows, vector(offset).reshape(1, 1))) <= 0


@pytest.mark.parametrize("bound", ALL)
def test_underflow_is_never_taken_for_safety(bound: str) -> None:
    """x = 1e300, weights 1e-200 and -1e-200: y = -1e-100 although the product of the weights
    underflows to 0."""
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False)))
    region = ball(vector(1e300).reshape(1, 1), 0.0)
    weights = Box.point(vector(1e-200, -1e-200))
    assert single(bound, network, weights, region, offset=5e-101) <= 0


@pytest.mark.parametrize("bound", ALL)
def test_saturation_is_never_taken_for_safety(bound: str) -> None:
    """tanh(x) - tanh(x / 1e17) falls to -1 + tanh(1/10) at x = -1e16, where lines of tiny slope
    must see it."""
    network = Network((1,), (Dense(1, 2, bias=False), Tanh(), Dense(2, 1, bias=False)))
    region = ball(vector(0.0).reshape(1, 1), 1e17)
    assert single(
        bound, network, Box.point(vector(1.0, 1e-17, 1.0, -1.0)), region
    ) <= -1 + math.tanh(0.1)


# ----------------------------------------------------------------------------------------- at scale


def test_a_million_samples_of_a_real_network() -> None:
    """Accepted boxes of a 784-16-10 MNIST network: 10^6 pairs (w, x), corners and attacks included,
    all are safe."""
    network, posterior = load_posterior(data_folder() / "posteriors" / "mnist_1x16.npz")
    x, y = mnist(12)
    problem = Problem(network, posterior, class_robust(ball(x, 0.005, clip=(0.0, 1.0)), y, 10))
    plan = PIE(samples=1, step=0.25).plan()
    found, _ = grow(problem, plan, seed=0)
    generator, pairs = torch.Generator().manual_seed(0), 0
    for i, boxes in enumerate(found):
        for accepted in boxes:
            box, one = accepted.box(plan.growth, posterior.spread), problem[i : i + 1]
            assert (
                float(
                    attack(
                        one, Box(box.lower.unsqueeze(0), box.upper.unsqueeze(0)), generator, steps=6
                    ).min()
                )
                > 0
            )
            weights = sample_box(box, 320, generator)
            inputs = sample_region(one.specification.region, 320, generator).squeeze(1)
            outputs = network.forward(weights, inputs)  # [320, 320, 10]
            assert float((one.specification.rows[0] @ outputs.unsqueeze(-1)).min()) > 0
            pairs += outputs.shape[0] * outputs.shape[1]
    assert pairs >= 1_000_000

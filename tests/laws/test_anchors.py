"""Laws by anchors against brute force, for every activation: one input moves, others are fixed."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import count, islice

import pytest
import torch
from torch import Tensor

from bnncert import Problem, mlp
from bnncert.evidence.laws import AnchorLaw
from bnncert.laws.anchored import fall, prove_by_anchors
from bnncert.laws.head import head
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.model.specification import class_robust, explicit_box, output_interval
from bnncert.posteriors.independent import Normal
from scenarios import EACH, draw_many, gaussian, uniform, vector
from truth import refuted_by_laws

DRAWS, POINTS = 4000, 41


def proved(problem: Problem, i: int = 0) -> AnchorLaw:
    assert isinstance(problem.posterior, Normal)
    spec = problem.specification
    ends = spec.region.box.lower[i], spec.region.box.upper[i]
    net = head(problem.network, problem.posterior)
    law = prove_by_anchors(net, *ends, spec.rows[i], spec.offsets[i])
    assert law is not None
    return law


def share(problem: Problem, seed: int) -> Tensor:
    """Of sampled networks those that are robust at many points of the side, [B]."""
    weights = draw_many(problem.posterior, DRAWS, torch.Generator().manual_seed(seed))
    box = problem.specification.region.box
    safe = torch.ones(DRAWS, len(problem), dtype=torch.bool)
    for place in torch.linspace(0, 1, POINTS).tolist():
        x = box.lower + (box.upper - box.lower) * place
        margins = problem.specification.margins(problem.network.forward(weights, x))
        safe &= (margins > 0).all(-1)
    return safe.double().mean(0)


def tiny(seed: int, activation: Activation) -> Problem:
    """One hidden layer of 1 to 8 neurons, 1 to 3 inputs, σ of 0 and up to 5, boxes about 0 and
    elsewhere, narrow and wide."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 3)
    network = mlp(inputs, choose.choice((1, 2, 3, 5, 8)), outputs, activation=activation)
    size = network.size
    std = choose.choice((1e-12, 1e-3, 0.05, 0.3, 1.0, 5.0)) * uniform(size, generator=generator)
    std = torch.where(uniform(size, generator=generator) < 0.15, 0.0, std)
    mean = choose.choice((0.3, 1.0, 2.0)) * gaussian(size, generator=generator)
    center = choose.choice((0.0, 1.0)) * gaussian(2, inputs, generator=generator)
    reach = torch.zeros(2, inputs).double()
    reach[:, choose.randrange(inputs)] = choose.choice((1e-9, 0.02, 0.1, 0.5, 2.0))
    region = explicit_box(Box(center - reach, center + reach), center)
    labels = network.forward(mean, center).argmax(-1)
    return Problem(network, Normal(mean, std), class_robust(region, labels, outputs))


def compared(seed: int, activation: Activation) -> tuple[float, float]:
    """Sums of what is proved and of the share of sampled networks, after comparing them."""
    problem = tiny(seed, activation)
    lower = torch.tensor([proved(problem, i).bound for i in range(2)]).double()
    found = share(problem, seed)
    error = 4 * (found * (1 - found) / DRAWS).sqrt() + 8 / DRAWS
    assert bool((lower <= found + error).all()), (seed, lower, found)
    return float(lower.clamp_min(0).sum()), float(found.sum())


@pytest.mark.parametrize("activation", EACH, ids=map(str, EACH))
def test_never_above_the_truth(activation: Activation) -> None:
    """And not by giving nothing."""
    sums = [compared(seed, activation) for seed in range(8)]
    lower, found = (sum(part) for part in zip(*sums, strict=True))
    assert lower > 0.5 * found


@pytest.mark.slow
@pytest.mark.parametrize("activation", EACH, ids=map(str, EACH))
def test_hundreds_never_above_the_truth(activation: Activation) -> None:
    for seed in range(1000, 1300):
        compared(seed, activation)


def between(seed: int, activation: Activation) -> Problem:
    """An output that is to stay in an interval: rows that are opposite."""
    problem = tiny(seed, activation)
    region = problem.specification.region
    middle = problem.network.forward(problem.posterior.mean, region.center)[:, 0]
    outputs = problem.specification.rows.shape[-1]
    width = random.Random(seed).choice((0.1, 0.5, 2.0))
    spec = output_interval(region, middle - width, middle + width, outputs=outputs)
    return replace(problem, specification=spec)


@pytest.mark.parametrize("activation", EACH, ids=map(str, EACH))
def test_upper_bounds_are_never_below_the_truth(activation: Activation) -> None:
    """Of rows that fail at points of their own: what both fail is counted once."""
    apart = 0
    asked = ((seed, between(seed, activation)) for seed in count())
    known = ((seed, problem, share(problem, seed)) for seed, problem in asked)
    # Of shares of 0 nothing is below, and few bounds of 1 say something.
    for seed, problem, true in islice((k for k in known if 0 < float(k[2].max()) < 1), 4):
        assert isinstance(problem.posterior, Normal)
        found = refuted_by_laws(problem, problem.posterior)
        error = 4 * (true * (1 - true) / DRAWS).sqrt() + 8 / DRAWS
        for i, one in enumerate(found):
            assert one is None or one.upper >= true[i] - error[i], (seed, i)
            other = None if one is None else one.opposite
            apart += other is not None and other.both is not None
    assert apart > 0


def test_falls_are_never_more_likely_than_said() -> None:
    """And not by saying that all are likely."""
    generator = torch.Generator().manual_seed(0)
    for activation in EACH:
        network = mlp(1, 5, 1, activation=activation)
        posterior = Normal(
            gaussian(network.size, generator=generator),
            0.3 * uniform(network.size, generator=generator),
        )
        start, end = vector(-0.4), vector(0.3)
        weights = draw_many(posterior, DRAWS, generator)
        values = [network.forward(weights, x.reshape(1, 1))[:, 0, 0] for x in (start, end)]
        fell = values[0] - values[1]
        one, own = torch.ones(1, 1).double(), head(network, posterior)
        for level in (0.2, 0.5, 0.8):
            least = float(fell.quantile(level))
            true = float((fell >= least).double().mean())
            error = 4 * (true * (1 - true) / DRAWS) ** 0.5
            found = fall(own, start, end, one, least).most
            assert found >= true - error, (str(activation), level)
        far = float(fell.mean() + 8 * fell.std())
        assert fall(own, start, end, one, far).most < 0.1, str(activation)

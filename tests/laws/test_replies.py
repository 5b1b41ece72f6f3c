"""Replies against brute force: tiny networks whose row an adversary's reply leaves positive."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from torch import Tensor

from bnncert import Problem, ball, mlp
from bnncert.evidence.concentration import Refutation
from bnncert.evidence.laws import ReplyLaw
from bnncert.laws import replies
from bnncert.laws.head import head, margins_about
from bnncert.laws.replies import inside, refute_by_reply, room
from bnncert.model.specification import class_robust
from bnncert.posteriors.independent import Normal
from scenarios import draw_many, gaussian, uniform, vector

DRAWS = 20_000
WIDTHS = (1, 2, 3, 5, 8)
STDS = (0.05, 0.3, 1.0, 3.0)


def tiny(seed: int) -> Problem:
    """One hidden layer of 1 to 8 neurons, σ up to 3, zero or positive centres, clipped or not."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 3)
    network = mlp(inputs, choose.choice(WIDTHS), outputs)
    size = network.size
    std = choose.choice(STDS) * uniform(size, generator=generator)
    std = torch.where(uniform(size, generator=generator) < 0.15, 0.0, std)
    mean = choose.choice((0.0, 0.3, 1.0)) * gaussian(size, generator=generator)
    center = choose.choice((0.0, 0.1, 1.0)) * uniform(1, inputs, generator=generator)
    clip = choose.choice((None, (0.0, 2.0)))
    region = ball(center, choose.choice((0.01, 0.1, 0.5)), clip=clip)
    labels = network.forward(mean, center).argmax(-1)
    return Problem(network, Normal(mean, std), class_robust(region, labels, outputs))


def found_for(problem: Problem, most: int = 3) -> Refutation | None:
    assert isinstance(problem.posterior, Normal)
    return refute_by_reply(problem.network, problem.posterior, problem.specification, most)


def shares(problem: Problem, found: Refutation, seed: int) -> tuple[float, float]:
    """Of drawn networks: how many have a positive row at the reply, and how many have only positive
    rows at all corners of the region and many points inside."""
    assert isinstance(problem.posterior, Normal)
    assert isinstance(found.proof, ReplyLaw)
    generator, spec = torch.Generator().manual_seed(seed), problem.specification
    drawn = draw_many(problem.posterior, DRAWS, generator)
    (weight, bias), _, (out, shift) = problem.network.split(drawn)

    def rows(x: Tensor) -> Tensor:
        hidden = (torch.einsum("sj,sjn->sn", x.expand(DRAWS, -1), weight) + bias).relu()
        outputs = torch.einsum("sn,sno->so", hidden, out) + shift
        return outputs @ spec.rows[0].mT + spec.offsets[0]

    lower, upper = inside(spec.region)
    corners = itertools.product(*zip(lower.tolist(), upper.tolist(), strict=True))
    within = lower + (upper - lower) * uniform(20, len(lower), generator=generator)
    points = [*(vector(*corner) for corner in corners), *within]
    safe = torch.stack([(rows(x) > 0).all(-1) for x in points]).all(0)
    lean = alike(problem, found.proof.center, weight, bias, generator) @ found.proof.weights
    point = found.proof.center
    x = point + room(point, lower, upper) * torch.where(lean < 0, -1.0, 1.0)
    return float((rows(x)[:, found.row] > 0).double().mean()), float(safe.double().mean())


def alike(
    problem: Problem, point: Tensor, weight: Tensor, bias: Tensor, generator: torch.Generator
) -> Tensor:
    """W' of drawn networks: W less what z says of it, and an independent copy of that."""
    assert isinstance(problem.posterior, Normal)
    net, spec = head(problem.network, problem.posterior), problem.specification
    own = margins_about(net, point, 0 * point, spec.rows[0], spec.offsets[0])
    kappa = net.weight_std**2 * point.unsqueeze(1) / own.std.clamp_min(1e-150) ** 2
    away = torch.einsum("j,sjn->sn", point, weight) + bias - own.mean
    again = own.std * gaussian(*away.shape, generator=generator)
    return weight - kappa * (away - again).unsqueeze(1)


def never_below(seed: int) -> float:
    """1 - the bound, 0 where there is none."""
    problem = tiny(seed)
    found = found_for(problem)
    if found is None:
        return 0.0
    replied, safe = shares(problem, found, seed)
    for share in (replied, safe):
        error = math.sqrt(share * (1 - share) / DRAWS)
        assert found.upper >= share - 4.5 * error - 6 / DRAWS, (seed, found.upper, share)
    return 1 - found.upper


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replies also where the weights of an input say much about z."""
    monkeypatch.setattr(replies, "WORTH", 0.0)
    monkeypatch.setattr(replies, "FAINTLY", 0.0)


@pytest.mark.parametrize("block", range(6))
def test_never_below_the_truth(block: int) -> None:
    """And not by saying nothing."""
    assert sum(never_below(20 * block + k) for k in range(20)) > 2


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("block", range(6))
def test_never_below_the_truth_wherever_it_replies(block: int) -> None:
    assert sum(never_below(1000 + 20 * block + k) for k in range(20)) > 2


@pytest.mark.slow
@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("block", range(100))
def test_thousands_never_below_the_truth(block: int) -> None:
    for k in range(50):
        never_below(10_000 + 50 * block + k)

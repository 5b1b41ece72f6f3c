"""Brute force: the share of sampled networks that are robust, which no certified probability may
pass."""

from __future__ import annotations

import math
import random
from pathlib import Path

import torch
from torch import Tensor

from bnncert import Concentration, Problem, Result, ball, certify, class_robust, mlp, save_posterior
from bnncert.attack import pgd
from bnncert.evidence.concentration import Refutation
from bnncert.laws.upper import refute_by_laws, refute_by_replies, worst_points
from bnncert.model.specification import Region
from bnncert.posteriors.independent import Normal
from bnncert_check import ACCEPT, check_certificate, read_model
from scenarios import draw_many, gaussian, noisy, sample_region

DRAWS = 3000
WIDTHS = (1, 2, 3, 5, 8)
STDS = (1e-3, 0.05, 0.3, 1.0, 3.0)


def tiny(seed: int) -> Problem:
    """One hidden layer of 1 to 8 neurons, σ up to 3, signed, zero or positive centres."""
    choose, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    inputs, outputs = choose.randint(1, 3), choose.randint(2, 3)
    network = mlp(inputs, choose.choice(WIDTHS), outputs)
    posterior = noisy(choose, generator, network.size, STDS, (0.3, 1.0, 2.0))
    center = choose.choice((0.0, 1.0)) * gaussian(2, inputs, generator=generator)
    region = ball(center, choose.choice((0.0, 0.01, 0.1, 0.5)))
    labels = network.forward(posterior.mean, center).argmax(-1)
    return Problem(network, posterior, class_robust(region, labels, outputs))


def robust_share(problem: Problem, seed: int, draws: int = DRAWS) -> Tensor:
    """Share of sampled networks [B] whose rows are positive at many points of the region: at least
    P_safe, about."""
    generator = torch.Generator().manual_seed(seed)
    region = problem.specification.region
    points = torch.cat([region.center.unsqueeze(0), sample_region(region, 24, generator)])
    parameters = _certain_once(
        problem.network.split(draw_many(problem.posterior, draws, generator))
    )
    safe = torch.ones(draws, len(problem), dtype=torch.bool)
    for x in points:
        safe &= (problem.specification.margins(problem.network.run(parameters, x)) > 0).all(-1)
    return safe.double().mean(0)


def _certain_once(drawn: list[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Parameters of the layers before the first one that is random: once, not for every draw."""
    found = list(drawn)
    for k, own in enumerate(drawn):
        if any(bool((part != part[0]).any()) for part in own):
            break
        found[k] = tuple(part[0] for part in own)
    return found


def assert_below_truth(problem: Problem, lower: Tensor, seed: int) -> None:
    assert_below(lower, robust_share(problem, seed), seed)


def assert_below(lower: Tensor, share: Tensor, seed: int) -> None:
    error = (share * (1 - share) / DRAWS).sqrt()
    excess = lower - share - 4 * error - 4 / DRAWS * (share < 0.5) - 8 / DRAWS * (share >= 0.5)
    assert bool((excess <= 0).all()), (
        f"seed {seed}: certified {lower.tolist()}, sampled {share.tolist()}"
    )


def accepted_around(problem: Problem, share: float, draws: int, folder: Path) -> Result:
    """Both ends by `certify` hold the share of so many sampled networks that are safe, and the
    checker accepts them; where nothing is proved there is no certificate."""
    (result,) = certify(problem, Concentration(upper=True))
    error = 4 * math.sqrt(share * (1 - share) / draws) + 4 / draws
    assert result.lower - error <= share <= result.upper + error
    if result.certificate is None:
        assert (result.lower, result.upper) == (0, 1)
        return result
    save_posterior(folder / "p.safetensors", problem.network, problem.posterior)
    result.certificate.write(folder / "c.safetensors")
    verdict = check_certificate(folder / "c.safetensors", read_model(folder / "p.safetensors"))
    assert verdict.status == ACCEPT, verdict
    return result


def refuted_by_laws(problem: Problem, posterior: Normal) -> list[Refutation | None]:
    """At one point or two, or by a reply, with nothing known of joint laws."""
    laws = refute_by_laws(problem, posterior, worst_points(problem, posterior), {})
    replies = refute_by_replies(problem, posterior)
    both = ([one for one in pair if one] for pair in zip(laws, replies, strict=True))
    return [min(found, key=lambda one: one.upper, default=None) for found in both]


def worst_rows(problem: Problem, weights: Tensor, seed: int) -> Tensor:
    """Every row of networks [S, n] at the worst of the clean input, corners, points inside and an
    attack on each: [S, B, R]."""
    generator = torch.Generator().manual_seed(seed)
    region, spec = problem.specification.region, problem.specification
    inside = sample_region(region, 8, generator)
    points = torch.cat([region.center.unsqueeze(0), corners(region, generator), inside])
    outputs = problem.network.forward(weights, points.flatten(0, 1))
    found = spec.margins(outputs.unflatten(1, points.shape[:2])).amin(1)
    if not bool((region.box.lower < region.box.upper).any()):
        return found
    attacked = pgd(problem, weights, steps=6, seed=seed).points
    return torch.minimum(found, spec.margins(problem.network.forward(weights, attacked)))


def corners(region: Region, generator: torch.Generator) -> Tensor:
    """Corners of balls or boxes inside the clip range, at most 32 of each: [P, B, *shape]."""
    lower, upper = region.box.lower.flatten(1), region.box.upper.flatten(1)
    size = lower.shape[1]
    if region.norm == "l2":
        return sample_region(region, 12, generator)
    if region.is_box:
        whole = torch.cartesian_prod(*[torch.tensor([False, True])] * size).reshape(-1, size)
        some = whole[torch.randperm(len(whole), generator=generator)[:32]]
        found = torch.where(some.unsqueeze(1), upper, lower)
    else:
        steps = torch.cat([torch.eye(size), -torch.eye(size)]).double().unsqueeze(1)
        found = region.center.flatten(1) + region.eps.unsqueeze(-1) * steps
        found = torch.maximum(torch.minimum(found, upper), lower)
    return found.reshape(-1, *region.center.shape)

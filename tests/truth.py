"""Brute force: the share of sampled networks that are robust, which no certified probability may
pass."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert import Problem
from scenarios import draw_many, sample_region

DRAWS = 3000


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

"""Certified upper bounds: a row fails at a point x* that an attack proposes.

    P_safe <= 1 - P(row r <= 0 at x*),   x* in X,

and the lower bound on the right is the concentration certificate of the negated row on the region
{x*}.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bnncert.attack import pgd, project
from bnncert.concentration.proof import prove
from bnncert.evidence.concentration import Refutation
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball
from bnncert.numerics.batching import in_batches
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.base import sample
from bnncert.posteriors.gaussian import Gaussian

SAMPLED = 4  # networks whose counterexamples are tried beside the mean network's


def refute(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None = None
) -> list[Refutation | None]:
    """A certified upper bound for every input where an attack breaks the mean network.

    None elsewhere.

    start: points [B, *shape] near the regions from which attacks go on too.
    """
    each = 8 * 8 * (1 + SAMPLED) * sum(math.prod(shape) for shape in problem.network.shapes)
    device = problem.specification.rows.device

    def attack(part: slice) -> list[Refutation | None]:
        return _refute(problem[part], posterior, seed, None if start is None else start[part])

    parts = in_batches(attack, len(problem), each, device)
    return [found for part in parts for found in part]


def _refute(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None
) -> list[Refutation | None]:
    points, rows = counterexamples(problem, posterior, seed, start)
    found: list[Refutation | None] = [None] * len(problem)
    spec = problem.specification
    broken = (rows >= 0).nonzero().squeeze(1)
    if len(broken) == 0:
        return found
    chosen = rows[broken].unsqueeze(1)
    negated = -spec.rows[broken].gather(1, chosen.unsqueeze(-1).expand(-1, -1, spec.rows.shape[-1]))
    at_points = Specification(
        ball(points[broken], 0), negated, -spec.offsets[broken].gather(1, chosen)
    )
    proofs = prove(Problem(problem.network, posterior, at_points), posterior, effort=0)
    stored = points.cpu()
    names = rows.tolist()
    for i, proof in zip(broken.tolist(), proofs, strict=True):
        if proof.bound > 0:
            upper = min(1.0, (1 - proof.bound) * (1 + 4 * UNIT))
            found[i] = Refutation(upper, stored[i], names[i], proof)
    return found


def counterexamples(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """For each input the worst point [B, *shape] for the mean network, and the row that fails
    there, -1 if none."""
    networks = torch.cat([posterior.mean.unsqueeze(0), sample(posterior, SAMPLED, seed)])
    inside = None if start is None else project(problem.specification.region, start.unsqueeze(0))[0]
    attack = pgd(problem, networks, inside, seed=seed)
    outputs = problem.network.forward(posterior.mean, attack.points)
    margins = problem.specification.margins(outputs)  # [S, B, R]
    smallest, rows = margins.min(-1)
    worst = smallest.argmin(0)
    inputs = torch.arange(len(problem), device=worst.device)
    failed = smallest[worst, inputs] < 0
    return attack.points[worst, inputs], torch.where(failed, rows[worst, inputs], -1)

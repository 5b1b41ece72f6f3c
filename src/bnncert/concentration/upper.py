"""Certified upper bounds: a row fails at a point x* that an attack proposes.

    P_safe <= 1 - P(row r <= 0 at x*),   x* in X,

and the lower bound on the right is the concentration certificate of the negated row on the region
{x*}. Where the last layer alone is random a row at x* is Gaussian, so that its tail is known
whatever the sign of its mean: then every input has an upper bound, the row and the point of the
largest failure are taken, and the opposite of that row counts too.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bnncert.attack import Attack, pgd, project
from bnncert.concentration.functional import least_std
from bnncert.concentration.proof import proofs_of, prove
from bnncert.concentration.slopes import evaluate
from bnncert.concentration.tails import row_failures
from bnncert.concentration.trace import has_random_head, trace
from bnncert.deep.search import improve
from bnncert.evidence.concentration import Opposite, Proved, Refutation
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball, opposite
from bnncert.numerics.batching import in_batches
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.base import sample
from bnncert.posteriors.gaussian import Gaussian

POINT_THRESHOLD = 5.5  # of hidden intervals, none of which are random
SAMPLED = 4  # networks whose counterexamples are tried beside the mean network's


def refute(
    problem: Problem,
    posterior: Gaussian,
    seed: int,
    start: Tensor | None = None,
    enough: float = 1.0,
) -> list[Refutation | None]:
    """A certified upper bound for every input where an attack breaks the mean network, and for
    every input where the last layer alone is random.

    None elsewhere.

    start: points [B, *shape] near the regions from which attacks go on too. enough: the failure
    probability above which more need not be known.
    """
    each = 8 * 8 * (1 + SAMPLED) * sum(math.prod(shape) for shape in problem.network.shapes)
    device = problem.specification.rows.device

    def attack(part: slice) -> list[Refutation | None]:
        own = None if start is None else start[part]
        return _refute(problem[part], posterior, seed, own, enough)

    parts = in_batches(attack, len(problem), each, device)
    return [found for part in parts for found in part]


def _refute(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None, enough: float
) -> list[Refutation | None]:
    if has_random_head(problem.network, posterior):
        return _refute_head(problem, posterior, seed, start)
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
    there = Problem(problem.network, posterior, at_points)
    proofs = improve(there, posterior, prove(there, posterior, effort=0), enough)
    stored = points.cpu()
    names = rows.tolist()
    for i, proof in zip(broken.tolist(), proofs, strict=True):
        found[i] = _refutation(proof, stored[i], names[i])
    return found


def _refutation(proof: Proved, point: Tensor, row: int) -> Refutation | None:
    if not proof.bound > 0:
        return None
    return Refutation(min(1.0, (1 - proof.bound) * (1 + 4 * UNIT)), point, row, proof)


def _refute_head(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None
) -> list[Refutation | None]:
    """By the row, and of the points that attacks propose the one, that fails most."""
    points = _attacked(problem, posterior, seed, start).points
    found = [_at_points(problem, posterior, at) for at in points]
    best = [min(own, key=lambda one: one.upper) for own in zip(*found, strict=True)]
    return [one if one.upper < 1 else None for one in best]


def _at_points(problem: Problem, posterior: Gaussian, points: Tensor) -> list[Refutation]:
    """At one point [B, *shape] for every input: by the row that fails most, and its opposite."""
    spec = problem.specification
    negated = Specification(ball(points, 0), -spec.rows, -spec.offsets)
    traced = trace(problem.network, posterior, negated.region, POINT_THRESHOLD)
    rows = evaluate(traced, negated, {})
    survives = row_failures(rows, least_std(traced, negated.rows))
    fails = (1 - survives - 16 * UNIT).clamp(0, 1)  # [B, R]
    chosen = fails.argmax(1).tolist()
    others = [opposite(spec.rows[i], spec.offsets[i], row) for i, row in enumerate(chosen)]
    least = [float(fails[i, row]) for i, row in enumerate(chosen)]
    more = [0.0 if row is None else float(fails[i, row]) for i, row in enumerate(others)]
    pairs = zip(
        *(proofs_of(traced, found, POINT_THRESHOLD) for found in (least, more)), strict=True
    )
    stored = points.cpu()
    return [
        Refutation(
            min(1.0, max(0.0, 1 - proof.bound - against.bound + 8 * UNIT)),
            stored[i],
            chosen[i],
            proof,
            Opposite(other, against) if other is not None and against.bound > 0 else None,
        )
        for i, ((proof, against), other) in enumerate(zip(pairs, others, strict=True))
    ]


def counterexamples(
    problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """For each input the worst point [B, *shape] for the mean network, and the row that fails
    there, -1 if none."""
    attack = _attacked(problem, posterior, seed, start)
    outputs = problem.network.forward(posterior.mean, attack.points)
    margins = problem.specification.margins(outputs)  # [S, B, R]
    smallest, rows = margins.min(-1)
    worst = smallest.argmin(0)
    inputs = torch.arange(len(problem), device=worst.device)
    failed = smallest[worst, inputs] < 0
    return attack.points[worst, inputs], torch.where(failed, rows[worst, inputs], -1)


def _attacked(problem: Problem, posterior: Gaussian, seed: int, start: Tensor | None) -> Attack:
    """The mean network and a few drawn ones under attack."""
    networks = torch.cat([posterior.mean.unsqueeze(0), sample(posterior, SAMPLED, seed)])
    inside = None if start is None else project(problem.specification.region, start.unsqueeze(0))[0]
    return pgd(problem, networks, inside, seed=seed)

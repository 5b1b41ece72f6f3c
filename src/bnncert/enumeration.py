"""Enumeration: finitely many networks, each verified, refuted or left open.

    verified / S  <=  P_safe  <=  1 - refuted / S

A network is verified by linear bounds on the whole region and refuted at a point of it, where a row
is surely not positive. Attacks propose the points; the bounds decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from bnncert.attack import pgd
from bnncert.bounds import linear
from bnncert.errors import InputError
from bnncert.evidence.networks import Networks
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball
from bnncert.outcome import Outcome
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.empirical import Empirical

ATTACKED_AT_ONCE = 10  # networks


@dataclass(frozen=True)
class Enumeration:
    """P_safe of an empirical posterior as a certified count, below and above.

    >>> from bnncert import Problem, certify, half_space, mlp
    >>> networks = Empirical(torch.tensor([[1.0, 0.0], [2.0, 1.0], [-1.0, 0.0]]).double())
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> result = certify(Problem(mlp(1, 1), networks, positive), Enumeration())[0]
    >>> round(result.lower, 4), round(result.upper, 4)  # two of three are safe
    (0.6667, 0.6667)
    """

    name: ClassVar[str] = "enumeration"
    posteriors: ClassVar[tuple[type[Posterior], ...]] = (Empirical,)

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        if not isinstance(problem.posterior, Empirical):
            raise InputError(
                f"posterior family {problem.posterior.family!r} is no list of networks, "
                "which enumeration needs; use method concentration"
            )
        samples = problem.posterior.samples
        return [_outcome(_decide(problem[i : i + 1], samples, seed)) for i in range(len(problem))]


def _decide(problem: Problem, samples: Tensor, seed: int) -> Networks:
    """All networks on one input. A point that breaks one network is tried on those that follow."""
    verified: list[int] = []
    refuted: list[tuple[int, int, int]] = []
    points: list[Tensor] = []
    open_networks: list[int] = []
    for s, weights in enumerate(samples):
        if bool((_rows(problem, weights, problem.specification) > 0).all()):
            verified.append(s)
        else:
            open_networks.append(s)
    for first in range(0, len(open_networks), ATTACKED_AT_ONCE):
        names = open_networks[first : first + ATTACKED_AT_ONCE]
        proposed = pgd(problem, samples[names], seed=seed).points[:, 0]
        for s, own in zip(names, proposed, strict=True):
            for p, point in enumerate([*points, own]):
                row = _broken_row(problem, samples[s], point)
                if row is not None:
                    refuted.append((s, p, row))
                    points += [own] if p == len(points) else []
                    break
    shape = problem.specification.region.center.shape[1:]
    stored = torch.stack(points) if points else samples.new_zeros(0, *shape)
    return Networks(len(samples), tuple(verified), tuple(refuted), stored)


def _rows(problem: Problem, weights: Tensor, spec: Specification) -> Tensor:
    return linear.row_bounds(
        problem.network, Box.point(weights), spec.region, spec.rows, spec.offsets
    )


def _broken_row(problem: Problem, weights: Tensor, point: Tensor) -> int | None:
    """A row that is surely at most 0 at the point, if any: its negative has a lower bound >= 0."""
    spec = problem.specification
    negated = Specification(ball(point.unsqueeze(0), 0), -spec.rows, -spec.offsets)
    bounds = _rows(problem, weights, negated)[0]
    return int(bounds.argmax()) if bool(bounds.max() >= 0) else None


def _outcome(found: Networks) -> Outcome:
    lower = len(found.verified) / found.count
    upper = 1 - len(found.refuted) / found.count
    return Outcome(lower, max(lower, upper), found.count, found)

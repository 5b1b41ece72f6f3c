"""Estimates from sampled networks, as a companion to certificates. Nothing here is certified.

Of N networks drawn from the posterior, those that LBP verifies on the whole region are surely
robust and those that an attack breaks are surely not; the rest are open. Clopper-Pearson limits
turn the two counts into a confidence interval for P_safe.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.special import betainccinv, betaincinv
from torch import Tensor

from bnncert.attack import pgd
from bnncert.bounds import linear
from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.posteriors.base import sample

ATTACKED_AT_ONCE = 10  # networks


@dataclass(frozen=True)
class Estimate:
    """Of `samples` networks `verified` are robust and all but `survived` are not.

    P_safe is in [low, high] with probability at least `confidence` over the draw of the networks.

    >>> import torch
    >>> from bnncert import Problem, ball, certify, half_space, mlp
    >>> from bnncert.posteriors import Normal
    >>> ones = torch.ones(2).double()
    >>> positive = half_space(ball(torch.ones(1, 1).double(), 0.1), torch.ones(1), 0.0)
    >>> result = certify(Problem(mlp(1, 1), Normal(ones, ones / 10), positive), samples=20)[0]
    >>> result.estimate.verified, result.estimate.high, round(result.estimate.low, 2)
    (20, 1.0, 0.77)
    """

    samples: int
    verified: int
    survived: int
    confidence: float
    low: float
    high: float


def estimate(problem: Problem, samples: int, seed: int, confidence: float = 0.99) -> list[Estimate]:
    """One estimate per input, from the seed's draws."""
    if samples < 1:
        raise InputError(f"estimate samples are {samples}; give at least 1")
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}; give a number between 0 and 1")
    verified = torch.zeros(len(problem), dtype=torch.int64)
    survived = torch.zeros(len(problem), dtype=torch.int64)
    central = pgd(problem, problem.posterior.center.unsqueeze(0), seed=seed).points[0]
    for first in range(0, samples, ATTACKED_AT_ONCE):
        networks = sample(
            problem.posterior, min(ATTACKED_AT_ONCE, samples - first), seed, first=first
        )
        proved = torch.stack([_verified(problem, weights) for weights in networks])
        broken = pgd(problem, networks, start=central, seed=seed).margins <= 0
        verified += proved.sum(0).cpu()
        survived += (proved | ~broken).sum(0).cpu()
    return [
        Estimate(
            samples, v, s, confidence, _low(v, samples, confidence), _high(s, samples, confidence)
        )
        for v, s in zip(verified.tolist(), survived.tolist(), strict=True)
    ]


def _verified(problem: Problem, weights: Tensor) -> Tensor:
    spec = problem.specification
    bounds = linear.row_bounds(
        problem.network, Box.point(weights), spec.region, spec.rows, spec.offsets
    )
    return (bounds > 0).all(1)


def _low(count: int, samples: int, confidence: float) -> float:
    """Clopper-Pearson: where `count` or more of `samples` has probability (1 - confidence) / 2."""
    return (
        0.0 if count == 0 else float(betaincinv(count, samples - count + 1, (1 - confidence) / 2))
    )


def _high(count: int, samples: int, confidence: float) -> float:
    return (
        1.0
        if count == samples
        else float(betainccinv(count + 1, samples - count, (1 - confidence) / 2))
    )

"""Posterior-predictive means, bounded for every x of a region:

    softmax   π(x) = E_w softmax(f(x, w))_c,  c the label
    mean      μ(x) = E_w a·f(x, w),           a the first row

Where the gap to the nearest rival is positive, the class with the largest predictive probability is
the label on all of X. A list of networks needs no probabilities: its mean is the mean of each
network's bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bnncert.bounds import linear
from bnncert.concentration.functional import Functional
from bnncert.concentration.levels import (
    SLACK,
    label_and_gap,
    lead,
    mean,
    others,
    rivals,
    slackened,
    softmax,
)
from bnncert.concentration.moments import output_norms
from bnncert.concentration.proof import (
    THRESHOLDS,
    known_before,
)
from bnncert.concentration.sides import Aim, Asked, prove_both
from bnncert.errors import InputError
from bnncert.evidence.concentration import Proof
from bnncert.evidence.predictive import MEAN, SOFTMAX, Predictive, Side
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, class_robust
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import gamma
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import Gaussian, gaussian_parts
from bnncert.posteriors.independent import Normal

LABEL_THRESHOLDS = tuple(sorted(THRESHOLDS, reverse=True))
MEAN_THRESHOLDS = (10.0, 8.0, 6.5, 5.5)  # sqrt(p) must be small, not only p
NOTICED = 1e-6  # of a probability: what smaller gains are not looked for


@dataclass(frozen=True, eq=False)
class Prediction:
    """lower <= the predictive mean <= upper on all of X.

    gap: of the label's probability to any rival's, from below.

    size: of a regression mean, how large the numbers are that it is a sum of, for whoever adds them
    up again.
    """

    lower: float
    upper: float
    gap: float | None
    size: float
    evidence: Predictive


def quantity(spec: Specification) -> str:
    """What the specification's rows speak of: SOFTMAX of a label, or the MEAN of one direction."""
    if spec.labels is not None:
        against_all = class_robust(spec.region, spec.labels, spec.rows.shape[2])
        if not torch.equal(spec.rows, against_all.rows) or bool((spec.offsets != 0).any()):
            raise InputError(
                "a predictive probability is of one class against all; leave out the target class"
            )
        return SOFTMAX
    first = spec.rows[:, :1]
    same, opposite = ((spec.rows == sign * first).all(-1) for sign in (1, -1))
    if not bool((same | opposite).all()):
        raise InputError(
            "predictive means are of one direction; give an output interval, a half-space or labels"
        )
    return MEAN


def predict(problem: Problem, effort: int) -> list[Prediction]:
    """Bounds of every input's predictive mean."""
    kind = quantity(problem.specification)
    posterior = problem.posterior
    if isinstance(posterior, Empirical):
        return _enumerated(problem, posterior, kind)
    parts = gaussian_parts(posterior)
    if parts is None:
        raise InputError(
            f"posterior family {posterior.family!r} has no predictive bounds; Gaussian families, "
            "mixtures of them and weight samples have"
        )
    weights, components = parts
    sides = [_both_sides(problem, component, kind, effort) for component in components]
    return [_combined(kind, weights, sides, i) for i in range(len(problem))]


@dataclass(frozen=True, eq=False)
class _Sides:
    """Proofs of every input below and above, and [B, 4] bounds of the mean, of 1 minus it (or its
    negative) and of the gap, and the size."""

    lower: list[Proof]
    upper: list[Proof]
    values: Tensor


def _combined(kind: str, weights: tuple[float, ...], sides: list[_Sides], i: int) -> Prediction:
    """The weighted sum over the components, for input i."""
    pairs = list(zip(weights, sides, strict=True))
    evidence = Predictive(kind, tuple(Side(w, side.lower[i], side.upper[i]) for w, side in pairs))
    columns = zip(*([w * float(v) for v in side.values[i]] for w, side in pairs), strict=True)
    parts = [list(column) for column in columns]
    # Sums and products of a few numbers, and weights that sum to 1 only nearly.
    slack = 2.0**-38 if len(weights) > 1 else 0.0
    found = [sum(part) - slack * (1 + sum(map(abs, part))) for part in parts]
    return _prediction(found, evidence)


def _prediction(found: list[float], evidence: Predictive) -> Prediction:
    """From lower bounds of the mean, of 1 minus it or of its negative, and of the gap.

    Last the size.
    """
    low, high, gap, size = found
    if evidence.quantity == MEAN:
        return Prediction(low, -high, None, size, evidence)
    upper = min(1 - high + SLACK, 1.0)
    return Prediction(max(low, 0.0), upper, max(gap, -1.0), 1.0, evidence)


def _both_sides(problem: Problem, posterior: Gaussian, kind: str, effort: int) -> _Sides:
    spec = problem.specification
    known = known_before(problem, posterior)
    if kind == SOFTMAX:
        asked = Asked(posterior, LABEL_THRESHOLDS, effort, known, 1.0, NOTICED)
        both = Aim(spec, _label_score), Aim(_negated(spec), _rivals_score)
        (lower, below), (upper, above) = prove_both(problem, both, asked)
        ones = torch.ones_like(below[:, 0])
        return _Sides(lower, upper, torch.stack([below[:, 0], above[:, 0], below[:, 1], ones], 1))
    zeros = torch.zeros_like(spec.offsets[:, :1])
    direction = Specification(spec.region, spec.rows[:, :1], zeros)
    norms = dot(direction.rows.abs(), output_norms(problem.network, posterior, spec.region))[:, 0]
    score = partial(_mean_score, norms * (1 + gamma(spec.rows.shape[-1] + 64)))
    asked = Asked(posterior, MEAN_THRESHOLDS, effort, known, 0.0, 0.0)
    both = Aim(direction, score), Aim(_negated(direction), score)
    (lower, below), (upper, above) = prove_both(problem, both, asked)
    return _Sides(lower, upper, torch.stack([below[:, 0], above[:, 0], below[:, 0], norms], 1))


def _label_score(charge: Tensor, rows: Functional, _: Tensor) -> Tensor:
    return label_and_gap(charge, rows)


def _rivals_score(charge: Tensor, rows: Functional, _: Tensor) -> Tensor:
    return rivals(charge, rows)


def _mean_score(norms: Tensor, charge: Tensor, rows: Functional, names: Tensor) -> Tensor:
    return mean(charge, rows, norms[names])


def _negated(spec: Specification) -> Specification:
    return Specification(spec.region, -spec.rows, -spec.offsets)


def _enumerated(problem: Problem, posterior: Empirical, kind: str) -> list[Prediction]:
    """The mean over finitely many networks of linear bounds of each."""
    spec = problem.specification
    count = len(posterior.samples)
    rows = spec.rows if kind == SOFTMAX else spec.rows[:, :1]
    totals = torch.zeros(len(problem), 4, dtype=torch.float64, device=rows.device)
    sizes = torch.zeros_like(totals)
    for weights in posterior.samples:
        found = _of_network(problem, weights, rows, kind)
        totals = totals + found
        sizes = sizes + found.abs()
    means = (totals - 2 * gamma(count + 8) * sizes) / count
    evidence = Predictive(kind, networks=count)
    return [_prediction(numbers, evidence) for numbers in means.tolist()]


def _of_network(problem: Problem, weights: Tensor, rows: Tensor, kind: str) -> Tensor:
    """Bounds [B, 4] of one network: the value, 1 minus it or its negative, the gap, the size."""
    region = problem.specification.region
    zero = torch.zeros_like(rows[..., 0])
    below, above = (
        linear.row_bounds(problem.network, Box.point(weights), region, sign * rows, zero)
        for sign in (1, -1)
    )
    if kind == MEAN:
        alone = Normal(weights, torch.zeros_like(weights))
        size = dot(rows.abs(), output_norms(problem.network, alone, region))
        return torch.cat([below, above, below, size], 1)
    margins = slackened(below)
    shares = [softmax(margins), others(slackened(above)), lead(margins)]
    return torch.stack([*shares, torch.ones_like(shares[0])], 1)

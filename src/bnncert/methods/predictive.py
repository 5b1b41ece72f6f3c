"""Posterior-predictive means, bounded for every x of a region:

    softmax   π(x) = E_w softmax(f(x, w))_c,  c the label            mean   μ(x) = E_w a·f(x, w),  a the first row

On the hidden event of `bounds.gaussian`, which fails with probability at most p, row r is at least m_r - T_r everywhere
on X, with P(T_r >= s L_r) <= Q(s) and E T_r = 0, E T_r² <= L_r² (Poincaré).

Softmax. With probability P_s >= 1 - p - R Q(s), softmax_c >= v_s = 1 / (1 + Σ_r exp(s L_r - m_r)) on all of X. Over
the levels s_k = k/8 this gives min_x π(x) >= Σ_k (v_k - v_k+1) P_k. The same with the rows' negatives bounds
1 - softmax_c, and with softmax_c - softmax_j the gap to the nearest rival: where it is positive, the class with the
largest predictive probability is the label on all of X.

Mean. Where the event fails, f is bounded by its second moment S² only (Cauchy-Schwarz):

    min_x μ(x)  >=  m - |m| p - (L + S) sqrt(p).

A list of networks needs no probabilities: its mean is the mean of each network's bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.bounds import linear
from bnncert.bounds.batching import in_batches
from bnncert.bounds.gaussian import Functional, prefix, trace
from bnncert.bounds.moments import output_norms
from bnncert.box import Box
from bnncert.correlated import Gaussian, gaussian_parts
from bnncert.empirical import Empirical
from bnncert.errors import InputError
from bnncert.methods.proof import THRESHOLDS, Proof, bytes_each, describe, of_one, slopes_of
from bnncert.methods.slopes import evaluate, optimise
from bnncert.posterior import Normal, Posterior
from bnncert.problem import Problem
from bnncert.products import dot
from bnncert.rounding import UNIT, gamma
from bnncert.specification import Specification, class_robust
from bnncert.tails import normal_tail_up

LEVELS, STEP = 65, 1 / 8  # of s
MEAN_THRESHOLDS = (5.5, 6.5, 8.0, 10.0)  # sqrt(p) must be small, not only p
SLACK = 2.0**-40  # pays for exp, log and the sums around them

# From the charge, the rows' functionals and the inputs' numbers: lower bounds [B, q], of which the first decides.
Score: TypeAlias = Callable[[Tensor, Functional, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Prediction:
    """lower <= the predictive mean <= upper on all of X; gap: of the label's probability to any rival's, from below.

    size: of a regression mean, how large the numbers are that it is a sum of, for whoever adds them up again.
    """

    lower: float
    upper: float
    gap: float | None
    size: float
    evidence: dict[str, Any]
    tensors: dict[str, Tensor] = field(default_factory=dict)


def quantity(spec: Specification) -> str:
    """What the specification's rows speak of: "softmax" of a label, or the "mean" of one direction."""
    if spec.labels is not None:
        against_all = class_robust(spec.region, spec.labels, spec.rows.shape[2])
        if not torch.equal(spec.rows, against_all.rows) or bool((spec.offsets != 0).any()):
            raise InputError("a predictive probability is of one class against all; leave out the target class")
        return "softmax"
    first = spec.rows[:, :1]
    same, opposite = ((spec.rows == sign * first).all(-1) for sign in (1, -1))
    if not bool((same | opposite).all()):
        raise InputError("predictive means are of one direction; give an output interval, a half-space or labels")
    return "mean"


def predict(problem: Problem, effort: int) -> list[Prediction]:
    """Bounds of every input's predictive mean."""
    kind = quantity(problem.specification)
    if isinstance(problem.posterior, Empirical):
        return _enumerated(problem, problem.posterior, kind)
    weights, components = _components(problem.posterior)
    sides = [_both_sides(problem, component, kind, effort) for component in components]
    predictions = []
    for i in range(len(problem)):
        evidence: dict[str, Any] = {"components": []}
        tensors: dict[str, Tensor] = {}
        totals, sizes = [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]
        for c, (weight, (lower, upper, values)) in enumerate(zip(weights, sides, strict=True)):
            entry = {"weight": weight.hex(), "lower": describe(lower[i], f"c{c}.", tensors)}
            evidence["components"].append(entry | {"upper": describe(upper[i], f"c{c}.upper.", tensors)})
            parts = [weight * float(value) for value in values[i]]
            totals = [total + part for total, part in zip(totals, parts, strict=True)]
            sizes = [size + abs(part) for size, part in zip(sizes, parts, strict=True)]
        # Sums and products of a few numbers, and weights that sum to 1 only nearly.
        slack = 2.0**-38 if len(weights) > 1 else 0.0
        low, high, gap, size = (total - slack * (1 + own) for total, own in zip(totals, sizes, strict=True))
        predictions.append(_prediction(kind, (low, high, gap, size), evidence, tensors))
    return predictions


def _prediction(
    kind: str, found: tuple[float, ...], evidence: dict[str, Any], tensors: dict[str, Tensor]
) -> Prediction:
    """From lower bounds of the mean, of 1 minus it or of its negative, and of the gap; last the size."""
    low, high, gap, size = found
    if kind == "mean":
        return Prediction(low, -high, None, size, evidence, tensors)
    return Prediction(max(low, 0.0), min(1 - high + SLACK, 1.0), max(gap, -1.0), 1.0, evidence, tensors)


def _components(posterior: Posterior) -> tuple[tuple[float, ...], tuple[Gaussian, ...]]:
    parts = gaussian_parts(posterior)
    if parts is None:
        raise InputError(
            f"posterior family {posterior.family!r} has no predictive bounds; Gaussian families, mixtures of them and "
            "weight samples have"
        )
    return parts


def _both_sides(
    problem: Problem, posterior: Gaussian, kind: str, effort: int
) -> tuple[list[Proof], list[Proof], Tensor]:
    """Proofs below and above, and [B, 4] bounds of the mean, of 1 minus it (or its negative) and of the gap, and the
    size."""
    spec = problem.specification
    if kind == "softmax":
        lower, below = _prove(problem, spec, posterior, THRESHOLDS, effort, _label)
        upper, above = _prove(problem, _negated(spec), posterior, THRESHOLDS, effort, _rivals)
        return lower, upper, torch.stack([below[:, 0], above[:, 0], below[:, 1], torch.ones_like(below[:, 0])], 1)
    direction = Specification(spec.region, spec.rows[:, :1], torch.zeros_like(spec.offsets[:, :1]))
    norms = dot(direction.rows.abs(), output_norms(problem.network, posterior, spec.region))[:, 0]
    score = partial(_mean, norms * (1 + gamma(spec.rows.shape[-1] + 64)))
    lower, below = _prove(problem, direction, posterior, MEAN_THRESHOLDS, effort, score)
    upper, above = _prove(problem, _negated(direction), posterior, MEAN_THRESHOLDS, effort, score)
    return lower, upper, torch.stack([below[:, 0], above[:, 0], below[:, 0], norms], 1)


def _negated(spec: Specification) -> Specification:
    return Specification(spec.region, -spec.rows, -spec.offsets)


def _prove(
    problem: Problem,
    spec: Specification,
    posterior: Gaussian,
    thresholds: tuple[float, ...],
    effort: int,
    score: Score,
) -> tuple[list[Proof], Tensor]:
    """The best proof of every input, and its bounds [B, q]."""
    asked, names = Problem(problem.network, posterior, spec), torch.arange(len(problem), device=spec.rows.device)
    each = bytes_each(asked, posterior) * (4 if effort else 1)  # gradients are kept
    parts = in_batches(
        lambda part: _prove_part(asked[part], posterior, thresholds, effort, score, names[part]),
        len(asked),
        each,
        spec.rows.device,
    )
    return list(chain.from_iterable(proofs for proofs, _ in parts)), torch.cat([values for _, values in parts])


def _prove_part(
    problem: Problem, posterior: Gaussian, thresholds: tuple[float, ...], effort: int, score: Score, names: Tensor
) -> tuple[list[Proof], Tensor]:
    spec, network = problem.specification, problem.network
    known = prefix(network, posterior, spec.region)
    scores = []
    for t in thresholds:
        traced = trace(network, posterior, spec.region, t, known)
        scores.append(score(traced.charge, evaluate(traced, spec, {}), names))
    found = torch.stack(scores)  # [T, B, q]
    best = found[..., 0].argmax(0)
    values = found[best, torch.arange(len(problem), device=best.device)]
    proofs: dict[int, Proof] = {}
    for k in sorted(set(best.tolist())):
        group = (best == k).nonzero().squeeze(1)
        part = spec[group]
        traced = trace(network, posterior, part.region, thresholds[k], known[group])
        (lower, upper), refined = slopes_of(traced), {p: neurons.cpu() for p, neurons in traced.refined.items()}
        chosen, better = dict[int, Tensor](), torch.zeros_like(group, dtype=torch.bool)
        if effort:
            chosen, rows = optimise(network, traced, part)
            optimised = score(traced.charge, rows, names[group])
            better = optimised[:, 0] > values[group, 0]
            values[group[better]] = optimised[better]
        chosen, improved = {p: slopes.cpu() for p, slopes in chosen.items()}, better.tolist()
        for i, (name, bound) in enumerate(zip(group.tolist(), values[group, 0].tolist(), strict=True)):
            slopes = of_one(lower, i), of_one(upper, i), of_one(chosen, i) if improved[i] else {}
            proofs[name] = Proof(bound, thresholds[k], *slopes, of_one(refined, i))
    return [proofs[i] for i in range(len(problem))], values


def _label(charge: Tensor, rows: Functional, _: Tensor) -> Tensor:
    """Lower bounds of E softmax_c and of the gap E (softmax_c - softmax_j), j the nearest rival: [B, 2]."""
    margins, held = _at_levels(charge, rows)
    return torch.stack([_layered(_softmax(margins), held, 0.0), _layered(_lead(margins), held, -1.0)], 1)


def _rivals(charge: Tensor, rows: Functional, _: Tensor) -> Tensor:
    """A lower bound of E (1 - softmax_c), from the rivals' lead over c: [B, 1]."""
    leads, held = _at_levels(charge, rows)
    return _layered(_others(leads), held, 0.0).unsqueeze(1)


def _mean(norms: Tensor, charge: Tensor, rows: Functional, names: Tensor) -> Tensor:
    """m - |m| p - (L + S) sqrt(p), [B, 1]."""
    value, p = rows.value[:, 0], charge.clamp(max=1.0)
    loss = value.abs() * p + (rows.lipschitz[:, 0] + norms[names]) * p.sqrt()
    return (value - loss * (1 + 16 * UNIT) - 4 * UNIT * value.abs()).unsqueeze(1)


def _at_levels(charge: Tensor, rows: Functional) -> tuple[Tensor, Tensor]:
    """What the rows [K, B, R] exceed at each level s_k, and with what probability [K, B] they all do."""
    s = STEP * torch.arange(LEVELS, dtype=torch.float64, device=charge.device)
    noisy = (rows.lipschitz > 0).sum(1).double()
    held = (1 - charge - normal_tail_up(s).unsqueeze(1) * noisy - SLACK).clamp_min(0)
    return _slackened(rows.value - s[:, None, None] * rows.lipschitz), held


def _slackened(margins: Tensor) -> Tensor:
    """A little less, so that functions of them may be rounded; NaN says nothing."""
    return (margins - SLACK * (1 + margins.abs())).nan_to_num(-torch.inf, torch.inf, -torch.inf)


def _softmax(margins: Tensor) -> Tensor:
    """1 / (1 + Σ_r exp(-margin_r))"""
    return torch.sigmoid(-(-margins).logsumexp(-1)) * (1 - SLACK)


def _others(leads: Tensor) -> Tensor:
    """1 - softmax_c = Σ_r exp(lead_r) / (1 + Σ_r exp(lead_r))"""
    return torch.sigmoid(leads.logsumexp(-1)) * (1 - SLACK)


def _lead(margins: Tensor) -> Tensor:
    """softmax_c - softmax_j from below, for every j: with v the smallest margin, softmax_c (1 - exp(-v)) if v >= 0,
    and tanh(v / 2), the lead in a race of two, if not."""
    smallest = margins.amin(-1)
    ahead = _softmax(margins) * -torch.expm1(-smallest.clamp_min(0))
    return torch.where(smallest >= 0, ahead, torch.tanh(smallest / 2)) - SLACK


def _layered(values: Tensor, held: Tensor, floor: float) -> Tensor:
    """E Y >= floor + Σ_k (v_k - v_k+1) P_k, where Y >= floor always and Y >= v_k with probability at least P_k, [B]."""
    falling = values.flip(0).cummax(0).values.flip(0).clamp_min(floor)
    steps = falling - torch.cat([falling[1:], torch.full_like(falling[:1], floor)])
    return floor + (steps * held).sum(0) - SLACK


def _enumerated(problem: Problem, posterior: Empirical, kind: str) -> list[Prediction]:
    """The mean over finitely many networks of linear bounds of each."""
    spec, count = problem.specification, posterior.samples.shape[0]
    rows = spec.rows if kind == "softmax" else spec.rows[:, :1]
    zero = torch.zeros_like(rows[..., 0])
    totals = torch.zeros(len(problem), 4, dtype=torch.float64, device=rows.device)
    sizes = torch.zeros_like(totals)
    for weights in posterior.samples:
        below, above = (
            linear.row_bounds(problem.network, Box.point(weights), spec.region, sign * rows, zero) for sign in (1, -1)
        )
        if kind == "mean":
            alone = Normal(weights, torch.zeros_like(weights))
            size = dot(rows.abs(), output_norms(problem.network, alone, spec.region))
            found = torch.cat([below, above, below, size], 1)
        else:
            margins, leads = _slackened(below), _slackened(above)
            shares = [_softmax(margins), _others(leads), _lead(margins)]
            found = torch.stack([*shares, torch.ones_like(shares[0])], 1)
        totals, sizes = totals + found, sizes + found.abs()
    means = (totals - 2 * gamma(count + 8) * sizes) / count
    return [_prediction(kind, tuple(numbers), {"networks": count}, {}) for numbers in means.tolist()]

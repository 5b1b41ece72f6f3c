"""Proofs by concentration: a lower bound of P_safe from the tails of the Gaussian functionals that decide.

    P_safe >= 1 - (sides of hidden neurons that may fail)·Q(t) - Σ_rows q_r,     q_r = Q(m_r / L_r)  if m_r >= 0 < L_r,
                                                                                  1[m_r <= 0]        if L_r = 0,
                                                                                  1                  otherwise,

with m (E F already taken off) and L from `bounds.gaussian`. Q of a negative number would be no bound: hence the last
case. Each threshold t gives a bound of the same number, so every input takes the best of a grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from bnncert.bounds.batching import in_batches
from bnncert.bounds.gaussian import WORKING_TENSORS, Functional, Prefix, Trace, prefix, trace
from bnncert.bounds.linear import ActivationStep
from bnncert.correlated import Gaussian, LowRankNormal
from bnncert.layers import Dense
from bnncert.methods.slopes import evaluate, optimise
from bnncert.problem import Problem
from bnncert.rounding import UNIT
from bnncert.tails import normal_tail_up

THRESHOLDS = (5.5, 3.0, 5.0, 4.5, 4.0, 3.5)  # the first decides most inputs, the second most of the others
UNDECIDED = 4.5  # the threshold with which slopes are optimised where plain ones give nothing
DECIDED = 1e-9  # failure of all rows together below which better slopes cannot matter


@dataclass(frozen=True, eq=False)
class Common:
    """What the common-noise bound chose: λ, and by position of a random layer the reference's rows and centres."""

    scale: float
    rows: dict[int, Tensor]
    centers: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class Tree:
    """Leaves ℓ that cover an input's region for one row: splits, multipliers and lower slopes of each.

    paths [leaves, depth]: k or -k where the next split says z >= 0 or z <= 0 of the k-th open neuron, from 1; 0 after
    the last. multipliers [leaves, depth] belong to the splits, slopes [leaves, U] to the open neurons. The row's
    failure is the sum over the leaves, or with `common` that of their maximum.
    """

    paths: Tensor
    multipliers: Tensor
    slopes: Tensor
    common: Common | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """A region in two: where coordinate `dimension` (of the flattened input) is at most `at`, and where it is at least
    that, each with a proof."""

    dimension: int
    at: float
    below: Proof
    above: Proof


@dataclass(frozen=True, eq=False)
class Proof:
    """P_safe, or a mean, is at least `bound` for one input, by threshold t and these slopes of the activations, each by
    layer position.

    lower_slopes, upper_slopes: [n], of every line that hidden intervals use; row_slopes: [R, n], lower slopes for the
    output rows where they were optimised; refined: [n], the neurons of a layer that had rows of their own, if not all;
    trees: by output row, where it was refined, on the neurons `open` [U] as numbered by `domains.Roots`. cut: the
    region in two instead, and nothing else counts.
    """

    bound: float
    t: float
    lower_slopes: dict[int, Tensor]
    upper_slopes: dict[int, Tensor]
    row_slopes: dict[int, Tensor]
    refined: dict[int, Tensor]
    open: Tensor | None = None
    trees: dict[int, Tree] = field(default_factory=dict)
    cut: Cut | None = None


def plain_bounds(problem: Problem, posterior: Gaussian) -> tuple[Tensor, Tensor]:
    """The best bound with plain slopes [B], and the threshold that gives it [B]."""

    def best(part: slice) -> Tensor:
        return _best_threshold(problem[part], posterior, _prefix(problem[part], posterior))

    both = torch.cat(in_batches(best, len(problem), bytes_each(problem, posterior), problem.specification.rows.device))
    return both[:, 0], both[:, 1]


def prove(problem: Problem, posterior: Gaussian, effort: int) -> list[Proof]:
    """The best proof for every input; effort 1 optimises the slopes where rows still fail noticeably."""
    each = bytes_each(problem, posterior) * (4 if effort else 1)  # gradients are kept
    device = problem.specification.rows.device
    parts = in_batches(lambda part: _prove(problem[part], posterior, effort), len(problem), each, device)
    return list(chain.from_iterable(parts))


def _prove(problem: Problem, posterior: Gaussian, effort: int) -> list[Proof]:
    known = _prefix(problem, posterior)
    best, thresholds = _best_threshold(problem, posterior, known).unbind(1)
    proofs: dict[int, Proof] = {}
    for t in sorted(set(thresholds.tolist())):
        group = (thresholds == t).nonzero().squeeze(1)
        found = _prove_at(problem[group], posterior, t, best[group], effort, known[group])
        proofs |= dict(zip(group.tolist(), found, strict=True))
    return [proofs[i] for i in range(len(problem))]


def _prefix(problem: Problem, posterior: Gaussian) -> Prefix:
    return prefix(problem.network, posterior, problem.specification.region)


def bytes_each(problem: Problem, posterior: Gaussian) -> int:
    """Working memory of one input: the rows of the widest hidden layer over the widest activation.

    The first layer's rows are shared by the batch, unless weights are correlated: then every row has `rank` copies.
    """
    network = problem.network
    rank = posterior.factor.shape[1] if isinstance(posterior, LowRankNormal) else 0
    dense = [layer for layer in network.layers if isinstance(layer, Dense)]
    hidden = [2 * layer.outputs for layer in (dense[:-1] if rank else dense[1:-1])]
    rows = max([problem.specification.rows.shape[1], *hidden])
    kernels = (math.prod(shape) for shape in network.parameters.values() if len(shape) == 4)
    return 8 * WORKING_TENSORS * rows * max(*map(math.prod, network.shapes), *kernels) * max(1, rank)


def _best_threshold(problem: Problem, posterior: Gaussian, known: Prefix) -> Tensor:
    """Bound and threshold [B, 2]; an input is left out of the search as soon as no other threshold can improve it.

    Where the mean network itself fails at the clean input, m is at most its margin there and nothing can be certified.
    """
    spec, network = problem.specification, problem.network
    best = torch.tensor([0.0, UNDECIDED], dtype=torch.float64, device=spec.rows.device).repeat(len(problem), 1)
    mean_margins = spec.margins(network.forward(posterior.mean, spec.region.center))
    going = (mean_margins > 0).all(1).nonzero().squeeze(1)
    for k, t in enumerate(THRESHOLDS):
        if len(going) == 0:
            break
        part = spec[going]
        traced = trace(network, posterior, part.region, t, known[going])
        rows = evaluate(traced, part, {})
        found = probability(traced, rows)
        better = found > best[going, 0]
        best[going[better]] = torch.stack([found, torch.full_like(found, t)], 1)[better]
        going = going[(best[going, 0] < _ceiling(traced, t, THRESHOLDS[k + 1 :])) & _promising(rows, t)]
    return best


def _ceiling(traced: Trace, t: float, others: tuple[float, ...]) -> Tensor:
    """What none of the other thresholds can exceed: each charges for at least half of the sides, the upper ends."""
    return 1 - traced.charge / 2 * min((_tail(other) / _tail(t) for other in others), default=0.0)


def _promising(rows: Functional, t: float) -> Tensor:
    """Smaller thresholds give narrower intervals: a row that fails with the smallest one fails with them all."""
    if t > min(THRESHOLDS):
        return torch.ones_like(rows.value[:, 0], dtype=torch.bool)
    return (rows.value >= 0).all(1)


def _tail(t: float) -> float:
    return float(normal_tail_up(torch.tensor(t, dtype=torch.float64)))


def probability(traced: Trace, rows: Functional) -> Tensor:
    """1 - charge - Σ_r q_r, rounded down into [0, 1]."""
    total = traced.charge + row_failures(rows).sum(1)
    certain = total == 0  # nothing random decides: no rounding to allow for
    return torch.where(certain, 1.0, (1 - total - 16 * UNIT * (1 + total)).clamp(0, 1))


def row_failures(rows: Functional) -> Tensor:
    """q_r [B, R] of the theorem, rounded up; comparisons are written so that NaN counts as failure."""
    noisy = normal_tail_up(rows.value / rows.lipschitz)
    certified = torch.where(rows.lipschitz > 0, torch.where(rows.value >= 0, noisy, 1.0), 1.0)
    deterministic = (rows.lipschitz == 0) & (rows.value > 0)
    return torch.where(deterministic, 0.0, certified.nan_to_num(1.0))


def _prove_at(
    problem: Problem, posterior: Gaussian, t: float, plain: Tensor, effort: int, known: Prefix
) -> list[Proof]:
    spec = problem.specification
    traced = trace(problem.network, posterior, spec.region, t, known)
    best, row_slopes = plain.tolist(), [dict[int, Tensor]() for _ in range(len(problem))]
    if effort >= 1:
        failing = row_failures(evaluate(traced, spec, {})).sum(1) > DECIDED
        open_inputs = (failing & (traced.charge < 1)).nonzero().squeeze(1)
        if len(open_inputs):
            part = problem[open_inputs]
            again = trace(problem.network, posterior, part.specification.region, t, known[open_inputs])
            _improve(part, again, open_inputs.tolist(), best, row_slopes)
    lower, upper = slopes_of(traced)
    refined = {k: chosen.cpu() for k, chosen in traced.refined.items()}
    return [
        Proof(best[i], t, of_one(lower, i), of_one(upper, i), row_slopes[i], of_one(refined, i))
        for i in range(len(problem))
    ]


def _improve(
    problem: Problem, traced: Trace, names: list[int], best: list[float], slopes: list[dict[int, Tensor]]
) -> None:
    """Optimise the slopes of some inputs, and enter what became better under their names."""
    found, rows = optimise(problem.network, traced, problem.specification)
    chosen = {k: slope.cpu() for k, slope in found.items()}
    for i, value in enumerate(probability(traced, rows).tolist()):
        if value > best[names[i]]:
            best[names[i]] = value
            slopes[names[i]] = of_one(chosen, i)


def slopes_of(traced: Trace) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
    """Lower and upper slopes [B, n] of every activation, in the host's memory: from here on they are only stored."""
    lines = {k: step.relaxation for k, step in enumerate(traced.steps) if isinstance(step, ActivationStep)}
    lower = {k: line.lower_slope.cpu() for k, line in lines.items()}
    return lower, {k: line.upper_slope.cpu() for k, line in lines.items()}


def of_one(batch: dict[int, Tensor], index: int) -> dict[int, Tensor]:
    return {k: values[index] for k, values in batch.items()}


def describe(proof: Proof, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """The proof as JSON, its slopes among the tensors."""
    for name in ("lower_slopes", "upper_slopes", "row_slopes"):
        for k, slopes in getattr(proof, name).items():
            tensors[f"{prefix}{name}{k}"] = slopes.clone()  # not a view that keeps its whole batch alive
    for k, chosen in proof.refined.items():
        tensors[f"{prefix}refined{k}"] = chosen.to(torch.int8)
    return {"t": proof.t.hex(), "rows_optimised": bool(proof.row_slopes)}

"""Proofs by concentration: a lower bound of P_safe from the tails of Gaussian functionals.

Each threshold t gives a bound of the same number, so every input takes the best of a grid; then,
where rows still fail noticeably, slopes are optimised.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from bnncert.bounds.neurons import has_rows
from bnncert.bounds.steps import ActivationStep
from bnncert.bounds.zonotopes import MOST_HELD, numbers_held
from bnncert.concentration.functional import WORKING_TENSORS, Functional, Trace
from bnncert.concentration.noise import layer_noises
from bnncert.concentration.slopes import evaluate, optimise, strongest
from bnncert.concentration.tails import probability, row_failures
from bnncert.concentration.trace import Prefix, joined, prefix, trace
from bnncert.evidence.concentration import Proof
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification
from bnncert.numerics.batching import in_batches
from bnncert.numerics.tails import normal_tail_up
from bnncert.posteriors.gaussian import Gaussian

# The first decides most inputs, the second most of the others.
THRESHOLDS = (5.5, 3.0, 5.0, 4.5, 4.0, 3.5)
UNDECIDED = 4.5  # the threshold with which slopes are optimised where plain ones give nothing
DECIDED = 1e-9  # failure of all rows together below which better slopes cannot matter
NEGLIGIBLE = 1e-12  # failure of one row below which they do not
GRADIENTS = 4  # times the memory of a walk
ZONOTOPES = 2  # times what is held, while one is made


def plain_bounds(problem: Problem, posterior: Gaussian) -> tuple[Tensor, Tensor]:
    """The best bound with plain slopes [B], and the threshold that gives it [B]."""
    known = known_before(problem, posterior)

    def best(part: slice) -> Tensor:
        return _best_threshold(problem[part], posterior, known[part])

    device = problem.specification.rows.device
    both = torch.cat(in_batches(best, len(problem), bytes_each(problem, posterior), device))
    return both[:, 0], both[:, 1]


def known_before(problem: Problem, posterior: Gaussian) -> Prefix:
    """What no threshold enters, for all that is asked of these inputs: made once, in parts that
    fit."""
    region = problem.specification.region
    parts = in_batches(
        lambda part: prefix(problem.network, posterior, region[part]),
        len(problem),
        max(bytes_each(problem, posterior), _zonotope_bytes(problem.network, posterior)),
        region.center.device,
    )
    return joined(parts, region)


def prove(
    problem: Problem, posterior: Gaussian, effort: int, known: Prefix | None = None
) -> list[Proof]:
    """The best proof for every input.

    Effort 1 optimises the slopes where rows still fail noticeably.
    """
    before = known or known_before(problem, posterior)
    each = bytes_each(problem, posterior, effort)
    device = problem.specification.rows.device
    parts = in_batches(
        lambda part: _prove(problem[part], posterior, effort, before[part]),
        len(problem),
        each,
        device,
    )
    return list(chain.from_iterable(parts))


def _prove(problem: Problem, posterior: Gaussian, effort: int, known: Prefix) -> list[Proof]:
    best, thresholds = _best_threshold(problem, posterior, known).unbind(1)
    proofs: dict[int, Proof] = {}
    for t in sorted(set(thresholds.tolist())):
        group = (thresholds == t).nonzero().squeeze(1)
        found = _prove_at(problem[group], posterior, t, best[group], effort, known[group])
        proofs |= dict(zip(group.tolist(), found, strict=True))
    return [proofs[i] for i in range(len(problem))]


def bytes_each(problem: Problem, posterior: Gaussian, effort: int = 0) -> int:
    """Working memory of one input: the rows of the widest hidden vector over the widest node, more
    with gradients.

    The first layer's rows are shared by the batch, unless weights are correlated: then every row
    has `rank` copies.
    """
    network = problem.network
    vectors = [
        2 * network.shapes[k + 1][0]
        for k in range(len(network.layers))
        if has_rows(network, k) and len(network.shapes[k + 1]) == 1
    ]
    hidden = vectors if posterior.rank else vectors[1:]
    rows = max([problem.specification.rows.shape[1], *hidden])
    return rows * bytes_a_row_each(problem, posterior) * (GRADIENTS if effort else 1)


def _zonotope_bytes(network: Network, posterior: Gaussian) -> int:
    """Of one input: directions of all nodes before the first random layer that wait, if any is an
    image and they fit."""
    noises = layer_noises(network, posterior)
    certain = next((k for k, noise in enumerate(noises) if noise.random), len(noises))
    held = numbers_held(network, certain)
    images = any(len(shape) == 3 for shape in network.shapes[1 : certain + 1])
    return 8 * ZONOTOPES * held if images and held <= MOST_HELD else 0


def bytes_a_row_each(problem: Problem, posterior: Gaussian) -> int:
    """Working memory of one row of one input: over the widest node, and the kernels it meets."""
    network = problem.network
    kernels = [math.prod(shape) for shape in network.parameters.values() if len(shape) == 4]
    most = max([*map(math.prod, network.shapes), *kernels])
    return 8 * WORKING_TENSORS * most * max(1, posterior.rank)


def _best_threshold(problem: Problem, posterior: Gaussian, known: Prefix) -> Tensor:
    """Bound and threshold [B, 2].

    An input is left out of the search as soon as no other threshold can improve it. Where the mean
    network itself fails at the clean input, m is at most its margin there and nothing can be
    certified.
    """
    spec = problem.specification
    network = problem.network
    nothing = torch.tensor([0.0, UNDECIDED], dtype=torch.float64, device=spec.rows.device)
    best = nothing.repeat(len(problem), 1)
    mean_margins = spec.margins(network.forward(posterior.mean, spec.region.center))
    going = (mean_margins > 0).all(1).nonzero().squeeze(1)
    for k, t in enumerate(THRESHOLDS):
        if len(going) == 0:
            break
        part = spec[going]
        traced = trace(network, posterior, part.region, t, known[going])
        rows = strongest(traced, part, evaluate(traced, part, {}))
        found = probability(traced.charge, rows)
        better = found > best[going, 0]
        best[going[better]] = torch.stack([found, torch.full_like(found, t)], 1)[better]
        open_still = best[going, 0] < _ceiling(traced, t, THRESHOLDS[k + 1 :])
        going = going[open_still & _promising(rows, t)]
    return best


def _ceiling(traced: Trace, t: float, others: tuple[float, ...]) -> Tensor:
    """What no other threshold can exceed: each charges for the upper ends, half of the sides."""
    return 1 - traced.charge / 2 * min((_tail(other) / _tail(t) for other in others), default=0.0)


def _promising(rows: Functional, t: float) -> Tensor:
    """A row that fails with the smallest threshold, of the narrowest intervals, fails with all."""
    if t > min(THRESHOLDS):
        return torch.ones_like(rows.value[:, 0], dtype=torch.bool)
    return (rows.value >= 0).all(1)


def _tail(t: float) -> float:
    return float(normal_tail_up(torch.tensor(t, dtype=torch.float64)))


def _prove_at(
    problem: Problem, posterior: Gaussian, t: float, plain: Tensor, effort: int, known: Prefix
) -> list[Proof]:
    spec = problem.specification
    traced = trace(problem.network, posterior, spec.region, t, known)
    proofs = proofs_of(traced, plain.tolist(), t)
    if effort < 1:
        return proofs
    rows = strongest(traced, spec, evaluate(traced, spec, {}))
    failures = row_failures(rows)
    open_inputs = (failures.sum(1) > DECIDED) & (traced.charge < 1)
    index, row = ((failures > NEGLIGIBLE) & open_inputs.unsqueeze(1)).nonzero().unbind(1)
    if len(index) == 0:
        return proofs
    wide, better = _optimised(traced[index], spec.row(index, row))
    slopes = {k: own[:, 0] for k, own in wide.items()}
    value = rows.value.index_put((index, row), better.value[:, 0])
    lipschitz = rows.lipschitz.index_put((index, row), better.lipschitz[:, 0])
    found = probability(traced.charge, Functional(value, lipschitz)).tolist()
    for i in open_inputs.nonzero().squeeze(1).tolist():
        if found[i] > proofs[i].bound:
            own = (index == i).nonzero().squeeze(1)
            chosen = merged_slopes(proofs[i], slopes, row[own], own, spec.rows.shape[1])
            proofs[i] = replace(proofs[i], bound=found[i], row_slopes=chosen)
    return proofs


def _optimised(traced: Trace, spec: Specification) -> tuple[dict[int, Tensor], Functional]:
    slopes, rows = optimise(traced, spec)
    return slopes, strongest(traced, spec, rows)


def merged_slopes(
    proof: Proof, slopes: dict[int, Tensor], rows: Tensor, own: Tensor, count: int
) -> dict[int, Tensor]:
    """Lower slopes of all output rows [count, n]: the proof's own, but for those of some rows."""
    found = {}
    for k, found_ones in slopes.items():
        plain = proof.lower_slopes[k].unsqueeze(0).repeat(count, 1)
        found[k] = plain.index_copy(0, rows.cpu(), found_ones[own].cpu())
    return found


def proofs_of(traced: Trace, bounds: list[float], t: float | list[float]) -> list[Proof]:
    """One proof for each input, with the trace's threshold (or one each) and slopes, in the host's
    memory."""
    thresholds = t if isinstance(t, list) else [t] * len(bounds)
    lines = {
        k: step.relaxation
        for k, step in enumerate(traced.steps)
        if isinstance(step, ActivationStep)
    }
    lower = {k: line.lower_slope.cpu() for k, line in lines.items()}
    upper = {k: line.upper_slope.cpu() for k, line in lines.items()}
    refined = {k: chosen.cpu() for k, chosen in traced.refined.items()}
    used = traced.forward.tolist()
    return [
        Proof(
            bound,
            thresholds[i],
            of_one(lower, i),
            of_one(upper, i),
            {},
            of_one(refined, i),
            forward=used[i],
            affine=bool(traced.forms),
        )
        for i, bound in enumerate(bounds)
    ]


def of_one(batch: dict[int, Tensor], index: int) -> dict[int, Tensor]:
    return {k: values[index] for k, values in batch.items()}

"""Attacks: projected gradient descent for inputs that break given networks.

What they find is never a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from bnncert.model.layers import Conv2d
from bnncert.model.problem import Problem
from bnncert.model.specification import Region
from bnncert.numerics.batching import in_batches
from bnncert.numerics.rounding import UNIT

TARGETS = 3  # rivals attacked one by one
Parameters: TypeAlias = Sequence[tuple[Tensor, ...]]  # each layer's
SHRINK = 1 - 2.0**-40  # of a ball's radius: lengths are rounded too


@dataclass(frozen=True, eq=False)
class Attack:
    """The worst inputs found: points [S, B, *shape] and the smallest row there [S, B].

    A row <= 0 is a violation.
    """

    points: Tensor
    margins: Tensor


def pgd(
    problem: Problem, weights: Tensor, start: Tensor | None = None, steps: int = 40, seed: int = 0
) -> Attack:
    """Lower the rows of each network weights[s] over each region.

    From the clean input towards each of the few smallest rows there, then from a random start and
    from `start` [B, *shape] (another network's counterexamples, say) towards whichever row is
    smallest: that one alone misses rivals that only come close on the way. In regions that are
    points there is nowhere to go.
    """
    region = problem.specification.region
    shape = (len(weights), *region.center.shape)
    clean = problem.margins(weights)  # [S, B, R]
    best = Attack(region.center.expand(shape), clean.amin(-1))
    inner = region.inner()
    if torch.equal(inner.lower, inner.upper):
        return best
    order = clean.argsort(-1)
    parameters = _quick(problem, weights)
    for target in range(min(TARGETS, order.shape[-1])):
        best = _descend(
            problem, parameters, best, region.center.expand(shape), order[..., target], steps
        )
    for x in (_random_start(region, seed), *(() if start is None else (start,))):
        best = _descend(problem, parameters, best, x.expand(shape), None, steps)
    outputs = problem.network.forward(weights, best.points)
    return Attack(best.points, problem.specification.margins(outputs).amin(-1))


def _quick(problem: Problem, weights: Tensor) -> Parameters:
    """Each layer's parameters [S, ...], with which gradients are found.

    In float32 where there are convolutions, which are many times slower in float64; points and the
    margins in the end are in float64. What is the same in all networks is there once.
    """
    images = any(isinstance(layer, Conv2d) for layer in problem.network.layers)
    parts = problem.network.split(weights.float() if images else weights)
    same = [all(bool((part == part[:1]).all()) for part in own) for own in parts]
    return [
        tuple(part[0] for part in own) if once else own
        for own, once in zip(parts, same, strict=True)
    ]


def surviving(
    problem: Problem,
    weights: Tensor,
    seed: int = 0,
    start: Tensor | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[float, float]:
    """Shares of all networks [S, n] and inputs that are right at the clean input, and that survive
    the attack.

    start: points [B, *shape] of the regions, known counterexamples say, from which attacks go on
    too. progress: called with the number of inputs attacked since the last call.
    """
    each = 8 * 8 * len(weights) * sum(math.prod(shape) for shape in problem.network.shapes)

    def attack(part: slice) -> Tensor:
        found = pgd(problem[part], weights, None if start is None else start[part], seed=seed)
        clean = problem[part].margins(weights).amin(-1) > 0
        progress(part.stop - part.start)
        return torch.stack([clean.double().sum(), (found.margins > 0).double().sum()])

    totals = torch.stack(in_batches(attack, len(problem), each, weights.device)).sum(0) / (
        len(weights) * len(problem)
    )
    clean, attacked = totals.tolist()
    return clean, attacked


def _descend(
    problem: Problem,
    parameters: Parameters,
    best: Attack,
    x: Tensor,
    rows: Tensor | None,
    steps: int,
) -> Attack:
    """Follow the given row [S, B], or the smallest one, and keep the worst points seen."""
    region = problem.specification.region
    for step in range(steps + 1):
        margins, gradient = _margins_and_gradient(problem, parameters, x, rows)
        best = _better(best, x, margins)
        # geometric from half the radius down to a hundredth of it
        x = project(region, x - _step(region, gradient, 0.5 * 0.02 ** (step / max(1, steps))))
    return best


def project(region: Region, x: Tensor) -> Tensor:
    """The nearest points of the region, surely inside it: the ball first, then the box, which only
    shortens x - c."""
    if not region.is_box:
        x = region.center + _into_ball(region, x - region.center)
    inner = region.inner()
    return torch.minimum(torch.maximum(x, inner.lower), inner.upper)


def _into_ball(region: Region, offset: Tensor) -> Tensor:
    flat = offset.flatten(2)
    radius = _inner_radius(region).unsqueeze(-1)
    if region.norm == "l1":
        flat = _into_simplex(flat.abs(), radius) * flat.sign()
    length = _length(region.norm, flat)
    return (flat * (radius / length.clamp_min(1e-300)).clamp_max(1)).reshape(offset.shape)


def _inner_radius(region: Region) -> Tensor:
    """Of balls [B] whose points stay inside the region's when they are rounded, once as offsets,
    once at the centre."""
    largest = (
        region.center.abs() + region.eps.reshape(-1, *[1] * (region.center.dim() - 1))
    ).flatten(1)
    rounding = 4 * UNIT * _length(region.norm, largest).squeeze(-1)
    return (region.eps * SHRINK - rounding).clamp_min(0)


def _into_simplex(magnitudes: Tensor, radius: Tensor) -> Tensor:
    """Soft thresholding max(v - θ, 0) with the θ that brings Σ v down to the radius."""
    ordered = magnitudes.sort(-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, dtype=torch.float64, device=ordered.device)
    thresholds = (ordered.cumsum(-1) - radius) / count
    kept = (ordered > thresholds).sum(-1, keepdim=True).clamp_min(1)
    theta = thresholds.gather(-1, kept - 1).clamp_min(0)
    return (magnitudes - theta).clamp_min(0)


def _random_start(region: Region, seed: int) -> Tensor:
    """One random point per region.

    The noise is the same for every input, so that batches do not matter.
    """
    noise = torch.from_numpy(np.random.default_rng(seed).uniform(-1, 1, region.center.shape[1:]))
    radius = (region.box.upper - region.box.lower) / 2
    return project(region, (region.center + radius * noise.to(radius)).unsqueeze(0))[0]


def _margins_and_gradient(
    problem: Problem, parameters: Parameters, x: Tensor, rows: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The smallest row [S, B] at x, and the gradient of the followed row."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        dtype = next(part.dtype for own in parameters for part in own)
        outputs = problem.network.run(parameters, x.to(dtype))
        margins = problem.specification.margins(outputs.double())
        smallest = margins.amin(-1)
        followed = smallest if rows is None else margins.gather(-1, rows.unsqueeze(-1))
        (gradient,) = torch.autograd.grad(followed.sum(), x)
    return smallest.detach(), gradient


def _step(region: Region, gradient: Tensor, rate: float) -> Tensor:
    """A step of length `rate` times the radius.

    Signs for the l∞ ball, the normalised gradient for l2, its largest entries for l1.
    """
    if region.is_box:
        return rate * (region.box.upper - region.box.lower) / 2 * gradient.sign()
    flat = gradient.flatten(2)
    if region.norm == "l1":
        flat = torch.where(
            flat.abs() >= flat.abs().quantile(0.95, -1, keepdim=True), flat.sign(), 0.0
        )
    length = _length(region.norm, flat)
    return (rate * region.eps.unsqueeze(-1) * flat / length.clamp_min(1e-300)).reshape(
        gradient.shape
    )


def _length(norm: str, vectors: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(
        vectors, 1 if norm == "l1" else 2, dim=-1, keepdim=True
    )
    return length


def _better(best: Attack, x: Tensor, margins: Tensor) -> Attack:
    found = margins < best.margins
    wide = found.reshape(*found.shape, *[1] * (x.dim() - 2))
    return Attack(torch.where(wide, x, best.points), torch.where(found, margins, best.margins))

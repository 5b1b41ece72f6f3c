"""Attacks: projected gradient descent for inputs that break given networks. What they find is never a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bnncert.problem import Problem
from bnncert.specification import Region

SHRINK = 1 - 2.0**-40  # of a ball's radius: a point that rounds to the surface stays inside


@dataclass(frozen=True, eq=False)
class Attack:
    """The worst inputs found: points [S, B, *shape] and the smallest row there [S, B]; a row <= 0 is a violation."""

    points: Tensor
    margins: Tensor


def pgd(problem: Problem, weights: Tensor, steps: int = 40, restarts: int = 2, seed: int = 0) -> Attack:
    """Minimise the smallest row of each network weights[s] over each region, from the clean input and random starts."""
    region = problem.specification.region
    shape = (len(weights), *region.center.shape)
    best = Attack(region.center.expand(shape), torch.full(shape[:2], torch.inf, dtype=torch.float64))
    best = Attack(best.points, best.margins.to(weights.device))
    for restart in range(restarts):
        x = _start(region, restart, seed).expand(shape)
        for step in range(steps + 1):
            margins, gradient = _margins_and_gradient(problem, weights, x)
            best = _better(best, x, margins)
            # geometric from half the radius down to a hundredth of it
            x = project(region, x - _step(region, gradient, 0.5 * 0.02 ** (step / max(1, steps))))
    return best


def project(region: Region, x: Tensor) -> Tensor:
    """The nearest points of the region, surely inside it: the ball first, then the box, which only shortens x - c."""
    if region.norm != "linf":
        x = region.center + _into_ball(region, x - region.center)
    inner = region.inner()
    return torch.minimum(torch.maximum(x, inner.lower), inner.upper)


def _into_ball(region: Region, offset: Tensor) -> Tensor:
    flat = offset.flatten(2)
    radius = (region.eps * SHRINK).unsqueeze(-1)
    if region.norm == "l1":
        flat = _into_simplex(flat.abs(), radius) * flat.sign()
    length = _length(region.norm, flat)
    return (flat * (radius / length.clamp_min(1e-300)).clamp_max(1)).reshape(offset.shape)


def _into_simplex(magnitudes: Tensor, radius: Tensor) -> Tensor:
    """Soft thresholding max(v - θ, 0) with the θ that brings Σ v down to the radius."""
    ordered = magnitudes.sort(-1, descending=True).values
    count = torch.arange(1, ordered.shape[-1] + 1, dtype=torch.float64, device=ordered.device)
    thresholds = (ordered.cumsum(-1) - radius) / count
    kept = (ordered > thresholds).sum(-1, keepdim=True).clamp_min(1)
    theta = thresholds.gather(-1, kept - 1).clamp_min(0)
    return (magnitudes - theta).clamp_min(0)


def _start(region: Region, restart: int, seed: int) -> Tensor:
    """The clean inputs, then random ones; the noise is the same for every input, so batches do not matter."""
    if restart == 0:
        return region.center
    noise = np.random.default_rng([seed, restart]).uniform(-1, 1, region.center.shape[1:])
    radius = (region.box.upper - region.box.lower) / 2
    return project(region, (region.center + radius * torch.from_numpy(noise).to(radius)).unsqueeze(0))[0]


def _margins_and_gradient(problem: Problem, weights: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        margins = problem.specification.margins(problem.network.forward(weights, x)).amin(-1)
        (gradient,) = torch.autograd.grad(margins.sum(), x)
    return margins.detach(), gradient


def _step(region: Region, gradient: Tensor, rate: float) -> Tensor:
    """Signs for the l∞ ball, the normalised gradient for l2, its largest entries for l1; `rate` of the radius long."""
    if region.norm == "linf":
        return rate * (region.box.upper - region.box.lower) / 2 * gradient.sign()
    flat = gradient.flatten(2)
    if region.norm == "l1":
        flat = torch.where(flat.abs() >= flat.abs().quantile(0.95, -1, keepdim=True), flat.sign(), 0.0)
    length = _length(region.norm, flat)
    return (rate * region.eps.unsqueeze(-1) * flat / length.clamp_min(1e-300)).reshape(gradient.shape)


def _length(norm: str, vectors: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vectors, 1 if norm == "l1" else 2, dim=-1, keepdim=True)
    return length


def _better(best: Attack, x: Tensor, margins: Tensor) -> Attack:
    found = margins < best.margins
    wide = found.reshape(*found.shape, *[1] * (x.dim() - 2))
    return Attack(torch.where(wide, x, best.points), torch.where(found, margins, best.margins))

"""Certified upper bounds by laws: P_safe <= P(row r > 0 at x*), by the negated row at a point.

Points are sought where the row's mean, in units of its standard deviation, is least; nothing rests
on how they were found.
"""

from __future__ import annotations

import math

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from bnncert.attack import project
from bnncert.evidence.concentration import Refutation
from bnncert.laws.head import Head, head
from bnncert.laws.proof import prove_laws
from bnncert.model.activations import Activation, ReLU
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification, ball
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.independent import Normal

STEPS = 20
NODES = 32  # of a quadrature
ROWS = 3  # the nearest to failing, each of which is followed
WORTH = 1e-3  # of a chance to fail that is worth a bound
NOISY = 0.1  # standard deviations of a row, in units of what the mean network loses on the region


def moments(activation: Activation, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """E f(z) and E f(z)² of Gaussians [..., n]: in closed form for ReLUs, else by quadrature."""
    if isinstance(activation, ReLU):
        q = mean / std
        density = (-q * q / 2).exp() / math.sqrt(2 * math.pi)
        on = torch.special.ndtr(q)
        return mean * on + std * density, (mean**2 + std**2) * on + mean * std * density
    places, weights = (torch.from_numpy(part).to(mean) for part in hermegauss(NODES))
    weights = weights / weights.sum()
    values = activation(mean.unsqueeze(-2) + std.unsqueeze(-2) * places.unsqueeze(-1))
    return weights @ values, weights @ values**2


def standing(net: Head, x: Tensor, rows: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of the rows [R] at flat points x [..., J]."""
    mean = x @ net.weight + net.bias
    std = (x**2 @ net.weight_std**2 + net.bias_std**2).sqrt().clamp_min(1e-150)
    first, second = moments(net.activation, mean, std)
    v, s = rows @ net.out.mT, rows**2 @ (net.out_std**2).mT
    variance = second @ (v**2 + s).mT - first**2 @ (v**2).mT + rows**2 @ net.shift_std**2
    return first @ v.mT + rows @ net.shift + offsets, variance.clamp_min(0).sqrt()


def worthwhile(problem: Problem, posterior: Normal) -> list[bool]:
    """For which inputs noise decides: where a row's deviation is no small share of its loss."""
    net, spec = head(problem.network, posterior), problem.specification
    box = spec.region.box
    found = []
    for i in range(len(problem)):
        lower, upper = box.lower[i].flatten(), box.upper[i].flatten()
        center = (lower + upper) / 2
        rows = spec.rows[i]
        mean, std = standing(net, center, rows, spec.offsets[i])
        on = _slope(net.activation, center @ net.weight + net.bias)
        slope = (rows @ net.out.mT * on) @ net.weight.mT
        loss = slope.abs() @ (upper - lower) / 2
        least = (mean / std.clamp_min(1e-300)).amin()
        found.append(bool((std >= NOISY * loss).all() and least > -3))
    return found


def _slope(activation: Activation, z: Tensor) -> Tensor:
    """f'(z) [n], at kinks from the left."""
    with torch.enable_grad():
        at = z.detach().nextafter(torch.full_like(z, -math.inf)).requires_grad_()
        (slope,) = torch.autograd.grad(activation(at).sum(), at)
    found: Tensor = slope
    return found


def refute_by_laws(problem: Problem, posterior: Normal) -> list[Refutation | None]:
    """For every input an upper bound at the worst point found; None where no row fails there."""
    net = head(problem.network, posterior)
    found: list[Refutation | None] = []
    for i in range(len(problem)):
        spec = problem[i : i + 1].specification
        point, row, chance = _worst(net, spec)
        found.append(_at(problem, posterior, spec, point, row) if chance > WORTH else None)
    return found


def _at(
    problem: Problem, posterior: Normal, spec: Specification, point: Tensor, row: int
) -> Refutation | None:
    negated = Specification(
        ball(point, 0), -spec.rows[:, row : row + 1], -spec.offsets[:, row : row + 1]
    )
    (law,) = prove_laws(Problem(problem.network, posterior, negated), posterior)
    upper = min(1.0, (1 - law.bound) * (1 + 4 * UNIT))
    return Refutation(upper, point[0].cpu(), row, law) if upper < 1 else None


def _worst(net: Head, spec: Specification) -> tuple[Tensor, int, float]:
    """A point [1, *shape] of the region, the row that is nearest to failing there, and about the
    chance that it does."""
    rows, offsets = spec.rows[0], spec.offsets[0]
    center = spec.region.center
    mean, std = standing(net, center.flatten(), rows, offsets)
    best = (math.inf, center, 0)
    for row in (mean / std.clamp_min(1e-300)).argsort()[:ROWS].tolist():
        best = min(
            best,
            _descended(net, spec.region, rows[row : row + 1], offsets[row : row + 1], row),
            key=lambda one: one[0],
        )
    return best[1], best[2], float(torch.special.ndtr(torch.tensor(-best[0])))


def _descended(
    net: Head, region: Region, row: Tensor, offset: Tensor, number: int
) -> tuple[float, Tensor, int]:
    """By steps along the gradient's sign, which shrink; the best of all points on the way."""
    x = region.center
    best = (math.inf, x, number)
    radius = region.box.upper - region.box.lower
    for step in range(STEPS + 1):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            mean, std = standing(net, at.flatten(), row, offset)
            ratio = (mean / std.clamp_min(1e-300)).sum()
            (slope,) = torch.autograd.grad(ratio, at)
        found = float(ratio.detach())
        if found < best[0]:
            best = found, x, number
        if not float(region.eps[0]):
            break
        x = project(region, (x - radius * 0.5 ** (1 + step / 4) * slope.sign()).unsqueeze(0))[0]
    return best

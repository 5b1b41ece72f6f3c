"""Certified upper bounds by laws: P_safe <= P(row r > 0 at x*), by the negated row at a point;
of opposite rows, as the two ends of an interval, both failures count.

Points are sought where a row, taken as Gaussian, fails most; nothing rests on how they were found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from bnncert.attack import project
from bnncert.evidence.concentration import Opposite, Refutation
from bnncert.evidence.laws import Law
from bnncert.laws.head import Head, head, read_at
from bnncert.laws.proof import prove_laws
from bnncert.laws.replies import can_reply, refute_by_reply
from bnncert.model.activations import Activation, ReLU
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball, opposite
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.independent import Normal

Read: TypeAlias = Callable[[Tensor], Tensor]  # what the hidden layer reads at points

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
    """Mean and standard deviation of the rows [R] where the hidden layer reads x [..., J]."""
    mean = x @ net.weight + net.bias
    std = (x**2 @ net.weight_std**2 + net.bias_std**2).sqrt().clamp_min(1e-150)
    first, second = moments(net.activation, mean, std)
    v, s = rows @ net.out.mT, rows**2 @ (net.out_std**2).mT
    variance = second @ (v**2 + s).mT - first**2 @ (v**2).mT + rows**2 @ net.shift_std**2
    return first @ v.mT + rows @ net.shift + offsets, variance.clamp_min(0).sqrt()


def worthwhile(problem: Problem, posterior: Normal, box: Box) -> list[bool]:
    """For which inputs noise decides: where a row's deviation is no small share of its loss.

    box: about what the hidden layer reads. No bound rests on it: where others have walked the
    layers before, theirs will do.
    """
    net, spec = head(problem.network, posterior), problem.specification
    found = []
    for i in range(len(problem)):
        lower, upper = box.lower[i], box.upper[i]
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
        worst = _worst(net, partial(read_at, problem.network, posterior), spec)
        refutation = _at(problem, posterior, spec, worst) if worst.chance > WORTH else None
        found.append(_better(refutation, problem, posterior, spec))
    return found


def _better(
    found: Refutation | None, problem: Problem, posterior: Normal, spec: Specification
) -> Refutation | None:
    """That, or what a reply to the weights gives where all inputs' corners are in the region."""
    if not can_reply(problem, spec):
        return found
    reply = refute_by_reply(problem.network, posterior, spec, ROWS)
    return min((one for one in (found, reply) if one), key=lambda one: one.upper, default=None)


@dataclass(frozen=True, eq=False)
class _Worst:
    """A point [1, *shape], a row and perhaps its opposite, and about the chance that one of them
    fails there."""

    chance: float
    point: Tensor
    rows: list[int]


def _at(
    problem: Problem, posterior: Normal, spec: Specification, worst: _Worst
) -> Refutation | None:
    row, *others = worst.rows
    law = _failing(problem, posterior, spec, worst.point, row)
    least, against = law.bound, None
    for other in others:
        second = _failing(problem, posterior, spec, worst.point, other)
        if second.bound > 0:
            least, against = least + second.bound, Opposite(other, second)
    upper = min(1.0, max(0.0, 1 - least + 8 * UNIT))
    return Refutation(upper, worst.point[0].cpu(), row, law, against) if upper < 1 else None


def _failing(
    problem: Problem, posterior: Normal, spec: Specification, point: Tensor, row: int
) -> Law:
    """The law of a negated row at a point."""
    negated = Specification(
        ball(point, 0), -spec.rows[:, row : row + 1], -spec.offsets[:, row : row + 1]
    )
    (law,) = prove_laws(Problem(problem.network, posterior, negated), posterior)
    return law


def _worst(net: Head, read: Read, spec: Specification) -> _Worst:
    """Of the rows that are nearest to failing at the centre, each with its opposite."""
    rows, offsets = spec.rows[0], spec.offsets[0]
    mean, std = standing(net, read(spec.region.center)[0], rows, offsets)
    found = []
    for row in (mean / std.clamp_min(1e-300)).argsort()[:ROWS].tolist():
        other = opposite(rows, offsets, row)
        found.append(_descended(net, read, spec, [row] if other is None else [row, other]))
    return max(found, key=lambda one: one.chance)


def _descended(net: Head, read: Read, spec: Specification, chosen: list[int]) -> _Worst:
    """By steps against the sign of the gradient of the first row's mean, in units of its deviation,
    that shrink; of all points on the way the one where all rows together fail most."""
    rows, offsets, region = spec.rows[0][chosen], spec.offsets[0][chosen], spec.region
    x = region.center
    best = -math.inf, x
    radius = region.box.upper - region.box.lower
    for step in range(STEPS + 1):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            mean, std = standing(net, read(at)[0], rows, offsets)
            ratio = mean / std.clamp_min(1e-300)
            (slope,) = torch.autograd.grad(ratio[0], at)
        chance = float(torch.special.log_ndtr(-ratio.detach()).logsumexp(0))
        if chance > best[0]:
            best = chance, x
        if not float(region.eps[0]):
            break
        x = project(region, (x - radius * 0.5 ** (1 + step / 4) * slope.sign()).unsqueeze(0))[0]
    return _Worst(math.exp(min(best[0], 0.0)), best[1], chosen)

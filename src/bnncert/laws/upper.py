"""Certified upper bounds by laws: P_safe <= P(row r > 0 at x*), by the negated row at a point;
of opposite rows, as the two ends of an interval, both failures count.

Points are sought where a row, taken as Gaussian, fails most; nothing rests on how they were found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeAlias

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from bnncert.attack import project
from bnncert.evidence.concentration import Opposite, Refutation
from bnncert.evidence.laws import Law
from bnncert.laws.anchored import fall
from bnncert.laws.head import Head, has_trunk, head, in_scale, read_at
from bnncert.laws.proof import prove_laws
from bnncert.laws.replies import can_reply, refute_by_reply
from bnncert.model.activations import Activation, ReLU
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification, ball, opposite
from bnncert.numerics.batching import in_batches
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.independent import Normal

Read: TypeAlias = Callable[[Tensor], Tensor]  # what the hidden layer reads at points

STEPS = tuple(0.5 ** (1 + k / 4) for k in range(20))  # of a search for a point
NODES = 32  # of a quadrature
ROWS = 3  # the nearest to failing, each of which is followed
WORTH = 1e-3  # of a chance to fail that is worth a bound
# Standard deviations of a row, and its mean, in units of what the mean network loses on the region.
NOISY, FAINT, AMPLE = 0.1, 0.03, 1.5


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
    """Mean and standard deviation of the rows [B, R] where the hidden layer reads x [B, J]."""
    mean = x @ net.weight + net.bias
    std = (x**2 @ net.weight_std**2 + net.bias_std**2).sqrt().clamp_min(1e-150)
    first, second = moments(net.activation, mean, std)
    v, s = rows @ net.out.mT, rows**2 @ (net.out_std**2).mT
    variance = dot(v**2 + s, second) - dot(v**2, first**2) + rows**2 @ net.shift_std**2
    return dot(v, first) + rows @ net.shift + offsets, variance.clamp_min(0).sqrt()


def worthwhile(problem: Problem, posterior: Normal, box: Box) -> list[bool]:
    """For which inputs noise decides: where a row's deviation is no small share of its loss, or is
    some and the mean network withstands half as much again.

    box: about what the hidden layer reads. No bound rests on it: where others have walked the
    layers before, theirs will do.
    """
    net, spec = head(problem.network, posterior), problem.specification

    def decided(part: slice) -> list[bool]:
        return _noisy(net, spec.rows[part], spec.offsets[part], box[part])

    each = 8 * 4 * spec.rows.shape[1] * sum(net.weight.shape)
    return list(chain.from_iterable(in_batches(decided, len(problem), each, spec.rows.device)))


def _noisy(net: Head, rows: Tensor, offsets: Tensor, box: Box) -> list[bool]:
    center = (box.lower + box.upper) / 2
    mean, std = standing(net, center, rows, offsets)
    on = _slope(net.activation, center @ net.weight + net.bias)
    slope = (rows @ net.out.mT * on.unsqueeze(1)) @ net.weight.mT
    loss = dot(slope.abs(), (box.upper - box.lower) / 2)
    least = (mean / std.clamp_min(1e-300)).amin(-1)
    noisy = (std >= NOISY * loss) | (std >= FAINT * loss) & (mean >= AMPLE * loss)
    found: list[bool] = (noisy.all(-1) & (least > -3)).tolist()
    return found


def _slope(activation: Activation, z: Tensor) -> Tensor:
    """f'(z) [n], at kinks from the left."""
    with torch.enable_grad():
        at = z.detach().nextafter(torch.full_like(z, -math.inf)).requires_grad_()
        (slope,) = torch.autograd.grad(activation(at).sum(), at)
    found: Tensor = slope
    return found


def worst_points(problem: Problem, posterior: Normal) -> dict[int, Worst]:
    """Of the inputs of which a row seems to fail at some point, where it does so most."""
    net = head(problem.network, posterior)
    read, spec = partial(read_at, problem.network, posterior), problem.specification
    each = 8 * 8 * ROWS * sum(math.prod(shape) for shape in problem.network.shapes)
    parts = in_batches(
        lambda part: _worst(net, read, spec[part]), len(problem), each, spec.rows.device
    )
    found = enumerate(chain.from_iterable(parts))
    return {i: one for i, one in found if one.chance > WORTH}


def refute_by_replies(problem: Problem, posterior: Normal) -> list[Refutation | None]:
    """By a reply to the weights, where all inputs' corners are in the region."""
    each = (problem[i : i + 1] for i in range(len(problem)))
    return [
        refute_by_reply(own.network, posterior, own.specification, ROWS)
        if can_reply(own, own.specification)
        else None
        for own in each
    ]


def refute_by_laws(
    problem: Problem,
    posterior: Normal,
    worst: dict[int, Worst],
    known: dict[int, Refutation | None],
) -> list[Refutation | None]:
    """For every input an upper bound at the worst point found, unless something is known there, or
    at two points; None where no row fails."""
    left = {i: one for i, one in worst.items() if i not in known}
    first = _failing(problem, posterior, {i: (one, one.row) for i, one in left.items()})
    others = {i: (one, one.other) for i, one in left.items() if one.other is not None}
    second = _failing(problem, posterior, others)
    at_one = {i: _refutation(one, first[i], second.get(i)) for i, one in left.items()}
    found: list[Refutation | None] = []
    for i in range(len(problem)):
        each = [(known | at_one).get(i)]
        if i in worst:
            each.append(_apart(problem[i : i + 1], posterior, worst[i]))
        refutations = [one for one in each if one is not None]
        found.append(min(refutations, key=lambda one: one.upper, default=None))
    return found


@dataclass(frozen=True, eq=False)
class Worst:
    """A point [*shape], a row and perhaps its opposite, and about the chance that one of them fails
    there."""

    chance: float
    point: Tensor
    row: int
    other: int | None


def _refutation(worst: Worst, law: Law, second: Law | None) -> Refutation | None:
    least, against = law.bound, None
    if second is not None and second.bound > 0 and worst.other is not None:
        least, against = least + second.bound, Opposite(worst.other, second)
    upper = min(1.0, max(0.0, 1 - least + 8 * UNIT))
    return Refutation(upper, worst.point.cpu(), worst.row, law, against) if upper < 1 else None


def _apart(problem: Problem, posterior: Normal, worst: Worst) -> Refutation | None:
    """Of a row and its opposite, each where it alone fails most: what both fail together counts
    once, which is the law of a fall where one coordinate differs."""
    if worst.other is None or has_trunk(problem.network):
        return None
    net, row, other = head(problem.network, posterior), worst.row, worst.other
    read, spec = partial(read_at, problem.network, posterior), problem.specification
    (first,), (second,) = (_descended(net, read, spec, [(0, one, None)])[1] for one in (row, other))
    ends = second.flatten(), first.flatten()
    normal = spec.rows[0, row : row + 1]
    apart = spec.offsets[0, [row, other]].sum()
    box = torch.minimum(*ends)[None], torch.maximum(*ends)[None]
    alone = int((box[0] < box[1]).sum()) == 1
    if not alone or not bool(in_scale(net, *box, normal[None], apart.reshape(1, 1))):
        return None
    both = fall(net, *ends, normal, float(apart))
    law, against = (
        _failing(problem, posterior, {0: (replace(worst, point=point), number)})[0]
        for point, number in ((first, row), (second, other))
    )
    least = law.bound + against.bound - both.most
    upper = min(1.0, max(0.0, 1 - least + 8 * UNIT))
    opposing = Opposite(other, against, second.cpu(), both)
    return Refutation(upper, first.cpu(), row, law, opposing) if upper < 1 else None


def _failing(
    problem: Problem, posterior: Normal, at: dict[int, tuple[Worst, int]]
) -> dict[int, Law]:
    """Of some inputs the laws of negated rows at points."""
    if not at:
        return {}
    spec = problem.specification
    points = torch.stack([worst.point for worst, _ in at.values()])
    where = list(at), [row for _, row in at.values()]
    negated = Specification(
        ball(points, 0), -spec.rows[where].unsqueeze(1), -spec.offsets[where].unsqueeze(1)
    )
    laws = prove_laws(Problem(problem.network, posterior, negated), posterior)
    return dict(zip(at, laws, strict=True))


def _worst(net: Head, read: Read, spec: Specification) -> list[Worst]:
    """Of the rows that are nearest to failing at the centre, each with its opposite."""
    rows, offsets = spec.rows, spec.offsets
    mean, std = standing(net, read(spec.region.center), rows, offsets)
    nearest = (mean / std.clamp_min(1e-300)).argsort(-1)[:, :ROWS]
    place = torch.arange(len(spec), device=rows.device).repeat_interleave(nearest.shape[1])
    own, far = rows.cpu(), offsets.cpu()
    pairs = [
        (i, row, opposite(own[i], far[i], row))
        for i, each in enumerate(nearest.tolist())
        for row in each
    ]
    chances, points = _descended(net, read, spec[place], pairs)
    best: dict[int, Worst] = {}
    for (i, row, other), chance, point in zip(pairs, chances, points, strict=True):
        if i not in best or chance > best[i].chance:
            best[i] = Worst(chance, point, row, other)
    return list(best.values())


def _descended(
    net: Head, read: Read, spec: Specification, pairs: list[tuple[int, int, int | None]]
) -> tuple[list[float], Tensor]:
    """Against a row's mean, in units of its deviation; of all points on the way the one where it
    and its opposite together fail most."""
    device = spec.rows.device
    both = [(row, row if other is None else other) for _, row, other in pairs]
    where = torch.arange(len(spec), device=device)[:, None], torch.tensor(both, device=device)
    counted = torch.tensor([(True, other is not None) for *_, other in pairs], device=device)
    rows, offsets = spec.rows[where], spec.offsets[where]

    def failing(x: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = standing(net, read(x), rows, offsets)
        ratio = mean / std.clamp_min(1e-300)
        chance = torch.where(counted, torch.special.log_ndtr(-ratio.detach()), -math.inf)
        return -ratio[:, 0], chance.logsumexp(-1)

    most, best = climbed(spec.region, failing, STEPS)
    return most.clamp_max(0).exp().tolist(), best


def climbed(
    region: Region, rising: Callable[[Tensor], tuple[Tensor, Tensor]], steps: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """From the centre by steps, in widths of the region, along the sign of what rises; the largest
    score [B] on the way, and where.

    rising: at points [B, *shape] what is climbed and the score, each [B].
    """
    x = best = region.center
    most = torch.full_like(region.eps, -math.inf)
    width = region.box.upper - region.box.lower
    for step in (*steps, 0.0) if bool(region.eps.any()) else (0.0,):
        with torch.enable_grad():
            at = x.detach().requires_grad_()
            climb, score = rising(at)
            (slope,) = torch.autograd.grad(climb.sum(), at)
        better = score.detach() > most
        most = torch.where(better, score.detach(), most)
        best = torch.where(better.reshape(-1, *[1] * (x.dim() - 1)), x, best)
        x = project(region, (x + width * step * slope.sign()).unsqueeze(0))[0]
    return most, best

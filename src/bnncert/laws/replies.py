"""The adversary's choices for `laws.reply`: row, point, weights, the noise's shares; and the bound.

Inputs whose weights say much about z stand still, at their corner: replied to are those that gain
more by the signs of G than q costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.evidence.concentration import Refutation
from bnncert.evidence.laws import ReplyLaw
from bnncert.laws.cells import OUTSIDE, base_edges, cells, with_edge, with_edges
from bnncert.laws.corners import SQUARE, Corners, Grid, grid, references
from bnncert.laws.head import LEAST, Head, Margins, has_trunk, head, in_scale, margins_about
from bnncert.laws.lattice import CELLS, Atoms, atoms
from bnncert.laws.references import corner_masses
from bnncert.laws.remainder import Remainders, remainders
from bnncert.laws.reply import FAINT, answer, corners, in_signs, slopes
from bnncert.laws.rows import SPARE, Terms, failures
from bnncert.model.activations import ReLU
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification
from bnncert.numerics.rounding import UNIT, round_down, round_up
from bnncert.numerics.tails import expected_magnitude, normal_tail
from bnncert.posteriors.independent import Normal

COUNTS = (48, 4, 12, 4)  # cells of z but for those near 0, their parts, cells of v and theirs
SIZE, WIDE = 2**15, 9.0
NEAR = (0.0, 0.3, 0.6, 1.2)  # edges of z about 0, in units of t a
THRESHOLD = 5.0  # t
PASSES = 2  # of weights, which are the means of x, and slopes
TRIED = (1, 2, 3)  # chances of the remainder, among those there are
WORTH = 6.0  # times q's cost that a reply must gain
FAINTLY = 0.01  # and of b_j


def can_reply(problem: Problem, spec: Specification) -> bool:
    """Whether an adversary moves what the hidden layer of ReLUs reads, every input by itself."""
    kinds = [type(layer) for layer in problem.network.layers]
    region = spec.region
    moves = bool((region.box.upper > region.box.lower).any())
    return moves and region.is_box and ReLU in kinds and not has_trunk(problem.network)


def refute_by_reply(
    network: Network, posterior: Normal, spec: Specification, most: int
) -> Refutation | None:
    """By the row that fails most, taken as Gaussian, of so many that are nearest to failing."""
    net = head(network, posterior)
    if not isinstance(net.activation, ReLU):
        return None
    lower, upper = inside(spec.region)
    best: Asked | None = None
    for row in _nearest(net, spec, most):
        asked = _asked(net, lower, upper, spec, row)
        best = asked if best is None or asked.chance > best.chance else best
    if best is None or not len(best.rows.radius):
        return None
    law = prove_reply(best)
    bound = min(1.0, 1 - law.bound + 8 * UNIT)
    return Refutation(bound, None, best.row, law) if bound < 1 else None


def inside(region: Region) -> tuple[Tensor, Tensor]:
    """Ends [J] of a box that lies in the region: that of a ball is rounded inward."""
    if region.norm == "box":
        return region.box.lower[0].flatten(), region.box.upper[0].flatten()
    center, eps = region.center[0].flatten(), region.eps[0]
    lower, upper = round_up(center - eps), round_down(center + eps)
    if region.clip is not None:
        lower, upper = lower.clamp_min(region.clip[0]), upper.clamp_max(region.clip[1])
    return torch.minimum(lower, center), torch.maximum(upper, center)


def _nearest(net: Head, spec: Specification, most: int) -> list[int]:
    """Rows by their mean at the centre, in units of their deviation."""
    center = spec.region.center[0].flatten()
    own = margins_about(net, center, 0 * center, spec.rows[0], spec.offsets[0])
    mean, std = _standing(own)
    order: list[int] = (mean / std.clamp_min(1e-300)).argsort()[:most].tolist()
    return order


def _standing(own: Margins) -> tuple[Tensor, Tensor]:
    q = own.mean / own.std.clamp_min(1e-150)
    on, bell = normal_tail(-q), (-q * q / 2).exp() / math.sqrt(2 * math.pi)
    first = own.mean * on + own.std * bell
    second = (own.mean**2 + own.std**2) * on + own.mean * own.std * bell
    variance = (own.v**2 + own.s**2) @ second - own.v**2 @ first**2 + own.beta_std**2
    return own.v @ first + own.beta, variance.clamp_min(0).sqrt()


@dataclass(frozen=True, eq=False)
class Asked:
    """A row, negated, about a point that is chosen; and about the chance that it fails."""

    row: int
    point: Tensor
    rows: Margins
    weights: Tensor
    chance: float
    scaled: bool


def _asked(net: Head, lower: Tensor, upper: Tensor, spec: Specification, row: int) -> Asked:
    rows, offsets = -spec.rows[0][row : row + 1], -spec.offsets[0][row : row + 1]
    center = ((lower + upper) / 2).clamp(lower, upper)
    radius = room(center, lower, upper)
    whole = margins_about(net, center, radius, rows, offsets)
    x = whole.v[0] * normal_tail(-whole.mean / whole.std.clamp_min(1e-150))
    weights = _heard(x)
    mean, b = whole.weight @ weights, (whole.variance @ weights**2).sqrt()
    gained = expected_magnitude(mean, b.clamp_min(1e-200)) - mean.abs()
    still = gained <= WORTH * (whole.kappa.abs() @ (weights.abs() * whole.std)) + FAINTLY * b
    point = center.clone()
    moving = radius > 0
    ends = torch.where(mean > 0, upper[moving], lower[moving])
    point[moving] = torch.where(still, ends, center[moving])
    radius = room(point, lower, upper)
    own = margins_about(net, point, radius, rows, offsets)
    first, std = _standing(own)
    shift = float(answer(own, weights).shift @ x)
    chance = float(normal_tail(-(first + shift) / std.clamp_min(1e-300))[0])
    numbers = (point - radius, point + radius, rows, offsets)
    scaled = bool(in_scale(net, *(x[None] for x in numbers)))
    return Asked(row, point, own, weights, chance, scaled)


def _heard(weights: Tensor) -> Tensor:
    """As they are beside the largest, for only the sign of what they make of W counts; and 0 where
    a square would be none."""
    scaled = weights / weights.abs().amax().clamp_min(LEAST)
    return torch.where(scaled.abs() < LEAST, 0.0, scaled)


def room(point: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """r: how far every input may move to either side, rounded down."""
    room = torch.minimum(round_down(upper - point), round_down(point - lower))
    return room.clamp_min(0)


def prove_reply(asked: Asked) -> ReplyLaw:
    """P(negated row > 0) at least."""
    rows, weights = asked.rows, asked.weights
    at = _grid(rows)
    mass = corner_masses(at)
    for _ in range(PASSES):
        found = answer(rows, weights)
        ends, _ = corners(rows, at, found, slopes(rows, at, found, THRESHOLD))
        weights = _heard((mass * ends.a).sum((0, 2, 3, 4, 5)))
    found = answer(rows, weights)
    ends, faint = corners(rows, at, found, slopes(rows, at, found, THRESHOLD))
    signs = in_signs(rows, found)
    theta = (SQUARE / rows.radius).unsqueeze(0)
    options = remainders(signs, references(signs, theta, 0 * theta), at, ends)
    tried = [_with(rows, at, ends, faint, options, k, mass) for k in TRIED]
    best = min(tried, key=lambda one: one.failure)
    beyond = (4 * OUTSIDE + 2 * math.exp(-(THRESHOLD**2) / 2)) * len(rows.mean)
    failing = best.failure + beyond * (1 + SPARE) + (0.0 if asked.scaled else 1.0)
    return ReplyLaw(
        max(0.0, 1 - failing * (1 + SPARE)),
        COUNTS,
        SIZE,
        best.numbers,
        (THRESHOLD, best.share),
        best.remainder,
        weights.cpu(),
        asked.point.cpu(),
    )


def _grid(rows: Margins) -> Grid:
    first, second = (base_edges(count).to(rows.mean.device) for count in COUNTS[::2])
    steps = torch.tensor([sign * n for n in NEAR for sign in (1, -1)][1:]).to(rows.mean)
    near = THRESHOLD * rows.spread.sqrt().unsqueeze(-1) * steps - rows.mean.unsqueeze(-1)
    first = with_edges(first, (near / rows.std.unsqueeze(-1)).nan_to_num(math.inf))
    second = with_edge(second, (-rows.v / rows.s).nan_to_num(math.inf))
    return grid(rows, cells(first, COUNTS[1]), cells(second, COUNTS[3]))


def shares(share: float) -> tuple[float, float]:
    """Of Hölder's inequality: what multiplies the proxies of the noise and of signs."""
    rest = FAINT / (FAINT - 1)
    return (1 + share) * rest, (1 + 1 / share) * rest


@dataclass(frozen=True, eq=False)
class _Tried:
    """The row's failure by one chance of the remainder, and what gave it: the share, numbers
    [1, 6] and the remainder's own [1, 3]."""

    failure: float
    share: float
    numbers: Tensor
    remainder: Tensor


def _with(
    rows: Margins,
    at: Grid,
    ends: Corners,
    faint: Tensor,
    options: Remainders,
    k: int,
    mass: Tensor,
) -> _Tried:
    """By remainder k, with the share and rate that lose least."""
    most, chance = (float(x[0, k]) for x in (options.most, options.chance))
    noise = float((mass * ends.squared).sum())
    wide = atoms(ends.value[0], at, 0)
    inner = float((wide.mass * wide.squared).sum()) / CELLS
    # A rate beyond the lattice's gains nothing, and makes much of roundings.
    grain = float((wide.mass * wide.place**2).sum(-1).amax()) / SIZE**2
    share = min(max(math.sqrt(2 * most / max(noise, 1e-300)), 0.03), 30.0)
    first, second = shares(share)
    total = inner + first * noise / 2 + second * most + grain
    rate = 1 / math.sqrt(max(total, 1e-300))
    value = ends.value - rate / 2 * (first * ends.squared + FAINT * faint)
    own = atoms(value[0], at, 0)
    alone = Atoms(own.place[None], own.mass[None], own.squared[None], own.drop[None])
    rates = torch.full_like(rows.beta, rate)
    rest = 0 * rates, rows.beta, rows.beta_std  # no curb
    terms = Terms(alone, rates, *rest, SIZE, WIDE, floored=False)
    reach = torch.full_like(rates, rate * (1 + 2.0**-30) * second * most)
    found = failures(terms, reach.unsqueeze(-1))
    each = (options.share, options.scale, options.chance)
    remainder = torch.stack([x[0, k] for x in each]).unsqueeze(0)
    failure = float(found.failure) + chance * (1 + SPARE)
    return _Tried(min(failure, 1.0), share, found.numbers[0].cpu(), remainder.cpu())

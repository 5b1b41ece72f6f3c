"""Proofs where one input moves alone: a row at an anchor, and how far it falls on the way from
there.

With M(a + t) >= A + t S for t⁻ <= t <= t⁺, for any q >= 0

    P(M <= 0 for some t)  <=  P(A <= q) + P(t⁺ S <= -q) + P(t⁻ S <= -q),

each of which is the law of a sum over neurons. An end that the anchor is at is not charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.evidence.laws import AnchorLaw
from bnncert.laws.anchors import (
    Factors,
    Field,
    Track,
    at_anchor,
    beside,
    lines,
    moments,
    products,
    slopes,
    track,
)
from bnncert.laws.cells import OUTSIDE, base_edges, cells
from bnncert.laws.corners import grid_of
from bnncert.laws.head import Head
from bnncert.laws.lattice import Choice
from bnncert.laws.rows import SPARE, Terms, failures

MANY = 48  # neurons from which on cells are coarser
FINE, COARSE = (40, 2, 16, 4), (24, 1, 12, 3)  # cells of z and their parts, of v and theirs
ALONG = 12  # cells of ξ
SIZE, ROOM = 2**15, 2**21  # of the lattice; points of all neurons' lattices together
WIDE = 24.0  # its window, in standard deviations
PLACES = (0.0, 0.2, 0.5, 0.8, 1.0)  # of anchors along the side
# q, in standard deviations of A
SPARED = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3)


@dataclass(frozen=True, eq=False)
class _Anchored:
    """A row from an anchor, a coordinate: what multiplies v in A, t⁺ S and t⁻ S, the last two where
    they are no 0; q that are tried, and about the chance that the row fails."""

    anchor: Tensor
    way: Track
    at: Field
    slopes: Tensor
    factors: tuple[Factors, ...]
    spared: tuple[float, ...]
    chance: float


def prove_by_anchors(
    net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor
) -> AnchorLaw:
    """Of a box with one side."""
    count = len(net.bias)
    counts = COARSE if count >= MANY else FINE
    size = min(2 ** int(math.log2(ROOM / count)), SIZE)
    each = []
    for r in range(len(rows)):
        row, offset = rows[r : r + 1], offsets[r : r + 1]
        found = (_anchored(net, (lower, upper), p, row, offset, counts) for p in PLACES)
        each.append(min(found, key=lambda one: one.chance))
    proved = [_proved(one, size) for one in each]
    failing = math.fsum(own.failure for own in proved) + 6 * OUTSIDE * count * len(each)
    return AnchorLaw(
        max(0.0, 1 - failing * (1 + SPARE)),
        counts,
        size,
        torch.tensor([own.numbers for own in proved], dtype=torch.float64),
        ALONG,
        torch.stack([one.anchor for one in each]).cpu(),
        torch.tensor([own.spared for own in proved], dtype=torch.float64),
        torch.stack([one.slopes for one in each]).cpu(),
    )


def _anchored(
    net: Head,
    box: tuple[Tensor, Tensor],
    place: float,
    row: Tensor,
    offset: Tensor,
    counts: tuple[int, int, int, int],
) -> _Anchored:
    lower, upper = box
    anchor = torch.minimum(torch.maximum(lower + (upper - lower) * place, lower), upper)
    way = track(net, lower, upper, anchor, row, offset)
    kinks = net.activation.traits.kinks or (0.0,)
    own = grid_of(way.own, counts, kinks)
    along = cells(base_edges(ALONG).to(anchor.device), 1)
    at = Field(own.first, along, own.second)
    chosen = slopes(net.activation, way, at)
    found = lines(net.activation, way, at, chosen)
    ends = (beside(way, at, found, t) for t in way.ends if t)
    factors = (at_anchor(way, at, found), *ends)
    (mean, std), *falls = (moments(way, at, factor) for factor in factors)
    mean, std = mean + float(way.own.beta[0]), math.hypot(std, float(way.own.beta_std[0]))
    spared = tuple(share * std for share in SPARED)
    chance = min(_below(q, mean, std) + sum(_below(-q, *fall) for fall in falls) for q in spared)
    return _Anchored(anchor[upper > lower][0], way, at, chosen, factors, spared, chance)


def _below(x: float, mean: float, std: float) -> float:
    """P(N(mean, std²) <= x)"""
    if not std > 0:
        return float(mean <= x)
    return math.erfc((mean - x) / std / math.sqrt(2)) / 2


@dataclass(frozen=True)
class _Proved:
    """A row's failure, q, and what gave them at the anchor and to both ends."""

    failure: float
    spared: float
    numbers: list[tuple[float, ...]]


def _proved(one: _Anchored, size: int) -> _Proved:
    """With the q that is best."""
    beta, std = float(one.way.own.beta[0]), float(one.way.own.beta_std[0])
    found = []
    for k, factor in enumerate(one.factors):
        atoms = products(one.way, one.at, factor)
        terms = Terms(atoms, *((0.0, 0.0) if k else (beta, std)), size, WIDE, floored=True)
        found.append(failures(terms, [-q if k else q for q in one.spared]))
    totals = [math.fsum(failure for failure, _ in each) for each in zip(*found, strict=True)]
    best = min(range(len(totals)), key=totals.__getitem__)
    choices = iter(choice for _, choice in (each[best] for each in found))
    at_anchor = next(choices)
    ends = (next(choices) if t else at_anchor for t in one.way.ends)
    numbers = [_numbers(choice) for choice in (at_anchor, *ends)]
    return _Proved(totals[best], one.spared[best], numbers)


def _numbers(choice: Choice) -> tuple[float, ...]:
    own = choice
    return own.step, float(own.low), own.rate, own.curb, own.noise, own.tilt

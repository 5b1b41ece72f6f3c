"""Proofs where one input moves alone: a row at an anchor, and how far it falls on the way from
there.

With M(a + t) >= A + t S for t⁻ <= t <= t⁺, for any q >= 0

    P(M <= 0 for some t)  <=  P(A <= q) + P(t⁺ S <= -q) + P(t⁻ S <= -q),

each of which is the law of a sum over neurons. An end that the anchor is at is not charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad

from bnncert.evidence.laws import AnchorLaw, Fall
from bnncert.laws.anchors import (
    Factors,
    Field,
    Track,
    at_anchor,
    beside,
    fallen,
    levels,
    lines,
    moments,
    products,
    slopes,
    track,
)
from bnncert.laws.cells import OUTSIDE, base_edges, cells
from bnncert.laws.corners import grid_of
from bnncert.laws.head import LEAST, Head
from bnncert.laws.lattice import Atoms, best_rate
from bnncert.laws.rows import SPARE, Failures, Terms, failures

# Cells of z and their parts, of v and theirs, for at most so many neurons.
COUNTS = {24: (64, 2, 24, 4), 47: (40, 2, 16, 4)}
COARSE = (24, 1, 12, 3)  # and for more
ALONG = 16  # cells of ξ, at most
LINES = 2**17  # of cells of z and of ξ of all neurons: more are too many for a checker to hold
SIZE, ROOM = 2**15, 2**21  # of the lattice; points of all neurons' lattices together
WIDE = 24.0  # its window, in standard deviations
PLACES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)  # of anchors along the side
# q, in hundredths of the standard deviation of A
SPARED = (0, 1, 2, 4, 7, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 100, 130)


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
) -> AnchorLaw | None:
    """Of a box with one side; none if it is so near 0 that anchors' squares vanish."""
    anchors, count = _anchors(lower, upper), len(net.bias)
    if not anchors:
        return None
    counts = _counts(count)
    size = _size(count)
    each = []
    for r in range(len(rows)):
        row, offset = rows[r : r + 1], offsets[r : r + 1]
        found = (_anchored(net, (lower, upper), at, row, offset, counts) for at in anchors)
        each.append(min(found, key=lambda one: one.chance))
    proved = [_proved(one, size) for one in each]
    failing = math.fsum(own.failure for own in proved) + 6 * OUTSIDE * count * len(each)
    return AnchorLaw(
        1 - failing * (1 + SPARE),
        counts,
        size,
        torch.stack([own.numbers for own in proved]),
        _along(count),
        torch.stack([one.anchor for one in each]).cpu(),
        torch.tensor([own.spared for own in proved], dtype=torch.float64),
        torch.stack([one.slopes for one in each]).cpu(),
    )


def _anchors(lower: Tensor, upper: Tensor) -> list[Tensor]:
    """Along the side, where numbers have squares."""
    found = []
    for place in PLACES:
        at = torch.minimum(torch.maximum(lower + (upper - lower) * place, lower), upper)
        numbers = torch.stack([at, upper - at, at - lower])[:, upper > lower]
        if bool(((numbers == 0) | (numbers.abs() >= LEAST)).all()):
            found.append(at)
    return found


def _anchored(
    net: Head,
    box: tuple[Tensor, Tensor],
    anchor: Tensor,
    row: Tensor,
    offset: Tensor,
    counts: tuple[int, int, int, int],
) -> _Anchored:
    lower, upper = box
    way = track(net, lower, upper, anchor, row, offset)
    at = _field(net, way, counts)
    chosen = slopes(net.activation, way, at)
    found = lines(net.activation, way, at, chosen)
    ends = (beside(way, at, found, t) for t in way.ends if t)
    factors = (at_anchor(way, at, found), *ends)
    (mean, std), *falls = (moments(way, at, factor) for factor in factors)
    mean, std = mean + float(way.own.beta[0]), math.hypot(std, float(way.own.beta_std[0]))
    spared = tuple(share / 100 * std for share in SPARED)
    chance = min(_below(q, mean, std) + sum(_below(-q, *fall) for fall in falls) for q in spared)
    return _Anchored(anchor[upper > lower][0], way, at, chosen, factors, spared, chance)


def _below(x: float, mean: float, std: float) -> float:
    """P(N(mean, std²) <= x)"""
    if not std > 0:
        return float(mean <= x)
    return math.erfc((mean - x) / std / math.sqrt(2)) / 2


def fall(net: Head, start: Tensor, end: Tensor, row: Tensor, least: float) -> Fall:
    """P(row·y(end) - row·y(start) <= -least), from above, for points that differ in one coordinate;
    row: [1, O]."""
    lower, upper = torch.minimum(start, end), torch.maximum(start, end)
    way = track(net, lower, upper, start, row, torch.zeros(1).to(row))
    counts = _counts(len(net.bias))
    at = _field(net, way, counts)
    chosen = slopes(net.activation, way, at)
    found = lines(net.activation, way, at, chosen)
    (t,) = (t for t in way.ends if t)
    factor = fallen(way, at, found, t, levels(net.activation, way, at, found))
    size = _size(len(net.bias))
    zero = torch.zeros(1).to(row)
    reach = zero.unsqueeze(-1) + SPARE * abs(least) - least
    known = _failures(way, at, [factor], (zero, zero), size, reach)
    most = (float(known.failure) + 6 * OUTSIDE * len(net.bias)) * (1 + SPARE)
    numbers, along = known.numbers[0].cpu(), _along(len(net.bias))
    return Fall(min(most, 1.0), counts, size, numbers, along, chosen.cpu())


def _field(net: Head, way: Track, counts: tuple[int, int, int, int]) -> Field:
    own = grid_of(way.own, counts, net.activation.traits.kinks or (0.0,))
    along = base_edges(_along(len(net.bias))).to(own.z.device)
    return Field(own.first, cells(along, 1), own.second)


def _counts(neurons: int) -> tuple[int, int, int, int]:
    return next((counts for most, counts in COUNTS.items() if neurons <= most), COARSE)


def _along(neurons: int) -> int:
    return min(ALONG, max(1, LINES // (_counts(neurons)[0] * neurons)))


def _size(neurons: int) -> int:
    """Of lattices."""
    size: int = 2 ** int(math.log2(ROOM / neurons))
    return min(size, SIZE)


@dataclass(frozen=True, eq=False)
class _Proved:
    """A row's failure, q, and the numbers [3, 6] that gave them at the anchor and to both ends."""

    failure: float
    spared: float
    numbers: Tensor


def _proved(one: _Anchored, size: int) -> _Proved:
    """With the q that is best."""
    own, ends = one.way.own, len(one.factors) - 1
    rest = pad(own.beta, (0, ends)), pad(own.beta_std, (0, ends))  # the ways have none
    spared = own.beta.new_tensor(one.spared)
    reaches = torch.stack([spared, *[-spared] * ends])
    known = _failures(one.way, one.at, one.factors, rest, size, reaches)
    totals = [math.fsum(each) for each in known.failure.mT.tolist()]
    best = min(range(len(totals)), key=totals.__getitem__)
    here, *found = known.numbers[:, best].cpu()
    there = iter(found)
    numbers = torch.stack([here, *(next(there) if t else here for t in one.way.ends)])
    return _Proved(totals[best], one.spared[best], numbers)


def _failures(
    way: Track,
    at: Field,
    factors: Sequence[Factors],
    rest: tuple[Tensor, Tensor],
    size: int,
    reaches: Tensor,
) -> Failures:
    """Of the sums of F factors and of the rest, β and its deviation [F], for reaches [F, C]."""
    each = [products(way, at, factor) for factor in factors]
    found = Atoms(*(torch.stack([getattr(one, f.name) for one in each]) for f in fields(Atoms)))
    curb = torch.zeros_like(rest[0])
    terms = Terms(found, best_rate(found), curb, *rest, size, WIDE, floored=True)
    return failures(terms, reaches)

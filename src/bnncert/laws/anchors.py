"""What one neuron adds at the least where one input moves, by lines in z about an anchor.

At x = a + t, t_low <= t <= t_high, a neuron is v f(z + t W), with z the pre-activation at a anchor
a and W = w(z) + ξ, w(z) = W̄ + κ (z - m), ξ independent of z. On a cell of (z, ξ) let s z + e be
below f, where v > 0, or above it, where v < 0, at all that z + t W may be. Then

    v f(z + t W)  >=  v (s z + e) + t v s W,       M  >=  A + t S,
    A = β + Σ v (s z + e),   S = Σ v s W,

and for any q >= 0

    P(M <= 0 for some t)  <=  P(A <= q) + P(t_high S <= -q) + P(t_low S <= -q).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.bounds.lines import hull_slope
from bnncert.bounds.relaxations import lowest
from bnncert.laws.cells import REACH, Cells
from bnncert.laws.head import UNDERFLOW, Head, Margins, margins
from bnncert.laws.lattice import Atoms
from bnncert.laws.lines import SPARE, largest
from bnncert.model.activations import Activation
from bnncert.model.box import Box
from bnncert.numerics.rounding import UNIT

POINTS = 9  # of f that tell a slope


@dataclass(frozen=True, eq=False)
class Track:
    """One row along one input: its margin at the anchor; W̄, κ and the deviation of ξ, [n]; and
    t_high and t_low, outward."""

    own: Margins
    weight: Tensor
    kappa: Tensor
    rest: Tensor
    ends: tuple[float, float]

    @property
    def steepest(self) -> Tensor:
        """A bound of |W|, [n]"""
        return self.weight.abs() + REACH * (self.kappa.abs() * self.own.std + self.rest)

    @property
    def size(self) -> Tensor:
        """A bound of |z + t W|, and of what is summed for it, [n]"""
        far = 2 * max(map(abs, self.ends))
        return self.own.size + 2 * REACH * self.own.std + far * self.steepest


def track(
    net: Head, lower: Tensor, upper: Tensor, place: float, row: Tensor, offset: Tensor
) -> Track:
    """Of a row [1, O] on a box with one side; place: the anchor's, 0 to 1 along it."""
    (j,) = (upper > lower).nonzero().flatten().tolist()
    at = lower + (upper - lower) * place
    own = margins(net, at, at, row, offset)
    others = at.clone()
    others[j] = 0.0
    squares = net.weight_std**2
    beside = others**2 @ squares + net.bias_std**2
    known = own.std > 0
    variance = torch.where(known, own.std**2, 1.0)
    kappa = torch.where(known, squares[j] * at[j] / variance, 0.0)
    rest = torch.where(known, squares[j] * (beside / variance), squares[j]).sqrt()
    ends = float(upper[j] - at[j]) * (1 + 4 * UNIT), float(lower[j] - at[j]) * (1 + 4 * UNIT)
    return Track(own, net.weight[j], kappa, rest, ends)


@dataclass(frozen=True, eq=False)
class Field:
    """Cells of z [n, K], of ξ [C] and of v [n, L]."""

    first: Cells
    along: Cells
    second: Cells


@dataclass(frozen=True, eq=False)
class Lines:
    """Of the lines below f and above it: slopes, lifts, and a bound of all that is summed,
    [2, n, K, C]."""

    slope: Tensor
    lift: Tensor
    size: Tensor


def slopes(activation: Activation, way: Track, at: Field) -> Tensor:
    """[n, K, C, 2]: of the lines that are closest to f at the anchor, where z and ξ are at the
    means of their cells."""
    deviation, xi = _means(at.first), _means(at.along)
    width = (at.first.edges[..., 1:] - at.first.edges[..., :-1]) * way.own.std[:, None]
    z = (way.own.mean[:, None] + way.own.std[:, None] * deviation)[..., None]
    w = _weights(way, deviation, xi)
    ends = [z + t * w for t in (0.0, *way.ends)]
    low = torch.stack(ends).amin(0) - width[..., None] / 2
    high = torch.stack(ends).amax(0) + width[..., None] / 2
    low, high, z = (_last(part.expand_as(w)) for part in (low, high, z))
    inside = (high - low) / 64
    middle = torch.minimum(torch.maximum(z, low + inside), high - inside)
    points = [low + (high - low) * k / (POINTS - 1) for k in range(POINTS)]
    values = [activation(x) for x in points]
    below = hull_slope(points, values, middle)
    above = -hull_slope(points, [-value for value in values], middle)
    found = torch.stack([below, above]).clamp(*activation.traits.slopes)
    return found.float().double().permute(3, 1, 2, 0)


def lines(activation: Activation, way: Track, at: Field, slope: Tensor) -> Lines:
    """Of slopes [n, K, C, 2]."""
    edges = at.first.edges
    z = (way.own.mean[:, None] + way.own.std[:, None] * edges)[..., None]
    w = _weights(way, edges, at.along.edges)
    reached = torch.stack([z + t * w for t in (0.0, *way.ends)])
    corners = torch.stack(
        [reached[:, :, i : i + reached.shape[2] - 1, j : j + reached.shape[3] - 1]
         for i in (0, 1) for j in (0, 1)]
    )
    size = way.size[:, None, None]
    spare = way.own.slack * size + UNDERFLOW
    low, high = corners.amin((0, 1)) - spare, corners.amax((0, 1)) + spare
    box = Box(_last(low), _last(high))
    below, above = slope.unbind(-1)
    lift = torch.stack(
        [
            lowest(activation, 1, _last(below), box),
            -lowest(activation, -1, -_last(above), box),
        ]
    ).permute(0, 3, 1, 2)
    both = torch.stack([below, above])
    most = largest(activation, way.size)[:, None, None]
    return Lines(both, lift, both.abs() * size + lift.abs() + most)


def _last(values: Tensor) -> Tensor:
    """[n, K, C] with neurons last: activations may have parameters by neuron."""
    return values.permute(1, 2, 0)


def _weights(way: Track, deviation: Tensor, xi: Tensor) -> Tensor:
    """W [n, K, C] where z is so many deviations off its mean, and ξ off 0."""
    own = way.weight[:, None] + way.kappa[:, None] * way.own.std[:, None] * deviation
    return own[..., None] + way.rest[:, None, None] * xi


def _means(cells: Cells) -> Tensor:
    """Of the cells, in deviations."""
    left, width = cells.edges[..., :-1], cells.edges[..., 1:] - cells.edges[..., :-1]
    inside = (cells.mass * cells.place).sum(-1) / cells.mass.sum(-1).clamp_min(1e-300)
    return left + width * inside.clamp(0, 1)


@dataclass(frozen=True, eq=False)
class Factors:
    """What multiplies v: the means of parts of cells, their masses, how far each coordinate moves
    them in all and squared, and what roundings may come to; [2, n, P] by side of v, or [n, P]."""

    mean: Tensor
    mass: Tensor
    range: Tensor
    squared: Tensor
    size: Tensor


def at_anchor(way: Track, at: Field, found: Lines) -> Factors:
    """s z + e"""
    z = way.own.mean[:, None, None] + way.own.std[:, None, None] * _places(at.first)
    slope, lift, size = (
        part[:, :, :, None, :] for part in (found.slope, found.lift, found.size)
    )
    mean = slope * z[None, ..., None] + lift
    width = way.own.std[:, None, None, None] * _widths(at.first)[..., None, None]
    moved = (slope.abs() * width).expand_as(mean)
    mass = at.first.mass[..., None] * at.along.mass.sum(-1)
    return Factors(
        mean.flatten(2), mass.flatten(1), moved.flatten(2), (moved**2).flatten(2),
        size.expand_as(mean).flatten(2),
    )


def along(way: Track, at: Field, found: Lines, t: float) -> Factors:
    """t s W"""
    z, xi = _places(at.first), _places(at.along)
    own = way.weight[:, None, None] + (way.kappa * way.own.std)[:, None, None] * z
    w = own[..., None, None] + way.rest[:, None, None, None, None] * xi
    slope = t * found.slope[:, :, :, None, :, None]
    mean = slope * w
    by_z = (way.kappa * way.own.std).abs()[:, None, None, None, None] * _widths(at.first)[
        ..., None, None, None
    ]
    by_xi = way.rest[:, None, None, None, None] * _widths(at.along)[:, None]
    first, second = (slope.abs() * part for part in (by_z, by_xi))
    mass = at.first.mass[..., None, None] * at.along.mass
    size = (slope.abs() * way.steepest[:, None, None, None, None]).expand_as(mean)
    return Factors(
        mean.flatten(2), mass.flatten(1), (first + second).expand_as(mean).flatten(2),
        (first**2 + second**2).expand_as(mean).flatten(2), size.flatten(2),
    )


def products(way: Track, at: Field, factor: Factors) -> Atoms:
    """v times a factor, on its side."""
    own = way.own
    v = own.v[0][:, None, None] + own.s[0][:, None, None] * _places(at.second)
    edges = own.v[0][:, None] + own.s[0][:, None] * at.second.edges
    positive = (edges[:, 1:] + edges[:, :-1] > 0)[..., None].expand_as(v)
    v = torch.where(positive, v.clamp_min(0), v.clamp_max(0)).flatten(1)[:, None]
    width = (own.s[0][:, None, None] * _widths(at.second)[..., None]).expand(positive.shape)
    width, positive = width.flatten(1)[:, None], positive.flatten(1)[:, None]
    mean, moved, squared, size = (
        torch.where(positive, *(side[..., None] for side in part))
        for part in (factor.mean, factor.range, factor.squared, factor.size)
    )
    most = (own.v_size[0] + REACH * own.s[0])[:, None, None]
    place = v * mean - ((own.slack + SPARE) * most * size + UNDERFLOW)
    v, mean = v.abs() + width, mean.abs() + moved
    mass = factor.mass[..., None] * at.second.mass.flatten(1)[:, None]
    found = place, mass, v**2 * squared + mean**2 * width**2, v * moved + mean * width
    return Atoms(*(part.flatten(1) for part in found))


def _places(cells: Cells) -> Tensor:
    """The conditional means of parts, [..., K, P], in deviations."""
    left, right = cells.edges[..., :-1, None], cells.edges[..., 1:, None]
    return left + (right - left) * cells.place


def _widths(cells: Cells) -> Tensor:
    """Of the parts of each cell, [..., K]"""
    return (cells.edges[..., 1:] - cells.edges[..., :-1]) / cells.mass.shape[-1]

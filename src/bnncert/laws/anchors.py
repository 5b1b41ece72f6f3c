"""What one neuron adds at the least where one input moves alone, by lines about an anchor.

At x = a + t, where t is from t⁻ <= 0 to t⁺ >= 0, a neuron is v f(z + t W), with z ~ N(m, τ²) its
pre-activation at the anchor a, and W = W̄ + κ (z - m) + ξ with ξ independent of z. On a cell of
(z, ξ) let s z + e be below f, where v > 0, or above it, where v < 0, at all that z + t W may be:

    v f(z + t W)  >=  v (s z + e) + t v s W,   so that   M  >=  A + t S,
    A = β + Σ_i v_i (s_i z_i + e_i),   S = Σ_i v_i s_i W_i.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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
INSIDE = 64  # parts of an interval: a slope is no end's


@dataclass(frozen=True, eq=False)
class Track:
    """A row where one input moves: at the anchor; W̄, κ and the deviation of ξ, [n]; and t⁺, t⁻."""

    own: Margins
    weight: Tensor
    kappa: Tensor
    rest: Tensor
    ends: tuple[float, float]

    @property
    def turn(self) -> Tensor:
        """What a deviation of z moves W by, [n]"""
        return self.kappa * self.own.std

    @property
    def steepest(self) -> Tensor:
        """A bound of |W|, and of what is summed for it, [n]"""
        return self.weight.abs() + REACH * (self.turn.abs() + self.rest)

    @property
    def size(self) -> Tensor:
        """A bound of |z + t W|, and of what is summed for it, [n]"""
        far = 2 * max(map(abs, self.ends))
        return self.own.size + 2 * REACH * self.own.std + far * self.steepest


def track(
    net: Head, lower: Tensor, upper: Tensor, anchor: Tensor, rows: Tensor, offsets: Tensor
) -> Track:
    """Of a row [1, O] on a box with one side, where the anchor lies."""
    (side,) = (upper > lower).nonzero().flatten().tolist()
    own = margins(net, anchor, anchor, rows, offsets)
    others = torch.where(upper > lower, 0.0, anchor)
    variance, spread = own.std**2, net.weight_std[side] ** 2
    beside = others**2 @ net.weight_std**2 + net.bias_std**2
    known = variance > 0
    kappa = torch.where(known, spread * anchor[side] / variance, 0.0)
    rest = torch.where(known, spread * (beside / variance), spread).sqrt()
    high, low = (float(end[side] - anchor[side]) * (1 + 4 * UNIT) for end in (upper, lower))
    return Track(own, net.weight[side], kappa, rest, (high, low))


@dataclass(frozen=True, eq=False)
class Field:
    """Cells of z [n, K], of ξ [C], of one part each, and of the row's v [1, n, L]."""

    first: Cells
    along: Cells
    second: Cells


@dataclass(frozen=True, eq=False)
class Lines:
    """Below f and above it: slopes [2, n, K], and lifts and bounds of all that is summed,
    [2, n, K, C]."""

    slope: Tensor
    lift: Tensor
    size: Tensor


def slopes(activation: Activation, way: Track, at: Field) -> Tensor:
    """[n, K, 2]: of the lines that are closest to f at the anchor, where z is at the mean of its
    cell and ξ is 0."""
    cells = at.first
    mass = cells.mass.sum(-1).clamp_min(1e-300)
    deviation = (_places(cells) * cells.mass).sum(-1) / mass
    z = way.own.mean[:, None] + way.own.std[:, None] * deviation
    w = way.weight[:, None] + way.turn[:, None] * deviation
    about = way.own.std[:, None] * (cells.edges[:, 1:] - cells.edges[:, :-1]) / 2
    path = torch.stack([z, *(z + t * w for t in way.ends)])
    # Neurons last: activations may have parameters by neuron.
    low, high, z = ((path.amin(0) - about).mT, (path.amax(0) + about).mT, z.mT)
    least, most = low + (high - low) / INSIDE, high - (high - low) / INSIDE
    middle = torch.minimum(torch.maximum(z, least), most)
    points = [low + (high - low) * k / (POINTS - 1) for k in range(POINTS)]
    values = [activation(x) for x in points]
    below = hull_slope(points, values, middle)
    above = -hull_slope(points, [-value for value in values], middle)
    return torch.stack([below, above]).clamp(*activation.traits.slopes).permute(2, 1, 0)


def lines(activation: Activation, way: Track, at: Field, chosen: Tensor) -> Lines:
    """By slopes [n, K, 2]."""
    low, high = _reached(way, at)
    spare = (way.own.slack * way.size + UNDERFLOW)[:, None, None]
    box = Box((low - spare).permute(1, 2, 0), (high + spare).permute(1, 2, 0))
    slope = chosen.movedim(-1, 0)
    below, above = (side.mT[:, None].expand_as(box.lower) for side in slope)
    lift = torch.stack(
        [lowest(activation, 1, below, box), -lowest(activation, -1, -above, box)]
    ).permute(0, 3, 1, 2)
    summed = slope.abs() * way.size[:, None] + largest(activation, way.size)[:, None]
    return Lines(slope, lift, summed[..., None] + lift.abs())


def _reached(way: Track, at: Field) -> tuple[Tensor, Tensor]:
    """The least and the largest of z + t W on the cells, [n, K, C]: it is linear in z, in ξ and in
    t."""
    edges, xi = at.first.edges, way.rest[:, None] * at.along.edges
    z = way.own.mean[:, None] + way.own.std[:, None] * edges
    w = way.weight[:, None] + way.turn[:, None] * edges
    ends = []
    for t in way.ends:
        own, other = _pairs(z + t * w), _pairs(t * xi)
        ends.append(own[:, :, None, :, None] + other[:, None, :, None, :])
    found = torch.stack(ends, -1).flatten(3)
    return found.amin(-1), found.amax(-1)


@dataclass(frozen=True, eq=False)
class Factors:
    """What multiplies v on either side of it: means over the parts of cells, how far coordinates
    may move them from there, all together and squared, and bounds of what is summed, [2, n, P];
    and masses [n, P]."""

    mean: Tensor
    range: Tensor
    squared: Tensor
    size: Tensor
    mass: Tensor


def at_anchor(way: Track, at: Field, found: Lines) -> Factors:
    """s z + e"""
    z = way.own.mean[:, None, None] + way.own.std[:, None, None] * _places(at.first)
    slope = found.slope[:, :, :, None, None]
    mean = slope * z[..., None] + found.lift[:, :, :, None]
    width = way.own.std[:, None] * _widths(at.first)
    moved = (found.slope.abs() * width)[:, :, :, None, None].expand_as(mean)
    mass = at.first.mass[..., None] * at.along.mass[:, 0]
    size = found.size[:, :, :, None].expand_as(mean)
    return _factors(mean, moved, moved**2, size, mass)


def beside(way: Track, at: Field, found: Lines, t: float) -> Factors:
    """t s W"""
    turned = way.weight[:, None, None] + way.turn[:, None, None] * _places(at.first)
    xi = way.rest[:, None] * _places(at.along)[:, 0]
    slope = t * found.slope[:, :, :, None, None]
    mean = slope * (turned[..., None] + xi[:, None, None])
    steep = slope.abs()
    by_z = steep * (way.turn.abs()[:, None] * _widths(at.first))[:, :, None, None]
    by_xi = steep * (way.rest[:, None] * _widths(at.along))[:, None, None]
    mass = at.first.mass[..., None] * at.along.mass[:, 0]
    size = steep * way.steepest[:, None, None, None]
    return _factors(
        mean,
        (by_z + by_xi).expand_as(mean),
        (by_z**2 + by_xi**2).expand_as(mean),
        size.expand_as(mean),
        mass,
    )


def fallen(way: Track, at: Field, found: Lines, t: float, level: Tensor) -> Factors:
    """t s W + e - e°: times v it is at most v f(z + t W) - v f(z). level: e°, of lines on the other
    side of f over the cells of z."""
    along = beside(way, at, found, t)
    lift = (found.lift - level[..., None])[:, :, :, None]
    size = (2 * found.size + level.abs()[..., None])[:, :, :, None]
    shape = (*lift.shape[:3], at.first.mass.shape[-1], lift.shape[-1])
    lift, size = (part.expand(shape).flatten(2) for part in (lift, size))
    return replace(along, mean=along.mean + lift, size=along.size + size)


def levels(activation: Activation, way: Track, at: Field, found: Lines) -> Tensor:
    """e° [2, n, K] with s z + e° above f, of lines below it, and below it, of lines above it."""
    ends = way.own.mean[:, None] + way.own.std[:, None] * at.first.edges
    spare = (way.own.slack * way.size + UNDERFLOW)[:, None]
    box = Box((ends[:, :-1] - spare).mT, (ends[:, 1:] + spare).mT)
    below, above = (side.mT for side in found.slope)
    return torch.stack([-lowest(activation, -1, -below, box), lowest(activation, 1, above, box)]).mT


def _factors(mean: Tensor, moved: Tensor, squared: Tensor, size: Tensor, mass: Tensor) -> Factors:
    mean, moved, squared, size = (part.flatten(2) for part in (mean, moved, squared, size))
    return Factors(mean, moved, squared, size, mass.flatten(1))


def products(way: Track, at: Field, factor: Factors) -> Atoms:
    """v times the factor on its side, of the one row there is."""
    v, width, positive = (part.flatten(1)[:, None] for part in _multipliers(way, at))
    mean, moved, squared, size = (
        torch.where(positive, part[0, ..., None], part[1, ..., None])
        for part in (factor.mean, factor.range, factor.squared, factor.size)
    )
    most = (way.own.v_size[0] + REACH * way.own.s[0])[:, None, None]
    place = v * mean - ((way.own.slack + SPARE) * most * size + UNDERFLOW)
    largest_v, largest_mean = v.abs() + width, mean.abs() + moved
    found = (
        place,
        factor.mass[..., None] * at.second.mass[0].flatten(1)[:, None],
        largest_v**2 * squared + largest_mean**2 * width**2,
        largest_v * moved + largest_mean * width,
    )
    return Atoms(*(part.flatten(1) for part in found))


def _multipliers(way: Track, at: Field) -> tuple[Tensor, Tensor, Tensor]:
    """v at the means of parts of cells, the parts' widths, and whether v > 0 there, [n, L, P]."""
    centre, deviation = way.own.v[0][:, None], way.own.s[0][:, None]
    ends = centre + deviation * at.second.edges[0]
    positive = (ends[:, 1:] + ends[:, :-1] > 0)[..., None].expand_as(at.second.mass[0])
    v = centre[..., None] + deviation[..., None] * _places(at.second)[0]
    v = torch.where(positive, v.clamp_min(0), v.clamp_max(0))
    width = deviation * _widths(at.second)[0]
    return v, width[..., None].expand_as(v), positive


def moments(way: Track, at: Field, factor: Factors) -> tuple[float, float]:
    """Mean and standard deviation of the sum of all atoms."""
    v, _, positive = _multipliers(way, at)
    first = second = torch.zeros_like(way.own.mean)
    for side, chosen in enumerate((positive, ~positive)):
        weights = torch.where(chosen, at.second.mass[0], 0.0)
        means, masses = factor.mean[side], factor.mass
        first = first + (weights * v).sum((1, 2)) * (masses * means).sum(1)
        second = second + (weights * v**2).sum((1, 2)) * (masses * means**2).sum(1)
    variance = (second - first**2).clamp_min(0).sum()
    return float(first.sum()), float(variance.sqrt())


def _places(cells: Cells) -> Tensor:
    """The conditional means of parts, [..., K, P], in deviations."""
    left, right = cells.edges[..., :-1, None], cells.edges[..., 1:, None]
    return left + (right - left) * cells.place


def _widths(cells: Cells) -> Tensor:
    """Of the parts of each cell, [..., K]"""
    return (cells.edges[..., 1:] - cells.edges[..., :-1]) / cells.mass.shape[-1]


def _pairs(ends: Tensor) -> Tensor:
    """The two ends of every cell, last."""
    return torch.stack([ends[..., :-1], ends[..., 1:]], -1)

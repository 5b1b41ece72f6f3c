"""What one neuron of any activation f adds to a margin at the least where one input moves alone, by
lines about an anchor a, on parts of cells of (z_i, ξ_i, v_i).

At x = a + t, t⁻ <= t <= t⁺, W_i = W̄_i + κ_i (z_i - m_i) + ξ_i moves z_i to z_i + t W_i. On a cell
of (z, ξ) let s z + e be below f, where v > 0, or above it, where v < 0, at all of these. So

    v_i f(z_i + t W_i)  >=  v_i (s z_i + e) + t v_i s W_i,

and a row is at least A + t S, A = β + Σ v_i (s_i z_i + e_i), S = Σ v_i s_i W_i. That is linear in
t: where it is not positive A <= q, or t⁺ S <= -q, or t⁻ S <= -q, for any q >= 0 and any a.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bnncert_check.activations import lower_intercept, upper_intercept
from bnncert_check.arithmetic import Array, down, up
from bnncert_check.laws.cells import REACH, Cells
from bnncert_check.laws.corners import UNDERFLOW, Margins
from bnncert_check.laws.lattice import Products
from bnncert_check.laws.lines import largest
from bnncert_check.layers import Activation


@dataclass(frozen=True)
class Way:
    """One row: at the anchor; W̄, κτ and the deviation of ξ, [n]; and t⁺ and t⁻."""

    own: Margins
    weight: Array
    turn: Array
    rest: Array
    ends: tuple[float, float]

    @property
    def steepest(self) -> Array:
        """A bound of |W|, and of all that is summed for it."""
        return np.asarray(np.abs(self.weight) + REACH * (np.abs(self.turn) + self.rest))

    @property
    def size(self) -> Array:
        """The same of z + t W."""
        far = max(abs(t) for t in self.ends)
        return np.asarray(self.own.size + 2 * (REACH * self.own.std + far * self.steepest))

    def part(self, neurons: slice) -> Way:
        """Of some neurons."""
        weight, turn, rest = (part[neurons] for part in (self.weight, self.turn, self.rest))
        return Way(self.own.part(neurons), weight, turn, rest, self.ends)


def way(
    own: Margins,
    weights: Array,
    spreads: Array,
    anchor: Array,
    side: int,
    ends: tuple[float, float],
) -> Way:
    """Of means and variances [J + 1, n], the bias last, where the input `side` moves between the
    ends; own: at the anchor."""
    others = np.append(anchor, 1.0)
    others[side] = 0.0
    variance, beside, spread = own.std**2, others**2 @ spreads, spreads[side]
    known = variance > 0
    over = np.where(known, variance, 1.0)
    rest = np.sqrt(np.where(known, spread * (beside / over), spread))
    turn = np.where(known, spread * anchor[side] / over, 0.0) * own.std
    low, high = ends
    above, below = high - anchor[side], low - anchor[side]
    reach = (float(up(above)) if above else 0.0, float(down(below)) if below else 0.0)
    return Way(own, weights[side], turn, rest, reach)


@dataclass(frozen=True)
class Field:
    """Cells of z [n, K, P], of ξ [C, 1] and of the row's v [n, L, P']."""

    first: Cells
    along: Cells
    second: Cells

    def part(self, neurons: slice) -> Field:
        """Of some neurons."""
        first, second = self.first.part(neurons), self.second.part(neurons)
        return replace(self, first=first, second=second)


@dataclass(frozen=True)
class LinesAbout:
    """Below f and above it: slopes [2, n, K, 1], and lifts and bounds of all that is summed and of
    |f|, [2, n, K, C]."""

    slope: Array
    lift: Array
    size: Array

    def part(self, neurons: slice) -> LinesAbout:
        """Of some neurons."""
        return LinesAbout(*(own[:, neurons] for own in (self.slope, self.lift, self.size)))


def lines_about(activation: Activation, track: Way, at: Field, slopes: Array) -> LinesAbout:
    """By slopes [n, K, 2]."""
    spare = (track.own.slack * track.size + UNDERFLOW)[:, None, None]
    low, high = _reached(track, at)
    # An activation may have parameters by neuron, which stand last.
    ends = [np.moveaxis(end, 0, -1) for end in (low - spare, high + spare)]
    lifts = []
    for side, intercept in enumerate((lower_intercept, upper_intercept)):
        slope = np.broadcast_to(slopes[..., side].T[:, None], ends[0].shape)
        lifts.append(np.moveaxis(intercept(activation, slope, *ends), -1, 0))
    own, lift = np.moveaxis(slopes, -1, 0)[..., None], np.stack(lifts)
    size, most = (x[:, None, None] for x in (track.size, largest(activation, track.size)))
    return LinesAbout(own, lift, np.abs(own) * size + np.abs(lift) + most)


def _reached(track: Way, at: Field) -> tuple[Array, Array]:
    """Ends of z + t W on cells [n, K, C]: at corners, as it is linear in z, in ξ and in t."""
    z = track.own.mean[:, None] + track.own.std[:, None] * at.first.edges
    w = track.weight[:, None] + track.turn[:, None] * at.first.edges
    low = np.full((len(z), z.shape[1] - 1, at.along.mass.shape[0]), np.inf)
    high = -low
    for t in track.ends:
        here, xi = z + t * w, t * track.rest[:, None] * at.along.edges
        for left in (here[:, :-1, None], here[:, 1:, None]):
            for right in (xi[:, None, :-1], xi[:, None, 1:]):
                low, high = np.minimum(low, left + right), np.maximum(high, left + right)
    return low, high


@dataclass(frozen=True)
class Factor:
    """What multiplies v, on either side of it and by parts, [2, n, P]: the mean, and what that may
    be off by beyond roundings; how far points may be from it in all, and squared; a bound of all
    that is summed. And masses [n, P]."""

    mean: Array
    off: Array
    drop: Array
    squared: Array
    size: Array
    mass: Array


def at_anchor(track: Way, at: Field, found: LinesAbout) -> Factor:
    """s z + e"""
    std = track.own.std[:, None, None]
    z = track.own.mean[:, None, None] + std * _means(at.first)
    slope = found.slope[:, :, :, None]
    steep = np.abs(slope) * (std * _widths(at.first))[..., None]
    mean = slope * z[..., None] + found.lift[:, :, :, None]
    ranges = steep / at.first.mass.shape[-1], np.zeros(1)
    return _factor(at, mean, steep * at.first.off[..., None], ranges, found.size[:, :, :, None])


def beside(track: Way, at: Field, found: LinesAbout, t: float) -> Factor:
    """t s W"""
    turn, rest = track.turn[:, None, None], track.rest[:, None]
    slope = t * found.slope[:, :, :, None]
    w = (track.weight[:, None, None] + turn * _means(at.first))[..., None]
    mean = slope * (w + (rest * _means(at.along)[:, 0])[:, None, None])
    steep = np.abs(slope)
    by_z = steep * (np.abs(turn) * _widths(at.first))[..., None]
    by_xi = steep * (rest * _widths(at.along)[:, 0])[:, None, None]
    off = by_z * at.first.off[..., None] + by_xi * at.along.off[:, 0]
    ranges = by_z / at.first.mass.shape[-1], by_xi
    return _factor(at, mean, off, ranges, steep * track.steepest[:, None, None, None])


def falling(activation: Activation, track: Way, at: Field, found: LinesAbout) -> LinesAbout:
    """With e - e° for e: s z + e° is on the other side of f than s z + e, over the cells of z. Of
    all neurons at once, as an activation may have parameters by neuron."""
    levels = _levels(activation, track, at, found)
    return LinesAbout(found.slope, found.lift - levels, 2 * found.size + np.abs(levels))


def fallen(track: Way, at: Field, found: LinesAbout, t: float) -> Factor:
    """t s W + e - e°, which v times is at most v f(z + t W) - v f(z)."""
    way_there = beside(track, at, found, t)
    lift, size = found.lift[:, :, :, None], found.size[:, :, :, None]
    shape = (*lift.shape[:3], at.first.mass.shape[-1], lift.shape[-1])
    lift, size = (np.broadcast_to(x, shape).reshape(*shape[:2], -1) for x in (lift, size))
    return replace(way_there, mean=way_there.mean + lift, size=way_there.size + size)


def _levels(activation: Activation, track: Way, at: Field, found: LinesAbout) -> Array:
    """e° [2, n, K, 1]"""
    z = track.own.mean[:, None] + track.own.std[:, None] * at.first.edges
    spare = (track.own.slack * track.size + UNDERFLOW)[:, None]
    ends = (z[:, :-1] - spare).T, (z[:, 1:] + spare).T
    below, above = (side[..., 0].T for side in found.slope)
    levels = upper_intercept(activation, below, *ends), lower_intercept(activation, above, *ends)
    return np.stack([level.T for level in levels])[..., None]


def _factor(at: Field, mean: Array, off: Array, ranges: tuple[Array, Array], size: Array) -> Factor:
    """ranges: what z and ξ move it by over a part."""
    drop, squared = ranges[0] + ranges[1], ranges[0] ** 2 + ranges[1] ** 2
    mass = up(at.first.mass[..., None] * at.along.mass[:, 0])
    own = (np.broadcast_to(x, mean.shape) for x in (mean, off, drop, squared, size))
    mean, off, drop, squared, size = (x.reshape(*x.shape[:2], -1) for x in own)
    return Factor(mean, off, drop, squared, size, mass.reshape(len(mass), -1))


def multiplied(track: Way, at: Field, factor: Factor) -> Products:
    """v times the factor on its side."""
    v, s = track.own.v[0, :, None], track.own.s[0, :, None]
    ends = v + s * at.second.edges
    positive = np.repeat(ends[:, 1:] + ends[:, :-1] > 0, at.second.mass.shape[-1], -1)
    mean = (v[..., None] + s[..., None] * _means(at.second)).reshape(positive.shape)
    v = np.where(positive, np.maximum(mean, 0), np.minimum(mean, 0))
    wide = np.broadcast_to(s[..., None] * _widths(at.second), at.second.mass.shape)
    off = (wide * at.second.off).reshape(positive.shape)
    wide = (wide / wide.shape[-1]).reshape(positive.shape)
    chosen = (
        np.where(positive[:, None], side[0][..., None], side[1][..., None])
        for side in (factor.mean, factor.off, factor.drop, factor.squared, factor.size)
    )
    mean, unknown, drop, squared, size = chosen
    v, off, wide = v[:, None], off[:, None], wide[:, None]
    most = (track.own.v_size + REACH * track.own.s)[0, :, None, None]
    largest_v, largest_mean = np.abs(v) + wide, np.abs(mean) + drop
    lost = off * largest_mean + unknown * largest_v + off * unknown
    place = v * mean - lost * (1 + track.own.slack)
    place = place - (track.own.slack * most * size + UNDERFLOW)
    found = (
        place,
        largest_v * drop + largest_mean * wide + track.own.slack * most * size,
        largest_v**2 * squared + largest_mean**2 * wide**2,
        up(factor.mass[..., None] * at.second.mass.reshape(len(mean), 1, -1)),
    )
    return Products(*(own.reshape(len(own), -1) for own in found))


def _means(cells: Cells) -> Array:
    """Of parts, [..., K, P], in deviations."""
    left, right = cells.edges[..., :-1, None], cells.edges[..., 1:, None]
    return left + (right - left) * cells.place


def _widths(cells: Cells) -> Array:
    """[..., K, 1], in deviations."""
    return (cells.edges[..., 1:] - cells.edges[..., :-1])[..., None]

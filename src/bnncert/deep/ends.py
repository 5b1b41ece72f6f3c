"""Where the first layer's activations, and the means and variances of the second, stay with known
probability.

With h the first layer's activations, z_j ~ N(m_j, T_j) in the second, m_j = c_j + U_j·h and
T_j = r_j² + Σ_k s_jk² h_k². By Markov's inequality, for every θ > 0,

    P(m_j > u, h <= H) <= exp(-θ(u - c_j)) Π_k E[exp(θ U_jk h_k); h_k <= H_k],

and alike below, and for T_j.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from scipy.special import ndtr, ndtri

from bnncert.deep.majorants import Majorants, Moments, Tails, choose, lifted
from bnncert.deep.moments import Array
from bnncert.deep.products import Inputs

TILTS = np.geomspace(0.2, 25, 28)[:, None, None]  # tried, in units of one over a deviation
SHRUNK = 1 - 2.0**-40
PASSES = 4


@dataclass(frozen=True, eq=False)
class Second:
    """The second layer: means U and variances s² of its weights [J, K], c and r² of its biases."""

    weight: Array
    variance: Array
    bias: Array
    bias_variance: Array

    def about(self, mean: Array, covariance: Array) -> Moments:
        """Of m and T, where h has this mean and covariance."""
        square = mean**2 + np.diag(covariance)
        along = ((self.weight @ covariance) * self.weight).sum(1)
        spread = self.bias_variance + self.variance @ square
        return Moments(self.bias + self.weight @ mean, np.maximum(along, 1e-12), spread)


@dataclass(frozen=True, eq=False)
class Ends:
    """H [K], the ends [J, 4] of m and T, their tilts, and the probability that some do not hold."""

    inputs: Inputs
    ends: Array
    tilts: Array
    charge: float


def find(mean: Array, variance: Array, second: Second, level: float) -> Ends:
    """Ends that fail with probability `level` each."""
    cap = np.maximum(mean - ndtri(level) * np.sqrt(variance), 0)
    inputs = Inputs(mean, variance, cap)
    over = float(ndtr((mean - cap) / np.sqrt(variance)).sum())
    center, spread = inputs.tilted(np.zeros_like(mean), np.zeros_like(mean))
    zero, u, s = np.zeros_like(second.weight), second.weight, second.variance
    unit = np.sqrt((u**2 * spread).sum(1))
    width = np.sqrt((s**2 * (2 * spread**2 + 4 * center**2 * spread)).sum(1))
    sides = [(-u, zero, unit), (u, zero, unit), (zero, -2 * s, width), (zero, 2 * s, width)]
    found = [_end(inputs, *side, level) for side in sides]
    at = np.stack([reach for reach, _ in found], 1) * [-1, 1, -1, 1]
    origin = np.stack([second.bias] * 2 + [second.bias_variance] * 2, 1)
    least = second.bias_variance * SHRUNK
    ends = origin + at
    certain = ends[:, 2] <= least
    ends[:, 2] = np.where(certain, least, ends[:, 2])
    counted = ends.size - int(certain.sum())
    return Ends(inputs, ends, np.stack([t for _, t in found], 1), over + counted * level)


def _end(inputs: Inputs, a: Array, b: Array, unit: Array, level: float) -> tuple[Array, Array]:
    """How far Σ (a h + b h²/2) reaches, by neuron, and θ."""
    tilts = TILTS[..., 0] / np.maximum(unit, 1e-9)
    moments = inputs.log_moment(tilts[..., None] * a, tilts[..., None] * b).sum(-1)
    reach = (moments - np.log(level)) / tilts
    best, each = reach.argmin(0), np.arange(len(unit))
    return reach[best, each] + 1e-9 * np.abs(reach[best, each]), tilts[best, each]


def beyond(known: Ends, second: Second, ceiling: Array) -> tuple[Array, Majorants]:
    """P(z_j > ζ_j) by neuron, on the ends, from above: the exponential moment of one majorant."""
    inputs, tails = known.inputs, Tails(ceiling)
    a = _markov(inputs, second, ceiling)
    zero = np.zeros_like(a)
    chosen = kept = Majorants(zero, a, a * a, zero)
    best = np.full(len(a), np.inf)
    for _ in range(PASSES):
        chosen = lifted(tails, known.ends, chosen)
        a, b = chosen.slope, chosen.spread
        moments = inputs.log_moment(a[:, None] * second.weight, b[:, None] * second.variance)
        value = chosen.level + a * second.bias + b * second.bias_variance / 2 + moments.sum(1)
        kept = _better(value < best, chosen, kept)
        best = np.minimum(best, value)
        chosen = choose(tails, known.ends, _about(inputs, second, a, b), bent=False)
    return np.exp(np.minimum(best, 0)), kept


def _markov(inputs: Inputs, second: Second, ceiling: Array) -> Array:
    """θ for which E exp(θ(z - ζ)) is least, of those tried."""
    about = second.about(
        inputs.tilted(0 * inputs.mean, 0 * inputs.mean)[0], np.diag(inputs.variance)
    )
    tilts = TILTS[..., 0] / np.sqrt(about.variance + about.spread)
    wide = tilts[..., None]
    moments = inputs.log_moment(wide * second.weight, wide**2 * second.variance).sum(-1)
    own = tilts * (second.bias - ceiling) + tilts**2 * second.bias_variance / 2
    best: Array = tilts[(moments + own).argmin(0), np.arange(len(ceiling))]
    return best


def _about(inputs: Inputs, second: Second, a: Array, b: Array) -> Moments:
    """Of every neuron where h is tilted by its own a and b."""
    mean, variance = inputs.tilted(a[:, None] * second.weight, b[:, None] * second.variance)
    m = second.bias + (second.weight * mean).sum(1)
    spread = second.bias_variance + (second.variance * (mean**2 + variance)).sum(1)
    return Moments(m, np.maximum((second.weight**2 * variance).sum(1), 1e-12), spread)


def _better(where: Array, new: Majorants, old: Majorants) -> Majorants:
    pairs = ((getattr(new, f.name), getattr(old, f.name)) for f in fields(new))
    return Majorants(*(np.where(where, one, other) for one, other in pairs))

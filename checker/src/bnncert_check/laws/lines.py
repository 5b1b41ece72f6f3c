"""What one neuron of any activation f adds to a margin at the least, by lines, at the corners of
cells of (z_i, v_i).

Given z_i, |W_i·δ| <= ρ_i + ζ_i, with E ζ_i <= μ_i and ζ_i <= R_i = μ_i + t a_i but for a chance of
Q(t). On a cell of z let s z + e be below f, where v > 0, or above it, where v < 0, at all that
z_i + W_i·δ may be then; where f never falls, what is no worse than z_i ∓ (ρ_i + ζ_i) is enough. So

    v_i f(z_i + W_i·δ)  >=  T - |v_i s| (ζ_i - E ζ_i),   T = v_i (s z_i + e) - |v_i s| (ρ_i + μ_i),

T is concave in z and in v on the cell, and the rest is what L g⁺ stands for, L² = Σ (v_i s a_i)².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bnncert_check.activations import lower_intercept, upper_intercept
from bnncert_check.arithmetic import Array
from bnncert_check.laws.cells import REACH
from bnncert_check.laws.corners import UNDERFLOW, Grid, Margins
from bnncert_check.layers import Activation

TINY = 2.0**-600  # of a square that was too small for a float, generously
SIDES = (1.0, -1.0)  # of v: lines below f, and above it


@dataclass(frozen=True)
class Lines:
    """Of both sides of v: what multiplies it at the ends of cells of z [2, n, K, 2]; |s|, and a
    bound of all that is summed there and of |f|, [2, n, K]."""

    factor: Array
    slope: Array
    size: Array


def lines(
    activation: Activation, rows: Margins, at: Grid, slopes: Array, threshold: float
) -> Lines:
    """By slopes [n, K, 2] of lines below f and above it."""
    mean = math.sqrt(2 / math.pi) * (rows.radius @ np.sqrt(rows.variance))
    far = mean + threshold * np.sqrt(rows.squared)
    size = rows.size + REACH * (rows.std + 2 * rows.turned) + far
    values = largest(activation, size)[:, None]
    found = []
    for index, sign in enumerate(SIDES):
        low, high = _reached(activation, at, far, sign)
        spare = (rows.slack * size + UNDERFLOW)[:, None]
        # An activation may have parameters by neuron, which stand last.
        ends, slope = ((low - spare).T, (high + spare).T), slopes[..., index].T
        intercept = lower_intercept if sign > 0 else upper_intercept
        lift, slope = intercept(activation, slope, *ends).T, slope.T
        z, shift = _pairs(at.z), _pairs(at.rho) + mean[:, None, None]
        factor = slope[..., None] * z + lift[..., None] - sign * np.abs(slope)[..., None] * shift
        found.append((factor, np.abs(slope), np.abs(slope) * size[:, None] + np.abs(lift) + values))
    return Lines(*(np.stack(part) for part in zip(*found, strict=True)))


def largest(activation: Activation, size: Array) -> Array:
    """Of |f| where |z| <= size. What v is off by multiplies f itself: where v is nearly 0 its sign
    may be wrong, and the line on the other side, which may be flat, is no bound of that."""
    traits = activation.traits
    steep, constant = traits.growth
    bound = traits.largest if math.isfinite(traits.largest) else steep * size + constant
    return np.broadcast_to(bound, size.shape)


def _reached(activation: Activation, at: Grid, far: Array, sign: float) -> tuple[Array, Array]:
    """Where lines must hold on the cells of z, [n, K]: from z - ρ - R to z + ρ + R, but where f
    never falls only z - ρ and less by R, or z + ρ and more."""
    below, above = _pairs(at.z - at.rho), _pairs(at.z + at.rho)
    low, high = below.min(-1) - far[:, None], above.max(-1) + far[:, None]
    if activation.rises:
        return (low, below.max(-1)) if sign > 0 else (above.min(-1), high)
    return low, high


def line_corners(rows: Margins, at: Grid, found: Lines, part: slice) -> tuple[Array, Array]:
    """T from below, and (a v s)² from above, [m, K, L, 2, 2], of some neurons in one row."""
    positive = at.positive[0, part, None, :, None, None]
    v = _pairs(at.v)[0, part, None, :, None, :]
    v = np.where(positive, np.maximum(v, 0), np.minimum(v, 0))
    factor, slope, size = (
        np.where(positive, one[0], one[1])
        for one in (
            found.factor[:, part, :, None, :, None],
            found.slope[:, part, :, None, None, None],
            found.size[:, part, :, None, None, None],
        )
    )
    most = (rows.v_size + REACH * rows.s)[0, part, None, None, None, None]
    value = v * factor - (rows.slack * most * size + UNDERFLOW)
    noise = rows.squared[part, None, None, None, None]
    squared = noise * (v * slope) ** 2 * (1 + rows.slack) + np.where(noise > 0, TINY, 0.0)
    return value, np.broadcast_to(squared, value.shape)


def _pairs(ends: Array) -> Array:
    """The two ends of every cell, last."""
    return np.stack([ends[..., :-1], ends[..., 1:]], -1)

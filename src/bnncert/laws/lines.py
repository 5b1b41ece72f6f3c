"""What one neuron of any activation f adds to a margin at the least, on cells of (z_i, v_i), by
lines.

Given z_i, |W_i·δ| <= ρ_i + ζ_i with ζ_i = Σ_j r_j|ξ_ij|, of mean at most μ_i = √(2/π) Σ_j r_jσ_ij,
and ζ_i <= R_i = μ_i + t a_i but for a chance of Q(t). With s z + e below f, where v > 0, or above
it, where v < 0, at all that z_i + W_i·δ may be,

    v_i f(z_i + W_i·δ)  >=  T - |v_i s| (ζ_i - E ζ_i),   T = v_i (s z_i + e) - |v_i s| (ρ_i + μ_i).

Where f never falls, f(z_i + W_i·δ) is at least f(z_i - ρ_i - ζ_i) and at most f(z_i + ρ_i + ζ_i):
the line need hold at those alone. T is concave in z and in v on a cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.bounds.relaxations import relax
from bnncert.laws.cells import REACH
from bnncert.laws.corners import Grid
from bnncert.laws.head import UNDERFLOW, Margins
from bnncert.model.activations import Activation
from bnncert.model.box import Box

THRESHOLD = 5.0  # t
SPARE = 2.0**-40  # of what is summed: a checker's lines may be lower by so much
TINY = 2.0**-600  # of a square that was too small for a float


@dataclass(frozen=True, eq=False)
class Lines:
    """Of both sides of v: what multiplies it at the ends of cells of z [2, ..., n, K, 2]; slopes
    [..., n, K, 2] of the lines below f and above it; and a bound of all that is summed and of |f|,
    [2, ..., n, K]."""

    factor: Tensor
    slopes: Tensor
    size: Tensor


def lines(activation: Activation, rows: Margins, at: Grid, threshold: float) -> Lines:
    """The lines that are closest to f at the middles of cells."""
    mean = math.sqrt(2 / math.pi) * (rows.radius @ rows.variance.sqrt())
    far = mean + threshold * rows.spread.sqrt()
    size = rows.size + REACH * (rows.std + 2 * rows.turned) + far
    low, high = _reached(activation, at, far)
    spare = (rows.slack * size + UNDERFLOW).unsqueeze(-1)
    # An activation may have parameters by neuron, which stand last.
    found = relax(activation, Box((low - spare).mT, (high + spare).mT))
    slope = torch.stack([found.lower_slope[0], found.upper_slope[1]]).mT
    lift = torch.stack([found.lower_intercept[0], found.upper_intercept[1]]).mT
    z, shift = _pairs(at.z), _pairs(at.rho) + mean[..., None, None]
    sign = torch.tensor([1.0, -1.0]).to(slope).reshape(2, *[1] * z.dim())
    factor = slope.unsqueeze(-1) * z + lift.unsqueeze(-1)
    factor = factor - sign * slope.abs().unsqueeze(-1) * shift
    size, most = size.unsqueeze(-1), largest(activation, size).unsqueeze(-1)
    summed = slope.abs() * size + lift.abs() + most
    return Lines(factor, slope.movedim(0, -1).contiguous(), summed)


def largest(activation: Activation, size: Tensor) -> Tensor:
    """Of |f| where |z| <= size. What v is off by multiplies f itself: where v is nearly 0 its sign
    may be wrong, and the line on the other side, which may be flat, is no bound of that."""
    traits = activation.traits
    steep, constant = traits.growth
    if math.isfinite(traits.largest):
        return torch.full_like(size, traits.largest)
    return steep * size + constant


def _reached(activation: Activation, at: Grid, far: Tensor) -> tuple[Tensor, Tensor]:
    """Ends of where lines must hold for v > 0 and for v < 0, each [2, ..., n, K]."""
    below, above = _pairs(at.z - at.rho), _pairs(at.z + at.rho)
    low, high = below.amin(-1) - far.unsqueeze(-1), above.amax(-1) + far.unsqueeze(-1)
    if activation.traits.slopes[0] >= 0:
        return torch.stack([low, above.amin(-1)]), torch.stack([below.amax(-1), high])
    return torch.stack([low, low]), torch.stack([high, high])


def line_corners(rows: Margins, at: Grid, found: Lines, row: int) -> tuple[Tensor, Tensor]:
    """T from below, and (a v s)², at the corners [..., n, K, L, 2, 2] of one row."""
    positive = at.positive[..., row, :, None, :, None, None]
    v = _pairs(at.v[..., row, :, :])[..., None, :, None, :]
    v = torch.where(positive, v.clamp_min(0), v.clamp_max(0))
    slopes = found.slopes.abs().movedim(-1, 0)
    factor, slope, size = (
        torch.where(positive, one[0], one[1])
        for one in (
            found.factor[..., None, :, None],
            slopes[..., None, None, None],
            found.size[..., None, None, None],
        )
    )
    most = (rows.v_size + REACH * rows.s)[..., row, :, None, None, None, None]
    value = v * factor - ((rows.slack + SPARE) * most * size + UNDERFLOW)
    noise = rows.spread[..., None, None, None, None]
    squared = noise * (v * slope) ** 2 + (noise > 0).to(noise) * TINY
    return value, squared.expand_as(value)


def _pairs(ends: Tensor) -> Tensor:
    """The two ends of every cell, last."""
    return torch.stack([ends[..., :-1], ends[..., 1:]], -1)

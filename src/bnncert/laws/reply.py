"""Upper bounds on boxes by an adversary who sees the network: δ_j = r_j sign(G_j) about a point,

    G_j = Σ_i u_i W'_ij,   W'_ij = W_ij - κ_ij (ζ_i - ζ'_i),   ζ_i = z_i - m_i,

with ζ' an independent copy of ζ: W' has the law of W, and is independent of all z, v and β. With
Ȳ_j and b_j the mean and deviation of G_j, s_j = Ȳ_j/b_j, e_j = 2Φ(s_j) - 1 and f_j = 2φ(s_j), the
negated row is at least β + Σ_i T_i - (noise),

    T = v(αz + l) + x h - |x| (q(|ζ| + √(2/π) τ) + E),   x = vα,
    h_i = Σ_j r_j (e_j W̄_ij + f_j u_iσ_ij²/b_j),   q_i = Σ_j r_j|κ_ij|,

where v < 0 and αt + l >= relu(t) wherever z_i + W_i·δ is but for a small chance, or v > 0 and
l = 0; E pays for roundings. The noise is sub-Gaussian: docs/wide.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.laws.cells import REACH
from bnncert.laws.corners import Corners, Grid
from bnncert.laws.head import UNDERFLOW, Margins

FAINT = 64.0  # the share of what ζ' adds to the noise: it is faint
FARTHEST = 12.0  # deviations from 0 of G_j's mean, as far as they matter
LOOSE = 2.0**-40  # of e_j and f_j
MEAN = math.sqrt(2 / math.pi)


def phi(x: Tensor) -> Tensor:
    return (-x * x / 2).exp() / math.sqrt(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Answer:
    """What an adversary's weights u make of the neurons: h, q and E [n]; ω_ij = W̄_ij - u_iσ_ij²
    Ȳ_j/b_j² [J, n], whose signs' noise is Σ_j r_j (sign G_j - e_j) Σ_i x_i ω_ij; its size
    ‖(r_j ω_ij)_j‖ for every neuron; and Σ_j r_j (|W̄_ij| + |u_i|σ_ij²/b_j), for roundings."""

    shift: Tensor
    turned: Tensor
    error: Tensor
    omega: Tensor
    length: Tensor
    size: Tensor


def answer(rows: Margins, weights: Tensor) -> Answer:
    mean, b = rows.weight @ weights, (rows.variance @ weights**2).sqrt()
    some = b > 0
    divided = torch.where(some, b, 1.0)
    s = torch.where(some, mean / divided, torch.sign(mean) * math.inf).nan_to_num(math.inf)
    s = s.clamp(-FARTHEST, FARTHEST)
    e, f = torch.special.erf(s / math.sqrt(2)), torch.where(some, 2 * phi(s), 0.0)
    share = weights * rows.variance / divided.unsqueeze(1)
    omega = rows.weight - share * (mean / divided).unsqueeze(1)
    omega = torch.where(some.unsqueeze(1), omega, 0.0)
    off = rows.slack * (rows.weight.abs() @ weights.abs()) / divided
    sizes = rows.weight.abs() + 4 * share.abs()
    length = torch.linalg.vector_norm(rows.radius.unsqueeze(1) * omega, dim=0)
    return Answer(
        (rows.radius * e) @ rows.weight + (rows.radius * f) @ share,
        rows.radius @ rows.kappa.abs(),
        (rows.radius * (off * some + rows.slack + LOOSE)) @ sizes,
        omega,
        length,
        rows.radius @ sizes,
    )


@dataclass(frozen=True, eq=False)
class Slopes:
    """α and l of every cell of z, [2, n, K]: of v > 0 and of v < 0."""

    alpha: Tensor
    lift: Tensor
    size: Tensor  # of all that z + W·δ is made of, [n]


def slopes(rows: Margins, at: Grid, found: Answer, threshold: float) -> Slopes:
    """Open or not where v > 0; a chord of all that z + W·δ is where v < 0."""
    reach = _reach(rows, found, threshold)
    size = rows.size + REACH * rows.std + found.size + found.turned * REACH * rows.std + reach
    wide = found.turned.unsqueeze(-1) * (at.z - rows.mean.unsqueeze(-1)).abs()
    aside = (reach + rows.slack * size).unsqueeze(-1)
    middle = at.z + found.shift.unsqueeze(-1)
    low, high = _least(middle - wide - aside), -_least(-(middle + wide + aside))
    chord = ((high.clamp_min(0) - low.clamp_min(0)) / (high - low)).nan_to_num(1.0)
    lift = torch.maximum(high.clamp_min(0) - chord * high, low.clamp_min(0) - chord * low)
    open_ = (middle[:, 1:] + middle[:, :-1] > 0).to(chord)
    return Slopes(torch.stack([open_, chord]), torch.stack([0 * lift, lift]), size)


def _reach(rows: Margins, found: Answer, threshold: float) -> Tensor:
    """How far W·δ is from h, but for q|ζ| and a chance of 2 exp(-t²/2), [n]."""
    faint = found.turned * rows.std
    noise = rows.spread.sqrt() + found.length + faint
    return threshold * noise + MEAN * faint + found.error


def _least(ends: Tensor) -> Tensor:
    return torch.minimum(ends[:, 1:], ends[:, :-1])


def corners(rows: Margins, at: Grid, found: Answer, own: Slopes) -> tuple[Corners, Tensor]:
    """Of one row: T less its roundings, x, and x² of the noise (a², q²τ²) [1, n, K, L, 2, 2]."""
    side = at.positive[0][:, None, :, None, None]
    v = _pairs(at.v[0])[:, None, :, None, :]
    v = torch.where(side, v.clamp_min(0), v.clamp_max(0))
    alpha, lift = (
        torch.where(side, both[0][:, :, None, None, None], both[1][:, :, None, None, None])
        for both in (own.alpha, own.lift)
    )
    z, x = _pairs(at.z)[:, :, None, :, None], v * alpha
    away = (z - _five(rows.mean)).abs() + MEAN * _five(rows.std)
    value = v * (alpha * z + lift) + x * _five(found.shift)
    value = value - x.abs() * (_five(found.turned) * away + _five(found.error))
    most = rows.v_size[0] + REACH * rows.s[0]
    value = value - (4 * rows.slack * _five(most * own.size) + UNDERFLOW)
    x = x.expand_as(value).unsqueeze(0)
    squared = _five(rows.spread) * x**2 * (1 + rows.slack)
    faint = _five((found.turned * rows.std) ** 2) * x**2 * (1 + rows.slack)
    return Corners(value.unsqueeze(0), x, torch.zeros_like(x), squared), faint


def in_signs(rows: Margins, found: Answer) -> Margins:
    """Margins whose remainder is ½ Σ_j r_j² (Σ_i x_i ω_ij)², by references k/r_j and 0."""
    return replace(rows, weight=found.omega, kappa=torch.zeros_like(found.omega))


def _pairs(ends: Tensor) -> Tensor:
    return torch.stack([ends[..., :-1], ends[..., 1:]], -1)


def _five(values: Tensor) -> Tensor:
    return values[:, None, None, None, None]

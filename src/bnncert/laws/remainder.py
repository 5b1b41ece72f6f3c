"""The remainder of bound C: ½ Σ_j (k r_j/θ_j) (y_j - y⁰_j)² is at most u, but for a chance η.

With A_i and B_i less its regression b_i on A_i centred and of sub-Gaussian proxies p_i and p'_i,
for E exp(λ ½‖y - E y‖²) = E_g Π_i E exp(√λ g·(A_i w_i + B'_i w'_i)) Hölder gives

    Ĉ = Σ_i (1+h) p_i w_i w_iᵀ + (1+1/h) p'_i w'_i w'_iᵀ,   w_i = D (W̄_i + b_i κ_i),   w'_i = D κ_i,
    P(½‖y - E y‖² > s) <= e^{-λs} det(I - λĈ)^{-1/2},     u = ½ (√(2s) + ‖D (E y - y⁰)‖)²,

where D² = diag(k r_j/θ_j).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.laws.corners import SQUARE, Corners, Grid, References
from bnncert.laws.head import Margins
from bnncert.laws.references import corner_masses
from bnncert.laws.spectra import log_determinants, norms

POINTS = 65  # of the lattice that a proxy is found on
NEAR, RATIO, STEPS = 0.02, 1.3, 33  # its t: NEAR/R, and up by the ratio
SHARES = (0.03, 0.1, 0.3)  # h
SCALES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)  # λ, in units of 1/|Ĉ|
FLAT = 2.0**-40  # a variance that is rounding alone, of the second moment
ROUNDED, SPARE = 2.0**-24, 2.0**-43  # what a checker may lose more
SHIFT = 2.0**-27  # by how much of A a checker may not know its mean: cells may be narrow
CHANCES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)  # η


@dataclass(frozen=True, eq=False)
class Remainders:
    """u by share h, scale λ and chance η, [..., R, C] of every row one for each of C chances."""

    most: Tensor
    share: Tensor
    scale: Tensor
    chance: Tensor

    def of(self, row: int) -> Remainders:
        kept = (self.most, self.share, self.scale, self.chance)
        return Remainders(*(x[..., row, :] for x in kept))


def nothing(rows: Margins) -> Remainders:
    """Where no input moves or no reference is."""
    zeros = torch.zeros_like(rows.beta).unsqueeze(-1)
    return Remainders(zeros, zeros + 1, zeros + 1, zeros)


def remainders(rows: Margins, found: References, at: Grid, ends: Corners) -> Remainders:
    if not rows.radius.shape[-1]:
        return nothing(rows)
    mass = corner_masses(at).flatten(-4)
    a, b = ends.a.flatten(-4), ends.b.flatten(-4)
    first, second = ((mass * x).sum(-1, keepdim=True) for x in (a, b))
    moment = (mass * a * a).sum(-1)
    shifts = [SHIFT * x.abs().amax(-1) for x in (a, b)]
    a, b = a - first, b - second
    variance, both = (mass * a * a).sum(-1), (mass * a * b).sum(-1)
    regular = variance > FLAT * moment
    slope = torch.where(regular, both / variance, 0.0)
    beside = shifts[1] + slope.abs() * shifts[0]
    proxies = (
        proxy(a, mass, shifts[0]),
        proxy(b - slope.unsqueeze(-1) * a, mass, beside),
    )
    away = first.squeeze(-1) @ rows.weight.mT + second.squeeze(-1) @ rows.kappa.mT - found.y
    scaled = (SQUARE * rows.radius.unsqueeze(-2) / found.theta).sqrt()
    off = torch.linalg.vector_norm(scaled * away, dim=-1) * (1 + rows.slack)
    return _best(_tried(rows, scaled, slope, proxies), off)


Tried: TypeAlias = tuple[Tensor, Tensor, Tensor]  # h, λ, log E exp(λ ½‖·‖²), each [..., R, T]


def _tried(rows: Margins, scaled: Tensor, slope: Tensor, proxies: tuple[Tensor, Tensor]) -> Tried:
    """Of every share and every scale."""
    along = rows.weight + slope.unsqueeze(-2) * rows.kappa.unsqueeze(-3)
    both = torch.cat([along, rows.kappa.unsqueeze(-3).expand_as(along)], -1)
    both = scaled.unsqueeze(-1) * both
    share = scaled.new_tensor(SHARES).unsqueeze(-1)
    parts = (1 + share) * proxies[0].unsqueeze(-2), (1 + 1 / share) * proxies[1].unsqueeze(-2)
    grams = _grams(both, torch.cat(parts, -1))
    norm = norms(grams).clamp_min(1e-100)
    scale = torch.stack([part / norm for part in SCALES], -1)
    shrunk = torch.stack([log_determinants(grams, one) for one in scale.unbind(-1)], -1)
    logarithm = SPARE * grams.shape[-1] ** 2 - shrunk / 2
    return share.expand_as(scale).flatten(-2), scale.flatten(-2), logarithm.flatten(-2)


def _grams(vectors: Tensor, weights: Tensor) -> Tensor:
    """Σ_i p_i x_i x_iᵀ, x_i the columns of [..., J, m], for each p of [..., S, m]; or the matrix of
    scalar products, which has the same determinants, where it is smaller."""
    if vectors.shape[-1] < vectors.shape[-2]:
        roots = weights.sqrt()
        return (vectors.mT @ vectors).unsqueeze(-3) * roots.unsqueeze(-1) * roots.unsqueeze(-2)
    vectors = vectors.unsqueeze(-3)
    return (vectors * weights.unsqueeze(-2)) @ vectors.mT


def _best(tried: Tried, off: Tensor) -> Remainders:
    """For every chance."""
    chances = off.new_tensor(CHANCES)
    share, scale, logarithm = tried
    s = (logarithm.unsqueeze(-2) - chances.log().unsqueeze(-1)) / scale.unsqueeze(-2)
    most, best = ((2 * s).sqrt() + off[..., None, None]).square().min(-1)
    kept = share.gather(-1, best), scale.gather(-1, best)
    return Remainders(most / 2 * (1 + ROUNDED), *kept, chances.expand_as(most))


def proxy(x: Tensor, mass: Tensor, shift: Tensor) -> Tensor:
    """p with E exp(t X) <= exp(p t²/2) for all t, X centred [..., P] but for a shift, [...].

    Each atom is first spread to two points of a lattice. Near 0 by the variance, on a grid of t by
    chords of the convex log E exp(t X), beyond it by |X| <= R. The shift adds t shift to the
    logarithm, and more than 2 shift/t to p for no t beyond NEAR/R; it is charged as the place of
    the zero, as what is not known of the mean, and again nearer to 0.
    """
    points, weights = _spread(x, mass)
    reach = points.abs().amax(-1)
    start = NEAR / reach.clamp_min(1e-100)
    found = (weights * points**2).sum(-1) * math.exp(NEAR)
    last = 2 * reach / (start * RATIO**STEPS)
    found = torch.maximum(found, torch.where(reach > 0, last, 0.0))
    t = start.unsqueeze(-1) * RATIO ** torch.arange(STEPS + 1, dtype=x.dtype, device=x.device)
    for sign in (1.0, -1.0):
        exponents = sign * t.unsqueeze(-1) * points.unsqueeze(-2)
        values = (weights.unsqueeze(-2) * exponents.exp_()).sum(-1).log()
        slope = (values[..., 1:] - values[..., :-1]) / (t[..., 1:] - t[..., :-1])
        height = values[..., :-1] - slope * t[..., :-1]
        # The chord over t² is largest at -2 height / slope, if that is on it.
        where = -2 * height / slope.clamp_min(1e-300)
        where = torch.minimum(torch.maximum(where, t[..., :-1]), t[..., 1:])
        found = torch.maximum(found, (2 * (height + slope * where) / where**2).amax(-1))
    known = torch.where(reach > 0, found * (1 + ROUNDED) + 2.0**-28 * reach**2, 0.0)
    charged: Tensor = known + 6 / NEAR * shift * (reach + shift)
    return charged


def _spread(x: Tensor, mass: Tensor) -> tuple[Tensor, Tensor]:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (high - low) / (POINTS - 1)
    place = ((x - low) / step.clamp_min(1e-300)).clamp(0, POINTS - 1)
    index = place.floor().clamp_max(POINTS - 2)
    right = mass * (place - index)
    weights = torch.zeros(*x.shape[:-1], POINTS, dtype=x.dtype, device=x.device)
    weights.scatter_add_(-1, index.long(), mass - right)
    weights.scatter_add_(-1, index.long() + 1, right)
    return low + step * torch.arange(POINTS, dtype=x.dtype, device=x.device), weights

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

import torch
from torch import Tensor

from bnncert.laws.corners import SQUARE, Corners, Grid, References
from bnncert.laws.head import Margins
from bnncert.laws.references import corner_masses

POINTS = 65  # of the lattice that a proxy is found on
NEAR, RATIO, STEPS = 0.02, 1.3, 33  # its t: NEAR/R, and up by the ratio
SHARES = (0.03, 0.1, 0.3)  # h
SCALES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)  # λ, in units of 1/|Ĉ|
FLAT = 2.0**-40  # a variance that is rounding alone, of the second moment
ROUNDED, SPARE = 2.0**-24, 2.0**-43  # what a checker may lose more
SHIFT = 2.0**-27  # by how much of A a checker may not know its mean: cells may be narrow
CHANCES = (1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5, 1e-6)  # η


@dataclass(frozen=True)
class Remainder:
    """u of one row by share h, scale λ and chance η."""

    most: float
    share: float
    scale: float
    chance: float


def remainders(
    rows: Margins, found: References, at: Grid, ends: Corners
) -> list[tuple[Remainder, ...]]:
    """For every row one for each chance."""
    if not len(rows.radius):
        return [(Remainder(0.0, 1.0, 1.0, 0.0),)] * found.count
    mass = corner_masses(at).flatten(2)
    a, b = ends.a.flatten(2), ends.b.flatten(2)
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
    return [
        _row(rows, found.theta[r], slope[r], (proxies[0][r], proxies[1][r]), away[r])
        for r in range(found.count)
    ]


def _row(
    rows: Margins, theta: Tensor, slope: Tensor, proxies: tuple[Tensor, Tensor], away: Tensor
) -> tuple[Remainder, ...]:
    scaled = (SQUARE * rows.radius / theta).sqrt()
    off = float(torch.linalg.vector_norm(scaled * away)) * (1 + rows.slack)
    along = scaled.unsqueeze(1) * (rows.weight + slope * rows.kappa)
    beside = scaled.unsqueeze(1) * rows.kappa
    tried: list[tuple[float, float, float]] = []  # h, λ, log E exp(λ ½‖·‖²)
    for share in SHARES:
        parts = (
            along * ((1 + share) * proxies[0]).sqrt(),
            beside * ((1 + 1 / share) * proxies[1]).sqrt(),
        )
        both = torch.cat(parts, 1)
        gram = both.mT @ both if both.shape[1] < both.shape[0] else both @ both.mT
        values = torch.linalg.eigvalsh(gram).clamp_min(0)
        for part in SCALES:
            scale = part / max(float(values[-1]), 1e-100)
            logarithm = -float(torch.log1p(-scale * values).sum()) / 2
            logarithm += SPARE * len(values) ** 2
            tried.append((share, scale, logarithm))
    return tuple(_best(tried, off, chance) for chance in CHANCES)


def _best(tried: list[tuple[float, float, float]], off: float, chance: float) -> Remainder:
    def most(one: tuple[float, float, float]) -> float:
        s = (one[2] + math.log(1 / chance)) / one[1]
        return (math.sqrt(2 * s) + off) ** 2 / 2 * (1 + ROUNDED)

    share, scale, _ = best = min(tried, key=most)
    return Remainder(most(best), share, scale, chance)


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

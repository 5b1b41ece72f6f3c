"""What one neuron adds to a margin at the least, on cells of (z_i, v_i), by bound C.

    v > 0:  T = vαz - ½v²α²G - Y
    v < 0:  T = -|v| [αρ + ½|v|α²G + Ψ(z + (1-2α)ρ + (1-α²)|v|H, S)] - Y,
            S² = a² + (1-α²)² v² V,   Ψ(x, S) = E(x + S g)⁺

with u = -vα, A = -α clip(v), B = A clip(z - m), and what the references θ, y⁰ make of a row:

    G = (2/π) Σ_j r_jσ_ij²/θ_j,   H = √(2/π) Σ_j r_jσ_ij²/2b_j,   V = Σ_j r_j²σ_ij⁴/4b_j²,  b = .56θ
    Y = A δ̄·W̄ + B δ̄·κ + |u-A| r·|W̄| + |u(z-m)-B| r·|κ|,   δ̄_j = k r_j y⁰_j/θ_j,   k = 1.06.

For fixed α in [0, 1], and A and B bilinear, T is concave in z and in v on either side of v = 0: on
a cell it is at least the bilinear function with the same corners.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.laws.cells import REACH, Cells, base_edges, cells, with_edge
from bnncert.laws.head import UNDERFLOW, Margins
from bnncert.numerics.products import dot
from bnncert.numerics.tails import expected_magnitude

SQUARE, FLOOR = 1.06, 0.56  # of the lemmas: E|max(b, b*) h + y| by squares of b and y
CLIP = 2.5  # standard deviations to which A and B follow u and u(z - m)
SLOPES = 8  # equal steps of the slopes that are tried
SAME = 2.0**-30  # relative: losses that differ by less count as equal


@dataclass(frozen=True, eq=False)
class References:
    """θ and y⁰ [..., R, J] of the moving inputs, and what they make of every neuron [..., R, n]."""

    theta: Tensor
    y: Tensor
    curvature: Tensor  # G
    lift: Tensor  # H
    spread: Tensor  # V
    along: Tensor  # δ̄·W̄
    along_kappa: Tensor  # δ̄·κ
    along_size: Tensor  # |δ̄|·(|W̄| + |κ|τ), for roundings


def references(rows: Margins, theta: Tensor, y: Tensor) -> References:
    radius = rows.radius.unsqueeze(-2)
    share = radius / theta
    floor = 2 * FLOOR * theta
    delta = SQUARE * share * y
    return References(
        theta,
        y,
        2 / math.pi * (share @ rows.variance),
        math.sqrt(2 / math.pi) * ((radius / floor) @ rows.variance),
        (radius / floor) ** 2 @ rows.variance**2,
        delta @ rows.weight,
        delta @ rows.kappa,
        delta.abs() @ (rows.weight.abs() + rows.kappa.abs() * rows.std.unsqueeze(-2)),
    )


def constant(rows: Margins, found: References) -> Tensor:
    """K = ½ Σ_j r_j (θ_j - k (y⁰_j)²/θ_j), [..., R]"""
    squares = SQUARE * found.y**2 / found.theta
    rounding = rows.slack * dot(found.theta + squares, rows.radius) + UNDERFLOW
    return dot(found.theta - squares, rows.radius) / 2 + rounding


@dataclass(frozen=True, eq=False)
class Grid:
    """Cells of z [..., n, K] and of v [..., R, n, L], their ends, and ρ = Σ_j r_j|w̄_j(z)| at those
    of z.

    positive: which cells of v are on that side.
    """

    first: Cells
    second: Cells
    z: Tensor
    v: Tensor
    rho: Tensor
    positive: Tensor


def grid(rows: Margins, first: Cells, second: Cells) -> Grid:
    deviations = rows.std.unsqueeze(-1) * first.edges
    z = rows.mean.unsqueeze(-1) + deviations
    v = rows.v.unsqueeze(-1) + rows.s.unsqueeze(-1) * second.edges
    ends = [
        rows.swept(rows.weight + rows.kappa * deviation.unsqueeze(-2))
        for deviation in deviations.unbind(-1)
    ]
    positive = v[..., 1:] + v[..., :-1] > 0
    return Grid(first, second, z, v, torch.stack(ends, -1), positive)


def grid_of(rows: Margins, counts: tuple[int, int, int, int], kinks: tuple[float, ...]) -> Grid:
    """With an edge at each kink of z and at v = 0."""
    first, second = (base_edges(count).to(rows.mean.device) for count in counts[::2])
    for kink in kinks:
        first = with_edge(first, ((kink - rows.mean) / rows.std).nan_to_num(math.inf))
    second = with_edge(second, (-rows.v / rows.s).nan_to_num(math.inf))
    return grid(rows, cells(first, counts[1]), cells(second, counts[3]))


def excess(x: Tensor, s: Tensor) -> Tensor:
    """Ψ(x, s) = E(x + s g)⁺"""
    mean = (x + expected_magnitude(x, s.clamp_min(1e-200))) / 2
    return torch.maximum(mean, x.clamp_min(0))


def slopes(
    rows: Margins, found: References, at: Grid, blend: Tensor, steps: int = SLOPES
) -> Tensor:
    """α of every cell [..., R, n, K, L]: what loses least at its centre, of a few values where
    v < 0, blended [..., R] with its mean over z."""
    return blended(_cheapest(rows, found, at, steps), at, blend)


def blended(alpha: Tensor, at: Grid, blend: Tensor) -> Tensor:
    """(1 - w) α + w E α, the mean over the cells of z: the more of it, the less A varies with z."""
    mass = at.first.mass.sum(-1)
    share = (mass / mass.sum(-1, keepdim=True))[..., None, :, :, None]
    mean = (share * alpha).sum(-2, keepdim=True)
    w = blend[..., None, None, None]
    return ((1 - w) * alpha + w * mean).clamp(0, 1)


def _cheapest(rows: Margins, found: References, at: Grid, steps: int) -> Tensor:
    v = _middle(at.v).unsqueeze(-2)
    z, rho, mean, noise = (
        x[..., None, :, :, None]
        for x in (_middle(at.z), _middle(at.rho), rows.mean[..., None], rows.spread[..., None])
    )
    t = v.abs()
    along = _on(found.along) + _on(found.along_kappa) * (z - mean)
    curvature = t * _on(found.curvature)
    open_ = torch.where(curvature > 0, (z + along) / curvature, torch.sign(z + along) * math.inf)
    best = torch.full_like(curvature * z, math.inf)
    chosen = torch.zeros_like(best)
    enough = SAME * (rho + z.abs() + noise.sqrt())
    for k in range(steps + 1):
        alpha = k / steps
        rest = 1 - alpha**2
        s = (noise + rest**2 * t**2 * _on(found.spread)).sqrt()
        flipped = excess(z + (1 - 2 * alpha) * rho + rest * t * _on(found.lift), s)
        loss = alpha * (rho + along) + alpha**2 * curvature / 2 + flipped
        better = loss < best - enough
        best, chosen = torch.where(better, loss, best), torch.where(better, alpha, chosen)
    return torch.where(v > 0, open_.nan_to_num(0.0).clamp(0, 1), chosen)


@dataclass(frozen=True, eq=False)
class Corners:
    """At the corners of every cell [..., R, n, K, L, 2, 2]: T from below, A, B, and (a p̄)² of
    L²."""

    value: Tensor
    a: Tensor
    b: Tensor
    squared: Tensor


def reference_values(rows: Margins, at: Grid, alpha: Tensor) -> tuple[Tensor, Tensor]:
    """A and B at the corners."""
    v, z = _second(at.v), _first(at.z - rows.mean.unsqueeze(-1))
    reach, wide, middle = _six(CLIP * rows.s), _neurons(CLIP * rows.std), _six(rows.v)
    a = -_on(alpha) * torch.minimum(torch.maximum(v, middle - reach), middle + reach)
    b = a * torch.minimum(torch.maximum(z, -wide), wide)
    return a.expand_as(b), b


def corners(rows: Margins, found: References, at: Grid, alpha: Tensor) -> Corners:
    a, b = reference_values(rows, at, alpha)
    alpha = _on(alpha)
    positive = _on(at.positive.unsqueeze(-2))
    v = _second(at.v)
    v = torch.where(positive, v.clamp_min(0), v.clamp_max(0))
    t, z, rho = v.abs(), _first(at.z), _first(at.rho)
    rest, curvature = 1 - alpha**2, _six(found.curvature) * (v * alpha) ** 2 / 2
    s = (_neurons(rows.spread) + rest**2 * t**2 * _six(found.spread)).sqrt()
    flipped = excess(z + (1 - 2 * alpha) * rho + rest * t * _six(found.lift), s)
    value = torch.where(positive, v * alpha * z, -t * (alpha * rho + flipped)) - curvature
    u = -v * alpha
    size, size_kappa = _neurons(rows.swept(rows.weight)), _neurons(rows.swept(rows.kappa))
    value -= a * _six(found.along) + b * _six(found.along_kappa)
    value -= (u - a).abs_().mul_(size)
    value -= (u * (z - _neurons(rows.mean))).sub_(b).abs_().mul_(size_kappa)
    value -= rows.slack * _six(magnitude(rows, found)) + UNDERFLOW
    squared = _neurons(rows.spread) * torch.where(positive, u**2, v**2)
    return Corners(value, a, b, squared)


def magnitude(rows: Margins, found: References) -> Tensor:
    """More than all that is summed for T at a corner, [..., R, n]: roundings are a share of it."""
    most = rows.v_size + REACH * rows.s
    own = rows.size + REACH * (rows.std + 2 * rows.turned) + rows.spread.sqrt()
    at_most = own.unsqueeze(-2) + REACH * found.along_size
    return most * (at_most + most * (found.curvature + found.lift + found.spread.sqrt()))


def _middle(ends: Tensor) -> Tensor:
    return (ends[..., 1:] + ends[..., :-1]) / 2


def _pairs(ends: Tensor) -> Tensor:
    """The two ends of every cell, last."""
    return torch.stack([ends[..., :-1], ends[..., 1:]], -1)


def _first(ends: Tensor) -> Tensor:
    """Ends of z [..., n, K + 1] at corners."""
    return _pairs(ends)[..., None, :, :, None, :, None]


def _second(ends: Tensor) -> Tensor:
    """Ends of v [..., R, n, L + 1] at corners."""
    return _pairs(ends)[..., None, :, None, :]


def _on(values: Tensor) -> Tensor:
    """[..., R, n] on cells, and what is on cells at their corners."""
    return values[..., None, None]


def _six(values: Tensor) -> Tensor:
    """[..., R, n] at corners."""
    return values[..., None, None, None, None]


def _neurons(values: Tensor) -> Tensor:
    """[..., n] at corners."""
    return values[..., None, :, None, None, None, None]

"""What one neuron adds to a margin at the least, at the corners of cells of (z_i, v_i).

    v > 0:  T = vαz - ½v²α²G - Y
    v < 0:  T = -|v| [αρ + ½|v|α²G + Ψ(z + (1-2α)ρ + (1-α²)|v|H, S)] - Y,  S² = a² + (1-α²)² v² V

For any α in [0, 1] of a cell T is concave in z and in v, so the bilinear function with its corners
is below it. Roundings are a share, `slack`, of a bound of everything that is summed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import UNIT, Array
from bnncert_check.laws.cells import REACH, Cells
from bnncert_check.tails import expected_magnitude

SQUARE, FLOOR = 1.06, 0.56  # k and b*/θ: E|max(b, b*) h + y| <= ½ (((2/π) b² + k y²)/θ + θ)
CLIP = 2.5  # standard deviations to which A and B follow u and u(z - m)
SLOPES = 8  # equal steps of the slopes that are tried
OF_ROWS = ("v", "s", "v_size", "beta", "beta_std", "beta_size")
OF_NEURONS = ("mean", "std", "size", "v", "s", "v_size", "weight", "variance", "kappa")
UNDERFLOW = 2.0**-500  # of a sum or a root of what was too small for a float, generously
SAME = 2.0**-30  # losses that differ by less, of what is summed, count as equal


@dataclass(frozen=True)
class Margins:
    """mean, std, size [n]: of z at the centre, with |W̄|·|c| + |b|; v, s [R, n], beta, beta_std and
    beta_size [R]: of the output; radius [J] of the inputs that move, and of these weight, variance
    and kappa [J, n]."""

    mean: Array
    std: Array
    size: Array
    v: Array
    s: Array
    v_size: Array
    beta: Array
    beta_std: Array
    beta_size: Array
    radius: Array
    weight: Array
    variance: Array
    kappa: Array
    terms: int

    def row(self, r: int) -> Margins:
        """Of one row alone."""
        own = {name: getattr(self, name)[r : r + 1] for name in OF_ROWS}
        return replace(self, **own)

    def part(self, neurons: slice) -> Margins:
        """Of some neurons."""
        own = {name: getattr(self, name)[..., neurons] for name in OF_NEURONS}
        return replace(self, **own)

    @property
    def squared(self) -> Array:
        """a² = Σ_j r_j² σ_ij²"""
        return np.asarray(self.radius**2 @ self.variance)

    @property
    def turned(self) -> Array:
        return np.asarray(self.radius @ (np.abs(self.weight) + np.abs(self.kappa) * self.std))

    @property
    def slack(self) -> float:
        """No dot product is longer than the inputs, the neurons or the outputs, and none has 64
        roundings around it."""
        return 64 * (self.terms + 64) * UNIT


@dataclass(frozen=True)
class References:
    """θ and y⁰ [R, J], and what they make of neurons, [R, n]."""

    theta: Array
    y: Array
    curvature: Array
    lift: Array
    spread: Array
    along: Array
    along_kappa: Array
    along_size: Array


def references(rows: Margins, theta: Array, y: Array) -> References:
    share, floor = rows.radius / theta, rows.radius / (2 * FLOOR * theta)
    delta = SQUARE * share * y
    sizes = np.abs(rows.weight) + np.abs(rows.kappa) * rows.std
    return References(
        theta,
        y,
        2 / math.pi * (share @ rows.variance),
        math.sqrt(2 / math.pi) * (floor @ rows.variance),
        floor**2 @ rows.variance**2,
        delta @ rows.weight,
        delta @ rows.kappa,
        np.abs(delta) @ sizes,
    )


@dataclass(frozen=True)
class Grid:
    """Cells of z [n, ·] and of v [R, n, ·]; ends of z, v, and ρ at those of z."""

    first: Cells
    second: Cells
    z: Array
    v: Array
    rho: Array
    positive: NDArray[np.bool_]


def grid(rows: Margins, first: Cells, second: Cells) -> Grid:
    z = rows.mean[:, None] + rows.std[:, None] * first.edges
    v = rows.v[..., None] + rows.s[..., None] * second.edges
    away = rows.std[:, None] * first.edges
    ends = [rows.radius @ np.abs(rows.weight + rows.kappa * away[:, k]) for k in range(z.shape[1])]
    return Grid(first, second, z, v, np.stack(ends, -1), v[..., 1:] + v[..., :-1] > 0)


def excess_up(x: Array, s: Array) -> Array:
    """E(x + s g)⁺, nearly and not below but for roundings."""
    mean = (x + expected_magnitude(x, np.maximum(s, 1e-200))) / 2
    return np.maximum(mean, np.maximum(x, 0))


def slopes(rows: Margins, found: References, at: Grid) -> Array:
    """α of every cell [R, n, K, L], by its centre: any numbers in [0, 1] would do."""
    v, z = _middle(at.v)[:, :, None, :], _middle(at.z)[:, :, None]
    t, rho = np.abs(v), _middle(at.rho)[:, :, None]
    along = _on(found.along) + _on(found.along_kappa) * (z - rows.mean[:, None, None])
    curvature = t * _on(found.curvature)
    open_ = np.where(curvature > 0, (z + along) / curvature, np.sign(z + along) * np.inf)
    best, chosen = np.full(open_.shape, np.inf), np.zeros(open_.shape)
    enough = SAME * (rho + np.abs(z) + np.sqrt(rows.squared)[:, None, None])
    for k in range(SLOPES + 1):
        alpha = k / SLOPES
        rest = 1 - alpha**2
        s = np.sqrt(rows.squared[:, None, None] + rest**2 * t**2 * _on(found.spread))
        flipped = excess_up(z + (1 - 2 * alpha) * rho + rest * t * _on(found.lift), s)
        loss = alpha * (rho + along) + alpha**2 * curvature / 2 + flipped
        better = loss < best - enough
        best, chosen = np.where(better, loss, best), np.where(better, alpha, chosen)
    return np.where(v > 0, np.nan_to_num(open_, nan=0.0).clip(0, 1), chosen)


def blended(alpha: Array, at: Grid, blend: float) -> Array:
    """(1 - w) α + w E α, about its mean over z: any numbers in [0, 1] would do."""
    mass = at.first.mass.sum(-1)
    share = (mass / mass.sum(-1, keepdims=True))[:, :, None]
    mean = (share * alpha).sum(-2, keepdims=True)
    return np.asarray(((1 - blend) * alpha + blend * mean).clip(0, 1))


def reference_values(rows: Margins, at: Grid, alpha: Array) -> tuple[Array, Array]:
    """A = -α clip(v) and B = A clip(z - m) at the corners [R, n, K, L, 2, 2]: bilinear on a cell,
    whatever they are."""
    v, z = _second(at.v), _first(at.z - rows.mean[:, None])
    reach = _six(CLIP * rows.s)
    wide = (CLIP * rows.std)[:, None, None, None, None]
    a = -_inner(alpha) * np.clip(v, _six(rows.v) - reach, _six(rows.v) + reach)
    b = a * np.clip(z, -wide, wide)
    return np.broadcast_to(a, b.shape), b


def corners(
    rows: Margins, found: References, at: Grid, alpha: Array, a: Array, b: Array
) -> tuple[Array, Array]:
    """T from below, and (a_i p̄_i)² from above, [R, n, K, L, 2, 2]."""
    alpha, positive = _inner(alpha), at.positive[:, :, None, :, None, None]
    v = _second(at.v)
    v = np.where(positive, np.maximum(v, 0), np.minimum(v, 0))
    t, z, rho, rest = np.abs(v), _first(at.z), _first(at.rho), 1 - alpha**2
    s = np.sqrt(_neurons(rows.squared) + rest**2 * t**2 * _six(found.spread))
    flipped = excess_up(z + (1 - 2 * alpha) * rho + rest * t * _six(found.lift), s)
    value = np.where(positive, v * alpha * z, -t * (alpha * rho + flipped))
    value -= _six(found.curvature) * (v * alpha) ** 2 / 2
    u = -v * alpha
    value -= a * _six(found.along) + b * _six(found.along_kappa)
    value -= np.abs(u - a) * _neurons(rows.radius @ np.abs(rows.weight))
    away = np.abs(u * (z - _neurons(rows.mean)) - b)
    value -= away * _neurons(rows.radius @ np.abs(rows.kappa))
    value -= rows.slack * _six(_magnitude(rows, found)) + UNDERFLOW
    squared = _neurons(rows.squared) * np.where(positive, u**2, v**2)
    return value, squared * (1 + rows.slack)


def _magnitude(rows: Margins, found: References) -> Array:
    """A bound of all that is summed for T, [R, n]."""
    most = rows.v_size + REACH * rows.s
    at_most = rows.size + REACH * (rows.std + 2 * rows.turned + found.along_size)
    own = found.curvature + found.lift + np.sqrt(found.spread)
    return np.asarray(most * (at_most + np.sqrt(rows.squared) + most * own))


def _middle(ends: Array) -> Array:
    return (ends[..., 1:] + ends[..., :-1]) / 2


def _pairs(ends: Array) -> Array:
    return np.stack([ends[..., :-1], ends[..., 1:]], -1)


def _first(ends: Array) -> Array:
    """Ends of z [n, K + 1] at corners."""
    return _pairs(ends)[None, :, :, None, :, None]


def _second(ends: Array) -> Array:
    """Ends of v [R, n, L + 1] at corners."""
    return _pairs(ends)[:, :, None, :, None, :]


def _on(values: Array) -> Array:
    return values[:, :, None, None]


def _inner(values: Array) -> Array:
    return values[..., None, None]


def _six(values: Array) -> Array:
    return values[:, :, None, None, None, None]


def _neurons(values: Array) -> Array:
    return values[None, :, None, None, None, None]

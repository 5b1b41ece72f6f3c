"""Of a row, what an adversary who sees the network makes of it: δ_j = r_j sign(G_j) about a point.

    G_j = Σ_i u_i W'_ij,   W'_ij = W_ij - κ_ij (ζ_i - ζ'_i),   ζ_i = z_i - m_i,

ζ' an independent copy of ζ: W' has the law of W and is independent of z, v and β. With Ȳ_j and b_j
the mean and deviation of G_j, e_j = 2Φ(Ȳ_j/b_j) - 1 and f_j = 2φ(Ȳ_j/b_j), and x = vα, a neuron
adds at the least

    T = v(αz + l) + x h - |x| (q(|ζ| + √(2/π) τ) + E),
    h_i = Σ_j r_j (e_j W̄_ij + f_j u_iσ_ij²/b_j),   q_i = Σ_j r_j|κ_ij|,

l = 0 where v > 0, and αt + l >= relu(t) at all that z + W·δ is where v < 0, but for a chance of
2 exp(-t²/2). What is added to that has a mean of 0, and by Hölder's inequality is sub-Gaussian with

    s₁ Σ_i x_i² a_i² + s₂ Σ_j r_j² (Σ_i x_iω_ij)² + s₃ Σ_i x_i² q_i² τ_i²,   1/s₁ + 1/s₂ + 1/s₃ = 1,
    ω_ij = W̄_ij - u_iσ_ij² Ȳ_j/b_j².

E pays for what e, f and ω may be off by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from bnncert_check.arithmetic import Array
from bnncert_check.laws.cells import REACH
from bnncert_check.laws.corners import UNDERFLOW, Grid, Margins
from bnncert_check.laws.exponentials import density, signed_tails_up

FAINT = 64.0  # s₃
FARTHEST = 12.0  # deviations: e and f are the same beyond it
LOOSE = 2.0**-40  # of e and f
MEAN = math.sqrt(2 / math.pi)
NEAR = (0.0, 0.3, 0.6, 1.2)  # edges of z about 0, in units of t a
ADDED = 2 * len(NEAR) - 1


def shares(share: float) -> tuple[float, float]:
    """s₁ and s₂."""
    rest = FAINT / (FAINT - 1)
    return (1 + share) * rest, (1 + 1 / share) * rest


@dataclass(frozen=True)
class Answer:
    """h, q, E [n]; ω [J, n] and ‖(r_jω_ij)_j‖ of every neuron; Σ_j r_j (|W̄_ij| + 4|u_i|σ_ij²/b_j),
    a bound of |h|."""

    shift: Array
    turned: Array
    error: Array
    omega: Array
    length: Array
    size: Array

    def part(self, neurons: slice) -> Answer:
        names = ("shift", "turned", "error", "omega", "length", "size")
        return Answer(*(getattr(self, name)[..., neurons] for name in names))


def answer(rows: Margins, weights: Array) -> Answer:
    mean, b = rows.weight @ weights, np.sqrt(rows.variance @ weights**2)
    some = b != 0  # where b is no number nothing else is, either
    divided = np.where(some, b, 1.0)
    s = np.where(some, mean / divided, np.where(mean < 0, -FARTHEST, FARTHEST))
    s = s.clip(-FARTHEST, FARTHEST)
    e, f = 1 - 2 * signed_tails_up(s), np.where(some, 2 * density(s), 0.0)
    share = weights * rows.variance / divided[:, None]
    omega = np.where(some[:, None], rows.weight - share * (mean / divided)[:, None], 0.0)
    off = np.where(some, rows.slack * (np.abs(rows.weight) @ np.abs(weights)) / divided, 0.0)
    sizes, radius = np.abs(rows.weight) + 4 * np.abs(share), rows.radius
    moved = radius[:, None] * omega
    return Answer(
        (radius * e) @ rows.weight + (radius * f) @ share,
        radius @ np.abs(rows.kappa),
        (radius * (off + rows.slack + LOOSE)) @ sizes,
        omega,
        np.sqrt((moved * moved).sum(0)),
        radius @ sizes,
    )


@dataclass(frozen=True)
class Slopes:
    """α and l of every cell of z, [n, K], for v > 0 and for v < 0; and a bound of all that z + W·δ
    is made of, [n]."""

    open_: Array
    chord: Array
    lift: Array
    size: Array


def slopes(rows: Margins, at: Grid, found: Answer, threshold: float) -> Slopes:
    """relu(t) - αt is convex: it is largest at an end."""
    faint = found.turned * rows.std
    noise = np.sqrt(rows.squared) + found.length + faint
    reach = threshold * noise + MEAN * faint + found.error
    size = rows.size + REACH * (rows.std + faint) + found.size + reach
    wide = found.turned[:, None] * np.abs(at.z - rows.mean[:, None])
    aside = wide + (reach + rows.slack * size)[:, None]
    middle = at.z + found.shift[:, None]
    low, high = middle - aside, middle + aside
    low, high = np.minimum(low[:, 1:], low[:, :-1]), np.maximum(high[:, 1:], high[:, :-1])
    width = high - low
    risen = np.maximum(high, 0) - np.maximum(low, 0)
    chord = np.where(width > 0, risen / np.where(width > 0, width, 1.0), 1.0)
    lift = np.maximum(np.maximum(high, 0) - chord * high, np.maximum(low, 0) - chord * low)
    open_ = (middle[:, 1:] + middle[:, :-1] > 0).astype(np.float64)
    return Slopes(open_, chord, lift, size)


@dataclass(frozen=True)
class Replied:
    """At the corners [n, K, L, 2, 2] of a row's cells T from below, x, and of the noise's proxy x²
    a² and x² q² τ² from above."""

    value: Array
    x: Array
    squared: Array
    faint: Array


def corners(rows: Margins, at: Grid, found: Answer, own: Slopes) -> Replied:
    side = at.positive[0][:, None, :, None, None]
    v = _pairs(at.v[0])[:, None, :, None, :]
    v = np.where(side, np.maximum(v, 0), np.minimum(v, 0))
    alpha = np.where(side, _cells(own.open_), _cells(own.chord))
    lift = np.where(side, 0.0, _cells(own.lift))
    z = _pairs(at.z)[:, :, None, :, None]
    away = np.abs(z - _five(rows.mean)) + MEAN * _five(rows.std)
    x = v * alpha
    value = v * (alpha * z + lift) + x * _five(found.shift)
    value = value - np.abs(x) * (_five(found.turned) * away + _five(found.error))
    # Also what v's mean is off by, times all that relu may be: x is that of the rounded mean.
    most = rows.v_size[0] + REACH * rows.s[0]
    value = value - (8 * rows.slack * _five(most * own.size) + UNDERFLOW)
    x = np.broadcast_to(x, value.shape)
    squared = _five(rows.squared) * x**2 * (1 + rows.slack)
    return Replied(
        value, x, squared, _five((found.turned * rows.std) ** 2) * x**2 * (1 + rows.slack)
    )


def in_signs(rows: Margins, found: Answer) -> Margins:
    """Margins whose remainder is ½ Σ_j r_j² (Σ_i x_iω_ij)², by references k/r_j and 0."""
    return replace(rows, weight=found.omega, kappa=np.zeros_like(found.omega))


def _pairs(ends: Array) -> Array:
    return np.stack([ends[..., :-1], ends[..., 1:]], -1)


def _cells(values: Array) -> Array:
    """Of cells of z [n, K] at corners."""
    return values[:, :, None, None, None]


def _five(values: Array) -> Array:
    return values[:, None, None, None, None]

"""What the remainder ½ Σ_j (k r_j/θ_j)(y_j - y⁰_j)² exceeds with a chance of at most η.

With sub-Gaussian proxies p, p' of A and of B less its regression on A, and h, λ > 0,

    Ĉ = Σ_i (1+h) p_i w_i w_iᵀ + (1+1/h) p'_i w'_i w'_iᵀ,
    P(½‖y - E y‖² > s) <= e^{-λs} det(I - λĈ)^{-1/2},   u = ½ (√(2s) + ‖D(E y - y⁰)‖)².

A Cholesky factor of I - λĈ - cI, c more than all roundings, bounds the determinant from below.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from flint import arb

from bnncert_check.arithmetic import UNIT, Array, gamma, upper_float
from bnncert_check.laws.corners import SQUARE, Grid, Margins
from bnncert_check.laws.exponentials import exp_up, log_up
from bnncert_check.verdict import Rejected

POINTS = 65  # of the lattice that a proxy is found on
NEAR, RATIO, STEPS = 0.02, 1.3, 33  # its t: NEAR/R, and up by the ratio
FLAT = 2.0**-40  # a variance that is rounding alone, of the second moment
ROUNDING = 2.0**-40  # of centres and sums


@dataclass(frozen=True)
class Moments:
    """Of A and B of every neuron, [R, n]: means, how far these may be off, the slope of B on A, and
    proxies of A and of B beside it."""

    first: Array
    second: Array
    first_error: Array
    second_error: Array
    slope: Array
    proxy: Array
    beside: Array


def joined(parts: list[Moments]) -> Moments:
    names = [field.name for field in fields(Moments)]
    return Moments(*(np.concatenate([getattr(own, name) for own in parts], -1) for name in names))


def moments(at: Grid, a: Array, b: Array) -> Moments:
    first, second = at.first.corners, at.second.corners
    mass = (first[None, :, :, None, :, None] * second[:, :, None, :, None, :]).reshape(
        *a.shape[:2], -1
    )
    excess = at.first.excess + at.second.excess  # [R, n]
    a, b = a.reshape(mass.shape), b.reshape(mass.shape)
    centers = [(mass * x).sum(-1) for x in (a, b)]
    errors = [excess * np.abs(x).max(-1) for x in (a, b)]
    moment = (mass * a * a).sum(-1)
    a, b = a - centers[0][..., None], b - centers[1][..., None]
    variance = (mass * a * a).sum(-1)
    regular = variance > FLAT * moment
    slope = np.where(regular, (mass * a * b).sum(-1) / np.where(regular, variance, 1.0), 0.0)
    beside = b - slope[..., None] * a
    proxies = proxy(a, mass, errors[0]), proxy(beside, mass, errors[1] + np.abs(slope) * errors[0])
    return Moments(centers[0], centers[1], errors[0], errors[1], slope, *proxies)


def remainders(rows: Margins, theta: Array, y: Array, known: Moments, chosen: Array) -> Array:
    """u of every row [R], from above; chosen [R, 3]: share h, scale λ, chance η."""
    weight, kappa = np.abs(rows.weight), np.abs(rows.kappa)
    away = np.abs(known.first @ rows.weight.T + known.second @ rows.kappa.T - y)
    sizes = np.abs(known.first) @ weight.T + np.abs(known.second) @ kappa.T + np.abs(y)
    away += known.first_error @ weight.T + known.second_error @ kappa.T + rows.slack * sizes
    every = zip(theta, known.slope, known.proxy, known.beside, away, chosen, strict=True)
    return np.array([_row(rows, *own) for own in every])


def _row(
    rows: Margins, theta: Array, slope: Array, p: Array, beside: Array, away: Array, chosen: Array
) -> float:
    share, scale, chance = chosen.tolist()
    scaled = np.sqrt(SQUARE * rows.radius / theta)
    off = arb(float((scaled * away * (scaled * away)).sum() * (1 + rows.slack))).sqrt()
    first = scaled[:, None] * (rows.weight + slope * rows.kappa) * np.sqrt((1 + share) * p)
    second = scaled[:, None] * rows.kappa * np.sqrt((1 + 1 / share) * beside)
    both = np.concatenate([first, second], 1)
    if both.shape[1] > both.shape[0]:
        both = both.T
    s = (_half_determinant(both, scale) + (1 / arb(chance)).log()) / arb(scale)
    return upper_float(((2 * s).sqrt() + off) ** 2 / 2)


def _half_determinant(factors: Array, scale: float) -> arb:
    """-½ log det(I - λ XᵀX), from above."""
    gram = factors.T @ factors
    trace = float(np.abs(factors * factors).sum()) * scale
    size = len(gram)
    # Products, sums, entries of X themselves, and the factorisation (Higham, theorem 10.3).
    spare = 2 * (gamma(sum(factors.shape)) + 64 * UNIT) * (2 + 4 * trace)
    spare += 2 * gamma(size) * (size + trace)
    try:
        lower = np.linalg.cholesky((1 - spare) * np.eye(size) - scale * gram)
    except np.linalg.LinAlgError as error:
        raise Rejected(
            "probability-too-high", "the remainder has no moment of that scale"
        ) from error
    return -sum((arb(x).log() for x in np.diag(lower).tolist()), arb(0))


def proxy(x: Array, mass: Array, error: Array) -> Array:
    """p with E exp(t(X - E X)) <= exp(p t²/2) for all t, from above [...]; error: how far x's zero
    may be from its mean.

    Atoms are spread to two points of a lattice each. Near 0 by the variance, then by chords of the
    convex log E exp(t X) between the points of a grid, and beyond it by |X| <= R.
    """
    points, weights = _spread(x, mass)
    reach = np.abs(points).max(-1) * (1 + 2 * ROUNDING)
    error = error + ROUNDING * reach
    start = NEAR / np.maximum(reach, 1e-100)
    most = (weights * points**2).sum(-1) * float(exp_up(np.array(NEAR))) * (1 + ROUNDING)
    most = np.maximum(most, 2 * (reach + error) / (start * RATIO**STEPS))
    for sign in (1.0, -1.0):
        before, t_before = np.zeros_like(reach), np.zeros_like(reach)
        for k in range(STEPS + 1):
            t = start * RATIO**k
            total = (weights * exp_up(sign * t[..., None] * points)).sum(-1) * (1 + ROUNDING)
            value = log_up(total) + t * error
            if k:
                slope = (value - before) / (t - t_before)
                height = before - slope * t_before
                where = np.clip(-2 * height / np.maximum(slope, 1e-300), t_before, t)
                most = np.maximum(most, 2 * (height + slope * where) / where**2)
            before, t_before = value, t
    return np.where(reach == 0, 0.0, most * (1 + ROUNDING) + 2 * error / start)


def _spread(x: Array, mass: Array) -> tuple[Array, Array]:
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    step = np.maximum((high - low) / (POINTS - 1), 1e-300)
    place = ((x - low) / step).clip(0, POINTS - 1)
    index = np.minimum(np.floor(place), POINTS - 2)
    right = mass * (place - index)
    start = np.arange(mass[..., 0].size).reshape(mass.shape[:-1])[..., None] * POINTS
    where = (start + index).astype(np.int64).reshape(-1)
    count = mass[..., 0].size * POINTS
    found = np.bincount(where, (mass - right).reshape(-1), count)
    found += np.bincount(where + 1, right.reshape(-1), count)
    found *= 1 + 2 * mass.shape[-1] * UNIT  # it adds one after the other
    weights: Array = np.asarray(found, np.float64).reshape(*mass.shape[:-1], POINTS)
    return low + step * np.arange(POINTS), weights

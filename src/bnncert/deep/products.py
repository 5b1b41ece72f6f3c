"""E exp(A·δ + Σ B_k h_k²/2 + ½ δᵀCδ) for independent rectified Gaussians h <= H, δ = h - h⁰, from
above.

C is positive semidefinite, so exp(½δᵀCδ) = E exp(X·δ) with X ~ N(0, C). With
f_k(x) = E exp((A_k + x)δ_k + B_k h_k²/2), f̃_k = f_k exp(-κ_k x²/2), C' = (I - Cκ)⁻¹C the moment is

    det(I - Cκ)^{-1/2} E Π f̃_k(X'_k),   X' ~ N(0, C'),

and Gaussian Hölder bounds the second factor by Π (E f̃_k(X'_k)^p)^{1/p} where C' <= p diag C'.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from bnncert.deep.moments import ROUNDING, Array, log_between, log_moment, tilted

# Between these log f is bounded by chords, in standard deviations of X'; beyond them by its slope.
HALF = (*np.arange(0, 3, 0.25), *np.arange(3, 9, 0.5), *np.arange(9, 16), 16, 18, 20, 24, 28)
NODES = np.array([*(-x for x in reversed(HALF[1:])), *HALF])
FACTORS = np.array([1, 1.15, 1.3, 1.5, 1.8, 2.2, 2.8, 3.6, 5, 7, 10, 16])  # of the variance, for κ
ROUNDS = 4
LARGEST = 0.98  # eigenvalue of √κ C √κ
MARGIN = 1 + 2.0**-20  # of p


@dataclass(frozen=True, eq=False)
class Inputs:
    """z ~ N(mean, variance) of every neuron, and the cap H of h."""

    mean: Array
    variance: Array
    cap: Array

    def log_moment(self, a: Array, b: Array) -> Array:
        """log E[exp(ah + bh²/2); h <= H] by neuron, the last axis."""
        return log_moment(self.mean, self.variance, a, b, self.cap)

    def tilted(self, a: Array, b: Array) -> tuple[Array, Array]:
        return tilted(self.mean, self.variance, a, b, self.cap)


@dataclass(frozen=True, eq=False)
class Exponent:
    """A·δ + Σ B_k h_k²/2 + ½ δᵀCδ with δ = h - center."""

    linear: Array
    square: Array
    coupling: Array
    center: Array


@dataclass(frozen=True, eq=False)
class Bound:
    """The logarithm, by κ and p."""

    log: float
    curvature: Array
    power: float


def bound(inputs: Inputs, exponent: Exponent) -> Bound:
    """The best of a few κ, each of which is chosen by what it costs: curvature against tails."""
    _, variance = inputs.tilted(exponent.linear, exponent.square)
    curvature, best = variance, Bound(np.inf, variance, 1.0)
    for _ in range(ROUNDS):
        found = evaluate(inputs, exponent, curvature)
        if found is None:
            break
        value, power, scale = found
        if value < best.log:
            best = Bound(value, curvature, power)
        curvature = _cheapest(inputs, exponent, variance, power, scale)
    return best


def evaluate(
    inputs: Inputs, exponent: Exponent, curvature: Array
) -> tuple[float, float, Array] | None:
    """The bound's logarithm, p, and the deviations of X'; None where κ is too large for them
    or moments are not known."""
    root = np.sqrt(curvature)
    eigenvalues = np.linalg.eigvalsh(root[:, None] * exponent.coupling * root)
    if not eigenvalues[-1] < LARGEST:
        return None
    size = len(curvature)
    smaller = np.linalg.solve(np.eye(size) - exponent.coupling * curvature, exponent.coupling)
    scale = np.sqrt(np.maximum(np.diag(smaller), 0))
    safe = np.where(scale > 0, scale, 1)
    correlation = (smaller + smaller.T) / 2 / safe[:, None] / safe
    power = max(float(np.linalg.eigvalsh(correlation)[-1]), 1.0) * MARGIN
    values = _values(inputs, exponent, scale, NODES)
    if not np.isfinite(values).all():
        return None
    integrals = _by_chords(inputs, exponent, values, curvature, power, scale)
    return float(integrals.sum() - np.log1p(-eigenvalues).sum() / 2), power, scale


def _values(inputs: Inputs, exponent: Exponent, scale: Array, nodes: Array) -> Array:
    """log f_k at the nodes, [n, K]."""
    x = nodes[:, None] * scale
    constant = -exponent.linear * exponent.center
    return inputs.log_moment(exponent.linear + x, exponent.square) + constant - x * exponent.center


def _by_chords(
    inputs: Inputs, exponent: Exponent, values: Array, curvature: Array, power: float, scale: Array
) -> Array:
    """log (E f̃_k(X'_k)^p)^{1/p} [K]: log f is convex, and its slope in [-h⁰, H - h⁰]."""
    chords = np.diff(values, axis=0) / np.diff(NODES)[:, None]
    outer = -scale * exponent.center, scale * (inputs.cap - exponent.center)
    slopes = np.concatenate([outer[0][None], chords, outer[1][None]])
    starts = np.concatenate([NODES[:1], NODES])[:, None]
    at_start = np.concatenate([values[:1], values])
    ends = np.concatenate([[-np.inf], NODES, [np.inf]])[:, None]
    stiff = 1 + power * curvature * scale**2
    shift, root = power * slopes / stiff, np.sqrt(stiff)
    exponents = power * (at_start - slopes * starts) + (power * slopes) ** 2 / (2 * stiff)
    with np.errstate(invalid="ignore"):
        mass = log_between((ends[:-1] - shift) * root, (ends[1:] - shift) * root)
    rounded = ROUNDING * (np.abs(exponents) + power * np.abs(at_start))
    found: Array = (logsumexp(exponents + mass + rounded, axis=0) - np.log(stiff) / 2) / power
    return found


def _cheapest(
    inputs: Inputs, exponent: Exponent, variance: Array, power: float, scale: Array
) -> Array:
    """κ_k that cost least: C'_kk κ_k/2 for the determinant, and the integral of what is left."""
    values = _values(inputs, exponent, scale, NODES)
    tried = FACTORS[:, None] * variance
    squares = tried[:, None] * (NODES[:, None] * scale) ** 2 / 2
    widths = np.log(np.gradient(NODES))[:, None] - NODES[:, None] ** 2 / 2
    left = logsumexp(power * (values - squares) + widths, axis=1) / power
    best = (left + tried * scale**2 / 2).argmin(0)
    found: Array = tried[best, np.arange(len(variance))]
    return found

"""E[exp(A·δ + Σ B_k h_k²/2 + ½ δᵀCδ); h <= H] for independent rectified Gaussians h, δ = h - h⁰,
from above.

C = Uᵀ diag(β) U is positive semidefinite, so exp(½δᵀCδ) = E exp(X·δ) with X ~ N(0, C). With
f_k(x) = E[exp((A_k + x)δ_k + B_k h_k²/2); h_k <= H_k] and f̃_k = f_k exp(-κ_k x²/2) this is

    det(I - Cκ)^{-1/2} E Π f̃_k(X'_k),   X' ~ N(0, C'),   C' = (I - Cκ)⁻¹C,   if √κ C √κ < I,

and by Gaussian Hölder E Π f̃_k(X'_k) <= Π (E f̃_k(X'_k)^p)^{1/p} if C' <= p diag(C').
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from flint import arb, arb_mat

from bnncert_check.arithmetic import UNIT, Array
from bnncert_check.deep.rectified import Gaussian, between, moment

# Between these log f is bounded by chords, in standard deviations of X'; beyond them by its slope.
HALF = [*(k / 4 for k in range(12)), *(k / 2 for k in range(6, 18)), *range(9, 17), 18, 20, 24, 28]
NODES = [*(-z for z in reversed(HALF[1:])), *HALF]


@dataclass(frozen=True)
class Exponent:
    """A, B, h⁰ and the coupling C."""

    linear: list[arb]
    square: list[arb]
    center: Array
    coupling: arb_mat


def expectation(
    inputs: list[Gaussian], caps: Array, exponent: Exponent, curvature: Array, power: float
) -> arb:
    """The bound by κ and p; NaN where their conditions are not certain."""
    size, coupling = len(inputs), exponent.coupling
    bent = [arb(value) for value in curvature]
    roots = [value.sqrt() for value in bent]
    left = _identity(size) - coupling * _diagonal(bent)
    if not is_positive(_identity(size) - _diagonal(roots) * coupling * _diagonal(roots)):
        return arb("nan")
    smaller = left.solve(coupling)
    scales = [_deviation(smaller[k, k], _row_is_zero(coupling, k)) for k in range(size)]
    if not _within(smaller, scales, power):
        return arb("nan")
    total = 1 / left.det().sqrt()
    for k, z in enumerate(inputs):
        one = _Factor(
            z, arb(caps[k]), exponent.linear[k], exponent.square[k], arb(exponent.center[k])
        )
        total *= _root_of_moment(one, bent[k], arb(power), scales[k])
    return total


def _within(smaller: arb_mat, scales: list[arb], power: float) -> bool:
    """Whether C' <= p diag(C'): p I - C' in units of its own deviations is positive."""
    size = len(scales)
    units = _diagonal([1 / s if s > 0 else arb(0) for s in scales])
    return is_positive(power * _identity(size) - units * smaller * units)


def _row_is_zero(matrix: arb_mat, k: int) -> bool:
    return all(matrix[k, i] == 0 for i in range(matrix.ncols()))


def _deviation(variance: arb, nothing: bool) -> arb:
    """√C'_kk, which is 0 only where the whole row of C is, and else must be certainly above 0."""
    if nothing:
        return arb(0)
    return variance.sqrt() if variance > 0 else arb("nan")


@dataclass(frozen=True)
class _Factor:
    """f(x) = E[exp((A + x)δ + Bh²/2); h <= H]"""

    z: Gaussian
    cap: arb
    linear: arb
    square: arb
    center: arb

    def log(self, x: arb) -> arb:
        tilt = self.linear + x
        return moment(self.z, tilt, self.square, self.cap).log() - tilt * self.center


def _root_of_moment(f: _Factor, curvature: arb, power: arb, scale: arb) -> arb:
    """(E f̃(X)^p)^{1/p}, X = scale · N(0, 1): log f is convex, its slope in [-h⁰, H - h⁰]."""
    values = [f.log(scale * z) for z in NODES]
    stiff = 1 + power * curvature * scale * scale
    total = _piece(values[0], NODES[0], -scale * f.center, (None, NODES[0]), power, stiff)
    for (a, b), (at_a, at_b) in zip(pairwise(NODES), pairwise(values), strict=True):
        total += _piece(at_a, a, (at_b - at_a) / (arb(b) - a), (a, b), power, stiff)
    outer = scale * (f.cap - f.center)
    total += _piece(values[-1], NODES[-1], outer, (NODES[-1], None), power, stiff)
    return ((total / stiff.sqrt()).log() / power).exp()


def _piece(
    value: arb,
    at: float,
    slope: arb,
    ends: tuple[float | None, float | None],
    power: arb,
    stiff: arb,
) -> arb:
    """√stiff ∫ exp(p(value + slope (z - at)) - stiff z²/2) / √(2π) dz between the ends."""
    shift, root = power * slope / stiff, stiff.sqrt()
    exponent = power * (value - slope * at) + power * slope * shift / 2
    low, high = (None if end is None else (end - shift) * root for end in ends)
    return exponent.exp() * between(low, high)


def is_positive(matrix: arb_mat) -> bool:
    """Whether every symmetric matrix in the ball is positive definite: Cholesky's method in float64
    succeeds on the middle less a shift, which pays for its rounding and for the ball."""
    size = matrix.nrows()
    middle = np.array([[float(matrix[i, j].mid()) for j in range(size)] for i in range(size)])
    radius = np.array([[float(matrix[i, j].rad()) for j in range(size)] for i in range(size)])
    symmetric = (middle + middle.T) / 2
    wrong = np.abs(middle - symmetric).max() + radius.max() + 4 * UNIT * np.abs(middle).max()
    shift = 2 * size * wrong + 4 * (size + 20) * UNIT * np.abs(np.diag(middle)).sum()
    if not np.isfinite(shift):
        return False
    try:
        factor = np.linalg.cholesky(symmetric - shift * np.eye(size))
    except np.linalg.LinAlgError:
        return False
    return bool(np.isfinite(factor).all())


def _identity(size: int) -> arb_mat:
    return _diagonal([arb(1)] * size)


def _diagonal(values: list[arb]) -> arb_mat:
    size = len(values)
    found = arb_mat(size, size)
    for k, value in enumerate(values):
        found[k, k] = value
    return found

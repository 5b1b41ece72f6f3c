"""References θ and y⁰ by a fixed point: y⁰ = E y and θ² = (2/π) E q + k((y⁰)² + c Var y), with
y_j = Σ_i (A_i W̄_ij + B_i κ_ij) and q_j = Σ_i σ_ij² A_i².

Any θ > 0 and y⁰ give a bound; what is found here makes it good.
"""

from __future__ import annotations

import math

from torch import Tensor

from bnncert.laws.corners import SQUARE, Grid, References, reference_values, references, slopes
from bnncert.laws.head import Margins
from bnncert.numerics.tails import normal_tail

PASSES = 2
MARGIN = 10.0  # c: the larger, the smaller the remainder, and the larger K
LEAST = 1e-3  # of θ, in units of the largest
COARSE = 4  # steps of slopes on the way


def chosen(rows: Margins, at: Grid, blend: Tensor) -> References:
    """From slopes that are 1 where the mean neuron is open."""
    on = normal_tail(-rows.mean / rows.std).nan_to_num(0.5).unsqueeze(-2)
    first, square = -rows.v * on, (rows.v**2 + rows.s**2) * on
    y = first @ rows.weight.mT
    variance = (square - first**2) @ (rows.weight**2).mT
    found = _with(rows, y, variance, square @ rows.variance.mT)
    for _ in range(PASSES if rows.radius.shape[-1] else 0):
        found = _improved(rows, at, slopes(rows, found, at, blend, COARSE))
    return found


def _improved(rows: Margins, at: Grid, alpha: Tensor) -> References:
    a, b = reference_values(rows, at, alpha)
    mass = corner_masses(at)

    def mean(values: Tensor) -> Tensor:
        return (mass * values).sum((-4, -3, -2, -1))

    first, second, squared = mean(a), mean(b), mean(a * a)
    var_a, var_b = squared - first**2, mean(b * b) - second**2
    both = mean(a * b) - first * second
    variance = var_a @ (rows.weight**2).mT + var_b @ (rows.kappa**2).mT
    variance = variance + 2 * both @ (rows.weight * rows.kappa).mT
    y = first @ rows.weight.mT + second @ rows.kappa.mT
    return _with(rows, y, variance, squared @ rows.variance.mT)


def corner_masses(at: Grid) -> Tensor:
    """[..., R, n, K, L, 2, 2]: every point spread to its cell's corners, with its own mean."""
    first, second = at.first.corners, at.second.corners
    return first[..., None, :, :, None, :, None] * second[..., None, :, None, :]


def _with(rows: Margins, y: Tensor, variance: Tensor, q: Tensor) -> References:
    squared = 2 / math.pi * q + SQUARE * (y**2 + MARGIN * variance.clamp_min(0))
    theta = squared.sqrt()
    if theta.shape[-1]:
        theta = theta.maximum(LEAST * theta.amax(-1, keepdim=True)).clamp_min(1e-12)
    return references(rows, theta, y)

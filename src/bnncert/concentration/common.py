"""Common noise: leaves fail together, so their maximum's tail can be far below the sum of tails.

With Ψ_ℓ(ξ) the least value of leaf ℓ's linear bound over its boxes, -Ψ_ℓ is convex, L_ℓ-Lipschitz,
and has mean at most -m_ℓ; the row fails only if F = max_ℓ -Ψ_ℓ >= 0. F is convex and (max
L_ℓ)-Lipschitz, so if EF <= 0, P(F >= 0) <= Q(-EF / max L_ℓ). For any linear g(ξ) of mean 0, and D_ℓ
a Lipschitz constant of -Ψ_ℓ - g,

    EF = E max_ℓ (-Ψ_ℓ - g) <= λ⁻¹ log Σ_ℓ exp(-λ m_ℓ + λ² D_ℓ² / 2)        for every λ > 0.

Here g = -Σ_k a_k (Δ_k c_k + Δb_k) with a_k and c_k averages of the leaves' coefficients A_k and of
the centres of their boxes h_k ± r_k, and by the triangle inequality, with |A ⊗ h|² = Σ_ij σ_kij²
A_i² h_j² summed over the layers,

    D_ℓ = |(A - a) ⊗ (h, 1)| + |a ⊗ (h - c)| + |A ⊗ r|.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.concentration.domains import Domains, Roots, walk_of
from bnncert.concentration.steps import NoisyLinear
from bnncert.evidence.concentration import Common
from bnncert.model.layers import Dense
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import UNIT, gamma
from bnncert.numerics.tails import normal_tail_up

WORTH = 1e-3  # failure of a row above which the bound is tried
MOST_LEAVES = 4096
SCALES = 48  # values of λ that are tried, geometric from 1/16 to 64 over max L
SPECIAL = 1e-12  # relative and absolute error of exp, log and their sums


@dataclass(frozen=True, eq=False)
class Reach:
    """One linear layer of the leaves: rows A [n, out], centres h and radii r [n, in], variances."""

    rows: Tensor
    center: Tensor
    radius: Tensor
    step: NoisyLinear


def applies(base: Roots) -> bool:
    """Independent weights in dense layers: what the bound is worked out for."""
    random = [step for step in base.traced.linear if step.noise.random]
    return all(isinstance(step.layer, Dense) and step.noise.factor is None for step in random)


def common_failure(
    base: Roots, leaves: Domains, value: Tensor, lipschitz: Tensor
) -> tuple[float, Common | None]:
    """The failure of one row, from the leaves of its tree, and what a checker needs.

    1 and None if it says nothing.
    """
    most = float(lipschitz.max())
    if not (bool((value > 0).all()) and most > 0):
        return 1.0, None
    reaches = _reaches(base, leaves)
    weights = torch.softmax(-(value - value.min()) / most, 0)
    rows = {k: weights @ reach.rows for k, reach in reaches.items()}
    # The input's box is the same in every leaf: its centre needs no words.
    centers = {
        k: weights @ reach.center for k, reach in reaches.items() if reach.step.region is None
    }
    deviation = _deviations(reaches, rows, centers)
    scale = (
        torch.logspace(-4, 6, SCALES, base=2.0, dtype=torch.float64, device=value.device)[:, None]
        / most
    )
    exponent = -scale * value + (scale * deviation) ** 2 / 2
    expected = torch.logsumexp(exponent, 1, keepdim=True) / scale
    best = int(expected.argmin())
    bound = float(expected[best])
    bound += SPECIAL * (abs(bound) + float((exponent[best].abs().max() + 1) / scale[best]))
    if not bound < 0:
        return 1.0, None
    failure = float(
        normal_tail_up(torch.tensor(-bound / most * (1 - 4 * UNIT), dtype=torch.float64))
    )
    return failure, Common(float(scale[best]), rows, centers)


def _reaches(base: Roots, leaves: Domains) -> dict[int, Reach]:
    steps, coefficients = walk_of(base, leaves)
    found = {}
    for k, step in enumerate(steps):
        if isinstance(step, NoisyLinear) and step.noise.random:
            center = (step.h.lower + step.h.upper) / 2
            radius = (step.h.upper - step.h.lower) / 2
            found[k] = Reach(
                coefficients[k + 1].flatten(2)[:, 0], center, radius * (1 + 4 * UNIT), step
            )
    return found


def _deviations(
    reaches: dict[int, Reach], rows: dict[int, Tensor], centers: dict[int, Tensor]
) -> Tensor:
    """D [n] of every leaf."""
    first = next(iter(reaches.values())).rows
    parts = first.new_zeros(3, len(first))
    terms = 0
    for k, reach in reaches.items():
        own = (reach.rows - rows[k]) ** 2
        common = (rows[k] ** 2).expand_as(reach.rows)
        parts[0] += _squared(reach.step, own, reach.center) + _bias(reach.step, own)
        parts[1] += _squared(reach.step, common, reach.center - centers.get(k, reach.center))
        parts[2] += _squared(reach.step, reach.rows**2, reach.radius)
        terms += reach.step.terms
    return parts.sqrt().sum(0) * (1 + gamma(2 * terms + 64))


def _squared(step: NoisyLinear, squares: Tensor, h: Tensor) -> Tensor:
    """Σ_ij σ_ij² A_i² h_j² of every leaf."""
    if step.noise.variance is None:
        return torch.zeros_like(squares[:, 0])
    return dot((squares @ step.noise.variance.mT).unsqueeze(1), h**2)[:, 0]


def _bias(step: NoisyLinear, squares: Tensor) -> Tensor:
    return (
        torch.zeros_like(squares[:, 0])
        if step.noise.bias_variance is None
        else squares @ step.noise.bias_variance
    )

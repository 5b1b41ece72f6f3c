"""Affine forms: what certain layers make of the input, as a function of it.

    h(x)  within  J x + b ± e        for all x of the region,

by the rows ±e_j of a node, walked back to the input. A random layer behind it, with rows A, has the
noise A Δ h = (A Δ J) x + A Δ (b ± e): on the input it is a Gaussian coefficient of standard
deviation

    τ_p = |V J_p|,       V V' the covariance of A Δ,

which meets the same x as the mean does. A box of h forgets that its entries move together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.model.specification import Region
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT, gamma

SPARE = 64  # roundings beside those of a sum
Line: TypeAlias = tuple[Tensor, Tensor]  # J [B, n, inputs] and b [B, n]


@dataclass(frozen=True, eq=False)
class Affine:
    """J [B, n, inputs], b [B, n] and e [B, n] over the regions."""

    region: Region
    matrix: Tensor
    offset: Tensor
    error: Tensor

    def __getitem__(self, index: Tensor | slice) -> Affine:
        fields = (self.matrix, self.offset, self.error)
        return Affine(self.region[index], *(field[index] for field in fields))

    @property
    def radius(self) -> Tensor:
        """Of the region's box [B, inputs], from above."""
        box = self.region.box
        return ((box.upper - box.lower) / 2 * (1 + 4 * UNIT)).flatten(1)

    @property
    def middle(self) -> Tensor:
        """J c + b [B, n], c the middle of the region."""
        center = (self.region.box.lower / 2 + self.region.box.upper / 2).flatten(1)
        return (self.matrix @ center.unsqueeze(-1)).squeeze(-1) + self.offset

    @property
    def slack(self) -> Tensor:
        """e and what rounding adds to it at the middle, [B, n]."""
        largest = self.region.box.magnitude.flatten(1).unsqueeze(-1)
        size = (self.matrix.abs() @ largest).squeeze(-1) + self.offset.abs()
        return self.error + 4 * gamma(self.matrix.shape[-1] + SPARE) * size + TINY

    def reach(self, rows: Tensor) -> Tensor:
        """Σ_p r_p |(rows·J)_p| + Σ_j e_j |rows_j| [B, R] from above: how far rows·h is from where
        it is at the middle."""
        flat = rows.abs()
        relative = 4 * gamma(sum(self.matrix.shape[1:]) + SPARE)
        moved = dot((rows @ self.matrix).abs(), self.radius) + dot(flat, self.slack)
        underflow = TINY * (1 + self.radius.sum(-1, keepdim=True))
        return moved * (1 + relative) + relative * self.most(flat) + underflow

    def most(self, sizes: Tensor) -> Tensor:
        """The same, at most, of any rows of these sizes."""
        spread = (self.matrix.abs() @ self.radius.unsqueeze(-1)).squeeze(-1) + self.slack
        return dot(sizes, spread) * (1 + 4 * gamma(sum(self.matrix.shape[1:]) + SPARE))


def affine_form(region: Region, below: Line, above: Line) -> Affine:
    """From lines J x + b below h, and others below -h: halfway between them, and as far off as they
    are apart."""
    low, high = below[0], -above[0]
    matrix = low / 2 + high / 2
    offset = below[1] / 2 - above[1] / 2
    # h - (Jx + b) is at least (low - J) x + below - b, and at most (high - J) x - above - b.
    under = -region.minimum(low - matrix) + offset - below[1]
    over = -region.minimum(matrix - high) - above[1] - offset
    size = (matrix.abs() + low.abs() + high.abs()) @ region.box.magnitude.flatten(1).unsqueeze(-1)
    total = size.squeeze(-1) + offset.abs() + below[1].abs() + above[1].abs()
    error = torch.maximum(under, over).clamp_min(0) + 8 * UNIT * total + TINY
    return Affine(region, matrix, offset, error)


@dataclass(frozen=True, eq=False)
class Spread:
    """The covariance of coefficients A Δ on n entries: of independent noise the variances
    [B, R, n], of shared noise the coefficients along each coordinate [B, R, k, n], with the most
    that they are off by in length, entry by entry [B, R, n]; `std` [B, R, n] of each entry."""

    std: Tensor
    variance: Tensor | None
    along: Tensor | None
    rounding: Tensor | None

    def through(self, form: Affine) -> Tensor:
        """τ [B, R, inputs] from above, but for squares that underflow."""
        size = self.std @ form.matrix.abs()
        squared = torch.zeros_like(size)
        if self.variance is not None:
            squared = squared + self.variance @ form.matrix**2
        terms = form.matrix.shape[1] + SPARE
        if self.along is not None:
            squared = squared + _quadratic(self.along, form.matrix)
            terms = terms + self.along.shape[2] + form.matrix.shape[1]
        tau = (squared.clamp_min(0) + 8 * gamma(2 * terms) * size**2).sqrt()
        tau = tau * (1 + 8 * gamma(terms))
        return tau if self.rounding is None else tau + self.rounding @ form.matrix.abs()


def _quadratic(along: Tensor, matrix: Tensor) -> Tensor:
    """Σ_q (a_q·J_p)² [B, R, inputs], row by row: by a_q J, or by Σ_q a_q a_q' where that is
    smaller."""
    found = []
    for own in along.unbind(1):  # [B or 1, k, n]
        if own.shape[1] <= own.shape[2]:
            found.append(((own @ matrix) ** 2).sum(1))
        else:
            found.append((((own.mT @ own) @ matrix) * matrix).sum(1))
    return torch.stack(found, 1)

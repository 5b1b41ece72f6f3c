"""Lines of activations: what every relaxation gives, and the slopes that a few points of f tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations

import torch
from torch import Tensor

from bnncert.numerics.rounding import UNIT

# tanh and exp of any vendor, the products around them, and the critical point itself
SLACK = 32 * UNIT


@dataclass(frozen=True, eq=False)
class Relaxation:
    """lower_slope z + lower_intercept <= f(z) <= upper_slope z + upper_intercept."""

    lower_slope: Tensor
    lower_intercept: Tensor
    upper_slope: Tensor
    upper_intercept: Tensor

    def __getitem__(self, index: Tensor | slice) -> Relaxation:
        return Relaxation(*(getattr(self, field.name)[index] for field in fields(self)))

    def flatten(self) -> Relaxation:
        """Lines [B, n] of intervals [B, *shape]."""
        return Relaxation(*(getattr(self, field.name).flatten(1) for field in fields(self)))


def hull_slope(
    points: Sequence[Tensor], values: Sequence[Tensor], middle: Tensor | None = None
) -> Tensor:
    """The slope, at the middle of [first, last] or where it is wanted, of the largest convex
    function that is at most the values at the points, which rise; 0 where all points are the
    same."""
    middle = points[0] / 2 + points[-1] / 2 if middle is None else middle
    least = torch.full_like(middle, torch.inf)
    slope = torch.zeros_like(middle)
    for i, j in combinations(range(len(points)), 2):
        width = points[j] - points[i]
        own = (values[j] - values[i]) / width
        at_middle = values[i] + own * (middle - points[i])
        straddles = (points[i] <= middle) & (middle <= points[j]) & (width > 0)
        better = straddles & (at_middle < least)
        least = torch.where(better, at_middle, least)
        slope = torch.where(better, own, slope)
    return slope

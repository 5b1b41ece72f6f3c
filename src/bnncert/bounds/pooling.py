"""Maximum pooling between two linear bounds: below by the entry with the largest lower end, above
by that entry where no other can exceed it, else by the largest upper end.

Of lower ends that are equal but for rounding, zeros of ReLUs say, the entry with the largest upper
end is followed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.bounds.walk import Tally
from bnncert.model.box import Box
from bnncert.model.layers import MaxPool2d, Shape
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, gamma

NEARLY = 2.0**-30  # relative to the window


@dataclass(frozen=True, eq=False)
class MaxPoolStep:
    """A max(h) >= A⁺ h[chosen] + A⁻ (h[chosen] where `alone`, else ceiling)."""

    shape: Shape
    chosen: Tensor  # [B, outputs] index into the flattened input
    alone: Tensor  # [B, outputs]
    ceiling: Tensor  # [B, outputs]
    # [B, outputs] rounding per unit of |A|: windows may overlap, and rows on one entry are added up
    error: Tensor

    def __getitem__(self, index: Tensor | slice) -> MaxPoolStep:
        fields = (self.chosen, self.alone, self.ceiling, self.error)
        return MaxPoolStep(self.shape, *(field[index] for field in fields))

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        flat = rows.flatten(2)
        followed = torch.where(self.alone.unsqueeze(1), flat, flat.clamp_min(0))
        index = self.chosen.unsqueeze(1).expand_as(followed)
        empty = followed.new_zeros(*followed.shape[:2], math.prod(self.shape))
        pulled = empty.scatter_add(2, index, followed)
        ceiling = torch.where(self.alone, 0.0, self.ceiling)
        constant = dot(flat.clamp_max(0).expand_as(followed), ceiling)
        constant = constant - dot(flat.abs().expand_as(followed), self.error) - TINY
        return (pulled.reshape(*pulled.shape[:2], *self.shape),), tally.gained(constant)


def max_pool_step(layer: MaxPool2d, h: Box) -> MaxPoolStep:
    """The step for inputs h [B, channels, height, width]."""
    shape = tuple(h.shape[1:])
    lower = _windows(layer, h.lower)  # [B, channels, places, entries]
    upper = _windows(layer, h.upper)
    size = torch.maximum(-lower.amin(-1), upper.amax(-1))
    least = lower.amax(-1) - NEARLY * size
    best = upper.where(lower >= least.unsqueeze(-1), -math.inf).argmax(-1, keepdim=True)
    others = upper.scatter(-1, best, -math.inf).amax(-1)
    numbers = torch.arange(math.prod(shape), dtype=h.lower.dtype, device=h.lower.device)
    places = _windows(layer, numbers.reshape(1, *shape))
    chosen = places.expand_as(lower).gather(-1, best).squeeze(-1).long()
    alone = lower.gather(-1, best).squeeze(-1) >= others
    error = gamma(size[0].numel() + 64) * size.flatten(1)
    ceiling = upper.amax(-1).flatten(1)
    return MaxPoolStep(shape, chosen.flatten(1), alone.flatten(1), ceiling, error)


def _windows(layer: MaxPool2d, x: Tensor) -> Tensor:
    columns = functional.unfold(x, layer.kernel, stride=layer.stride or layer.kernel)
    return columns.reshape(len(x), x.shape[1], -1, columns.shape[-1]).mT

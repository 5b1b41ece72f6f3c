"""Maximum pooling between two linear bounds: below by the entry with the largest lower end, above
by that entry where no other can exceed it, else by the largest upper end.

Of lower ends that are equal but for rounding, zeros of ReLUs say, the entry with the largest upper
end is followed. Padding is -inf, which is never chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.bounds.walk import Tally
from bnncert.bounds.windows import Window
from bnncert.model.box import Box
from bnncert.model.layers import MaxPool2d, Shape, output_shape, sides
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, gamma

NEARLY = 2.0**-30  # relative to the window


@dataclass(frozen=True, eq=False)
class MaxPoolStep:
    """A max(h) >= A⁺ h[chosen] + A⁻ (h[chosen] where `alone`, else ceiling)."""

    shape: Shape
    places: Shape
    chosen: Tensor  # [B, outputs] index into the flattened input
    alone: Tensor  # [B, outputs]
    ceiling: Tensor  # [B, outputs]
    # [B, outputs] rounding per unit of |A|: windows may overlap, and rows on one entry are added up
    error: Tensor

    def __getitem__(self, index: Tensor | slice) -> MaxPoolStep:
        fields = (self.chosen, self.alone, self.ceiling, self.error)
        return MaxPoolStep(self.shape, self.places, *(field[index] for field in fields))

    def crop(self, before: Window, after: Window) -> MaxPoolStep:
        outputs = (self.shape[0], *self.places)
        chosen, *others = (
            after.of_flat(field, outputs)
            for field in (self.chosen, self.alone, self.ceiling, self.error)
        )
        height, width = self.shape[1:]
        channel = chosen // (height * width)
        row = chosen // width % height - before.top
        column = chosen % width - before.left
        moved = (channel * before.size[0] + row) * before.size[1] + column
        return MaxPoolStep((self.shape[0], *before.size), after.size, moved, *others)

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
    lower = _windows(layer, h.lower, -math.inf)  # [B, channels, places, entries]
    upper = _windows(layer, h.upper, -math.inf)
    size = _windows(layer, h.magnitude, 0.0).amax(-1)
    least = lower.amax(-1) - NEARLY * size
    best = upper.where(lower >= least.unsqueeze(-1), -math.inf).argmax(-1, keepdim=True)
    others = upper.scatter(-1, best, -math.inf).amax(-1)
    numbers = torch.arange(math.prod(shape), dtype=h.lower.dtype, device=h.lower.device)
    places = _windows(layer, numbers.reshape(1, *shape), 0.0)
    chosen = places.expand_as(lower).gather(-1, best).squeeze(-1).long()
    alone = lower.gather(-1, best).squeeze(-1) >= others
    error = gamma(size[0].numel() + 64) * size.flatten(1)
    ceiling = upper.amax(-1).flatten(1)
    moves = output_shape(layer, shape)[1:]
    return MaxPoolStep(shape, moves, chosen.flatten(1), alone.flatten(1), ceiling, error)


def _windows(layer: MaxPool2d, x: Tensor, padding: float) -> Tensor:
    top, left, bottom, right = sides(layer)
    padded = functional.pad(x, (left, right, top, bottom), value=padding)
    columns = functional.unfold(padded, layer.kernel, stride=layer.stride or layer.kernel)
    return columns.reshape(len(x), x.shape[1], -1, columns.shape[-1]).mT

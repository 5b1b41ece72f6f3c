"""Box: a batch of closed orthotopes, the one interval type for inputs, weights and activations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.arrays import take_arrays


@dataclass(frozen=True, eq=False)
class Box:
    """The set {v : lower <= v <= upper}, elementwise; leading dimensions are a batch.

    >>> box = Box(torch.zeros(2).double(), torch.ones(2).double())
    >>> box.contains(Box.point(torch.tensor([0.5, 1.0]).double()))
    tensor(True)
    """

    lower: Tensor
    upper: Tensor

    def __post_init__(self) -> None:
        take_arrays(self, "lower", "upper")
        if self.lower.shape != self.upper.shape:
            raise InputError(
                f"box ends differ in shape: {tuple(self.lower.shape)} and "
                f"{tuple(self.upper.shape)}; give equal shapes"
            )
        for end in (self.lower, self.upper):
            if end.dtype != torch.float64:
                raise InputError(
                    f"box is {end.dtype}; certified bounds need float64 "
                    "(use .double(), or .astype(float))"
                )
        # Written positively, so that a NaN on either side is refused too.
        if not bool((self.lower <= self.upper).all()):
            raise InputError(
                "box is empty or NaN: every lower end must be a number at most its upper end"
            )

    @classmethod
    def point(cls, value: Tensor) -> Box:
        """The degenerate box {value}."""
        return cls(value, value)

    @property
    def shape(self) -> torch.Size:
        return self.lower.shape

    @cached_property
    def magnitude(self) -> Tensor:
        """max |v| over the box, elementwise."""
        return torch.maximum(self.lower.abs(), self.upper.abs())

    def __getitem__(self, index: Any) -> Box:
        return self._same(self.lower[index], self.upper[index])

    def reshape(self, *shape: int) -> Box:
        return self._same(self.lower.reshape(*shape), self.upper.reshape(*shape))

    def contains(self, other: Box) -> Tensor:
        """Whether `other` lies inside, reduced over the last dimension."""
        inside: Tensor = ((self.lower <= other.lower) & (other.upper <= self.upper)).all(-1)
        return inside

    def to(self, device: torch.device | str) -> Box:
        return self._same(self.lower.to(device), self.upper.to(device))

    def _same(self, lower: Tensor, upper: Tensor) -> Box:
        """Entries of this box in another arrangement: checked once, they need no second check."""
        box = object.__new__(Box)
        object.__setattr__(box, "lower", lower)
        object.__setattr__(box, "upper", upper)
        return box


def intersect(first: Box, second: Box) -> Box:
    """The tightest box implied by two sound ones: both hold, so each end may come from either."""
    return Box(torch.maximum(first.lower, second.lower), torch.minimum(first.upper, second.upper))

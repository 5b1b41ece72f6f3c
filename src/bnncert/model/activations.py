"""Activations, and the traits from which everything else about them is derived.

To add one, write its class here with its traits and list it in ACTIVATIONS: relaxations, intervals,
moments, branching and training ask for nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError


@dataclass(frozen=True)
class Traits:
    """What bounds need to know of an activation f.

    pieces: the slopes of f from left to right, if it is linear between its kinks; else None, and f
    is smooth. slopes: the least and the largest slope. largest: a bound of |f|; inf where only
    |f(z)| <= |z| is known. flat_below: 0 below 0, so that how far below does not matter; what
    certificates are checked by, so that a leaky ReLU whose slope happens to be 0 is not.

    Every activation so far is rising (its least slope is not negative) and, where it has kinks, has
    f(0) = 0.
    """

    slopes: tuple[float, float]
    kinks: tuple[float, ...] = ()
    pieces: tuple[float, ...] | None = None
    largest: float = math.inf
    flat_below: bool = False

    @property
    def bent(self) -> bool:
        """Linear on both sides of 0, steeper above: what slopes and branching are for."""
        return self.kinks == (0.0,) and self.pieces is not None and self.pieces[0] <= self.pieces[1]


@dataclass(frozen=True)
class ReLU:
    """max(z, 0)

    >>> ReLU()(torch.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """

    @property
    def traits(self) -> Traits:
        return Traits((0.0, 1.0), kinks=(0.0,), pieces=(0.0, 1.0), flat_below=True)

    def __call__(self, z: Tensor) -> Tensor:
        return z.clamp_min(0)


@dataclass(frozen=True)
class LeakyReLU:
    """max(z, slope z), 0 <= slope < 1

    >>> LeakyReLU(0.5)(torch.tensor([-2.0, 3.0]))
    tensor([-1.,  3.])
    """

    slope: float = 0.01

    def __post_init__(self) -> None:
        if type(self.slope) not in (int, float) or not 0 <= self.slope < 1:
            raise InputError(f"LeakyReLU slope is {self.slope!r}; give a number in [0, 1)")

    @property
    def traits(self) -> Traits:
        return Traits((self.slope, 1.0), kinks=(0.0,), pieces=(self.slope, 1.0))

    def __call__(self, z: Tensor) -> Tensor:
        return torch.maximum(z, self.slope * z)


@dataclass(frozen=True)
class Tanh:
    """tanh(z)

    >>> Tanh()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.7616])
    """

    @property
    def traits(self) -> Traits:
        return Traits((0.0, 1.0), largest=1.0)

    def __call__(self, z: Tensor) -> Tensor:
        return z.tanh()

    def slope(self, z: Tensor) -> Tensor:
        """f'(z) = 1 / cosh²(z)"""
        return z.clamp(-300, 300).cosh() ** -2

    def touching(self, slope: Tensor) -> Tensor:
        """The z >= 0 with f'(±z) = slope: atanh(sqrt(1 - slope)), keeping tiny slopes' digits."""
        return torch.log1p((1 - slope).clamp_min(0).sqrt()) - slope.log() / 2


@dataclass(frozen=True)
class Sigmoid:
    """1 / (1 + exp(-z)) = (1 + tanh(z / 2)) / 2

    >>> Sigmoid()(torch.tensor([0.0, 1.0]))
    tensor([0.5000, 0.7311])
    """

    @property
    def traits(self) -> Traits:
        return Traits((0.0, 0.25), largest=1.0)

    def __call__(self, z: Tensor) -> Tensor:
        return z.sigmoid()

    def slope(self, z: Tensor) -> Tensor:
        """f'(z) = tanh'(z / 2) / 4"""
        return Tanh().slope(z / 2) / 4

    def touching(self, slope: Tensor) -> Tensor:
        """The z >= 0 with f'(z) = f'(-z) = slope."""
        return 2 * Tanh().touching((4 * slope).clamp_max(1))


Smooth: TypeAlias = Tanh | Sigmoid
Activation: TypeAlias = ReLU | LeakyReLU | Tanh | Sigmoid
ACTIVATIONS: tuple[type[Activation], ...] = (ReLU, LeakyReLU, Tanh, Sigmoid)

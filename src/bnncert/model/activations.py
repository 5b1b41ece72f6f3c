"""Activations, and the traits from which everything else about them is derived.

To add one, write its class with its traits here or in `curves` and list it there: relaxations,
intervals, moments, branching and training ask for nothing else.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.curves import CURVES, Curve
from bnncert.model.traits import Traits, is_number

STEEPEST = 1000.0  # slopes of PReLU, of either sign


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
        if not is_number(self.slope, 0) or self.slope >= 1:
            raise InputError(f"LeakyReLU slope is {self.slope!r}; give a number in [0, 1)")

    @property
    def traits(self) -> Traits:
        return Traits((self.slope, 1.0), kinks=(0.0,), pieces=(self.slope, 1.0))

    def __call__(self, z: Tensor) -> Tensor:
        return torch.maximum(z, self.slope * z)


@dataclass(frozen=True)
class PReLU:
    """z for z >= 0, slope z below: one slope, or one each for the entries of `shape`, which is that
    of z but for sizes of 1 (He et al. 2015, at the slopes that were learnt).

    >>> PReLU((0.5, -1.0), (2,))(torch.tensor([[-2.0, -2.0], [3.0, 3.0]]))
    tensor([[-1.,  2.],
            [ 3.,  3.]])
    """

    slopes: tuple[float, ...] = (0.25,)
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "slopes", _tuple(self.slopes))
        object.__setattr__(self, "shape", _tuple(self.shape))
        sizes = all(type(size) is int and size >= 1 for size in self.shape)
        if not sizes or math.prod(self.shape) != len(self.slopes):
            raise InputError(
                f"PReLU has {len(self.slopes)} slopes and shape {self.shape}; give one slope, or "
                "as many as the shape has entries"
            )
        if not all(is_number(slope, -STEEPEST, STEEPEST) for slope in self.slopes):
            raise InputError(f"PReLU slopes must be numbers from {-STEEPEST:g} to {STEEPEST:g}")
        object.__setattr__(self, "slopes", tuple(map(float, self.slopes)))

    @property
    def traits(self) -> Traits:
        least = min(self.slopes)
        largest = max(self.slopes)
        return Traits(
            (min(least, 1.0), max(largest, 1.0)),
            kinks=(0.0,),
            pieces=(least, 1.0) if largest <= 1 else (largest, 1.0),
            growth=(max(1.0, -least, largest), 0.0),
            valley=(0.0, 0.0) if least < 0 else None,
        )

    def __call__(self, z: Tensor) -> Tensor:
        slopes = torch.tensor(self.slopes, dtype=z.dtype, device=z.device)
        return torch.where(z >= 0, z, slopes.reshape(self.shape) * z)


@dataclass(frozen=True)
class Hardtanh:
    """min(max(z, low), high), also called clip; ReLU6 is Hardtanh(0, 6).

    >>> Hardtanh(0, 6)(torch.tensor([-2.0, 3.0, 7.0]))
    tensor([0., 3., 6.])
    """

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        ends = all(is_number(end, -math.inf) for end in (self.low, self.high))
        if not ends or not self.low < self.high:
            raise InputError(
                f"Hardtanh has ends {self.low!r} and {self.high!r}; give two numbers, the lower "
                "first"
            )
        object.__setattr__(self, "low", float(self.low))
        object.__setattr__(self, "high", float(self.high))

    @property
    def traits(self) -> Traits:
        return Traits(
            (0.0, 1.0),
            kinks=(self.low, self.high),
            pieces=(0.0, 1.0, 0.0),
            largest=max(abs(self.low), abs(self.high)),
            growth=(1.0, max(0.0, self.low, -self.high)),
            flat_below=self.low == 0,
        )

    def __call__(self, z: Tensor) -> Tensor:
        return z.clamp(self.low, self.high)


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


def _tuple(values: object) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, list | tuple) else (values,)


# Convex below 0, concave above, and turned around (0, f(0)) itself again.
Smooth: TypeAlias = Tanh | Sigmoid
SMOOTH: tuple[type[Smooth], ...] = (Tanh, Sigmoid)
# Linear between their kinks.
Bent: TypeAlias = ReLU | LeakyReLU
Kinked: TypeAlias = PReLU | Hardtanh
Activation: TypeAlias = Bent | Kinked | Smooth | Curve
ACTIVATIONS: tuple[type[Activation], ...] = (
    ReLU,
    LeakyReLU,
    PReLU,
    Hardtanh,
    Tanh,
    Sigmoid,
    *CURVES,
)

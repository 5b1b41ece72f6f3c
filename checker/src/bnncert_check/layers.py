"""Layers on flat vectors: the one place that knows which layers there are.

What an activation is like is said once, in `KINDS`; what follows from it is asked for as `traits`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from bnncert_check.weighted import Conv, Dense, Scale
from bnncert_check.wiring import Add, MaxPool, Move


@dataclass(frozen=True)
class Traits:
    """Of a nondecreasing activation f whose slopes are in [0, 1].

    bent: f(z) = max(z, slope z), the slope below 0 being `slope`; else f(z) = lift + height
    tanh(rate z). largest: of |f|; where it is infinite, |f(z)| <= |z|.
    """

    npz: str  # its name in `.npz` files
    slope: float | None = None  # of a leaky ReLU unless given
    curve: tuple[float, float, float] = (0.0, 0.0, 0.0)
    largest: float = math.inf

    @property
    def bent(self) -> bool:
        return self.slope is not None

    @property
    def flat_below(self) -> bool:
        """Whether f is 0 for all z <= 0, however far below."""
        return self.slope == 0


KINDS = {
    "ReLU": Traits("relu", slope=0.0),
    "LeakyReLU": Traits("leaky_relu", slope=0.01),
    "Tanh": Traits("tanh", curve=(0.0, 1.0, 1.0), largest=1.0),
    "Sigmoid": Traits("sigmoid", curve=(0.5, 0.5, 0.5), largest=1.0),
}


@dataclass(frozen=True)
class Activation:
    """One of `KINDS`; a bent one has its own slope below 0. Its slopes in proofs are named by its
    `position`."""

    kind: str
    slope: float | None
    width: int
    position: int

    @property
    def traits(self) -> Traits:
        return KINDS[self.kind]

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def held(self) -> int:
        return self.width


Layer: TypeAlias = Dense | Conv | Scale | MaxPool | Add | Move | Activation

"""Layers on flat vectors: the one place that knows which layers there are.

What an activation is like is said once, as its traits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array
from bnncert_check.curves import Curve
from bnncert_check.weighted import Conv, Dense, Scale
from bnncert_check.wiring import Add, MaxPool, Move


@dataclass(frozen=True)
class Traits:
    """Of an activation f.

    slope: f(z) = z for z >= 0 and slope z below, one slope for all or one each [n]; ends: f(z) =
    min(max(z, low), high); form: any other curve; else f(z) = lift + height tanh(rate z), with
    those of `curve`. largest: of |f|; where it is infinite, |f(z)| <= a |z| + b, (a, b) the growth.
    slopes: the least and the largest.
    """

    slope: float | Array | None = None  # of a leaky ReLU unless given
    curve: tuple[float, float, float] = (0.0, 0.0, 0.0)
    largest: float = math.inf
    ends: tuple[float, float] | None = None
    form: Curve | None = None
    growth: tuple[float, float] = (1.0, 0.0)
    slopes: tuple[float, float] = (0.0, 1.0)

    @property
    def bent(self) -> bool:
        """Linear on both sides of 0, and steeper above."""
        return self.slope is not None and bool(np.all(np.asarray(self.slope) <= 1))

    @property
    def kinks(self) -> tuple[float, ...]:
        """Where neurons may be split: the slope rises at the first and falls at the second."""
        return self.ends or ((0.0,) if self.bent else ())

    @property
    def flat_below(self) -> bool:
        """Whether f is 0 for all z <= 0, however far below."""
        if self.ends is not None:
            return self.ends[0] == 0
        return isinstance(self.slope, float) and self.slope == 0


KINDS = {
    "ReLU": Traits(slope=0.0),
    "LeakyReLU": Traits(slope=0.01),
    "Tanh": Traits(curve=(0.0, 1.0, 1.0), largest=1.0),
    "Sigmoid": Traits(curve=(0.5, 0.5, 0.5), largest=1.0),
}


def parametric(slopes: Array) -> Traits:
    """z for z >= 0, slope z below, slopes [n]"""
    least, most = float(slopes.min()), float(slopes.max())
    return Traits(
        slope=slopes,
        growth=(max(1.0, -least, most), 0.0),
        slopes=(min(0.0, least), max(1.0, most)),
    )


def clip(low: float, high: float) -> Traits:
    """min(max(z, low), high)"""
    return Traits(ends=(low, high), largest=max(abs(low), abs(high)))


def curved(form: Curve) -> Traits:
    return Traits(largest=form.largest, form=form, growth=form.growth, slopes=form.slopes)


@dataclass(frozen=True)
class Activation:
    """One of `KINDS`, where a bent one has its own slope below 0, or what `own` says. Its slopes in
    proofs are named by its `position`."""

    kind: str
    slope: float | Array | None
    width: int
    position: int
    own: Traits | None = None

    @property
    def traits(self) -> Traits:
        return KINDS[self.kind] if self.own is None else self.own

    @property
    def below(self) -> float | Array | None:
        """The slope below 0 of what is linear on both sides of it."""
        return self.slope if self.own is None else self.own.slope

    @property
    def pieces(self) -> tuple[float | Array, ...]:
        """The slopes between the kinks, of what may be split."""
        return (0.0, 1.0, 0.0) if self.below is None else (self.below, 1.0)

    @property
    def rises(self) -> bool:
        """Whether f never falls."""
        return self.traits.slopes[0] >= 0

    @property
    def edges(self) -> tuple[float, ...]:
        """Where cells should meet: where slopes jump, or at 0."""
        form = self.traits.form
        return self.traits.kinks or (() if form is None else form.kinks) or (0.0,)

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def held(self) -> int:
        return self.width


Layer: TypeAlias = Dense | Conv | Scale | MaxPool | Add | Move | Activation

"""Posteriors of independent weights: each weight has a spread and known tails, so that boxes have a
mass.

That is all the box methods need. A weight of spread 0 is a point mass: it is in a box or it is not.

Masses are lower bounds: arguments and tails are rounded against the claim, and the mass of an
interval is never a difference of two numbers near 1 but one minus its tails, a sum of two central
parts, or a difference of tails.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.box import Box
from bnncert.numerics.rounding import TINY, UNIT, gamma
from bnncert.numerics.tails import (
    ARGUMENT,
    SPECIAL,
    laplace_core,
    laplace_tail,
    normal_core,
    normal_tail,
)
from bnncert.posteriors.base import Posterior, validate

STUDENT = 2.0**-36  # the incomplete beta function as scipy evaluates it
SMALLEST_TAIL = 2.0**-490  # of a Student t, where z² would overflow
DOWN, UP = 1, -1  # directions of rounding
Function: TypeAlias = Callable[[Tensor], Tensor]


class Independent(Posterior):
    """A posterior of independent weights, each with a spread (its unit of width) and a tail."""

    @property
    @abstractmethod
    def spread(self) -> Tensor:
        """The unit in which boxes are grown; 0 marks a deterministic weight."""

    @abstractmethod
    def interval_logs(self, box: Box, direction: int = DOWN) -> Tensor:
        """log P(w_i in box_i) for every weight of positive spread, rounded DOWN or UP."""

    def log_masses(self, box: Box, direction: int = DOWN) -> Tensor:
        """`interval_logs`; a deterministic weight counts 0 inside its interval, -inf outside."""
        if box.shape[-1:] != self.center.shape:
            raise InputError(
                f"box has {box.shape[-1]} weights and the posterior {self.size}; give equal lengths"
            )
        inside = (box.lower <= self.center) & (self.center <= box.upper)
        point = torch.where(inside, 0.0, -math.inf)
        return torch.where(self.spread > 0, self.interval_logs(box, direction), point)

    def log_mass(self, box: Box, direction: int = DOWN) -> Tensor:
        """log P(w in box), reduced over the last dimension and rounded DOWN or UP."""
        total = self.log_masses(box, direction).sum(-1)
        return total * (1 + direction * gamma(box.shape[-1] + 8))


class Symmetric(Independent):
    """A law that is symmetric about its centre: its first two parameters are centre and scale."""

    slack: ClassVar[float] = SPECIAL  # relative error of the tails
    tiny: ClassVar[float] = TINY  # and the absolute one

    def __post_init__(self) -> None:
        validate(self, scale=self.names()[1])

    @property
    def center(self) -> Tensor:
        return self.tensors()[self.names()[0]]

    @property
    def spread(self) -> Tensor:
        return self.tensors()[self.names()[1]]

    @abstractmethod
    def tail(self, z: Tensor) -> Tensor:
        """P(Z > z) of the standardised law, z >= 0."""

    @abstractmethod
    def core(self, z: Tensor) -> Tensor:
        """P(0 < Z < z) of the standardised law."""

    def interval_logs(self, box: Box, direction: int = DOWN) -> Tensor:
        slack = direction * self.slack
        return _symmetric_logs(
            box, self.center, self.spread, self.tail, self.core, slack, self.tiny
        )


@dataclass(frozen=True, eq=False)
class Normal(Symmetric):
    """Independent Gaussians N(mean, std²).

    >>> Normal(torch.zeros(3).double(), torch.ones(3).double()).size
    3
    """

    mean: Tensor
    std: Tensor
    family: ClassVar[str] = "normal"

    @property
    def factor(self) -> None:
        """Nothing is shared between weights."""

    @property
    def rank(self) -> int:
        return 0

    @property
    def marginal_std(self) -> Tensor:
        return self.std

    def draw(self, generator: np.random.Generator) -> Tensor:
        return self.mean.cpu() + self.std.cpu() * _randn(self.size, generator)

    def tail(self, z: Tensor) -> Tensor:
        return normal_tail(z)

    def core(self, z: Tensor) -> Tensor:
        return normal_core(z)


@dataclass(frozen=True, eq=False)
class Laplace(Symmetric):
    """Independent Laplace distributions with density exp(-|w - loc| / scale) / (2 scale).

    >>> Laplace(torch.zeros(3).double(), torch.full((3,), 0.1).double()).family
    'laplace'
    """

    loc: Tensor
    scale: Tensor
    family: ClassVar[str] = "laplace"

    def draw(self, generator: np.random.Generator) -> Tensor:
        v = 2 * _rand(self.size, generator).clamp_min(UNIT) - 1
        return self.loc.cpu() - self.scale.cpu() * v.sign() * torch.log1p(-v.abs())

    def tail(self, z: Tensor) -> Tensor:
        return laplace_tail(z)

    def core(self, z: Tensor) -> Tensor:
        return laplace_core(z)


@dataclass(frozen=True, eq=False)
class StudentT(Symmetric):
    """Independent Student t with `df` degrees of freedom, shifted by loc and scaled by scale.

    >>> ones = torch.ones(3).double()
    >>> StudentT(loc=0 * ones, scale=0.1 * ones, df=5 * ones).spread
    tensor([0.1000, 0.1000, 0.1000], dtype=torch.float64)
    """

    loc: Tensor
    scale: Tensor
    df: Tensor
    family: ClassVar[str] = "student-t"
    slack: ClassVar[float] = STUDENT
    tiny: ClassVar[float] = SMALLEST_TAIL

    def __post_init__(self) -> None:
        super().__post_init__()
        # Heavier tails than Cauchy's would still matter where z² overflows.
        if not bool(((self.df >= 1) & (self.df <= 1e10)).all()):
            raise InputError(
                "posterior 'df' is outside 1 to 1e10 somewhere; "
                "give Student t posteriors as many degrees of freedom"
            )

    def draw(self, generator: np.random.Generator) -> Tensor:
        v = _rand(self.size, generator).clamp_min(UNIT)
        z = torch.as_tensor(special.stdtrit(self.df.cpu().numpy(), v.numpy()))
        return self.loc.cpu() + self.scale.cpu() * z

    def tail(self, z: Tensor) -> Tensor:
        """P(T > z) = I(df / (df + z²); df/2, 1/2) / 2, z >= 0, by the argument with more digits."""
        df, z2 = self._numpy(z)
        far = special.betainc(df / 2, 0.5, df / (df + z2))
        near = special.betaincc(0.5, df / 2, z2 / (df + z2))
        return torch.as_tensor(np.where(z2 > df, far, near) / 2, device=z.device)

    def core(self, z: Tensor) -> Tensor:
        """P(0 < T < z) = I(z² / (df + z²); 1/2, df/2) / 2 for z >= 0."""
        df, z2 = self._numpy(z)
        near = special.betainc(0.5, df / 2, z2 / (df + z2))
        far = special.betaincc(df / 2, 0.5, df / (df + z2))
        return torch.as_tensor(np.where(z2 > df, far, near) / 2, device=z.device)

    def _numpy(self, z: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # z² overflows beyond 1e150, where the tail is below SMALLEST_TAIL.
        return self.df.cpu().numpy(), (z.clamp(0, 1e150) ** 2).cpu().numpy()


@dataclass(frozen=True, eq=False)
class Uniform(Independent):
    """Independent uniform distributions on [low, high]; low = high is a point mass.

    >>> Uniform(torch.zeros(2).double(), torch.tensor([1.0, 3.0]).double()).center
    tensor([0.5000, 1.5000], dtype=torch.float64)
    """

    low: Tensor
    high: Tensor
    family: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        validate(self)
        if bool(((self.low < self.high) & (self.high - self.low < TINY)).any()):
            raise InputError(
                "posterior has an interval narrower than 2^-1000; "
                "make it a point (low = high) or wider"
            )

    @property
    def center(self) -> Tensor:
        return self.low + self.spread

    @property
    def spread(self) -> Tensor:
        return (self.high - self.low) / 2

    def draw(self, generator: np.random.Generator) -> Tensor:
        low, high = self.low.cpu(), self.high.cpu()
        return torch.minimum(low + _rand(self.size, generator) * (high - low), high)

    def interval_logs(self, box: Box, direction: int = DOWN) -> Tensor:
        """log(overlap / width), as log1p(-missing / width) where little is missing."""
        width = self.high - self.low
        slack = direction * SPECIAL
        missing = (box.lower - self.low).clamp_min(0) + (self.high - box.upper).clamp_min(0)
        overlap = torch.minimum(box.upper, self.high) - torch.maximum(box.lower, self.low)
        near = torch.log1p(-(missing / width * (1 + slack)).clamp_max(1))
        far = (overlap.clamp_min(0) / width * (1 - slack)).clamp_max(1).log()
        return torch.where(missing < width / 2, near, far)


@dataclass(frozen=True, eq=False)
class TruncatedNormal(Independent):
    """Independent Gaussians N(mean, std²) conditioned on [low, high].

    >>> ones = torch.ones(2).double()
    >>> TruncatedNormal(mean=0 * ones, std=ones, low=-ones, high=ones).center
    tensor([0., 0.], dtype=torch.float64)
    """

    mean: Tensor
    std: Tensor
    low: Tensor
    high: Tensor
    family: ClassVar[str] = "truncated-normal"

    def __post_init__(self) -> None:
        validate(self, scale="std")
        outside = (self.std == 0) & ((self.mean < self.low) | (self.mean > self.high))
        if bool(outside.any()):
            raise InputError(
                "posterior has a deterministic weight outside its [low, high]; widen the interval"
            )
        if not bool(((self.std == 0) | (self._support_logs(DOWN) > -math.inf)).all()):
            raise InputError(
                "posterior truncates a weight to an interval of no mass; widen 'low' and 'high'"
            )

    @property
    def center(self) -> Tensor:
        return self.mean.clamp(self.low, self.high)

    @property
    def spread(self) -> Tensor:
        return self.std

    def draw(self, generator: np.random.Generator) -> Tensor:
        """By the inverse CDF, mirrored to the side where the CDF keeps its digits."""
        mean, std, low, high = (value.cpu() for value in self.tensors().values())
        scale = torch.where(std > 0, std, 1.0)
        mirror = torch.where(low + high > 2 * mean, -1.0, 1.0)
        ends = mirror * torch.stack([low - mean, high - mean]) / scale
        first, last = (
            torch.from_numpy(special.ndtr(end.numpy())) for end in (ends.amin(0), ends.amax(0))
        )
        z = torch.from_numpy(
            special.ndtri((first + _rand(self.size, generator) * (last - first)).numpy())
        )
        return torch.where(std > 0, mean + std * mirror * z, mean).clamp(low, high)

    def interval_logs(self, box: Box, direction: int = DOWN) -> Tensor:
        """log P(box and [low, high]) - log P([low, high]), the second rounded the other way."""
        empty = (box.lower > self.high) | (box.upper < self.low)
        part = Box(box.lower.clamp(self.low, self.high), box.upper.clamp(self.low, self.high))
        whole = (part.lower == self.low) & (part.upper == self.high)
        up = direction * 8 * UNIT
        logs = (
            self._gaussian_logs(part, direction) * (1 + up)
            - self._support_logs(-direction) * (1 - up)
        ).clamp_max(0)
        return torch.where(empty, -math.inf, torch.where(whole, 0.0, logs))

    def _support_logs(self, direction: int) -> Tensor:
        return self._gaussian_logs(Box(self.low, self.high), direction)

    def _gaussian_logs(self, box: Box, direction: int) -> Tensor:
        """log P(w_i in box_i) before conditioning."""
        return _symmetric_logs(
            box, self.mean, self.std, normal_tail, normal_core, direction * SPECIAL
        )


FAMILIES: dict[str, type[Independent]] = {
    kind.family: kind for kind in (Normal, Uniform, TruncatedNormal, Laplace, StudentT)
}


def _symmetric_logs(
    box: Box,
    center: Tensor,
    scale: Tensor,
    tail: Function,
    core: Function,
    slack: float,
    tiny: float = TINY,
) -> Tensor:
    """log P(w in [l, u]) per weight for a law symmetric about `center`.

    Positive slack rounds down, negative up. With a = (l - center) / scale and b = (u - center) /
    scale, tail(z) = P(Z > z) and core(z) = P(0 < Z < z): a <= 0 <= b gives 1 - tail(-a) - tail(b)
    when the tails are small, core(-a) + core(b) otherwise; one-sided intervals give tail(near) -
    tail(far).
    """
    argument = math.copysign(ARGUMENT, slack)
    tiny = math.copysign(tiny, slack)
    a, b = (box.lower - center) / scale, (box.upper - center) / scale
    left, right = (-a).clamp_min(0) * (1 - argument), b.clamp_min(0) * (1 - argument)

    tails = ((tail(left) + tail(right)) * (1 + slack) + tiny).clamp(0, 1)
    cores = ((core(left) + core(right)) * (1 - slack) - tiny).clamp(0, 1)
    straddling = torch.where(tails < 0.5, torch.log1p(-tails), cores.log())

    near = torch.maximum(a, -b).clamp_min(0) * (1 + argument)
    far = torch.maximum(b, -a) * (1 - argument)
    aside = (tail(near) * (1 - slack) - tail(far) * (1 + slack) - tiny).clamp(0, 1).log()
    return torch.where((a <= 0) & (b >= 0), straddling, aside)


def _randn(size: int, generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.standard_normal(size))


def _rand(size: int, generator: np.random.Generator) -> Tensor:
    return torch.from_numpy(generator.random(size))

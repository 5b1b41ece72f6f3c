"""Curves: activations that are convex, concave or linear between a few turns.

Lines, intervals and training ask for values, slopes and turns, and for nothing else. What certifies
is the function in real arithmetic, whatever constants a library rounds or approximates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.traits import Traits, is_number

LARGEST = 1000.0  # of the parameters of ELU and Softplus; of the latter also its inverse


@dataclass(frozen=True)
class Turns:
    """Where a curve turns from one of `bends` to the next: 1 convex, -1 concave, 0 linear.

    rate: values below 0 lose at most about (rate z)² units of relative precision, by the rounding
    of what an exponential is taken of.
    """

    places: tuple[float, ...]
    bends: tuple[int, ...]
    rate: float = 0.0
    reach: float = 48.0  # beyond which slopes differ from their limits by nothing


@dataclass(frozen=True)
class GELU:
    """z Φ(z), or z (1 + tanh(√(2/π) (z + 0.044715 z³))) / 2 where `approximate` is "tanh"
    (Hendrycks and Gimpel 2016).

    >>> GELU()(torch.tensor([-1.0, 1.0]))
    tensor([-0.1587,  0.8413])
    """

    approximate: str = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise InputError(f"GELU approximate is {self.approximate!r}; give 'none' or 'tanh'")

    @property
    def traits(self) -> Traits:
        if self.approximate == "tanh":
            return Traits((-0.13, 1.13), valley=(-0.7524614220710163, -0.1700407505712541))
        return Traits((-0.13, 1.13), valley=(-0.7517915246935645, -0.1699712074799037))

    @property
    def turns(self) -> Turns:
        """f'' is φ(z) (2 - z²); with tanh it has the sign of something that falls with |z|."""
        place = 1.4185040087908284 if self.approximate == "tanh" else math.sqrt(2)
        return Turns((-place, place), (-1, 1, -1), rate=1.0, reach=10.0)

    def __call__(self, z: Tensor) -> Tensor:
        return z * self._share(z)

    def slope(self, z: Tensor) -> Tensor:
        z = z.clamp(-1e6, 1e6)  # where squares are finite, and slopes 0 or 1 on either side
        share = self._share(z)
        if self.approximate == "tanh":
            return share + z * share * self._share(-z) * 2 * SCALE * (1 + 3 * CUBE * z**2)
        return share + z * torch.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)

    def _share(self, z: Tensor) -> Tensor:
        if self.approximate == "tanh":
            return (2 * SCALE * z * (1 + CUBE * z**2)).sigmoid()
        # torch's own Φ has no digits far below 0
        share: Tensor = torch.special.erfc(-math.sqrt(0.5) * z) / 2
        return share


SCALE, CUBE = math.sqrt(2 / math.pi), 0.044715


@dataclass(frozen=True)
class SiLU:
    """z / (1 + exp(-z)), also called swish (Elfwing et al. 2018).

    >>> SiLU()(torch.tensor([-1.0, 1.0]))
    tensor([-0.2689,  0.7311])
    """

    @property
    def traits(self) -> Traits:
        return Traits((-0.1, 1.1), valley=(-1.2784645427610738, -0.2784645427610738))

    @property
    def turns(self) -> Turns:
        """f'' has the sign of 2 - z tanh(z/2)."""
        place = 2.3993572805154676
        return Turns((-place, place), (-1, 1, -1))

    def __call__(self, z: Tensor) -> Tensor:
        return z * z.sigmoid()

    def slope(self, z: Tensor) -> Tensor:
        share = z.sigmoid()
        return share + z * share * (-z).sigmoid()


@dataclass(frozen=True)
class Mish:
    """z tanh(log(1 + exp(z))) (Misra 2019).

    >>> Mish()(torch.tensor([-1.0, 1.0]))
    tensor([-0.3034,  0.8651])
    """

    @property
    def traits(self) -> Traits:
        return Traits((-0.12, 1.09), valley=(-1.1924312145154952, -0.3088434130172505))

    @property
    def turns(self) -> Turns:
        return Turns((-2.256376396360793, 1.4905711794854284), (-1, 1, -1))

    def __call__(self, z: Tensor) -> Tensor:
        return z * self._share(z)

    def slope(self, z: Tensor) -> Tensor:
        """With w = exp(z): tanh(log(1 + w)) + z 4 w (1 + w) / (w² + 2w + 2)²"""
        small = (-z.abs()).exp()  # w or 1 / w
        below = small * (1 + small) / (small**2 + 2 * small + 2) ** 2
        above = small**2 * (1 + small) / (1 + 2 * small + 2 * small**2) ** 2
        return self._share(z) + 4 * z.clamp(-1e6, 1e6) * torch.where(z < 0, below, above)

    def _share(self, z: Tensor) -> Tensor:
        """w (w + 2) / (w (w + 2) + 2), or the same by 1 / w."""
        small = (-z.abs()).exp()
        below = small * (small + 2) / (small * (small + 2) + 2)
        above = (1 + 2 * small) / (1 + 2 * small + 2 * small**2)
        return torch.where(z < 0, below, above)


@dataclass(frozen=True)
class Softplus:
    """log(1 + exp(beta z)) / beta, for every z.

    >>> Softplus()(torch.tensor([0.0, 1.0]))
    tensor([0.6931, 1.3133])
    """

    beta: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.beta, 1 / LARGEST, LARGEST):
            raise InputError(
                f"Softplus beta is {self.beta!r}; give a number from {1 / LARGEST} to {LARGEST:g}"
            )
        object.__setattr__(self, "beta", float(self.beta))

    @property
    def traits(self) -> Traits:
        return Traits((0.0, 1.0), growth=(1.0, math.nextafter(math.log(2) / self.beta, math.inf)))

    @property
    def turns(self) -> Turns:
        return Turns((), (1,), rate=self.beta, reach=48 / self.beta)

    def __call__(self, z: Tensor) -> Tensor:
        return torch.logaddexp(self.beta * z, torch.zeros_like(z)) / self.beta

    def slope(self, z: Tensor) -> Tensor:
        return torch.sigmoid(self.beta * z)


@dataclass(frozen=True)
class _Exponential:
    """a z for z >= 0, b (exp(z) - 1) below"""

    def _sides(self) -> tuple[float, float]:
        raise NotImplementedError

    @property
    def traits(self) -> Traits:
        above, below = self._sides()
        steepest = max(above, below)
        return Traits((0.0, steepest), kinks=(0.0,), growth=(steepest, 0.0))

    @property
    def turns(self) -> Turns:
        return Turns((0.0,), (1, 0))

    def __call__(self, z: Tensor) -> Tensor:
        above, below = self._sides()
        return torch.where(z > 0, above * z, below * torch.expm1(z.clamp_max(0)))

    def slope(self, z: Tensor) -> Tensor:
        """At the kink that of the convex side."""
        above, below = self._sides()
        return torch.where(z > 0, above, below * z.clamp_max(0).exp())


@dataclass(frozen=True)
class ELU(_Exponential):
    """z for z >= 0, alpha (exp(z) - 1) below (Clevert et al. 2016).

    >>> ELU()(torch.tensor([-1.0, 1.0]))
    tensor([-0.6321,  1.0000])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        if not is_number(self.alpha, 0, LARGEST) or self.alpha == 0:
            raise InputError(
                f"ELU alpha is {self.alpha!r}; give a number above 0, at most {LARGEST:g}"
            )
        object.__setattr__(self, "alpha", float(self.alpha))

    def _sides(self) -> tuple[float, float]:
        return 1.0, self.alpha


@dataclass(frozen=True)
class SELU(_Exponential):
    """λ z for z >= 0, λα (exp(z) - 1) below, with the λ and α of Klambauer et al. (2017).

    >>> SELU()(torch.tensor([-1.0, 1.0]))
    tensor([-1.1113,  1.0507])
    """

    scale: ClassVar[float] = 1.0507009873554804934193349852946
    alpha: ClassVar[float] = 1.6732632423543772848170429916717

    def _sides(self) -> tuple[float, float]:
        return self.scale, self.scale * self.alpha


@dataclass(frozen=True)
class HardSwish:
    """z min(max(z + 3, 0), 6) / 6 (Howard et al. 2019)

    >>> HardSwish()(torch.tensor([-1.0, 1.0]))
    tensor([-0.3333,  0.6667])
    """

    @property
    def traits(self) -> Traits:
        return Traits((-0.5, 1.5), kinks=(-3.0, 3.0), valley=(-1.5, -0.375))

    @property
    def turns(self) -> Turns:
        return Turns((-3.0, 3.0), (0, 1, 0))

    def __call__(self, z: Tensor) -> Tensor:
        return z * ((z + 3).clamp(0, 6) / 6)

    def slope(self, z: Tensor) -> Tensor:
        """At the kinks that of the convex middle."""
        middle = (2 * z + 3) / 6
        return torch.where(z < -3, 0.0, torch.where(z > 3, 1.0, middle))


@dataclass(frozen=True)
class Softsign:
    """z / (1 + |z|)

    >>> Softsign()(torch.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5000])
    """

    @property
    def traits(self) -> Traits:
        return Traits((0.0, 1.0), largest=1.0)

    @property
    def turns(self) -> Turns:
        return Turns((0.0,), (1, -1), reach=1e9)

    def __call__(self, z: Tensor) -> Tensor:
        return z / (1 + z.abs())

    def slope(self, z: Tensor) -> Tensor:
        """f'(z) = 1 / (1 + |z|)²"""
        return (1 + z.abs()) ** -2


Curve: TypeAlias = GELU | SiLU | Mish | Softplus | ELU | SELU | HardSwish | Softsign
CURVES: tuple[type[Curve], ...] = (GELU, SiLU, Mish, Softplus, ELU, SELU, HardSwish, Softsign)

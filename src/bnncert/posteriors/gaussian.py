"""Gaussian posteriors with correlated weights, and mixtures of Gaussians."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.posteriors.base import Posterior, validate
from bnncert.posteriors.independent import Normal


@dataclass(frozen=True, eq=False)
class LowRankNormal(Posterior):
    """w = mean + std∘ξ + factor η with ξ, η standard normal: covariance diag(std²) + factor
    factorᵀ, factor [n, k].

    A factor with fewer rows is that of the last weights, a Bayesian head's say; the others share no
    noise.

    >>> zeros = torch.zeros(2).double()
    >>> posterior = LowRankNormal(zeros, zeros, torch.tensor([[3.0], [4.0]]).double())
    >>> posterior.rank, posterior.marginal_std
    (1, tensor([3., 4.], dtype=torch.float64))
    """

    mean: Tensor
    std: Tensor
    factor: Tensor
    family: ClassVar[str] = "low-rank-normal"

    def __post_init__(self) -> None:
        validate(self, scale="std")
        if self.factor.dim() != 2 or not 1 <= len(self.factor) <= len(self.mean):
            raise InputError(
                f"posterior 'factor' has shape {tuple(self.factor.shape)}; "
                f"give [{len(self.mean)}, rank], or fewer rows for the last weights alone"
            )

    @property
    def center(self) -> Tensor:
        return self.mean

    @property
    def rank(self) -> int:
        return self.factor.shape[1]

    @property
    def marginal_std(self) -> Tensor:
        """Of each weight by itself."""
        return (self.std**2 + self.on_all((self.factor**2).sum(1))).sqrt()

    def on_all(self, values: Tensor) -> Tensor:
        """Values of the weights that share noise [m] among zeros for the others, [n]."""
        return functional.pad(values, (self.size - len(values), 0))

    def draw(self, generator: np.random.Generator) -> Tensor:
        own = torch.from_numpy(generator.standard_normal(self.size))
        shared = torch.from_numpy(generator.standard_normal(self.factor.shape[1]))
        along = self.on_all(self.factor.cpu() @ shared)
        return self.mean.cpu() + self.std.cpu() * own + along


def full_covariance(mean: Tensor, covariance: Tensor) -> LowRankNormal:
    """N(mean, covariance): the certified object is mean and the Cholesky factor of `covariance`, as
    computed here.

    >>> covariance = torch.tensor([[4.0, 2.0], [2.0, 2.0]]).double()
    >>> full_covariance(torch.zeros(2).double(), covariance).factor
    tensor([[2., 0.],
            [1., 1.]], dtype=torch.float64)
    """
    if covariance.shape != (len(mean), len(mean)):
        raise InputError(
            f"covariance has shape {tuple(covariance.shape)}; give [{len(mean)}, {len(mean)}]"
        )
    if not bool(covariance.isfinite().all()) or not torch.allclose(
        covariance, covariance.mT, rtol=1e-8, atol=0
    ):
        raise InputError("covariance must be finite and symmetric")
    factor, failed = torch.linalg.cholesky_ex(covariance)
    if bool(failed):
        raise InputError(
            "covariance is not positive definite; add a small multiple of the identity"
        )
    return LowRankNormal(mean, torch.zeros_like(mean), factor)


Gaussian: TypeAlias = Normal | LowRankNormal
GAUSSIAN: dict[str, type[Gaussian]] = {kind.family: kind for kind in (Normal, LowRankNormal)}


@dataclass(frozen=True, eq=False)
class Mixture(Posterior):
    """Component c with probability weights[c]; the centre is the heaviest component's.

    >>> ones = torch.ones(2).double()
    >>> mixture = Mixture((0.25, 0.75), (Normal(-ones, ones), Normal(ones, ones)))
    >>> mixture.center
    tensor([1., 1.], dtype=torch.float64)
    """

    weights: tuple[float, ...]
    components: tuple[Gaussian, ...]
    family: ClassVar[str] = "mixture"

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.components) or not self.components:
            raise InputError(
                f"mixture has {len(self.weights)} weights for {len(self.components)} components"
            )
        for component in self.components:
            if type(component) not in GAUSSIAN.values():
                raise InputError(
                    f"mixture holds {type(component).__name__}; its components must be Gaussian"
                )
        if (
            not all(weight >= 0 for weight in self.weights)
            or not abs(math.fsum(self.weights) - 1) <= 1e-12
        ):
            raise InputError(f"mixture weights {self.weights} must be at least 0 and sum to 1")
        if len({component.size for component in self.components}) != 1:
            raise InputError(
                "mixture components have different numbers of weights; "
                "give components of one network"
            )

    @property
    def center(self) -> Tensor:
        return self.components[self.weights.index(max(self.weights))].center

    def draw(self, generator: np.random.Generator) -> Tensor:
        chosen = int(np.searchsorted(np.cumsum(self.weights), generator.random()))
        return self.components[min(chosen, len(self.components) - 1)].draw(generator)

    def tensors(self) -> dict[str, Tensor]:
        """Each component's tensors, numbered."""
        return {
            f"{name}.{i}": value
            for i, part in enumerate(self.components)
            for name, value in part.tensors().items()
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights and the components' digests."""
        return digest(
            {"family": self.family, "weights": [w.hex() for w in self.weights]} | self._parts()
        )

    def _parts(self) -> dict[str, object]:
        return {"components": [component.digest for component in self.components]}

    def to(self, device: torch.device | str) -> Self:
        return type(self)(
            self.weights, tuple(component.to(device) for component in self.components)
        )


def gaussian_parts(posterior: Posterior) -> tuple[tuple[float, ...], tuple[Gaussian, ...]] | None:
    """Weights and components, one of weight 1 unless it is a mixture.

    None if it is not made of Gaussians.
    """
    if isinstance(posterior, Mixture):
        return posterior.weights, posterior.components
    return ((1.0,), (posterior,)) if isinstance(posterior, Gaussian) else None

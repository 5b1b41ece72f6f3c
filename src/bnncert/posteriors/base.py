"""What every posterior is: a law of the flat weight vector with a centre, to be sampled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.model.arrays import take_arrays

LARGEST = 2.0**500  # of a parameter: differences of two stay finite, and so do their squares


class Posterior(ABC):
    """A distribution over weight vectors of length `size`.

    Its dataclass fields are tensors [size].

    >>> from bnncert.posteriors import Normal
    >>> posterior = Normal(torch.zeros(3).double(), torch.ones(3).double())
    >>> isinstance(posterior, Posterior), posterior.family, posterior.size
    (True, 'normal', 3)
    """

    family: ClassVar[str]

    @property
    @abstractmethod
    def center(self) -> Tensor:
        """The mean, or for families without one the point of symmetry."""

    @abstractmethod
    def draw(self, generator: np.random.Generator) -> Tensor:
        """One weight vector, on the CPU."""

    @property
    def size(self) -> int:
        return len(self.center)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The family's parameters, in order."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type]

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.names()}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the family's name and its parameters."""
        tensors = self.tensors()
        return digest({"family": self.family, "tensors": list(tensors)}, tensors.values())

    def to(self, device: torch.device | str) -> Self:
        return type(self)(**{name: value.to(device) for name, value in self.tensors().items()})


def sample(posterior: Posterior, count: int, seed: int, first: int = 0) -> Tensor:
    """Draws `first`, ..., `first + count - 1` of the seed's sequence, [count, size].

    Draw k depends on (seed, k) alone: the same on every device and however many are asked for.

    >>> from bnncert.posteriors import Uniform
    >>> ones = torch.ones(3).double()
    >>> draws = sample(Uniform(0 * ones, ones), count=5, seed=0)
    >>> draws.shape, bool((draws <= 1).all())
    (torch.Size([5, 3]), True)
    """
    if seed < 0 or count < 1:
        raise InputError(f"seed {seed} and number of draws {count} must be at least 0 and 1")
    streams = (np.random.SeedSequence(seed, spawn_key=(k,)) for k in range(first, first + count))
    return torch.stack([posterior.draw(np.random.default_rng(stream)) for stream in streams]).to(
        posterior.center.device
    )


def validate(posterior: Posterior, scale: str | None = None) -> None:
    take_arrays(posterior, *posterior.names())
    tensors = posterior.tensors()
    shapes = {tuple(value.shape) for name, value in tensors.items() if name != "factor"}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        raise InputError(
            f"posterior arrays {', '.join(tensors)} must be vectors of one length, "
            f"not {sorted(shapes)}"
        )
    for name, value in tensors.items():
        if value.dtype != torch.float64:
            raise InputError(
                f"posterior '{name}' is {value.dtype}; "
                "certified bounds need float64 (use .double(), or .astype(float))"
            )
        if not bool(value.isfinite().all()):
            raise InputError(
                f"posterior '{name}' holds NaN or infinity; every entry must be finite"
            )
        if not bool((value.abs() <= LARGEST).all()):
            raise InputError(f"posterior '{name}' exceeds 2^500 somewhere; rescale the network")
    if scale is not None and not bool((tensors[scale] >= 0).all()):
        raise InputError(
            f"posterior '{scale}' is negative somewhere; "
            "a standard deviation or scale is at least 0"
        )
    if "low" in tensors and not bool((tensors["low"] <= tensors["high"]).all()):
        raise InputError("posterior 'low' exceeds 'high' somewhere; swap or fix the two arrays")

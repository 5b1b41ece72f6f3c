"""Empirical posteriors: finitely many weight vectors, each as likely as the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.arrays import take_arrays
from bnncert.posteriors.base import LARGEST, Posterior


@dataclass(frozen=True, eq=False)
class Empirical(Posterior):
    """P(w = samples[s]) = 1 / S for each of the S rows of samples [S, n].

    A row that occurs twice counts twice.

    >>> ensemble = Empirical(torch.tensor([[0.0, 1.0], [0.2, 1.1], [0.1, 0.8]]).double())
    >>> ensemble.size, len(ensemble.samples)
    (2, 3)
    """

    samples: Tensor
    family: ClassVar[str] = "empirical"

    def __post_init__(self) -> None:
        take_arrays(self, "samples")
        if self.samples.dim() != 2 or 0 in self.samples.shape:
            raise InputError(
                f"samples have shape {tuple(self.samples.shape)}; "
                "give [samples, weights], at least one each"
            )
        if self.samples.dtype != torch.float64:
            raise InputError(
                f"samples are {self.samples.dtype}; certified bounds need float64 "
                "(use .double(), or .astype(float))"
            )
        if not bool((self.samples.abs() <= LARGEST).all()):
            raise InputError(
                "samples hold NaN, infinity or a weight beyond 2^500; every entry must be finite"
            )

    @cached_property
    def _nearest(self) -> int:
        distances = (self.samples - self.samples.mean(0)).norm(dim=1)
        return int(distances.argmin())

    @property
    def center(self) -> Tensor:
        """The sample nearest to the mean, which is seldom a network of the posterior itself."""
        return self.samples[self._nearest]

    def draw(self, generator: np.random.Generator) -> Tensor:
        return self.samples[int(generator.integers(len(self.samples)))].cpu()

"""Problem: a network, a posterior over its weights and a specification, which fit each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.model.network import Network
from bnncert.model.specification import Specification
from bnncert.posteriors.base import Posterior


@dataclass(frozen=True, eq=False)
class Problem:
    """B questions of the form: with what probability is a network drawn from the posterior safe on
    this region?

    >>> from bnncert import ball, class_robust, mlp
    >>> from bnncert.posteriors import Normal
    >>> mean = torch.tensor([1, 0, 0, 1, 0, 0]).double()  # W0 = identity, b0 = 0
    >>> region = ball(torch.tensor([[0.9, 0.1]]).double(), eps=0.1)
    >>> robust = class_robust(region, [0], classes=2)
    >>> problem = Problem(mlp(2, 2), Normal(mean, mean / 10), robust)
    >>> len(problem), problem.predictions()
    (1, tensor([0]))
    """

    network: Network
    posterior: Posterior
    specification: Specification

    def __post_init__(self) -> None:
        if self.posterior.size != self.network.size:
            raise InputError(
                f"posterior has {self.posterior.size} weights, "
                f"the network {self.network.size}; give matching ones"
            )
        shape = tuple(self.specification.region.center.shape[1:])
        if shape != self.network.input_shape:
            raise InputError(
                f"inputs have shape {shape}, the network takes "
                f"{self.network.input_shape}; reshape them"
            )
        if self.specification.rows.shape[-1] != self.network.outputs:
            raise InputError(
                f"output rows have {self.specification.rows.shape[-1]} entries, "
                f"the network {self.network.outputs} outputs; give matching rows"
            )

    def __len__(self) -> int:
        return len(self.specification)

    def __getitem__(self, index: slice | Tensor) -> Problem:
        return Problem(self.network, self.posterior, self.specification[index])

    def to(self, device: torch.device | str) -> Problem:
        return Problem(self.network, self.posterior.to(device), self.specification.to(device))

    def margins(self, weights: Tensor) -> Tensor:
        """The rows of the networks `weights` [..., size] at the clean inputs, [..., B, R]."""
        return self.specification.margins(
            self.network.forward(weights, self.specification.region.center)
        )

    def predictions(self) -> Tensor:
        """The classes of the posterior's central network at the clean inputs, [B]."""
        return self.network.forward(self.posterior.center, self.specification.region.center).argmax(
            -1
        )

    def misclassified(self) -> Tensor:
        """Which inputs the central network already gets wrong, [B].

        None where there are no labels.
        """
        labels = self.specification.labels
        if labels is None:
            return torch.zeros(len(self), dtype=torch.bool, device=self.specification.rows.device)
        return self.predictions().ne(labels)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything the claim depends on: architecture, posterior, regions and rows."""
        return digest([self.network.digest, self.posterior.digest, self.specification.digest])

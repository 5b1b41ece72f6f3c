"""How libraries of Bayesian layers name a weight's mean and spread, and what the spread means.

A layer is recognised by the names of its tensors, so that none of the libraries is ever imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor


def softplus(rho: Tensor) -> Tensor:
    """log(1 + exp(rho)), without the cut-off that `torch.nn.functional.softplus` has."""
    return torch.logaddexp(rho, torch.zeros_like(rho))


@dataclass(frozen=True)
class Convention:
    """A library's names: `mean` and `spread` with a parameter's name in the place of {}."""

    library: str
    package: str  # as it is imported
    mean: str
    spread: str
    formula: str
    std: Callable[[Tensor], Tensor]
    weights: tuple[str, ...] = ("weight",)

    def names(self, part: str, present: Collection[str]) -> tuple[str, str] | None:
        """Names of the mean and the spread of "weight" or "bias" among a layer's tensors.

        None if it has neither. Layers that draw through a sampler of their own hold each tensor
        twice. The two are one until the layer is moved or cast; from then on it may be that the
        sampler's alone is trained, and it is always what is drawn from.
        """
        for name in self.weights if part == "weight" else (part,):
            own = self.mean.format(name), self.spread.format(name)
            sampler = f"{name}_sampler.mu", f"{name}_sampler.rho"
            if set(own) <= set(present):
                return sampler if set(sampler) <= set(present) else own
        return None


CONVENTIONS = {
    convention.library: convention
    for convention in (
        Convention(
            "bayesian-torch",
            "bayesian_torch",
            "mu_{}",
            "rho_{}",
            "std = log(1 + exp(rho))",
            softplus,
            ("weight", "kernel"),
        ),
        Convention(
            "torchbnn", "torchbnn", "{}_mu", "{}_log_sigma", "std = exp(log_sigma)", torch.exp
        ),
        Convention("blitz", "blitz", "{}_mu", "{}_rho", "std = log(1 + exp(rho))", softplus),
        Convention(
            "torch-uncertainty",
            "torch_uncertainty",
            "{}_mu",
            "{}_sigma",
            "std = log(1 + exp(sigma))",
            softplus,
        ),
    )
}


def convention_of(present: Collection[str]) -> Convention | None:
    """The convention whose names for a weight are among a layer's tensors."""
    return next((each for each in CONVENTIONS.values() if each.names("weight", present)), None)

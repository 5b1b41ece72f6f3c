"""How libraries of Bayesian layers name a weight's mean and spread, and what the spread means.

A layer is recognised by the names of its tensors, so that none of the libraries is ever imported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.errors import InputError


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
        """Names of the mean and the spread of "weight" or "bias" among a layer's tensors; None if it has neither.

        Layers that draw through a sampler of their own hold each tensor twice. The two are one until the layer is
        moved or cast; from then on it may be that the sampler's alone is trained, and it is always what is drawn from.
        """
        if {f"{part}_sampler.mu", f"{part}_sampler.rho"} <= set(present):
            return f"{part}_sampler.mu", f"{part}_sampler.rho"
        for name in self.weights if part == "weight" else (part,):
            mean, spread = self.mean.format(name), self.spread.format(name)
            if mean in present and spread in present:
                return mean, spread
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
        Convention("torchbnn", "torchbnn", "{}_mu", "{}_log_sigma", "std = exp(log_sigma)", torch.exp),
        Convention("blitz", "blitz", "{}_mu", "{}_rho", "std = log(1 + exp(rho))", softplus),
        Convention(
            "torch-uncertainty", "torch_uncertainty", "{}_mu", "{}_sigma", "std = log(1 + exp(sigma))", softplus
        ),
    )
}


def convention_of(present: Collection[str]) -> Convention | None:
    """The convention whose names for a weight are among a layer's own tensors."""
    own = {name for name in present if "." not in name}
    return next((each for each in CONVENTIONS.values() if each.names("weight", own)), None)


def spread_to_std(convention: Convention, spread: Tensor) -> Tensor:
    """The standard deviations, once and for all in float64."""
    if not spread.is_floating_point():
        raise InputError(f"a {convention.library} spread is {spread.dtype}; give floating-point numbers")
    return convention.std(spread.detach().cpu().double())

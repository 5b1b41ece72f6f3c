"""Noise: the Gaussian deviations of a layer's weights from their means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.model.layers import parameter_shapes
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import Gaussian

SMALLEST = 1e-150  # stands for a standard deviation of 0 where it divides


@dataclass(frozen=True, eq=False)
class Noise:
    """One layer's deviations: independent ones by variance, shared ones by a factor of rank k."""

    variance: Tensor | None  # of the weights' shape
    bias_variance: Tensor | None  # [out]
    factor: Tensor | None  # [k, *weights' shape]
    bias_factor: Tensor | None  # [k, out]

    @property
    def random(self) -> bool:
        parts = (self.variance, self.bias_variance, self.factor, self.bias_factor)
        return any(part is not None for part in parts)

    @property
    def spread(self) -> Tensor | None:
        """Each weight's own variance, of all its noise."""
        shared = None if self.factor is None else (self.factor**2).sum(0)
        if self.variance is None or shared is None:
            return shared if self.variance is None else self.variance
        return self.variance + shared

    @property
    def rank(self) -> int:
        return 0 if self.factor is None else len(self.factor)


Parts: TypeAlias = list[tuple[tuple[Tensor, ...], Noise]]  # each layer's means and noise


def layer_noises(network: Network, posterior: Gaussian) -> list[Noise]:
    """The posterior's deviations, layer by layer; None where nothing is random."""
    # No square of a positive standard deviation may underflow to certainty.
    std = torch.where(posterior.std > 0, posterior.std.clamp_min(SMALLEST), 0.0)
    noises = []
    for own, shared in zip(network.split(std**2), _factors(network, posterior), strict=True):
        independent = [value if bool((value != 0).any()) else None for value in own]
        correlated = list(shared) if any(bool((value != 0).any()) for value in shared) else []
        noises.append(Noise(*weights_and_bias(independent), *weights_and_bias(correlated)))
    return noises


def _factors(network: Network, posterior: Gaussian) -> list[tuple[Tensor, ...]]:
    """Each layer's part of the factor [k, *shape of a parameter]; nothing where it has none."""
    if posterior.factor is None:
        return [() for _ in network.layers]
    factor = posterior.factor.mT
    first = posterior.size - factor.shape[1]  # the first weight that has a row
    found: list[tuple[Tensor, ...]] = []
    start = 0
    for layer in network.layers:
        shapes = parameter_shapes(layer).values()
        sizes = [math.prod(shape) for shape in shapes]
        stop = start + sum(sizes)
        missing = max(0, min(first, stop) - start)
        own = factor[:, max(0, start - first) : max(0, stop - first)]
        parts = torch.split(functional.pad(own, (missing, 0)), sizes, 1) if stop > first else ()
        pairs = zip(parts, shapes, strict=False)
        found.append(tuple(part.reshape(len(factor), *shape) for part, shape in pairs))
        start = stop
    return found


def weights_and_bias(values: Sequence[Tensor | None]) -> tuple[Tensor | None, Tensor | None]:
    """Weights' and bias's entry, None where there is none."""
    weights, bias, *_ = [*values, None, None]
    return weights, bias

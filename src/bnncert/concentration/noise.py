"""Noise: the Gaussian deviations of a layer's weights from their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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
    def rank(self) -> int:
        return 0 if self.factor is None else len(self.factor)


def layer_noises(network: Network, posterior: Gaussian) -> list[Noise]:
    """The posterior's deviations, layer by layer; None where nothing is random."""
    # No square of a positive standard deviation may underflow to certainty.
    std = torch.where(posterior.std > 0, posterior.std.clamp_min(SMALLEST), 0.0)
    factor = std.new_zeros(0, posterior.size) if posterior.factor is None else posterior.factor.mT
    noises = []
    for own, shared in zip(network.split(std**2), network.split(factor), strict=True):
        independent = [value if bool((value != 0).any()) else None for value in own]
        correlated = list(shared) if any(bool((value != 0).any()) for value in shared) else []
        noises.append(Noise(*weights_and_bias(independent), *weights_and_bias(correlated)))
    return noises


def weights_and_bias(values: Sequence[Tensor | None]) -> tuple[Tensor | None, Tensor | None]:
    """Weights' and bias's entry, None where there is none."""
    weights, bias, *_ = [*values, None, None]
    return weights, bias

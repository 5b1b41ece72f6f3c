"""Models written out: layers with the means and standard deviations of their weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.model.layers import Conv2d, Dense, Layer, Shape
from bnncert.model.network import Block, Network
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.independent import Normal

Model: TypeAlias = tuple[Network, Posterior]
Numbers: TypeAlias = Tensor | Sequence[Any] | float


@dataclass(frozen=True, eq=False)
class Weighted:
    """A layer with its weights' means and standard deviations, as flat vectors."""

    layer: Layer
    mean: Tensor
    std: Tensor


def dense(
    weights: Numbers, std: Numbers = 0.0, bias: Numbers = 0.0, bias_std: Numbers = 0.0
) -> Weighted:
    """y = x W + b with W [inputs, outputs]; the other numbers are broadcast."""
    mean = _tensor(weights)
    inputs, outputs = mean.shape
    return _weighted(Dense(inputs, outputs), (mean, bias), (std, bias_std), (inputs, outputs))


def convolution(
    layer: Conv2d,
    weights: Numbers,
    std: Numbers = 0.0,
    bias: Numbers = 0.0,
    bias_std: Numbers = 0.0,
) -> Weighted:
    shape = (layer.out_channels, layer.in_channels // layer.groups, *layer.kernel)
    return _weighted(layer, (weights, bias), (std, bias_std), shape)


def _weighted(
    layer: Layer, means: tuple[Numbers, Numbers], stds: tuple[Numbers, Numbers], shape: Shape
) -> Weighted:
    width = shape[1] if isinstance(layer, Dense) else shape[0]

    def flat(pair: tuple[Numbers, Numbers]) -> Tensor:
        parts = zip(pair, (shape, (width,)), strict=True)
        return torch.cat([_tensor(values).expand(own).flatten() for values, own in parts])

    return Weighted(layer, flat(means), flat(stds))


def normal(shape: Shape, *parts: Weighted | Block) -> tuple[Network, Normal]:
    """The network of the parts, and independent Gaussian weights.

    >>> network, posterior = normal((1,), dense([[2.0]], std=1.0, bias=0.5))
    >>> posterior.mean, posterior.std
    (tensor([2.0000, 0.5000], dtype=torch.float64), tensor([1., 0.], dtype=torch.float64))
    """
    weighted = [part for part in parts if isinstance(part, Weighted)]
    layers = [part.layer if isinstance(part, Weighted) else part for part in parts]
    mean, std = (torch.cat([getattr(part, name) for part in weighted]) for name in ("mean", "std"))
    return Network(shape, tuple(layers)), Normal(mean, std)  # type: ignore[arg-type]


def _tensor(values: Numbers) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)

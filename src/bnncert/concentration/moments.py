"""Moments: how large the outputs of a random network are on average, for every input of a region.

    |z_i|_q <= Σ_j |W_ij|_2q |h_j|_2q + |b_i|_2q,     |N(μ, σ²)|_q <= |μ| + sqrt(q - 1) σ,

by Hölder and hypercontractivity, |X|_q = (E|X|^q)^(1/q); with weights that are independent of what
they meet, q = 2 serves in every layer and the factor before σ is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.layers import (
    LINEAR,
    WIRING,
    AvgPool2d,
    Layer,
    Linear,
    MaxPool2d,
    Wiring,
    parameter_shapes,
    rule_for,
)
from bnncert.model.maps import apply, fan, spread_bias, through
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.rounding import TINY, gamma
from bnncert.posteriors.gaussian import Gaussian


def output_norms(network: Network, posterior: Gaussian, region: Region) -> Tensor:
    """sqrt(E y_i(x, w)²) from above, for all x of each region: [B, outputs]."""
    shared = posterior.factor is not None
    remaining = _weighted_beyond(network)
    means = network.split(posterior.mean.abs())
    spreads = network.split(posterior.marginal_std)
    sizes = [region.box.magnitude]
    for k, layer in enumerate(network.layers):
        inputs = [sizes[node] for node in network.reads[k]]
        if isinstance(layer, LINEAR):
            factor = math.sqrt(2 ** (remaining[k + 1] + 2) - 1) if shared else 1.0
            own = [
                mean + factor * spread for mean, spread in zip(means[k], spreads[k], strict=True)
            ]
            size = _linear_size(layer, own, inputs[0])
            sizes.append(size * (1 + 2 * gamma(2 * fan(layer) + posterior.size + 64)) + TINY)
        else:
            sizes.append(rule_for(SIZES, layer)(layer, inputs))
    return sizes[-1]


def _weighted_beyond(network: Network) -> list[int]:
    """For every node the most layers with weights on a way from it to the output."""
    most = [0] * (len(network.layers) + 1)
    for k in reversed(range(len(network.layers))):
        for node in network.reads[k]:
            own = bool(parameter_shapes(network.layers[k]))
            most[node] = max(most[node], most[k + 1] + own)
    return most


def _linear_size(layer: Linear, own: list[Tensor], size: Tensor) -> Tensor:
    weights, *bias = own or [size]  # a pool has none
    total = through(layer, weights, size)
    for part in bias:
        total = total + spread_bias(layer, part, tuple(size.shape[1:]))
    return total


def _wired(layer: Wiring, sizes: Sequence[Tensor]) -> Tensor:
    """|h + h'| <= |h| + |h'|"""
    total = apply(layer, (), sizes, tuple(sizes[0].shape[1:]))
    return total * (1 + gamma(len(sizes) + 64)) + TINY


def _pooled(layer: MaxPool2d, sizes: Sequence[Tensor]) -> Tensor:
    """At most the sum over the window."""
    (size,) = sizes
    window = math.prod(layer.kernel)
    mean = through(AvgPool2d(layer.kernel, layer.stride, layer.padding), size, size)
    return mean * window * (1 + gamma(2 * window + 64)) + TINY


def _activated(layer: Activation, sizes: Sequence[Tensor]) -> Tensor:
    """By the bound of |f|, or where there is none by |f(z)| <= a |z| + b."""
    (size,) = sizes
    traits = layer.traits
    if math.isfinite(traits.largest):
        return torch.full_like(size, traits.largest)
    if traits.growth == (1.0, 0.0):
        return size
    factor, offset = traits.growth
    return (factor * size + offset) * (1 + gamma(64)) + TINY


SIZES: dict[type[Layer], Callable[[Any, Sequence[Tensor]], Tensor]] = {
    **dict.fromkeys(WIRING, _wired),
    MaxPool2d: _pooled,
    **dict.fromkeys(ACTIVATIONS, _activated),
}

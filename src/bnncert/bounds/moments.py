"""Moments: how large the outputs of a random network are on average, for every input of a region.

    |z_i|_q <= Σ_j |W_ij|_2q |h_j|_2q + |b_i|_2q,     |N(μ, σ²)|_q <= |μ| + sqrt(q - 1) σ,

by Hölder and hypercontractivity, |X|_q = (E|X|^q)^(1/q); with weights that are independent of what they meet, q = 2
serves in every layer and the factor before σ is 1. Activations here grow no faster than the identity.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from bnncert.correlated import Gaussian, LowRankNormal
from bnncert.layers import Flatten, LeakyReLU, Linear, MaxPool2d, ReLU, Sigmoid, Tanh, Weighted
from bnncert.network import Network
from bnncert.products import fan, spread_bias, through
from bnncert.rounding import TINY, gamma
from bnncert.specification import Region


def output_norms(network: Network, posterior: Gaussian, region: Region) -> Tensor:
    """sqrt(E y_i(x, w)²) from above, for all x of each region: [B, outputs]."""
    std, shared = posterior.std, isinstance(posterior, LowRankNormal)
    if isinstance(posterior, LowRankNormal):
        std = (std**2 + (posterior.factor**2).sum(1)).sqrt()
    size, remaining = region.box.magnitude, sum(isinstance(layer, Weighted) for layer in network.layers)
    for i, (layer, mean, spread) in enumerate(
        zip(network.layers, network.split(posterior.mean.abs()), network.split(std), strict=True)
    ):
        if isinstance(layer, Linear):
            remaining -= isinstance(layer, Weighted)
            factor = math.sqrt(2 ** (remaining + 2) - 1) if shared else 1.0
            weights, *bias = [m + factor * s for m, s in zip(mean, spread, strict=True)] or [size]  # a pool has none
            size = through(layer, weights, size) + sum(spread_bias(layer, b, network.shapes[i]) for b in bias)
            size = size * (1 + 2 * gamma(2 * fan(layer) + posterior.size + 64)) + TINY
        elif isinstance(layer, Flatten):
            size = size.flatten(1)
        elif isinstance(layer, MaxPool2d):  # at most the sum over the window
            window = math.prod(layer.kernel)
            mean_size = torch.nn.functional.avg_pool2d(size, layer.kernel, layer.stride)
            size = mean_size * window * (1 + gamma(2 * window + 64)) + TINY
        elif isinstance(layer, Tanh | Sigmoid):  # at most 1
            size = torch.ones_like(size)
        elif not isinstance(layer, ReLU | LeakyReLU):  # at most what they are given
            raise TypeError(f"the size of {layer!r} is not known")
    return size

"""A posterior of standardised values as one of measured values.

What a network was standardised by becomes part of it: a certain layer (x - mean) / std before its
first, and mean + std · y in its last dense layer, whose weights are scaled with their noise, or in
a certain layer after it. Regions, intervals and certificates are then in measured units, and
digests hold them. Numbers are rounded once: what is certified is the network that is written.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.layers import Dense, Layer, Scale
from bnncert.model.network import Network
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.gaussian import Gaussian, LowRankNormal, Mixture
from bnncert.posteriors.independent import Normal


def measured(network: Network, posterior: Posterior) -> tuple[Network, Posterior]:
    """The same networks as functions of measured values; the columns keep their names."""
    own = network.standardisation
    if own is None or own.is_identity:
        raise InputError("the posterior takes values as they are measured; leave --measured out")
    if not isinstance(posterior, Normal | LowRankNormal | Mixture):
        raise InputError(f"--measured is for Gaussian posteriors, not for {posterior.family}")
    layers, first, last = list(network.layers), [], []
    reads = list(network.reads)
    if own.inputs:
        layers.insert(0, Scale(network.input_shape))
        reads = [(0,), *(tuple(node + 1 for node in nodes) for nodes in reads)]
        means, stds = _numbers(own.inputs)
        first = [1 / stds, -means / stds]
    folded = isinstance(network.layers[-1], Dense) and network.layers[-1].bias
    if own.outputs and not folded:
        reads.append((len(layers),))
        layers.append(Scale((network.outputs,)))
        means, stds = _numbers(own.outputs)
        last = [stds, means]
    made = Network(network.input_shape, tuple(layers), tuple(reads), _named(own))

    def around(gaussian: Gaussian) -> Gaussian:
        scaled = _in_last_layer(network.layers[-1], gaussian, own.outputs) if folded else gaussian
        return _between(scaled, torch.cat([*first, torch.empty(0).double()]), last)

    if isinstance(posterior, Mixture):
        return made, Mixture(posterior.weights, tuple(map(around, posterior.components)))
    return made, around(posterior)


def _named(own: Standardisation) -> Standardisation:
    return Standardisation(
        *(tuple(Column(c.name) for c in part) for part in (own.inputs, own.outputs))
    )


def _numbers(columns: tuple[Column, ...]) -> tuple[Tensor, Tensor]:
    means, stds = (
        torch.tensor([getattr(column, name) for column in columns], dtype=torch.float64)
        for name in ("mean", "std")
    )
    return means, stds


def _in_last_layer(layer: Layer, gaussian: Gaussian, outputs: tuple[Column, ...]) -> Gaussian:
    """mean + std · y by the weights [inputs, outputs] and biases of the last layer."""
    if not outputs:
        return gaussian
    means, stds = _numbers(outputs)
    count = layer.inputs * layer.outputs + layer.outputs  # type: ignore[union-attr]
    scales = torch.ones_like(gaussian.mean)
    scales[-count:] = stds.repeat(count // len(stds))
    mean = gaussian.mean * scales
    mean[-len(means) :] += means
    scaled = replace(gaussian, mean=mean, std=gaussian.std * scales)
    if isinstance(scaled, LowRankNormal):
        rows = len(scaled.factor)
        return replace(scaled, factor=scaled.factor * scales[-rows:].unsqueeze(1))
    return scaled


def _between(gaussian: Gaussian, before: Tensor, after: list[Tensor]) -> Gaussian:
    """With certain weights before and after its own."""
    behind = torch.cat([*after, before[:0]])
    mean = torch.cat([before, gaussian.mean, behind])
    std = torch.cat([0 * before, gaussian.std, 0 * behind])
    if isinstance(gaussian, LowRankNormal):
        factor = torch.cat([gaussian.factor, gaussian.factor.new_zeros(len(behind), gaussian.rank)])
        return LowRankNormal(mean, std, factor)
    return Normal(mean, std)

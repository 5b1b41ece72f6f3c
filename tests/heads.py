"""Gaussian posteriors of every form over a network, and weights drawn from them by their
definition."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Mixture, Normal
from bnncert.posteriors.base import Posterior
from scenarios import gaussian, uniform

STDS = (0.003, 0.03, 0.2)


def posterior(seed: int, network: Network) -> Posterior:
    """Of a form and a width that depend on the seed."""
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    std = STDS[seed // len(FORMS) % len(STDS)]
    return list(FORMS.values())[seed % len(FORMS)](network, mean, std, generator)


def tails(network: Network) -> list[int]:
    """How many weights the last layers have, from the last one alone to all."""
    sizes = [sum(map(math.prod, own.values())) for own in network.parameters_by_layer]
    return list(accumulate(reversed(sizes)))


def _independent(_: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    """A fifth of the weights is certain."""
    own = std * uniform(len(mean), generator=generator)
    return Normal(mean, own * (uniform(len(mean), generator=generator) > 0.2))


def _head(network: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    """The last layer alone is random."""
    last = tails(network)[0]
    own = std * uniform(last, generator=generator)
    return Normal(mean, pad(own, (len(mean) - last, 0)))


def _full_head(network: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    """A full covariance over the last layer."""
    last = tails(network)[0]
    root = std / math.sqrt(last) * gaussian(last, last, generator=generator)
    covariance = root @ root.mT + 1e-12 * torch.eye(last, dtype=torch.float64)
    return LowRankNormal(mean, torch.zeros_like(mean), torch.linalg.cholesky(covariance))


def _kronecker_head(network: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    """A Kronecker product over the last layer: of its inputs, with a 1 for the bias, and its
    outputs."""
    outputs = network.outputs
    inputs = tails(network)[0] // outputs
    first = gaussian(inputs, inputs, generator=generator) / math.sqrt(inputs)
    second = gaussian(outputs, outputs, generator=generator) / math.sqrt(outputs)
    return LowRankNormal(mean, torch.zeros_like(mean), std * torch.kron(first, second))


def _low_rank(network: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    """Independent noise, and two directions over all weights or those of the last layers."""
    ends = tails(network)
    rows = ends[int(torch.randint(len(ends), (), generator=generator))]
    own = std / 2 * uniform(len(mean), generator=generator)
    return LowRankNormal(mean, own, std / 2 * gaussian(rows, 2, generator=generator))


def _mixture(network: Network, mean: Tensor, std: float, generator: Generator) -> Posterior:
    parts = _independent(network, mean, std, generator), _low_rank(network, mean, std, generator)
    return Mixture((0.25, 0.75), parts)


FORMS: dict[str, Callable[[Network, Tensor, float, Generator], Posterior]] = {
    "independent": _independent,
    "head": _head,
    "full head": _full_head,
    "Kronecker head": _kronecker_head,
    "low rank": _low_rank,
    "mixture": _mixture,
}

"""Networks whose last layer alone is random: small residual trunks, and heads of every kind of
covariance; and others whose last two layers are."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from bnncert import Problem, Residual
from bnncert.layers import Add, Conv2d, Dense, Flatten, LeakyReLU, MaxPool2d, Permute, ReLU, Tanh
from bnncert.model.network import Network
from bnncert.model.specification import ball, class_robust
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.posteriors.gaussian import Gaussian
from scenarios import gaussian, uniform

SHAPE = (2, 4, 4)
HEADS = ("diagonal", "low rank", "full", "kronecker")


def trunk(seed: int) -> Network:
    """A convolution, a residual block, and a head of three classes; even seeds have a dense layer
    before it."""
    act = (ReLU(), LeakyReLU(0.2), Tanh())[seed % 3]
    block = Residual((Conv2d(3, 3, (3, 3), (1, 1), (1, 1)), act, Conv2d(3, 3, (1, 1))))
    layers = [Conv2d(2, 3, (2, 2), (2, 2)), act, block, act, Flatten()]
    hidden = [Dense(12, 5), act] if seed % 2 == 0 else []
    return Network(SHAPE, (*layers, *hidden, Dense(5 if hidden else 12, 3, bias=seed % 5 > 0)))


def two_heads() -> Network:
    """Two dense layers on different certain nodes, whose sum is the output."""
    layers = (Dense(3, 4), ReLU(), Dense(4, 4), Tanh(), Dense(4, 2), Dense(4, 2), Add())
    return Network((3,), layers, ((0,), (1,), (2,), (3,), (4,), (2,), (5, 6)))


def two_flattened() -> Network:
    """Two dense layers on one image, each with a `Flatten` of its own, the second after the first
    one's noise."""
    trunk = (Conv2d(2, 2, (2, 2), (2, 2)), Tanh())
    heads = (Flatten(), Dense(8, 2), Flatten(), Dense(8, 2), Add())
    return Network(SHAPE, (*trunk, *heads), ((0,), (1,), (2,), (3,), (2,), (5,), (4, 6)))


def last_weights(network: Network) -> int:
    return sum(math.prod(shape) for shape in network.parameters_by_layer[-1].values())


def head(seed: int, network: Network, kind: str, scale: float = 0.05) -> Gaussian:
    """Certain weights but for the last layer's."""
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator) / 2
    count = last_weights(network)
    none = torch.zeros_like(mean)
    std = none.clone()
    std[-count:] = scale * uniform(count, generator=generator)
    if kind == "diagonal":
        return Normal(mean, std)
    if kind == "low rank":
        return LowRankNormal(mean, std / 2, scale * gaussian(count, 2, generator=generator))
    if kind == "full":
        root = scale * gaussian(count, count, generator=generator) / math.sqrt(count)
        return LowRankNormal(mean, none, root)
    return LowRankNormal(mean, none, scale * _kronecker(network, generator))


def _kronecker(network: Network, generator: torch.Generator) -> Tensor:
    """One block for the weights, a product of two factors, and one for the bias."""
    blocks = [
        gaussian(size, size, generator=generator) / math.sqrt(size)
        for shape in network.parameters_by_layer[-1].values()
        for size in shape
    ]
    whole = [torch.kron(blocks[0], blocks[1]), *blocks[2:]]
    found: Tensor = torch.block_diag(*whole)  # type: ignore[no-untyped-call]
    return found


def asked(seed: int, network: Network, posterior: Gaussian, eps: float = 0.05) -> Problem:
    """Class robustness of two inputs."""
    generator = torch.Generator().manual_seed(seed + 500)
    x = uniform(2, *network.input_shape, generator=generator)
    labels = network.forward(posterior.mean, x).argmax(-1)
    region = ball(x, eps, ("linf", "linf", "l2", "l1")[seed % 4], (0.0, 1.0))
    return Problem(network, posterior, class_robust(region, labels, network.outputs))


def before_two(seed: int) -> Network:
    """Dense layers, a residual convolution, or windows, and two layers more."""
    act = (ReLU(), Tanh(), LeakyReLU(0.2))[seed % 3]
    block = Residual((Conv2d(2, 2, (3, 3), (1, 1), (1, 1)), act))
    before: tuple[Any, ...] = (
        (Dense(4, 5), act, Dense(5, 3), act),
        (Conv2d(1, 2, (2, 2)), act, block, Flatten()),
        (Conv2d(1, 3, (2, 2)), act, MaxPool2d((3, 3)), Permute((1, 2, 0)), Flatten()),
    )[seed // 3 % 3]
    shape, width = ((4,), 3) if seed // 3 % 3 == 0 else ((1, 4, 4), 18 if seed // 3 % 3 == 1 else 3)
    hidden = (ReLU(), Tanh())[seed % 2]
    return Network(shape, (*before, Dense(width, 4), hidden, Dense(4, 3)))


def behind(seed: int) -> tuple[Problem, Normal]:
    """Weights of the last two layers of σ up to 1; the others certain."""
    network, generator = before_two(seed), torch.Generator().manual_seed(seed)
    mean = 0.7 * gaussian(network.size, generator=generator)
    count = sum(part.numel() for own in network.split(mean)[-3:] for part in own)
    std = torch.zeros_like(mean)
    std[-count:] = (0.05, 0.3, 1.0)[seed % 3] * uniform(count, generator=generator)
    x = uniform(2, *network.input_shape, generator=generator)
    region = ball(x, (0.0, 0.01, 0.05)[seed // 2 % 3], ("linf", "l2")[seed % 2])
    labels = network.forward(mean, x).argmax(-1)
    posterior = Normal(mean, std)
    return Problem(network, posterior, class_robust(region, labels, 3)), posterior

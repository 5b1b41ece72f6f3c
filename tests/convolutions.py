"""Random convolutional networks, and class robustness of them."""

from __future__ import annotations

import torch

from bnncert import Problem, ball, class_robust
from bnncert.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.model.layers import Layer, output_shape
from bnncert.model.network import Network
from bnncert.posteriors import Normal
from scenarios import gaussian as normals
from scenarios import uniform

SHAPE = (2, 5, 6)
POOLS: tuple[tuple[Layer, ...], ...] = (
    (),
    (AvgPool2d((2, 3), (1, 1)),),
    (MaxPool2d((2, 2), (1, 2)),),
)


def network(seed: int, activation: Layer | None = None, pools: bool = True) -> Network:
    """Two convolutions, perhaps a pool, two dense layers."""
    act = activation or (ReLU(), LeakyReLU(0.1), ReLU(), Tanh(), Sigmoid())[seed % 5]
    layers: list[Layer] = [
        Conv2d(2, 3, (3, 3), (1, 2), (1, 1), bias=seed % 4 > 0),
        act,
        Conv2d(3, 2, (2, 2), (1, 1), (0, 1)),
    ]
    layers += [act, *(POOLS[seed % 3] if pools else ()), Flatten()]
    shape: tuple[int, ...] = SHAPE
    for layer in layers:
        shape = output_shape(layer, shape)
    return Network(SHAPE, (*layers, Dense(shape[0], 4), act, Dense(4, 3)))


def problem(seed: int, net: Network, std: float = 0.01, norm: str = "linf") -> Problem:
    generator = torch.Generator().manual_seed(seed)
    mean = 0.4 * normals(net.size, generator=generator)
    x = uniform(2, *SHAPE, generator=generator) - 0.2 * (seed % 2)
    labels = net.forward(mean, x).argmax(-1)
    posterior = Normal(mean, std * uniform(net.size, generator=generator))
    return Problem(net, posterior, class_robust(ball(x, 0.01, norm), labels, 3))

"""Problems whose certificates the checker must accept, and their truth by sampling."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert import Problem
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
from bnncert.model.activations import Activation
from bnncert.model.layers import Layer, output_shape
from bnncert.model.network import Network, mlp
from bnncert.model.specification import ball, class_robust, output_interval
from bnncert.posteriors import Normal
from scenarios import draw_many, gaussian, sample_region, uniform

DRAWS = 3000  # of networks
SHAPE = (2, 5, 6)  # of images
POOLS: tuple[tuple[Layer, ...], ...] = (
    (),
    (AvgPool2d((2, 3), (1, 1)),),
    (MaxPool2d((2, 2), (1, 2)),),
)


def image_network(seed: int, activation: Layer | None = None, pools: bool = True) -> Network:
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


def image_problem(seed: int, net: Network, std: float = 0.01, norm: str = "linf") -> Problem:
    generator = torch.Generator().manual_seed(seed)
    mean = 0.4 * gaussian(net.size, generator=generator)
    x = uniform(2, *SHAPE, generator=generator) - 0.2 * (seed % 2)
    labels = net.forward(mean, x).argmax(-1)
    posterior = Normal(mean, std * uniform(net.size, generator=generator))
    return Problem(net, posterior, class_robust(ball(x, 0.01, norm), labels, 3))


def open_problem(
    seed: int, sizes: tuple[int, ...] = (3, 6, 3), batch: int = 4, std: float = 0.01
) -> Problem:
    """Class robustness of a random ReLU network where many signs are open and the mean network is
    right."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(*sizes)
    mean = 0.7 * gaussian(network.size, generator=generator)
    x = uniform(batch, sizes[0], generator=generator)
    region = ball(x, float(0.02 + 0.2 * uniform(1, generator=generator)), clip=(0, 1))
    spec = class_robust(region, network.forward(mean, x).argmax(-1), sizes[-1])
    return Problem(network, Normal(mean, std * uniform(network.size, generator=generator)), spec)


def shared_noise(seed: int, sizes: tuple[int, ...] = (3, 8, 2)) -> Problem:
    """Nearly all noise is that of the output biases: leaves fail together."""
    problem = open_problem(seed, sizes)
    std = torch.full_like(problem.posterior.mean, 1e-3)
    std[-sizes[-1] :] = 0.3
    return Problem(problem.network, Normal(problem.posterior.mean, std), problem.specification)


def regression(seed: int, activation: Activation, std: float, norm: str = "linf") -> Problem:
    """|y - f(x)| < 0.5 around four points of two dimensions."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(2, 6, 1, activation=activation)
    mean = gaussian(network.size, generator=generator)
    x = 2 * uniform(4, 2, generator=generator) - 1
    y = network.forward(mean, x)[:, 0]
    spec = output_interval(ball(x, 0.3, norm), y - 0.5, y + 0.5)
    return Problem(network, Normal(mean, std * uniform(network.size, generator=generator)), spec)


def robust_share(problem: Problem, seed: int, draws: int = DRAWS) -> Tensor:
    """Share of sampled networks [B] whose rows are positive at many points of the region: at least
    P_safe, about."""
    generator = torch.Generator().manual_seed(seed)
    region = problem.specification.region
    points = torch.cat([region.center.unsqueeze(0), sample_region(region, 24, generator)])
    weights = draw_many(problem.posterior, draws, generator)
    safe = torch.ones(draws, len(problem), dtype=torch.bool)
    for x in points:
        safe &= (problem.specification.margins(problem.network.forward(weights, x)) > 0).all(-1)
    return safe.double().mean(0)


def assert_below_truth(problem: Problem, lower: Tensor, seed: int) -> None:
    share = robust_share(problem, seed)
    error = (share * (1 - share) / DRAWS).sqrt()
    excess = lower - share - 4 * error - 4 / DRAWS * (share < 0.5) - 8 / DRAWS * (share >= 0.5)
    assert bool((excess <= 0).all()), (
        f"seed {seed}: certified {lower.tolist()}, sampled {share.tolist()}"
    )

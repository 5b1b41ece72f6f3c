"""Problems that plain slopes leave open, for branch and bound."""

from __future__ import annotations

import torch

from bnncert import Problem
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.model.specification import Specification, ball, class_robust, output_interval
from bnncert.posteriors import Normal
from scenarios import gaussian, sample_region, uniform


def open_problem(
    seed: int,
    sizes: tuple[int, ...] = (3, 6, 3),
    batch: int = 4,
    std: float = 0.01,
    activation: Activation | None = None,
) -> Problem:
    """Class robustness of a random network, of ReLUs unless given, where many signs are open and
    the mean network is right."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(*sizes, activation=activation)
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


def above_least(network: Network, seed: int, std: float) -> Problem:
    """y above a little less than the least of what the mean network gives near four points, in
    regions where it passes many kinks."""
    generator = torch.Generator().manual_seed(seed)
    mean = 1.2 * gaussian(network.size, generator=generator)
    x = gaussian(4, *network.input_shape, generator=generator)
    region = ball(x, float(0.2 + 0.6 * uniform(1, generator=generator)))
    found = network.forward(mean, sample_region(region, 2000, generator))[..., 0]
    offsets = 0.1 * (found.amax(0) - found.amin(0)) + 0.01 - found.amin(0)
    rows = torch.ones(4, 1, 1, dtype=torch.float64)
    spec = Specification(region, rows, offsets.unsqueeze(1))
    return Problem(network, Normal(mean, std * uniform(network.size, generator=generator)), spec)


def tight(
    seed: int, activation: Activation, sizes: tuple[int, ...] = (2, 6, 1), std: float = 0.002
) -> Problem:
    """The same of a network of dense layers."""
    return above_least(mlp(*sizes, activation=activation), seed, std)

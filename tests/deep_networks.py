"""Tiny networks of two hidden layers at a point, and the share of them that is safe."""

from __future__ import annotations

import numpy as np
import torch

from bnncert import Network, Problem, Specification, ball, half_space
from bnncert.deep.moments import Array
from bnncert.layers import Dense, ReLU
from bnncert.posteriors import Normal
from scenarios import gaussian, uniform, vector

DRAWS = 20_000


def random_deep(seed: int) -> tuple[Problem, Normal, float]:
    """Offsets leave 1 to 40 % of the networks unsafe."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [1 + int(9 * u) for u in uniform(3, generator=generator).tolist()]
    sizes = [min(size, 8) for size in sizes] + [1]
    biased = [bool(u > 0.3) for u in uniform(3, generator=generator)]
    layers: list[Dense | ReLU] = []
    for i, bias in enumerate(biased):
        layers += [Dense(sizes[i], sizes[i + 1], bias=bias or i < 2), ReLU()]
    network = Network((sizes[0],), tuple(layers[:-1]))
    width, wide = (float(u) for u in uniform(2, generator=generator))
    mean = 2 * width * gaussian(network.size, generator=generator)
    std = 3 * 0.003**wide * (0.2 + uniform(network.size, generator=generator))
    posterior = Normal(mean, std)
    x = gaussian(1, sizes[0], generator=generator)
    weights = mean + std * gaussian(DRAWS, network.size, generator=generator)
    output = network.forward(weights, x)[:, 0, 0]
    share = 0.01 * 40 ** float(uniform(1, generator=generator))
    bound = float(output.quantile(share))
    problem = Problem(network, posterior, half_space(ball(x, 0.0), vector(1.0), bound))
    fresh = mean + std * gaussian(DRAWS, network.size, generator=generator)
    safe = (problem.margins(fresh) > 0).all(-1).double().mean()
    return problem, posterior, float(safe)


def odd_deep(seed: int) -> tuple[Problem, Normal, float]:
    """With several rivals, and means of 0, huge ones, layers and weights of many scales, certain
    weights, neurons that are nearly dead with loud weights behind them, or inputs of 0."""
    generator = np.random.default_rng(seed)
    inputs, first, second = (int(n) for n in generator.integers(1, 7, 3))
    outputs = int(generator.integers(1, 4))
    layers = (Dense(inputs, first), ReLU(), Dense(first, second), ReLU(), Dense(second, outputs))
    network = Network((inputs,), layers)
    count = network.size
    mean = generator.normal(size=count) * generator.choice([0, 0.1, 0.5, 1, 2, 4])
    std = np.exp(generator.uniform(-3, 1.1)) * generator.uniform(0.2, 1.2, count)
    parts = network.split(torch.arange(count))
    biases = np.concatenate([parts[i][1].numpy() for i in (0, 2)])
    kind = seed % 7
    if kind == 1:
        mean *= generator.choice([1, 1e2, 1e4, 1e6], count)
    elif kind == 2:
        certain = generator.random(count) < 0.5
        certain[biases] = False
        std[certain] = 0
    elif kind == 3:
        std *= np.exp(1.5 * generator.normal(size=count))
    elif kind == 4:
        for i in (0, 2, 4):
            own = np.concatenate([part.numpy().reshape(-1) for part in parts[i]])
            scale = 10.0 ** generator.uniform(-4, 4)
            mean[own], std[own] = scale * mean[own], scale * std[own]
    elif kind == 5:
        mean[parts[2][1]] -= generator.uniform(0, 8)
        std[parts[4][0]] *= 20
    x = generator.normal(size=(1, inputs)) * (0 if kind == 6 else 1)
    return with_rivals(network, mean, std, x, generator)


def loud_deep(seed: int) -> tuple[Problem, Normal, float]:
    """1-1-3-2, 79 % safe, whose first activation is so large that tilts of it are wild."""
    generator = np.random.default_rng(seed)
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 3), ReLU(), Dense(3, 2)))
    mean = generator.normal(size=network.size)
    std = 0.3 * np.exp(generator.normal(size=network.size))
    scale = 10.0 ** generator.uniform(1, 5)
    mean[:2] *= scale
    std[:2] *= scale
    return with_rivals(network, mean, std, np.ones((1, 1)), generator, 0.21)


def with_rivals(
    network: Network,
    mean: Array,
    std: Array,
    x: Array,
    generator: np.random.Generator,
    share: float | None = None,
) -> tuple[Problem, Normal, float]:
    """Rows of the first output against the others, or of a single one, that fail about so often."""
    (outputs,) = network.shapes[-1]
    rivals = np.concatenate([np.ones((outputs - 1, 1)), -np.eye(outputs - 1)], 1)
    rows = np.ones((1, 1)) if outputs == 1 else rivals
    posterior = Normal(torch.from_numpy(mean), torch.from_numpy(std))
    at = torch.from_numpy(x)

    def margins() -> np.ndarray:
        draws = mean + std * generator.normal(size=(DRAWS, network.size))
        found: Array = network.forward(torch.from_numpy(draws), at)[:, 0].numpy() @ rows.T
        return found

    failing = (0.01 * 40 ** generator.random() if share is None else share) / len(rows)
    offsets = -np.quantile(margins(), failing, axis=0)
    specification = Specification(
        ball(at, 0.0), torch.from_numpy(rows)[None], torch.from_numpy(offsets)[None]
    )
    safe = float((margins() + offsets > 0).all(1).mean())
    return Problem(network, posterior, specification), posterior, safe

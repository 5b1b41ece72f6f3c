"""Margins as training asks for them, of random networks with posteriors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import convolutions
from bnncert.concentration.functional import Functional
from bnncert.concentration.margin import Weights, margins
from bnncert.layers import Add, AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU, Tanh
from bnncert.model.network import Network, Residual
from bnncert.model.problem import Problem
from bnncert.model.specification import Specification, ball
from bnncert.posteriors.independent import Normal
from graphs import random_graph
from scenarios import gaussian, random_network, uniform

SPREADS = (1e-3, 0.02, 0.3)
RADII = (0.0, 0.01, 0.1)
BY_HAND = {
    "sum at the output": Network(
        (3,),
        (Dense(3, 4), ReLU(), Dense(4, 2), Dense(3, 2), Add()),
        ((0,), (1,), (2,), (0,), (3, 4)),
    ),
    "sum of sums at the output": Network(
        (2,),
        (Dense(2, 2), Dense(2, 2), Add(), Dense(2, 2, bias=False), Add()),
        ((0,), (0,), (1, 2), (0,), (3, 4)),
    ),
    "a term twice": Network((2,), (Dense(2, 2), Add()), ((0,), (1, 1))),
    "the input in the sum": Network((2,), (Dense(2, 2), Add()), ((0,), (1, 0))),
    "ends in an activation": Network((3,), (Dense(3, 4), ReLU(), Dense(4, 2), Tanh())),
    "ends flat": Network((1, 4, 4), (Conv2d(1, 2, 3, 2, 1), ReLU(), Conv2d(2, 1, 2), Flatten())),
    "pools": Network(
        (2, 5, 5),
        (Conv2d(2, 2, 2), MaxPool2d(2, 1), AvgPool2d((2, 1)), Flatten(), Dense(6, 2, bias=False)),
    ),
    "residual": Network(
        (1, 4, 4),
        (
            Conv2d(1, 2, 3, 1, 1),
            ReLU(),
            Residual((Conv2d(2, 2, 3, 1, 1), ReLU(), Conv2d(2, 2, 3, 1, 1))),
            ReLU(),
            Residual((Conv2d(2, 3, 4, 2, 1),), (Conv2d(2, 3, 2, 2),)),
            AvgPool2d(2),
            Flatten(),
            Dense(3, 2),
        ),  # type: ignore[arg-type]
    ),
}


def network_of(kind: str, seed: int) -> Network:
    if kind == "by hand":
        return list(BY_HAND.values())[seed % len(BY_HAND)]
    if kind == "convolutions":
        return convolutions.network(seed)
    return random_network(seed) if kind == "chain" else random_graph(seed, kind == "images")


KINDS = ("by hand", "chain", "graph", "images", "convolutions")


def marginal_problem(kind: str | Network, seed: int, fixed: bool = True) -> Problem:
    """Two balls whose centres the mean network has on the right side; some layers without noise."""
    network = kind if isinstance(kind, Network) else network_of(kind, seed)
    generator = torch.Generator().manual_seed(seed)
    mean = gaussian(network.size, generator=generator)
    std = SPREADS[seed % 3] * uniform(network.size, generator=generator)
    if fixed:
        for k, parts in enumerate(network.split(std)):
            for part in parts:
                part.mul_((k + seed) % 4 > 0)
    x = 2 * uniform(2, *network.input_shape, generator=generator) - 1
    rows = gaussian(2, 2, network.outputs, generator=generator)
    side = (rows * network.forward(mean, x).unsqueeze(1)).sum(-1, keepdim=True).sign()
    spec = Specification(ball(x, RADII[seed // 3 % 3]), rows * side, torch.zeros(2, 2).double())
    return Problem(network, Normal(mean, std), spec)


def layers_of(problem: Problem, **options: Any) -> Weights:
    """Means and standard deviations by layer, those without noise as None."""
    posterior: Normal = problem.posterior  # type: ignore[assignment]
    split = problem.network.split
    return [
        (
            tuple(mean.to(**options) for mean in means),
            tuple(std.to(**options) for std in stds) if any(map(torch.any, stds)) else None,
        )
        for means, stds in zip(split(posterior.mean), split(posterior.std), strict=True)
    ]


def margins_of(problem: Problem, t: float, rows: Tensor | None = None) -> Functional:
    spec = problem.specification
    box = spec.region.box
    return margins(
        problem.network,
        layers_of(problem),
        box.lower,
        box.upper,
        spec.rows if rows is None else rows,
        t,
    )

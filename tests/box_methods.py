"""Sampling, PIE and GIE as tests ask for them: few centres, small problems."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bnncert.layers import Dense
from bnncert.methods import GIE, PIE, Sampling
from bnncert.model.network import Network, mlp
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification, ball, class_robust
from bnncert.posteriors.independent import Normal
from bnncert.results.rows import Result
from scenarios import vector

BoxMethod = Sampling | PIE | GIE
PLENTY = 1000
FEW: dict[str, BoxMethod] = {
    "sampling": Sampling(samples=2, step=0.7),
    "pie": PIE(samples=2, step=0.4),
    "pie by bisection": PIE(samples=2, step=0.4, walk="bisection"),
    "gie": GIE(samples=2, step=0.4),
    "gie by bisection": GIE(samples=2, step=0.4, walk="bisection"),
    "gie as published": GIE(samples=2, step=0.4, zero_gradient_only=True, bound="lbp-forward"),
}


def classifier(seed: int = 0, batch: int = 6, width: float = 0.2) -> Problem:
    """A 3-4-3 network on inputs in the unit cube; about two in three are given the class of the
    mean network."""
    generator = torch.Generator().manual_seed(seed)
    network = mlp(3, 4, 3)
    mean = torch.randn(network.size, generator=generator, dtype=torch.float64)
    posterior = Normal(
        mean, width * torch.rand(network.size, generator=generator, dtype=torch.float64)
    )
    x = torch.rand(batch, 3, generator=generator, dtype=torch.float64)
    labels = network.forward(mean, x).argmax(-1)
    wrong = torch.arange(batch) % 3 == 1
    return Problem(
        network, posterior, class_robust(ball(x, 0.02, clip=(0.0, 1.0)), (labels + wrong) % 3, 3)
    )


def one_weight(
    mean: float, std: float, spec: Callable[[Region], Specification], region: Region
) -> Problem:
    """y = w x with w ~ N(mean, std²)."""
    return Problem(
        Network((1,), (Dense(1, 1, bias=False),)), Normal(vector(mean), vector(std)), spec(region)
    )


def at(*values: float, eps: float = 0.0) -> Region:
    return ball(vector(*values).reshape(-1, 1), eps)


def claims(results: tuple[Result, ...]) -> list[tuple[object, ...]]:
    """Everything of the results but the time they took."""
    return [
        (r.index, r.status, r.lower.hex(), r.upper.hex(), r.bound_calls, r.predicted)
        for r in results
    ]

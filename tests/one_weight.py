"""Problems of one weight that are solved by hand, and concentration's plain bounds."""

from __future__ import annotations

import torch
from scipy.stats import norm
from torch import Tensor

from bnncert import Problem
from bnncert.concentration.proof import plain_bounds
from bnncert.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.model.specification import ball, half_space
from bnncert.posteriors import Normal
from scenarios import vector


def one_weight(mean: float, std: float, bias: float, eps: float = 1.0) -> Problem:
    """z = w x + b > 0 for all |x| <= eps, w ~ N(mean, std²), b fixed."""
    region = ball(torch.zeros(1, 1, dtype=torch.float64), eps)
    posterior = Normal(vector(mean, bias), vector(std, 0.0))
    return Problem(Network((1,), (Dense(1, 1),)), posterior, half_space(region, vector(1.0), 0.0))


def planted(p: float, eps: float) -> Problem:
    """y = relu(x1 + w) with w ~ N(0, 1): some x of the region has y >= b with probability exactly
    p."""
    network = Network((1,), (Dense(1, 1), ReLU(), Dense(1, 1, bias=False)))
    bound = float(norm.isf(p)) + 0.5 + eps
    posterior = Normal(vector(1.0, 0.0, 1.0), vector(0.0, 1.0, 0.0))
    return Problem(
        network, posterior, half_space(ball(vector(0.5).reshape(1, 1), eps), vector(-1.0), -bound)
    )


def best(problem: Problem) -> Tensor:
    return plain_bounds(problem, problem.posterior)[0]

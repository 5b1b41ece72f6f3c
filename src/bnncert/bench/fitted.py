"""Small Bayesian networks fitted in closed form: random features, and a Bayesian linear regression
of what comes out on them.

    A = ΦᵀΦ / s² + I,   mean = A⁻¹ Φᵀy / s²,   covariance = A⁻¹

for features Φ with a column of ones, targets y, noise s and a prior of variance 1. With the full
covariance this is the exact posterior of a last layer; with variances 1 / A_ii it is the closest
one of independent weights (the optimum of variational inference).
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from bnncert.bench.models import Model
from bnncert.bench.pictures import digit
from bnncert.bench.streams import Stream, rounded
from bnncert.model.network import Network, cnn, mlp, residual
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal

SIDE = 12  # pixels of the small pictures
KINDS = (0, 1, 2, 3)  # digits that small networks tell apart
NOISE = 0.1  # of a regression's targets
MEMBERS = 24  # of an ensemble


def regression(features: Tensor, targets: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Mean [k + 1, outputs] and precision [k + 1, k + 1] of the last layer, the bias last."""
    phi = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], 1)
    precision = phi.mT @ phi / noise**2 + torch.eye(phi.shape[1], dtype=torch.float64)
    return rounded(torch.linalg.solve(precision, phi.mT @ targets / noise**2)), precision


def surface(x: Tensor) -> Tensor:
    """The function of two inputs that the control networks learn: how far two courses pass."""
    across, along = x[:, 0], x[:, 1]
    return (4 * across * across - along) / (1 + across * across + along * along)


@cache
def _surface_data() -> tuple[Tensor, Tensor]:
    stream = Stream(11)
    x = 2 * stream.uniform(160, 2) - 1
    return x, (surface(x) + NOISE * stream.bell(160)).unsqueeze(1)


def control_head() -> Model:
    """Certain random features and the exact Gaussian posterior of the last layer."""
    network = mlp(2, 24, 1)
    trunk = _random_weights(network, seed=12, bias=1.0)
    x, y = _surface_data()
    mean, precision = regression(_features(network, trunk, x), y, NOISE)
    factor = rounded(torch.linalg.cholesky(torch.linalg.inv(precision)))
    weights = torch.cat([trunk[: -len(mean)], mean[:, 0]])
    return network, LowRankNormal(weights, torch.zeros_like(weights), factor)


def control_mean_field() -> Model:
    """The same with independent weights, those of the first layer random too."""
    network, posterior = control_head()
    x, y = _surface_data()
    _, precision = regression(_features(network, posterior.center, x), y, NOISE)
    own = rounded(precision.diagonal().rsqrt())
    first = torch.full((network.size - len(own),), 2.0**-7, dtype=torch.float64)
    return network, Normal(posterior.center, torch.cat([first, own]))


def ensemble() -> Model:
    """Networks for an exclusive or of signs, each with features and training data of its own."""
    network = mlp(2, 16, 2)
    members = []
    for member in range(MEMBERS):
        stream = Stream(100 + member)
        x = 2 * stream.uniform(96, 2) - 1
        truth = torch.where(x[:, 0] * x[:, 1] > 0, 1.0, -1.0).double()
        trunk = _random_weights(network, seed=200 + member, bias=1.0)
        mean, _ = regression(
            _features(network, trunk, x), torch.stack([truth, -truth], 1), noise=0.5
        )
        members.append(torch.cat([trunk[: -mean.numel()], mean.flatten()]))
    return network, Empirical(torch.stack(members))


def small_cnn() -> Model:
    """A convolutional network for drawn digits, all of its weights a little random."""
    network = cnn((1, SIDE, SIDE), len(KINDS), [(6, 2)], [24])
    weights, _ = _classifier(network, seed=31)
    return network, Normal(weights, torch.full_like(weights, 2.0**-8))


def small_residual() -> Model:
    """A residual trunk for drawn digits, with the exact Gaussian posterior of its last layer."""
    network = residual((1, SIDE, SIDE), len(KINDS), [(4, 2), (4, 1)], [20])
    weights, precision = _classifier(network, seed=32)
    own = rounded(torch.linalg.cholesky(torch.linalg.inv(precision))).contiguous()  # of one class
    factor = torch.kron(own, torch.eye(len(KINDS), dtype=torch.float64))
    return network, LowRankNormal(weights, torch.zeros_like(weights), factor)


def small_digit(kind: int, seed: int) -> Tensor:
    return digit(kind, seed, SIDE).unsqueeze(0)


def _classifier(network: Network, seed: int) -> tuple[Tensor, Tensor]:
    """Weights of a random trunk with a fitted last layer, and the precision of the latter."""
    pictures = [
        (label, small_digit(kind, 50 + k)) for label, kind in enumerate(KINDS) for k in range(40)
    ]
    x = torch.stack([picture for _, picture in pictures])
    targets = torch.full((len(x), len(KINDS)), -1.0, dtype=torch.float64)
    targets[torch.arange(len(x)), torch.tensor([label for label, _ in pictures])] = 1.0
    trunk = _random_weights(network, seed)
    mean, precision = regression(_features(network, trunk, x), targets, noise=0.5)
    return torch.cat([trunk[: -mean.numel()], mean.flatten()]), precision


def _random_weights(network: Network, seed: int, bias: float = 0.0) -> Tensor:
    """Kernels of variance 2 / inputs, biases of a standard deviation, multiples of 2^-20."""
    stream = Stream(seed)
    parts = []
    for name, shape in network.parameters.items():
        if name.startswith("b"):
            parts.append(bias * stream.bell(*shape))
        else:
            inputs = shape[0] if len(shape) == 2 else shape[1] * shape[2] * shape[3]
            parts.append(rounded(stream.bell(*shape) * math.sqrt(2 / inputs)).flatten())
    return torch.cat(parts)


def _features(network: Network, weights: Tensor, x: Tensor) -> Tensor:
    """What the last layer reads, rounded."""
    return rounded(network.values(weights, x)[-2])

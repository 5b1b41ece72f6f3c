"""A training under way: the distribution, its optimiser, the sources of noise, the epochs done."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bnncert.model.layers import Conv2d, Dense
from bnncert.model.network import Network
from bnncert.train.recipe import BayesByBackprop
from bnncert.train.variational import Variational, is_random


@dataclass(frozen=True)
class Epoch:
    """Averages over one pass through the data, in nats.

    loss = nll + kl_weight · kl / N and elbo = -(nll · N + kl).
    `nll` and `accuracy` are those of sampled networks on the training examples, augmented when the
    recipe says so; `kl` is the whole divergence.
    """

    number: int
    loss: float
    nll: float
    kl: float
    accuracy: float
    elbo: float


@dataclass(frozen=True, eq=False)
class Run:
    """A training under way: with the data and the recipe, all that its next epoch depends on."""

    q: Variational
    optimiser: torch.optim.Optimizer
    order: torch.Generator
    history: list[Epoch]


def start(network: Network, recipe: BayesByBackprop, device: str) -> Run:
    """Before the first epoch; all that is random comes from the recipe's seed."""
    order = torch.Generator().manual_seed(recipe.seed)
    q = _initial(network, recipe, order, device)
    return Run(q, torch.optim.Adam([q.mean, q.rho], lr=recipe.learning_rate), order, [])


def _initial(
    network: Network, recipe: BayesByBackprop, generator: torch.Generator, device: str
) -> Variational:
    """Means N(0, 2 / terms) (He et al. 2015) for weights, 0 for biases; one std everywhere."""
    mean = torch.zeros(network.size, dtype=torch.float32)
    random = torch.zeros(network.size, dtype=torch.bool)
    parts = zip(network.layers, network.split(mean), network.split(random), strict=True)
    for layer, means, flags in parts:
        if isinstance(layer, Dense | Conv2d):
            means[0].normal_(0, math.sqrt(2 / _terms(layer)), generator=generator)
        for flag in flags:
            flag.fill_(is_random(layer, recipe.bayesian))

    # softplus(rho) = std: rho = log(exp(std) - 1), written so that exp cannot overflow.
    std = recipe.initial_std
    rho = torch.full_like(mean, std + math.log(-math.expm1(-std)))

    seed = int(torch.randint(2**32, (), generator=generator))
    noise = torch.Generator(device).manual_seed(seed)
    mean = mean.to(device).requires_grad_()
    rho = rho.to(device).requires_grad_()
    return Variational(network, recipe.bayesian, random.to(device), mean, rho, noise)


def _terms(layer: Dense | Conv2d) -> int:
    """How many products a pre-activation adds up."""
    if isinstance(layer, Dense):
        return layer.inputs
    return layer.in_channels * math.prod(layer.kernel)

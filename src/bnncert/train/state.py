"""A training under way: the distribution, its optimiser, the sources of noise, the epochs done."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.model.layers import Conv2d, Dense
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert.train.recipe import BayesByBackprop
from bnncert.train.variational import (
    Variational,
    channel_statistics,
    normalised_layers,
    random_layers,
)

SMALLEST_STD = 1e-6  # that a weight of a posterior starts from


@dataclass(frozen=True)
class Epoch:
    """Averages over one pass through the data, in nats.

    loss is what was minimised, nll + kl_weight · kl / N without a bound; elbo = -(nll · N + kl).
    `nll` and `accuracy` are those of sampled networks on the training examples, augmented when the
    recipe says so; `kl` is the whole divergence. `certified` is what the margins of a validation
    batch certify of robustness at the radius the training is for, on average.
    """

    number: int
    loss: float
    nll: float
    kl: float
    accuracy: float
    elbo: float
    certified: float | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """A training under way: with the data and the recipe, all that its next epoch depends on."""

    q: Variational
    optimiser: torch.optim.Optimizer
    order: torch.Generator
    history: list[Epoch]
    prior: float | Tensor


def start(network: Network, recipe: BayesByBackprop, x: Tensor, begin: Normal | None) -> Run:
    """Before the first epoch; all that is random comes from the recipe's seed.

    x: examples on the device of the training. begin: the posterior to start from instead.
    """
    order = torch.Generator().manual_seed(recipe.seed)
    mean, std = _initial(network, recipe, order)
    if begin is not None:
        mean = begin.mean.to(torch.float32, copy=True)  # which training changes
        std = begin.std.double().clamp_min(SMALLEST_STD)
    random = torch.zeros(network.size, dtype=torch.bool)
    own = random_layers(network, recipe.bayesian)
    for uncertain, flags in zip(own, network.split(random), strict=True):
        for flag in flags:
            flag.fill_(uncertain)

    seed = int(torch.randint(2**32, (), generator=order))
    noise = torch.Generator(x.device).manual_seed(seed)
    mean, std, random = (t.to(x.device) for t in (mean, std, random))
    gain, shift = _normalisation(network, mean, x, begin) if recipe.normalise else (None, None)

    # softplus(rho) = std: rho = log(exp(std) - 1), written so that exp cannot overflow.
    rho = (std + (-torch.expm1(-std)).log()).float()
    for leaf in (mean, rho, gain, shift):
        if leaf is not None:
            leaf.requires_grad_()
    q = Variational(network, recipe.bayesian, random, mean, rho, gain, shift, noise)
    optimiser = _optimiser(q, recipe, x.device)
    prior = (
        recipe.prior_std if recipe.prior == "fixed" else prior_stds(network, recipe).to(x.device)
    )
    return Run(q, optimiser, order, [], prior)


def prior_stds(network: Network, recipe: BayesByBackprop) -> Tensor:
    """The prior's standard deviation of every weight [size]: `recipe.prior` and its prior_std."""
    stds = torch.full((network.size,), recipe.prior_std, dtype=torch.float32)
    for layer, parts in zip(network.layers, network.split(stds), strict=True):
        if recipe.prior == "fan-in" and isinstance(layer, Dense | Conv2d):
            parts[0].mul_(_terms(layer) ** -0.5)
    return stds


def _optimiser(
    q: Variational, recipe: BayesByBackprop, device: torch.device
) -> torch.optim.Optimizer:
    """Adam; where steps are recorded, with a rate that can change after that."""
    parameters = q.parameters.values()
    if recipe.robust is None or device.type != "cuda":
        return torch.optim.Adam(parameters, lr=recipe.learning_rate)
    rate = torch.tensor(recipe.learning_rate, device=device)
    return torch.optim.Adam(parameters, lr=rate, capturable=True)


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    (group,) = optimiser.param_groups
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _initial(
    network: Network, recipe: BayesByBackprop, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Means N(0, 2 / terms) (He et al. 2015) for weights, 0 for biases; one std everywhere, in
    float64."""
    mean = torch.zeros(network.size, dtype=torch.float32)
    for layer, means in zip(network.layers, network.split(mean), strict=True):
        if isinstance(layer, Dense | Conv2d):
            means[0].normal_(0, math.sqrt(2 / _terms(layer)), generator=generator)
    return mean, torch.full_like(mean, recipe.initial_std, dtype=torch.float64)


def _normalisation(
    network: Network, mean: Tensor, x: Tensor, begin: Normal | None
) -> tuple[Tensor, Tensor]:
    """Gain 1 and shift 0; of a posterior that is there, what normalisation at x takes away."""
    with torch.no_grad():
        values = network.values(mean, x)
    found = [channel_statistics(values[k + 1]) for k in normalised_layers(network)]
    shift, gain = (torch.cat(parts) for parts in zip(*found, strict=True))
    return (gain, shift) if begin is not None else (torch.ones_like(gain), torch.zeros_like(shift))


def _terms(layer: Dense | Conv2d) -> int:
    """How many products a pre-activation adds up."""
    if isinstance(layer, Dense):
        return layer.inputs
    return layer.in_channels * math.prod(layer.kernel)

"""The objective: the likelihood of drawn networks, mixed with what is certified of it."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.concentration.margin import CHARGE, Weights, margins, threshold
from bnncert.model.network import Network
from bnncert.numerics.tails import normal_tail
from bnncert.train.likelihood import Likelihood
from bnncert.train.recipe import Robust
from bnncert.train.variational import Weighing

REACH = 2.5  # times the radius that the steps of an attack add up to
SMALLEST = 1e-12  # stands for a Lipschitz constant of 0


def ball(x: Tensor, eps: float | Tensor, clip: tuple[float, float] | None) -> tuple[Tensor, Tensor]:
    """The box x ± eps, within `clip`; it holds x even where x is outside."""
    lower, upper = x - eps, x + eps
    if clip is None:
        return lower, upper
    least, most = clip
    return torch.minimum(lower.clamp_min(least), x), torch.maximum(upper.clamp_max(most), x)


def worst_nll(
    network: Network,
    weights: Weights,
    box: tuple[Tensor, Tensor],
    y: Tensor,
    likelihood: Likelihood,
    t: float | None,
    tau: float,
) -> Tensor:
    """The loss where every row of the specification is at its certified least, m - τ L; t left out
    is from the number of neurons."""
    if t is None:
        t = _threshold(network, weights)
    found = margins(network, weights, *box, likelihood.rows(y, box[0]), t)
    return likelihood.worst_nll(found.value - tau * found.lipschitz, y)


def certified_share(
    network: Network, weights: Weights, x: Tensor, y: Tensor, likelihood: Likelihood, robust: Robust
) -> Tensor:
    """What the margins alone certify of the probability that outputs are right on all of the box,
    on average over x: 1 - CHARGE - Σ q, where that is positive.

    A row fails with q = Q(m / L); one whose m is not positive is not bounded at all, and q = 1. It
    is in the weights' arithmetic and without any refinement.
    """
    t = _threshold(network, weights)
    box = ball(x, robust.eps, robust.clip)
    found = margins(network, weights, *box, likelihood.rows(y, x), t)
    value = found.value + likelihood.offsets(y, x)
    tails = normal_tail(value / found.lipschitz.clamp_min(SMALLEST))
    failures = torch.where(value > 0, tails, 1).sum(1)
    charge = CHARGE if t > 0 else 0.0
    return (1 - charge - failures).clamp_min(0).mean()


def _threshold(network: Network, weights: Weights) -> float:
    return threshold(network, [stds is not None for _, stds in weights])


def attacked(
    weighing: Weighing,
    box: tuple[Tensor, Tensor],
    y: Tensor,
    likelihood: Likelihood,
    steps: int,
    noise: torch.Generator,
) -> Tensor:
    """Points of the box where the mean network does badly: steps up the sign of the gradient from a
    random start."""
    lower, upper = box
    mean = weighing.mean.detach()
    drawn = torch.empty_like(lower).uniform_(generator=noise)
    x = lower + (upper - lower) * drawn
    step = REACH / steps * (upper - lower) / 2
    for _ in range(steps):
        x = x.detach().requires_grad_()
        loss = likelihood.nll(weighing.network.forward(mean, x), y)
        (gradient,) = torch.autograd.grad(loss, [x])
        x = torch.minimum(torch.maximum(x + step * gradient.sign(), lower), upper)
    return x.detach()

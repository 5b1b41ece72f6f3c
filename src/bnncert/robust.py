"""A certifiable BNN out of one's own training loop: the certified bound of a live module's loss."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from bnncert.concentration.margin import Weights
from bnncert.errors import InputError
from bnncert.importers.agreement import check_agreement
from bnncert.importers.module import read
from bnncert.importers.modules import own_parameters
from bnncert.importers.reading import exact, live
from bnncert.importers.variational import Std, moments
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal
from bnncert.train.examples import check_examples
from bnncert.train.likelihood import likelihood
from bnncert.train.objective import ball, worst_nll
from bnncert.train.recipe import check_clip

# What a module was read as, and what reading does not see of it, when it was last run and compared:
# once is enough for a training.
_compared: WeakKeyDictionary[nn.Module, tuple[Network, list[int]]] = WeakKeyDictionary()


def robust_loss(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float,
    *,
    clip: tuple[float, float] | None = (0.0, 1.0),
    std: Std | None = None,
    noise_std: float | None = None,
    t: float | None = None,
    tau: float = 3.5,
) -> Tensor:
    """The mean negative log-likelihood of targets y [B] at the worst that is certified over the
    boxes x ± eps, within `clip`; x is [B, *input_shape].

    Mean and standard deviation of every weight are read from the module as `from_torch` reads them,
    and gradients reach the module's own parameters, whatever they are called and in their dtype and
    on their device. What is certified of a row a of outputs f is

        a·f(x') >= m - τ L  for all x' in the box,  with probability  1 - Q(τ) - 2 N Q(t)

    over the weights, where N counts the hidden neurons; t left out makes 2 N Q(t) = 0.03. Class
    labels are integers, the rows are class y less each other one, and the loss is the cross-entropy
    where each is at its least. With `noise_std` the targets are numbers, the model has one output,
    and the loss is -log N(y; output, noise_std²) at the end of its interval farther from y.

    It belongs beside the usual terms, (1 - κ) · nll + κ · robust_loss + KL / N, with eps and κ
    rising from 0. `std` is as in `from_torch`, for plain layers: numbers, or tensors that may be
    trained themselves; parameters without any are certain. Batch normalisations count with their
    running statistics, dropouts not at all, as in evaluation. The module is read anew at each call,
    which takes some milliseconds for a few layers.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> x, y = torch.rand(4, 2), torch.tensor([0, 1, 0, 1])
    >>> loss = robust_loss(model, x, y, eps=0.01, std=0.05)
    >>> loss.backward()
    >>> model[0].weight.grad.shape
    torch.Size([3, 2])
    """
    _check(eps, clip, t, tau, noise_std, x, y)
    reading = read(model, x.shape[1:], cast=live)
    network = reading.network
    mean, spread = moments(reading, own_parameters(model), std)
    _check_weights(mean, spread)
    compared = network, _overrides(model)
    if _compared.get(model) != compared:
        check_agreement(model, reading, exact(mean))
        _compared[model] = compared

    own = likelihood(network, noise_std)
    check_examples(network, x, y, own)
    weights = _layers(network, mean, spread)
    box = ball(x.to(mean), eps, clip)
    targets = y.to(mean.device, torch.int64 if noise_std is None else mean.dtype)
    return worst_nll(network, weights, box, targets, own, t, tau)


def _layers(network: Network, mean: Tensor, std: Tensor) -> Weights:
    """As `margins` takes them; a layer without any spread is not random."""
    parts = zip(network.split(mean), network.split(std), strict=True)
    return [
        (means, stds if any(bool(each.any()) for each in stds) else None) for means, stds in parts
    ]


def _overrides(model: nn.Module) -> list[int]:
    """Of what changes a forward without a trace in names and types: hooks, by their numbers, and
    functions that were put in the place of a class's forward."""
    found = list[int]()
    for module in model.modules():
        found += [*module._forward_hooks, *module._forward_pre_hooks]
        found += [id(module.__dict__["forward"])] if "forward" in module.__dict__ else []
    return found


def _check_weights(mean: Tensor, std: Tensor) -> None:
    """As a posterior's are, at every call: training may take them anywhere."""
    Normal(mean.detach().double(), std.detach().double())


def _check(
    eps: float,
    clip: tuple[float, float] | None,
    t: float | None,
    tau: float,
    noise_std: float | None,
    x: Tensor,
    y: Tensor,
) -> None:
    if not 0 <= eps < math.inf:
        raise InputError(f"eps is {eps}; give a radius of at least 0")
    check_clip(clip)
    if x.is_complex() or y.is_complex():
        raise InputError("inputs and targets must be real numbers; some are complex")
    if t is not None and not 0 < t < math.inf:
        raise InputError(f"t is {t}; give a positive number, or leave it out")
    if not 0 <= tau < math.inf:
        raise InputError(f"tau is {tau}; give a number of at least 0")
    if noise_std is not None and not 0 < noise_std < math.inf:
        raise InputError(f"noise_std is {noise_std}; give a positive number, or none for classes")
    if noise_std is None and y.is_floating_point():
        raise InputError(
            f"targets are {y.dtype}; give integer labels, or noise_std=... for a regression"
        )

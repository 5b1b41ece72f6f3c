"""Variational inference: Bayes by Backprop for dense networks, with the local reparameterisation trick.

Fits q(w) = N(mean, std²), independent over weights, std = softplus(rho), by stochastic gradients of

    loss = E_q[-log p(y | x, w)]  +  kl_weight · KL(q || N(0, prior_std²)) / N        (per example, in nats).

With kl_weight = 1 this is the negative evidence lower bound (ELBO), and q approximates the Bayesian posterior; a
smaller weight gives a "cold" posterior, narrower and usually more accurate. Nothing here is certified: training runs in
float32, and what it returns is an ordinary posterior to certify.

References: Blundell et al., Weight Uncertainty in Neural Networks (ICML 2015); Kingma, Salimans, Welling, Variational
Dropout and the Local Reparameterization Trick (NeurIPS 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.layers import Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.network import Network, apply
from bnncert.posterior import Normal

TRAINABLE = (Dense, Flatten, ReLU, LeakyReLU, Tanh, Sigmoid)
# Of a pre-activation: sqrt has no gradient at 0, which an all-zero input without a bias reaches.
SMALLEST_VARIANCE = 1e-20


@dataclass(frozen=True)
class BayesByBackprop:
    """How to train; `seed` fixes the initial weights, the order of the examples and the noise.

    The defaults of kl_weight and initial_std were chosen on the digits (64-32-10, 60 epochs, five seeds, the last 300
    training examples held out). Accuracy at the mean hardly depends on them, within 0.01 for weights 0.003 to 0.03 and
    stds 0.02 to 0.1, so they aim at moderate noise: a median std of 0.05 on digits and on MNIST. With kl_weight 1,
    the ELBO itself, a weight that the data say nothing about is as wide as the prior.

    Small data sets make few steps an epoch: on digits a learning rate of 1e-2 reaches in 60 epochs (held out 0.96) what
    1e-3 takes about 200 for, at a median std of 0.14.
    """

    epochs: int
    batch_size: int = 128
    learning_rate: float = 1e-3
    prior_std: float = 1.0
    kl_weight: float = 0.01
    initial_std: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if not getattr(self, name) >= 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a whole number of at least 1")
        for name in ("learning_rate", "prior_std", "initial_std"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; give a positive number")
        if not 0 <= self.kl_weight < math.inf:
            raise InputError(f"kl_weight is {self.kl_weight}; give a number of at least 0 (1 is the ELBO)")
        if not 0 <= self.seed < 2**32:  # the generator drops higher bits, so that two seeds would be one
            raise InputError(f"seed is {self.seed}; give a whole number from 0 to 2³² - 1")


@dataclass(frozen=True)
class Epoch:
    """Averages over one pass through the data: loss = nll + kl_weight · kl / N.

    `nll` and `accuracy` are those of sampled networks on the training examples; `kl` is the whole divergence in nats.
    """

    number: int
    loss: float
    nll: float
    kl: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Trained:
    """The posterior (float64, on the CPU) and one `Epoch` for each pass through the data."""

    posterior: Normal
    history: tuple[Epoch, ...]


def train(
    network: Network,
    x: Tensor,
    y: Tensor,
    recipe: BayesByBackprop,
    device: str = "cpu",
    on_epoch: Callable[[Epoch], None] | None = None,
) -> Trained:
    """The posterior fitted to inputs x [N, *input_shape] and class labels y [N]; the same for the same seed and device.

    `on_epoch` is called after each pass through the data, for a progress display.
    """
    _check_layers(network)
    _check_examples(network, x, y)
    x, y = x.to(device, torch.float32), y.to(device, torch.int64)
    generator = torch.Generator().manual_seed(recipe.seed)
    q = _initial(network, recipe.initial_std, generator, device)
    optimiser = torch.optim.Adam([q.mean, q.rho], lr=recipe.learning_rate)
    history: list[Epoch] = []
    for number in range(1, recipe.epochs + 1):
        order = torch.randperm(len(x), generator=generator).to(device)
        history.append(_epoch(number, q, optimiser, x[order], y[order], recipe))
        if on_epoch is not None:
            on_epoch(history[-1])
    return Trained(_posterior(q), tuple(history))


def accuracy(network: Network, weights: Tensor, x: Tensor, y: Tensor) -> float:
    """The share of inputs x [N, *input_shape] that the network `weights` [size] assigns to their class y [N].

    For several networks, weights [..., size], the average of their shares.
    """
    _check_examples(network, x, y)
    if weights.shape[-1:] != (network.size,):
        raise InputError(
            f"weights have shape {tuple(weights.shape)}, the network takes [..., {network.size}]; fix them"
        )
    with torch.no_grad():
        predicted = network.forward(weights, x.to(weights)).argmax(-1)
    return float((predicted == y.to(weights.device)).double().mean())


def kl_divergence(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std²) || N(0, s²)) = Σ log(s / std) + (std² + mean²) / (2 s²) - 1/2, with s = prior_std."""
    return ((std.square() + mean.square()) / (2 * prior_std**2) - (std / prior_std).log() - 0.5).sum()


@dataclass(frozen=True, eq=False)
class _Variational:
    """The distribution being trained, flat in the order of `Network.parameters`, and the source of its noise."""

    network: Network
    mean: Tensor
    rho: Tensor
    noise: torch.Generator

    @property
    def std(self) -> Tensor:
        return functional.softplus(self.rho)

    def sample_outputs(self, x: Tensor) -> Tensor:
        """Outputs at x [batch, *input_shape], each example under its own draw of the weights.

        Local reparameterisation: for one example x W + b is Gaussian with mean x M + m and variance x² S² + s².
        Drawing that instead of the weights is the same law at a gradient of less variance.
        """
        split, layers = self.network.split, self.network.layers
        means, variances = split(self.mean), split(self.std.square())
        for layer, mean, variance, shape in zip(layers, means, variances, self.network.shapes, strict=False):
            center = apply(layer, mean, x, shape)
            if isinstance(layer, Dense):
                spread = apply(layer, variance, x.square(), shape).clamp_min(SMALLEST_VARIANCE).sqrt()
                center = center + spread * torch.empty_like(center).normal_(generator=self.noise)
            x = center
        return x


def _initial(network: Network, std: float, generator: torch.Generator, device: str) -> _Variational:
    """Means N(0, 2 / inputs) (He et al. 2015) for weights and 0 for biases; softplus(rho) = std everywhere."""
    mean = torch.zeros(network.size, dtype=torch.float32)
    for layer, parameters in zip(network.layers, network.split(mean), strict=True):
        if isinstance(layer, Dense):
            parameters[0].normal_(0, math.sqrt(2 / layer.inputs), generator=generator)
    rho = torch.full_like(mean, std + math.log(-math.expm1(-std)))  # log(exp(std) - 1) without overflow
    seed = int(torch.randint(2**32, (), generator=generator))
    noise = torch.Generator(device).manual_seed(seed)
    return _Variational(network, mean.to(device).requires_grad_(), rho.to(device).requires_grad_(), noise)


def _epoch(
    number: int, q: _Variational, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor, recipe: BayesByBackprop
) -> Epoch:
    """One step of the optimiser for each batch, in the order given."""
    totals = torch.zeros(3, dtype=torch.float64, device=x.device)
    for start in range(0, len(x), recipe.batch_size):
        batch = slice(start, start + recipe.batch_size)
        totals += _step(q, optimiser, x[batch], y[batch], recipe.prior_std, recipe.kl_weight / len(x)) * len(y[batch])
    nll, kl, right = (totals / len(x)).tolist()
    loss = nll + recipe.kl_weight * kl / len(x)
    if not math.isfinite(loss):
        raise InputError(
            f"training diverged in epoch {number} (loss {loss}); "
            f"lower the learning rate (now {recipe.learning_rate:g}) or scale the inputs to about 1"
        )
    return Epoch(number, loss, nll, kl, right)


def _step(
    q: _Variational, optimiser: torch.optim.Optimizer, x: Tensor, y: Tensor, prior_std: float, kl_weight: float
) -> Tensor:
    """One step down the gradient of nll + kl_weight · kl; the (nll, kl, accuracy) it started from."""
    outputs = q.sample_outputs(x)
    nll = functional.cross_entropy(outputs, y)
    kl = kl_divergence(q.mean, q.std, prior_std)
    optimiser.zero_grad()
    torch.autograd.backward(nll + kl_weight * kl)
    optimiser.step()
    right = (outputs.argmax(-1) == y).double().mean()
    return torch.stack([nll.detach().double(), kl.detach().double(), right])


def _posterior(q: _Variational) -> Normal:
    """In float64, where softplus is taken once more: the std is that of the trained rho, rounded once."""
    mean, rho = q.mean.detach().cpu().double(), q.rho.detach().cpu().double()
    return Normal(mean, functional.softplus(rho))


def _check_layers(network: Network) -> None:
    for layer in network.layers:
        if not isinstance(layer, TRAINABLE):
            raise InputError(f"layer {type(layer).__name__} cannot be trained here; use Dense, Flatten and activations")


def _check_examples(network: Network, x: Tensor, y: Tensor) -> None:
    """Inputs that fit the network, and for each one class label of its outputs."""
    shape = tuple(x.shape[1:])
    if shape != network.input_shape:
        raise InputError(f"inputs have shape {shape}, the network takes {network.input_shape}; reshape them")
    if not bool(x.isfinite().all()):
        raise InputError("inputs hold NaN or infinity; every entry must be finite")
    if y.dim() != 1 or len(y) != len(x) or len(y) == 0:
        raise InputError(f"labels have shape {tuple(y.shape)} for {len(x)} inputs; give one label for each input")
    if y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < network.outputs:
        raise InputError(f"labels must be integers from 0 to {network.outputs - 1}, one class for each output")

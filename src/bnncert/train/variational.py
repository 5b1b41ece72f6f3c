"""The distribution being trained: a Gaussian over the weights, outputs drawn from it, its
divergence from the prior.

Local reparameterisation: Kingma, Salimans, Welling, Variational Dropout and the Local
Reparameterization Trick (NeurIPS 2015).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.concentration.margin import Weights
from bnncert.model.layers import Conv2d, Dense, Layer, parameter_shapes
from bnncert.model.maps import apply
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

# Of a pre-activation: sqrt has no gradient at 0, which an all-zero input without a bias reaches.
SMALLEST_VARIANCE = 1e-20
NORMALISING_VARIANCE = 1e-5  # added to that of a channel


@dataclass(frozen=True, eq=False)
class Weighing:
    """N(mean, std²) over the weights, flat as `Network.parameters`.

    Weights that are not `random` are their mean; their std has no meaning.
    """

    network: Network
    bayesian: str
    random: Tensor
    mean: Tensor
    std: Tensor

    def sample_outputs(self, x: Tensor, noise: torch.Generator, kernels: bool = False) -> Tensor:
        """Outputs at x [batch, *input_shape], each example under its own draw of the weights.

        Local reparameterisation: for one example x W + b is Gaussian with mean x M + m and variance
        x² S² + s². Drawing that instead of the weights is the same law at a gradient of less
        variance.

        A convolution is such a sum at every place, and is drawn so too. The places of one image
        share the kernel, so there only each place's law is the same: noise that is independent from
        place to place stands for noise that is not, as is usual. With random kernels nll and elbo
        are estimates in that sense. `kernels` draws them instead, one for the whole batch.
        """
        network = self.network
        means = network.split(self.mean)
        stds = network.split(self.std)
        random = random_layers(network, self.bayesian)
        held = {0: x}
        for k, layer in enumerate(network.layers):
            inputs = [held[node] for node in network.reads[k]]
            shape = network.shape_before(k)
            if not random[k]:
                held[k + 1] = apply(layer, means[k], inputs, shape)
            elif kernels and isinstance(layer, Conv2d):
                drawn = [
                    mean + std * torch.empty_like(std).normal_(generator=noise)
                    for mean, std in zip(means[k], stds[k], strict=True)
                ]
                held[k + 1] = apply(layer, drawn, inputs, shape)
            else:
                center = apply(layer, means[k], inputs, shape)
                variances = [std.square() for std in stds[k]]
                variance = apply(layer, variances, [inputs[0].square()], shape)
                spread = variance.clamp_min(SMALLEST_VARIANCE).sqrt()
                held[k + 1] = center + spread * torch.empty_like(center).normal_(generator=noise)
        return held[len(network.layers)]

    def kl_divergence(self, prior_std: float | Tensor) -> Tensor:
        return _divergences(self.mean, self.std, prior_std).masked_fill(~self.random, 0).sum()

    def layers(self) -> Weights:
        """As `margins` takes them."""
        parts = zip(
            random_layers(self.network, self.bayesian),
            self.network.split(self.mean),
            self.network.split(self.std),
            strict=True,
        )
        return [(means, stds if random else None) for random, means, stds in parts]


@dataclass(frozen=True, eq=False)
class Variational:
    """What is trained: mean and std = softplus(rho) of the weights, and under batch normalisation
    `gain` and `shift` of every channel that is normalised, in the order of the layers.

    Weights that are not `random` are their mean; their rho has no meaning.
    """

    network: Network
    bayesian: str
    random: Tensor
    mean: Tensor
    rho: Tensor
    gain: Tensor | None
    shift: Tensor | None
    noise: torch.Generator

    @property
    def parameters(self) -> dict[str, Tensor]:
        named = {"mean": self.mean, "rho": self.rho, "gain": self.gain, "shift": self.shift}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    def weighing(self, x: Tensor) -> Weighing:
        """The weights, normalised as the mean network's channels are distributed at x."""
        std = functional.softplus(self.rho)
        raw = Weighing(self.network, self.bayesian, self.random, self.mean, std)
        if self.gain is None or self.shift is None:
            return raw
        return folded(raw, x, self.gain, self.shift)


def folded(raw: Weighing, x: Tensor, gain: Tensor, shift: Tensor) -> Weighing:
    """Batch normalisation of the pre-activations as weights of the network without it.

        gain (W h + b - m) / s + shift = (gain W / s) h + (gain (b - m) / s + shift)

    m and s are those of the mean network at x, over examples and places; a standard deviation of
    the weights is scaled as they are.
    """
    network = raw.network
    means = network.split(raw.mean)
    stds = network.split(raw.std)
    held = {0: x}
    flat_mean, flat_std = list[Tensor](), list[Tensor]()
    start = 0
    for k, layer in enumerate(network.layers):
        inputs = [held[node] for node in network.reads[k]]
        own, own_std = means[k], stds[k]
        center = apply(layer, own, inputs, network.shape_before(k))
        if k in normalised_layers(network):
            stop = start + own[1].numel()
            location, spread = channel_statistics(center)
            scale = gain[start:stop] / spread
            offset = shift[start:stop] - location * scale
            of_weights = (-1, 1, 1, 1) if isinstance(layer, Conv2d) else (-1,)
            of_values = (-1, 1, 1) if isinstance(layer, Conv2d) else (-1,)
            weights = own[0] * scale.reshape(of_weights)
            own = (weights, own[1] * scale + offset)
            size = scale.abs()
            own_std = (own_std[0] * size.reshape(of_weights), own_std[1] * size)
            center = center * scale.reshape(of_values) + offset.reshape(of_values)
            start = stop
        flat_mean += [tensor.flatten() for tensor in own]
        flat_std += [tensor.flatten() for tensor in own_std]
        held[k + 1] = center
    return replace(raw, mean=torch.cat(flat_mean), std=torch.cat(flat_std))


def channel_statistics(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [channels] of [batch, channels, ...]."""
    places = [0, *range(2, values.dim())]
    variance, location = torch.var_mean(values, places, correction=0)
    return location, (variance + NORMALISING_VARIANCE).sqrt()


def normalised_layers(network: Network) -> list[int]:
    """The positions of the layers whose channels batch normalisation normalises: those with weights
    that another layer with weights comes after."""
    weighted = [k for k, layer in enumerate(network.layers) if isinstance(layer, Dense | Conv2d)]
    return weighted[:-1]


def random_layers(network: Network, bayesian: str) -> list[bool]:
    """For each layer whether the recipe's `bayesian` makes its weights random."""
    kinds: dict[str, tuple[type[Layer], ...]] = {"all": (Dense, Conv2d), "dense": (Dense,)}
    if bayesian in kinds:
        return [isinstance(layer, kinds[bayesian]) for layer in network.layers]
    weighted = [k for k, layer in enumerate(network.layers) if parameter_shapes(layer)]
    last = weighted[-1] if bayesian == "last" else None
    return [k == last for k in range(len(network.layers))]


def kl_divergence(mean: Tensor, std: Tensor, prior_std: float | Tensor) -> Tensor:
    """KL(N(mean, std²) || N(0, s²)) with s = prior_std.

    Σ log(s / std) + (std² + mean²) / (2 s²) - 1/2 over the weights.
    """
    return _divergences(mean, std, prior_std).sum()


def _divergences(mean: Tensor, std: Tensor, prior_std: float | Tensor) -> Tensor:
    return (std.square() + mean.square()) / (2 * prior_std**2) - (std / prior_std).log() - 0.5


def posterior(q: Variational, x: Tensor) -> Normal:
    """Normalised at x, in float64; mean and std are float32 numbers, so that files of them need no
    more."""
    with torch.no_grad():
        gain, shift = (None if part is None else part.double() for part in (q.gain, q.shift))
        exact = replace(q, mean=q.mean.double(), rho=q.rho.double(), gain=gain, shift=shift)
        found = exact.weighing(x.double())
    mean, std = (tensor.float().double().cpu() for tensor in (found.mean, found.std))
    return Normal(mean, std.masked_fill(~found.random.cpu(), 0))

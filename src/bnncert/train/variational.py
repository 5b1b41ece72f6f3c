"""The objective: a Gaussian over the weights, outputs drawn from it, its divergence from the prior.

Local reparameterisation: Kingma, Salimans, Welling, Variational Dropout and the Local
Reparameterization Trick (NeurIPS 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.model.layers import Conv2d, Dense, Layer
from bnncert.model.maps import apply
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

# Of a pre-activation: sqrt has no gradient at 0, which an all-zero input without a bias reaches.
SMALLEST_VARIANCE = 1e-20


@dataclass(frozen=True, eq=False)
class Variational:
    """The distribution being trained, flat as `Network.parameters`, and the source of its noise.

    Weights that are not `random` are their mean; their rho has no meaning.
    """

    network: Network
    bayesian: str
    random: Tensor
    mean: Tensor
    rho: Tensor
    noise: torch.Generator

    @property
    def std(self) -> Tensor:
        return functional.softplus(self.rho)

    def sample_outputs(self, x: Tensor) -> Tensor:
        """Outputs at x [batch, *input_shape], each example under its own draw of the weights.

        Local reparameterisation: for one example x W + b is Gaussian with mean x M + m and variance
        x² S² + s². Drawing that instead of the weights is the same law at a gradient of less
        variance.

        A convolution is such a sum at every place, and is drawn so too. The places of one image
        share the kernel, so there only each place's law is the same: noise that is independent from
        place to place stands for noise that is not, as is usual. With random kernels nll and elbo
        are estimates in that sense.
        """
        network = self.network
        means = network.split(self.mean)
        variances = network.split(self.std.square())
        held = {0: x}
        for k, layer in enumerate(network.layers):
            inputs = [held[node] for node in network.reads[k]]
            shape = network.shape_before(k)
            center = apply(layer, means[k], inputs, shape)
            if is_random(layer, self.bayesian):
                variance = apply(layer, variances[k], [inputs[0].square()], shape)
                spread = variance.clamp_min(SMALLEST_VARIANCE).sqrt()
                center = center + spread * torch.empty_like(center).normal_(generator=self.noise)
            held[k + 1] = center
        return held[len(network.layers)]

    def kl_divergence(self, prior_std: float) -> Tensor:
        return _divergences(self.mean, self.std, prior_std).masked_fill(~self.random, 0).sum()


def is_random(layer: Layer, bayesian: str) -> bool:
    """Whether the recipe's `bayesian` makes the weights of the layer random."""
    return isinstance(layer, Dense) or (bayesian == "all" and isinstance(layer, Conv2d))


def kl_divergence(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    """KL(N(mean, std²) || N(0, s²)) with s = prior_std.

    Σ log(s / std) + (std² + mean²) / (2 s²) - 1/2 over the weights.
    """
    return _divergences(mean, std, prior_std).sum()


def _divergences(mean: Tensor, std: Tensor, prior_std: float) -> Tensor:
    return (std.square() + mean.square()) / (2 * prior_std**2) - (std / prior_std).log() - 0.5


def posterior(q: Variational) -> Normal:
    """In float64; the std, like the mean, is a float32 number, so that files of it need no more."""
    mean = q.mean.detach().cpu().double()
    rho = q.rho.detach().cpu().double()
    std = functional.softplus(rho).float().double()
    return Normal(mean, std.masked_fill(~q.random.cpu(), 0))

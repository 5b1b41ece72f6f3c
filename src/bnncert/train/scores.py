"""Scores of a posterior: how good, how calibrated and how wide it is, on examples it has not seen.

A posterior as narrow as a point is certified easily and knows nothing of its own doubt. These
figures, beside a certificate, tell it from one that is honest. They rest on DRAWS networks from a
fixed seed, in float32, and are estimates.

The predictive is the average over drawn networks w_s of what each says of an example: p(y | x) =
1/S Σ_s p(y | x, w_s).

References: Guo et al., On Calibration of Modern Neural Networks (ICML 2017); Hendrycks, Gimpel, A
Baseline for Detecting Misclassified and Out-of-Distribution Examples (ICLR 2017).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from scipy.stats import rankdata
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.network import Network
from bnncert.posteriors.base import Posterior, sample
from bnncert.posteriors.gaussian import LowRankNormal
from bnncert.posteriors.independent import Normal
from bnncert.train.examples import accuracy, check_examples
from bnncert.train.likelihood import Gaussian, likelihood
from bnncert.train.loop import arithmetic
from bnncert.train.recipe import BayesByBackprop
from bnncert.train.state import prior_stds
from bnncert.train.variational import kl_divergence

DRAWS = 30  # networks that the predictive averages
SEED = 0  # of their weights
TOGETHER = 100  # inputs: more would not stay in the processor's cache
BINS = 15  # of confidence, equally wide
INTERVAL = 0.95  # probability of the predictive's central interval


@dataclass(frozen=True)
class Scores:
    """Figures of a posterior on `examples`; None where one does not apply.

    `nll` is the predictive's -log p(y | x), on average, in nats. `kl` is the divergence from the
    prior, of the random weights, and `std` the median standard deviation of each layer with
    weights; both need Gaussian weights, and `kl` independent ones.

    Of classes: accuracy of the posterior's central network, average accuracy of drawn ones, the
    predictive's expected calibration error, and the probability `auroc` that an image of another
    data set has a predictive of larger entropy than one of these.

    Of a regression: the central network's root mean squared error, and the share `coverage` of
    targets in the predictive's central interval of probability 0.95, on average over outputs.
    `nll` is of the targets as they were measured, and so is `rmse` where there is one of them; of
    several it is in standard deviations.
    """

    examples: int
    nll: float
    kl: float | None = None
    std: tuple[float, ...] | None = None
    accuracy: float | None = None
    drawn_accuracy: float | None = None
    calibration_error: float | None = None
    auroc: float | None = None
    rmse: float | None = None
    coverage: float | None = None


def score(
    network: Network,
    posterior: Posterior,
    x: Tensor,
    y: Tensor,
    recipe: BayesByBackprop,
    other: Tensor | None = None,
    device: str = "cpu",
) -> Scores:
    """On inputs x [N, *input_shape] and targets y [N], under the recipe's prior and noise.

    other: inputs of another data set [M, *input_shape], which classes are told apart from.
    """
    own = likelihood(network, recipe.noise_std)
    check_examples(network, x, y, own)
    judged = _Judged(network, posterior, device)
    with arithmetic(fast=False):
        if isinstance(own, Gaussian):
            found = _of_regression(judged, x, y.double().reshape(len(y), -1), own.noise_std)
        else:
            found = _of_classes(judged, x, y, other)
    if not math.isfinite(found.nll):
        raise InputError(
            f"drawn networks have outputs beyond float32 (nll {found.nll}); rescale the network"
        )
    return replace(
        found, kl=divergence(network, posterior, recipe), std=median_stds(network, posterior)
    )


@dataclass(frozen=True, eq=False)
class _Judged:
    network: Network
    posterior: Posterior
    device: str

    @property
    def stds(self) -> list[float]:
        """Of the measured targets, in the network's unit of 1."""
        own = self.network.standardisation
        return [column.std for column in own.outputs] if own else []

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """[N, outputs] of one network, some inputs at a time."""
        weights = weights.to(self.device, torch.float32)
        with torch.no_grad():
            parts = [
                self.network.forward(weights, part.to(weights)) for part in torch.split(x, TOGETHER)
            ]
        return torch.cat(parts).double().cpu()

    def drawn_outputs(self, x: Tensor) -> Tensor:
        """[S, N, outputs], one network after the other: all their weights may be too many."""
        x = x.to(self.device, torch.float32)
        drawn = (sample(self.posterior, 1, SEED, first=k)[0] for k in range(DRAWS))
        return torch.stack([self.outputs(weights, x) for weights in drawn])


def _of_classes(judged: _Judged, x: Tensor, y: Tensor, other: Tensor | None) -> Scores:
    logits = judged.drawn_outputs(x)
    log_p = class_predictive(logits)
    auroc = None
    if other is not None:
        auroc = separation(entropy(log_p), entropy(class_predictive(judged.drawn_outputs(other))))
    return Scores(
        len(x),
        nll=float(-log_p.gather(1, y.unsqueeze(1)).mean()),
        accuracy=accuracy(judged.network, judged.posterior.center.to(judged.device), x, y),
        drawn_accuracy=float((logits.argmax(-1) == y).double().mean()),
        calibration_error=calibration_error(log_p.exp(), y),
        auroc=auroc,
    )


def _of_regression(judged: _Judged, x: Tensor, y: Tensor, noise_std: float) -> Scores:
    center = judged.outputs(judged.posterior.center, x)
    drawn = judged.drawn_outputs(x)
    stds = judged.stds
    unit = stds[0] if len(stds) == 1 else 1.0
    return Scores(
        len(x),
        nll=gaussian_nll(drawn, y, noise_std) + sum(map(math.log, stds)),
        rmse=unit * float((center - y).square().mean().sqrt()),
        coverage=coverage(drawn, y, noise_std),
    )


def class_predictive(logits: Tensor) -> Tensor:
    """log 1/S Σ_s softmax(logits_s) [N, classes], from the logits [S, N, classes]."""
    return logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))


def calibration_error(p: Tensor, y: Tensor) -> float:
    """Σ_b n_b / N · |accuracy_b - confidence_b| over BINS of the confidence max p [N, classes]."""
    confidence, predicted = p.max(1)
    bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = (predicted == y).double() - confidence
    return float(torch.zeros(BINS).double().index_add(0, bins, gaps).abs().sum() / len(y))


def entropy(log_p: Tensor) -> Tensor:
    """-Σ p log p of each row."""
    return -(log_p.exp() * log_p).sum(1)


def separation(known: Tensor, other: Tensor) -> float:
    """Area under the receiver operating characteristic, P(other > known) + P(other = known) / 2,
    from the ranks of the others [M] among all."""
    ranks = rankdata(torch.cat([known, other]).numpy())[len(known) :]
    return float((ranks.sum() - len(other) * (len(other) + 1) / 2) / (len(known) * len(other)))


def gaussian_nll(drawn: Tensor, y: Tensor, noise_std: float) -> float:
    """-log 1/S Σ_s N(y; drawn_s, noise_std²), on average over y [N, k]; drawn [S, N, k]."""
    squares = ((y - drawn) / noise_std).square().sum(-1) / 2
    constant = y.shape[-1] * math.log(noise_std * math.sqrt(2 * math.pi)) + math.log(len(drawn))
    return float(constant - torch.logsumexp(-squares, 0).mean())


def coverage(drawn: Tensor, y: Tensor, noise_std: float) -> float:
    """The share of y [N, k] that leave at least (1 - INTERVAL) / 2 of the predictive on both sides.

    Its distribution function is 1/S Σ_s Φ((y - drawn_s) / noise_std).
    """
    below = torch.special.ndtr((y - drawn) / noise_std).mean(0)
    return float(((below - 0.5).abs() <= INTERVAL / 2).double().mean())


def divergence(network: Network, posterior: Posterior, recipe: BayesByBackprop) -> float | None:
    """KL(posterior || prior) of the random weights, if they are independent Gaussians."""
    if not isinstance(posterior, Normal):
        return None
    random = posterior.std > 0
    prior = prior_stds(network, recipe).to(posterior.std)
    return float(kl_divergence(posterior.mean[random], posterior.std[random], prior[random]))


def median_stds(network: Network, posterior: Posterior) -> tuple[float, ...] | None:
    """Of the random weights of each layer that has weights; 0 where none is random."""
    if not isinstance(posterior, Normal | LowRankNormal):
        return None
    layers = [
        torch.cat([part.flatten() for part in own])
        for own in network.split(posterior.marginal_std)
        if own
    ]
    return tuple(float(own[own > 0].median()) if bool((own > 0).any()) else 0.0 for own in layers)

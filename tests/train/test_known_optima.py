"""Bayes by Backprop: optima known by hand or quadrature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize

from bnncert.layers import Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.posteriors.base import sample
from bnncert.train import BayesByBackprop, accuracy, kl_divergence, train
from trainings import CNN, TWO_KERNELS, TWO_WEIGHTS, blobs, digits

# The divergence


def test_kl_against_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(50, generator=generator, dtype=torch.float64)
    std = torch.rand(50, generator=generator, dtype=torch.float64) + 0.01
    q = torch.distributions.Normal(mean, std)
    p = torch.distributions.Normal(torch.zeros_like(mean), 0.7)
    assert kl_divergence(mean, std, 0.7).item() == pytest.approx(
        torch.distributions.kl_divergence(q, p).sum().item()
    )


def test_kl_against_quadrature() -> None:
    mean, std, prior = 0.4, 0.3, 1.5

    def log_density(w: float, m: float, s: float) -> float:
        return -((w - m) ** 2) / (2 * s**2) - math.log(s * math.sqrt(2 * math.pi))

    def integrand(w: float) -> float:
        q = log_density(w, mean, std)
        return math.exp(q) * (q - log_density(w, 0, prior))

    known, _ = integrate.quad(integrand, mean - 12 * std, mean + 12 * std)
    one = torch.ones(1, dtype=torch.float64)
    assert kl_divergence(mean * one, std * one, prior).item() == pytest.approx(known, rel=1e-8)


# Known optima


def test_without_information_the_posterior_is_the_prior() -> None:
    """Inputs of 0 and no bias: the outputs are 0 whatever the weights, so KL alone counts and q =
    N(0, prior_std²)."""
    x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
    recipe = BayesByBackprop(300, learning_rate=0.05, prior_std=0.3, kl_weight=1.0)
    trained = train(Network((2,), (Dense(2, 2, bias=False),)), x, y, recipe)
    assert trained.posterior.mean.tolist() == pytest.approx([0.0] * 4, abs=1e-3)
    assert trained.posterior.std.tolist() == pytest.approx([0.3] * 4, abs=1e-3)
    assert trained.history[-1].nll == pytest.approx(math.log(2))
    assert trained.history[-1].kl == pytest.approx(0, abs=1e-3)


def best_two_weights(x: float, first: int, second: int, kl_weight: float) -> tuple[float, float]:
    """(m, s) of the best q: by symmetry w0 ~ N(m, s²), w1 ~ N(-m, s²), and the data see x (w0 - w1)
    ~ N(2xm, 2x²s²)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def loss(parameters: np.ndarray) -> float:  # type: ignore[type-arg]
        m, s = parameters[0], math.exp(parameters[1])
        d = x * (2 * m + math.sqrt(2) * s * nodes)
        nll = (first * np.logaddexp(0, -d) + second * np.logaddexp(0, d)) @ weights / weights.sum()
        return float(nll + kl_weight * 2 * ((s**2 + m**2) / 2 - math.log(s) - 0.5))

    m, log_s = optimize.minimize(loss, [0.0, -1.0], tol=1e-8).x
    return float(m), math.exp(log_s)


@pytest.mark.parametrize(
    ("network", "kl_weight", "batch_size"),
    [(TWO_WEIGHTS, 1.0, 50), (TWO_WEIGHTS, 0.1, 200), (TWO_KERNELS, 0.1, 200)],
)
def test_two_weights_against_quadrature(
    network: Network, kl_weight: float, batch_size: int
) -> None:
    """150 examples of one class and 50 of the other, all at x = 2.

    The data say nothing of w0 + w1, which only the prior draws to 0, slowly; w0 - w1 and both stds
    are soon there.
    """
    x, y = torch.full((200, *network.input_shape), 2.0), (torch.arange(200) < 50).long()
    recipe = BayesByBackprop(2 * batch_size, batch_size, learning_rate=0.01, kl_weight=kl_weight)
    posterior = train(network, x, y, recipe).posterior
    m, s = best_two_weights(2.0, 150, 50, kl_weight)
    assert (posterior.mean[0] - posterior.mean[1]).item() == pytest.approx(2 * m, abs=0.05)
    assert posterior.std.tolist() == pytest.approx([s, s], rel=0.25)


def test_an_input_that_is_always_zero_keeps_the_prior() -> None:
    """Its row of weights, and no other, is as wide as the prior: the posterior is in the network's
    flat order."""
    x, y = blobs()
    x = torch.cat([torch.zeros(len(x), 1, dtype=x.dtype), x], 1).unsqueeze(1)
    network = Network((1, 3), (Flatten(), Dense(3, 4), Tanh(), Dense(4, 3)))
    posterior = train(
        network, x, y, BayesByBackprop(200, learning_rate=0.05, kl_weight=0.1)
    ).posterior
    mean, std = (network.split(part)[1][0] for part in (posterior.mean, posterior.std))
    assert mean[0].abs().max() < 0.02
    assert std[0].tolist() == pytest.approx([1.0] * 4, abs=0.02)
    assert std[1:].median() < 0.6


@pytest.mark.parametrize(
    "activation", [ReLU(), LeakyReLU(0.1), Tanh(), Sigmoid()], ids=lambda a: type(a).__name__
)
def test_separable_classes_are_learnt(activation: Activation) -> None:
    x, y = blobs()
    network = mlp(2, 8, 3, activation=activation)
    trained = train(network, x, y, BayesByBackprop(60, learning_rate=0.05))
    assert accuracy(network, trained.posterior.mean, x, y) == 1
    assert trained.history[-1].accuracy > 0.9
    assert trained.history[-1].loss < trained.history[0].loss / 2


def test_digits() -> None:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    from bnncert.data import load_inputs

    learn, test = load_inputs("digits", "train"), load_inputs("digits")
    assert learn.y is not None
    assert test.y is not None
    network = Network((8, 8), (Flatten(), Dense(64, 32), ReLU(), Dense(32, 10)))
    posterior = train(network, learn.x, learn.y, BayesByBackprop(20, learning_rate=0.01)).posterior
    assert accuracy(network, posterior.mean, test.x, test.y) > 0.87
    assert 0.02 < posterior.std.median() < 0.2


@pytest.mark.parametrize("bayesian", ["all", "dense"])
def test_a_convolutional_network_learns_digits_and_stays_wide(bayesian: str) -> None:
    """With a small KL weight the std stays about where it starts, and sampled networks are as good
    as the mean."""
    recipe = BayesByBackprop(
        8,
        32,
        learning_rate=0.01,
        kl_weight=1e-3,
        initial_std=0.01,
        schedule="cosine",
        bayesian=bayesian,
    )
    posterior = train(CNN, *digits("train"), recipe).posterior
    x, y = digits("test")
    assert accuracy(CNN, posterior.mean, x, y) > 0.82
    assert accuracy(CNN, sample(posterior, 5, seed=0), x, y) > 0.8
    assert 0.005 < posterior.std[posterior.std > 0].median() < 0.02

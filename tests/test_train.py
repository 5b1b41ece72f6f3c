"""Bayes by Backprop: optima known by hand or quadrature, honest diagnostics, and the same bits for the same seed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy import integrate, optimize
from torch import Tensor

from bnncert.errors import InputError
from bnncert.layers import Activation, Dense, Flatten, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.network import Network, mlp
from bnncert.train import BayesByBackprop, Epoch, Trained, accuracy, kl_divergence, train

TWO_WEIGHTS = Network((1,), (Dense(1, 2, bias=False),))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads only slow networks as small as these down, by far where the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blobs(count: int = 60) -> tuple[Tensor, Tensor]:
    """Three classes in the plane, far apart."""
    y = torch.arange(count) % 3
    angle = 2 * math.pi * y.double() / 3
    spread = torch.randn(count, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * spread, y


def short(**changes: float) -> Trained:
    x, y = blobs()
    recipe = {"epochs": 3, "batch_size": 16, "learning_rate": 0.02} | changes
    return train(mlp(2, 5, 3), x, y, BayesByBackprop(**recipe))  # type: ignore[arg-type]


# The divergence


def test_kl_against_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(50, generator=generator, dtype=torch.float64)
    std = torch.rand(50, generator=generator, dtype=torch.float64) + 0.01
    q = torch.distributions.Normal(mean, std)
    p = torch.distributions.Normal(torch.zeros_like(mean), 0.7)
    assert kl_divergence(mean, std, 0.7).item() == pytest.approx(torch.distributions.kl_divergence(q, p).sum().item())


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
    """Inputs of 0 and no bias: the outputs are 0 whatever the weights, so KL alone counts and q = N(0, prior_std²)."""
    x, y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
    recipe = BayesByBackprop(300, learning_rate=0.05, prior_std=0.3, kl_weight=1.0)
    trained = train(Network((2,), (Dense(2, 2, bias=False),)), x, y, recipe)
    assert trained.posterior.mean.tolist() == pytest.approx([0.0] * 4, abs=1e-3)
    assert trained.posterior.std.tolist() == pytest.approx([0.3] * 4, abs=1e-3)
    assert trained.history[-1].nll == pytest.approx(math.log(2))
    assert trained.history[-1].kl == pytest.approx(0, abs=1e-3)


def best_two_weights(x: float, first: int, second: int, kl_weight: float) -> tuple[float, float]:
    """(m, s) of the best q: by symmetry w0 ~ N(m, s²), w1 ~ N(-m, s²), and the data see x (w0 - w1) ~ N(2xm, 2x²s²)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)

    def loss(parameters: np.ndarray) -> float:  # type: ignore[type-arg]
        m, s = parameters[0], math.exp(parameters[1])
        d = x * (2 * m + math.sqrt(2) * s * nodes)
        nll = (first * np.logaddexp(0, -d) + second * np.logaddexp(0, d)) @ weights / weights.sum()
        return float(nll + kl_weight * 2 * ((s**2 + m**2) / 2 - math.log(s) - 0.5))

    m, log_s = optimize.minimize(loss, [0.0, -1.0], tol=1e-8).x
    return float(m), math.exp(log_s)


@pytest.mark.parametrize(("kl_weight", "batch_size"), [(1.0, 50), (0.1, 200)])
def test_two_weights_against_quadrature(kl_weight: float, batch_size: int) -> None:
    """150 examples of one class and 50 of the other, all at x = 2.

    The data say nothing of w0 + w1, which only the prior draws to 0, slowly; w0 - w1 and both stds are soon there.
    """
    x, y = torch.full((200, 1), 2.0), (torch.arange(200) < 50).long()
    recipe = BayesByBackprop(2 * batch_size, batch_size, learning_rate=0.01, kl_weight=kl_weight)
    posterior = train(TWO_WEIGHTS, x, y, recipe).posterior
    m, s = best_two_weights(2.0, 150, 50, kl_weight)
    assert (posterior.mean[0] - posterior.mean[1]).item() == pytest.approx(2 * m, abs=0.05)
    assert posterior.std.tolist() == pytest.approx([s, s], rel=0.25)


def test_an_input_that_is_always_zero_keeps_the_prior() -> None:
    """Its row of weights, and no other, is as wide as the prior: the posterior is in the network's flat order."""
    x, y = blobs()
    x = torch.cat([torch.zeros(len(x), 1, dtype=x.dtype), x], 1).unsqueeze(1)
    network = Network((1, 3), (Flatten(), Dense(3, 4), Tanh(), Dense(4, 3)))
    posterior = train(network, x, y, BayesByBackprop(200, learning_rate=0.05, kl_weight=0.1)).posterior
    mean, std = (network.split(part)[1][0] for part in (posterior.mean, posterior.std))
    assert mean[0].abs().max() < 0.02
    assert std[0].tolist() == pytest.approx([1.0] * 4, abs=0.02)
    assert std[1:].median() < 0.6


@pytest.mark.parametrize("activation", [ReLU(), LeakyReLU(0.1), Tanh(), Sigmoid()], ids=lambda a: type(a).__name__)
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


# What comes back


def test_diagnostics_add_up() -> None:
    seen: list[Epoch] = []
    x, y = blobs()
    recipe = BayesByBackprop(4, batch_size=16, kl_weight=0.3)
    trained = train(mlp(2, 5, 3), x, y, recipe, on_epoch=seen.append)
    assert tuple(seen) == trained.history
    assert [epoch.number for epoch in seen] == [1, 2, 3, 4]
    for epoch in seen:
        assert epoch.loss == pytest.approx(epoch.nll + 0.3 * epoch.kl / len(x))
        assert epoch.nll > 0
        assert epoch.kl > 0
        assert (epoch.accuracy * len(x)) == pytest.approx(round(epoch.accuracy * len(x)))


def test_the_first_epoch_is_at_the_initial_std() -> None:
    """So small a learning rate changes nothing: std = initial_std, and kl is that of the posterior returned."""
    trained = short(epochs=1, learning_rate=1e-12, initial_std=0.03)
    posterior = trained.posterior
    assert posterior.std.tolist() == pytest.approx([0.03] * posterior.size, rel=1e-5)
    assert trained.history[0].kl == pytest.approx(kl_divergence(posterior.mean, posterior.std, 1.0).item(), rel=1e-5)


def test_the_same_seed_gives_the_same_bits() -> None:
    first, again, other = short(seed=3), short(seed=3), short(seed=4)
    assert torch.equal(first.posterior.mean, again.posterior.mean)
    assert torch.equal(first.posterior.std, again.posterior.std)
    assert first.history == again.history
    assert not torch.equal(first.posterior.std, other.posterior.std)


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        before = torch.get_rng_state()
        first = short()
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(12)
        assert torch.equal(short().posterior.mean, first.posterior.mean)


@pytest.fixture
def double_by_default() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.usefixtures("double_by_default")
def test_the_default_dtype_does_not_matter() -> None:
    inside = short()
    torch.set_default_dtype(torch.float32)
    outside = short()
    assert inside.posterior.mean.dtype == outside.posterior.mean.dtype == torch.float64
    assert torch.equal(inside.posterior.mean, outside.posterior.mean)
    assert torch.equal(inside.posterior.std, outside.posterior.std)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_training_on_a_gpu() -> None:
    x, y = blobs()
    network = mlp(2, 8, 3)
    first, again = (train(network, x, y, BayesByBackprop(40, learning_rate=0.05), "cuda").posterior for _ in range(2))
    assert first.mean.device.type == "cpu"
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert accuracy(network, first.mean, x, y) == 1


def test_accuracy_by_hand() -> None:
    network = Network((2,), (Dense(2, 2, bias=False),))
    x = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=torch.float64)
    y = torch.tensor([0, 1, 0, 0])
    identity = torch.tensor([1, 0, 0, 1], dtype=torch.float64)
    assert accuracy(network, identity, x, y) == 0.75
    assert accuracy(network, -identity, x, y) == 0.25
    assert accuracy(network, torch.stack([identity, -identity]), x, y) == 0.5


# Faults


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"prior_std": -1.0},
        {"initial_std": 0.0},
        {"initial_std": math.inf},
        {"kl_weight": -0.1},
        {"kl_weight": math.nan},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_bad_recipes(changes: dict[str, float]) -> None:
    (name,) = changes
    with pytest.raises(InputError, match=f"^{name} is .*; give a"):
        BayesByBackprop(**({"epochs": 1} | changes))  # type: ignore[arg-type]


X, Y = torch.zeros(3, 1), torch.tensor([0, 1, 1])


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3, 2), Y, r"inputs have shape \(2,\), the network takes \(1,\)"),
        (X + math.nan, Y, "inputs hold NaN"),
        (X, Y[:2], r"labels have shape \(2,\) for 3 inputs"),
        (X[:0], Y[:0], "give one label for each input"),
        (X, Y.double(), "labels must be integers from 0 to 1"),
        (X, Y + 1, "labels must be integers from 0 to 1"),
        (X, Y - 1, "labels must be integers from 0 to 1"),
    ],
)
def test_bad_examples(x: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(TWO_WEIGHTS, x, y, BayesByBackprop(1))
    with pytest.raises(InputError, match=message):
        accuracy(TWO_WEIGHTS, torch.zeros(2), x, y)


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(InputError, match=r"weights have shape \(3,\), the network takes \[..., 2\]"):
        accuracy(TWO_WEIGHTS, torch.zeros(3), X, Y)


def test_divergence_is_reported() -> None:
    with pytest.raises(InputError, match=r"diverged in epoch \d+ .*; lower the learning rate \(now 1e\+30\)"):
        short(learning_rate=1e30)


def test_a_layer_that_cannot_be_trained_is_named() -> None:
    @dataclass(frozen=True)
    class Dropout:
        pass

    network = Network((1,), (Dense(1, 2), Dropout()))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="layer Dropout cannot be trained"):
        train(network, X, Y, BayesByBackprop(1))

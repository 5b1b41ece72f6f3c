"""Bayes by Backprop: optima known by hand or quadrature, honest diagnostics, and the same bits for
the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import integrate, optimize
from torch import Tensor

from bnncert.errors import InputError
from bnncert.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import Normal
from bnncert.train import (
    SHIFT,
    BayesByBackprop,
    Epoch,
    Trained,
    accuracy,
    augmented,
    kl_divergence,
    learning_rate,
    train,
)
from bnncert.train.state import start

TWO_WEIGHTS = Network((1,), (Dense(1, 2, bias=False),))
TWO_KERNELS = Network(
    (1, 1, 1), (Conv2d(1, 2, (1, 1), bias=False), Flatten())
)  # the same function of the same weights
CNN = Network(
    (1, 8, 8),
    (
        Conv2d(1, 6, (3, 3), padding=(1, 1)),
        ReLU(),
        MaxPool2d((2, 2)),
        Conv2d(6, 12, (3, 3), padding=(1, 1)),
        ReLU(),
        AvgPool2d((2, 2)),
        Flatten(),
        Dense(48, 10),
    ),
)
SMALL_CNN = Network(
    (1, 6, 6), (Conv2d(1, 2, (3, 3), stride=(2, 2)), ReLU(), Flatten(), Dense(8, 3))
)


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


def pictures(count: int = 40) -> tuple[Tensor, Tensor]:
    """Noise of one channel, labelled at random: enough to see what is computed."""
    generator = torch.Generator().manual_seed(5)
    return torch.rand(count, 1, 6, 6, generator=generator), torch.randint(
        3, (count,), generator=generator
    )


def kernels(network: Network, weights: Tensor) -> Tensor:
    """The part of a flat vector that belongs to convolutions."""
    parts = zip(network.layers, network.split(weights), strict=True)
    return torch.cat([p.flatten() for layer, ps in parts if isinstance(layer, Conv2d) for p in ps])


def same(first: Trained, second: Trained) -> bool:
    (mean, std), (other_mean, other_std) = (
        trained.posterior.tensors().values() for trained in (first, second)
    )
    return (
        torch.equal(mean, other_mean)
        and torch.equal(std, other_std)
        and first.history == second.history
    )


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


def digits(split: str) -> tuple[Tensor, Tensor]:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    from bnncert.data import load_inputs

    data = load_inputs("digits", split)
    assert data.y is not None
    return data.x.unsqueeze(1), data.y


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


# Convolutions


def test_outputs_have_the_law_of_sampled_weights_at_every_place() -> None:
    network = Network((2, 4, 3), (Conv2d(2, 3, (2, 3), stride=(2, 1), padding=(1, 0)), Flatten()))
    x = torch.rand(1, 2, 4, 3, generator=torch.Generator().manual_seed(0))
    q = start(network, BayesByBackprop(1, initial_std=0.3, seed=1), "cpu").q
    drawn = q.sample_outputs(x.expand(20000, 2, 4, 3)).detach().double()
    posterior = Normal(q.mean.detach().double(), q.std.detach().double())
    known = network.forward(sample(posterior, 20000, seed=0), x.double()).squeeze(1)
    assert drawn.mean(0).tolist() == pytest.approx(known.mean(0).tolist(), abs=0.03)
    assert drawn.std(0).tolist() == pytest.approx(known.std(0).tolist(), rel=0.03)


def test_kernels_start_with_the_variance_of_he() -> None:
    """2 / (channels · kernel) for weights, 0 for biases."""
    network = Network((8, 5, 5), (Conv2d(8, 64, (5, 3)), Flatten(), Dense(64 * 3, 2)))
    (kernel, bias), _, _ = network.split(start(network, BayesByBackprop(1), "cpu").q.mean.detach())
    assert kernel.square().mean().item() == pytest.approx(2 / (8 * 15), rel=0.05)
    assert not bias.any()


def test_deterministic_kernels() -> None:
    """Their std is 0 and they add nothing to the divergence; those of the dense layer are as
    ever."""
    x, y = pictures()
    recipe = BayesByBackprop(1, learning_rate=1e-12, initial_std=0.03, bayesian="dense")
    trained = train(SMALL_CNN, x, y, recipe)
    std, mean = (
        SMALL_CNN.split(trained.posterior.std)[-1],
        SMALL_CNN.split(trained.posterior.mean)[-1],
    )
    assert not kernels(SMALL_CNN, trained.posterior.std).any()
    assert all(
        part.flatten().tolist() == pytest.approx([0.03] * part.numel(), rel=1e-5) for part in std
    )
    known = sum(kl_divergence(m, s, 1.0).item() for m, s in zip(mean, std, strict=True))
    assert trained.history[0].kl == pytest.approx(known, rel=1e-5)


def test_deterministic_kernels_are_trained() -> None:
    x, y = pictures()
    first, last = (
        train(SMALL_CNN, x, y, BayesByBackprop(1, learning_rate=rate, bayesian="dense"))
        for rate in (1e-12, 0.1)
    )
    moved = kernels(SMALL_CNN, last.posterior.mean - first.posterior.mean)
    assert moved.abs().min() > 0.05


@pytest.mark.parametrize(
    ("weight_decay", "bayesian"), [(1.0, "dense"), (0.0, "dense"), (1.0, "all")]
)
def test_only_deterministic_weights_decay(weight_decay: float, bayesian: str) -> None:
    """Black images, and no KL: nothing else moves the kernels."""
    network = Network((1, 2, 2), (Conv2d(1, 2, (2, 2), bias=False), Flatten(), Dense(2, 2)))
    x, y = torch.zeros(4, 1, 2, 2), torch.tensor([0, 1, 0, 1])
    recipe = BayesByBackprop(
        200,
        learning_rate=0.05,
        kl_weight=0.0,
        initial_std=1e-4,
        bayesian=bayesian,
        weight_decay=weight_decay,
    )
    before = kernels(network, start(network, recipe, "cpu").q.mean.detach()).double()
    after = kernels(network, train(network, x, y, recipe).posterior.mean)
    decayed = weight_decay > 0 and bayesian == "dense"
    assert torch.equal(before, after) != decayed
    assert (after.abs().max() < 0.01) == decayed


# The learning rate


def test_the_cosine_ends_at_zero() -> None:
    recipe = BayesByBackprop(1, learning_rate=0.2, schedule="cosine")
    assert [learning_rate(recipe, done) for done in (0, 0.5, 1)] == pytest.approx(
        [0.2, 0.1, 0], abs=1e-15
    )
    assert learning_rate(BayesByBackprop(1, learning_rate=0.2), 1) == 0.2


def test_every_step_has_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    step = torch.optim.Adam.step

    def spy(optimiser: torch.optim.Adam) -> None:
        rates.append(optimiser.param_groups[0]["lr"])
        step(optimiser)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    train(
        mlp(2, 3), *blobs(), BayesByBackprop(3, batch_size=25, learning_rate=0.1, schedule="cosine")
    )
    assert rates == pytest.approx([0.05 * (1 + math.cos(math.pi * k / 9)) for k in range(9)])


# Augmentation


def moved(image: np.ndarray, mirror: bool, down: int, right: int) -> np.ndarray:  # type: ignore[type-arg]
    """Pixel by pixel."""
    out = np.zeros_like(image)
    height, width = image.shape[-2:]
    for i in range(height):
        for j in range(width):
            if 0 <= i - down < height and 0 <= j - right < width:
                column = j - right
                out[..., i, j] = image[..., i - down, width - 1 - column if mirror else column]
    return out


@pytest.mark.parametrize("shape", [(2, 6, 7), (6, 7)])
def test_augmented_images_are_mirrored_and_moved(shape: tuple[int, ...]) -> None:
    """Every image is one of the 2 · 9 · 9 there are, and nearly every one is drawn."""
    image = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 1
    images = augmented(image.expand(2000, *shape), torch.Generator().manual_seed(1))
    assert images.shape == (2000, *shape)
    shifts = range(-SHIFT, SHIFT + 1)
    known = {
        moved(image.numpy(), mirror, down, right).tobytes()
        for mirror in (False, True)
        for down in shifts
        for right in shifts
    }
    found = [out.numpy().tobytes() for out in images]
    assert set(found) <= known
    assert len(set(found)) > 0.99 * len(known)
    assert max(found.count(one) for one in set(found)) < 40  # of 12 expected


def test_augmentation_is_fixed_by_the_seed() -> None:
    x, y = pictures()
    first, again, other, without = (
        train(
            SMALL_CNN, x, y, BayesByBackprop(2, 16, learning_rate=0.01, seed=seed, augment=augment)
        )
        for seed, augment in [(1, True), (1, True), (2, True), (1, False)]
    )
    assert same(first, again)
    assert not same(first, other)
    assert not same(first, without)


# Going on after an interruption


class Killed(BaseException):
    pass


def kill_after(number: int, seen: list[int]) -> Callable[[Epoch], None]:
    def on_epoch(epoch: Epoch) -> None:
        seen.append(epoch.number)
        if epoch.number == number:
            raise Killed

    return on_epoch


FANCY = BayesByBackprop(
    4, 16, learning_rate=0.02, bayesian="dense", schedule="cosine", augment=True, seed=9
)
PLAIN = BayesByBackprop(4, 16, learning_rate=0.02)


@pytest.mark.parametrize("recipe", [FANCY, PLAIN], ids=["fancy", "plain"])
def test_a_killed_training_goes_on_to_the_same_bits(
    tmp_path: Path, recipe: BayesByBackprop
) -> None:
    """Killed twice between epochs, and once after the last, before the file is gone."""
    path, seen = tmp_path / "state.safetensors", list[int]()
    for number in (1, 3, 4):
        with pytest.raises(Killed):
            train(
                SMALL_CNN, *pictures(), recipe, on_epoch=kill_after(number, seen), checkpoint=path
            )
        assert [file.name for file in tmp_path.iterdir()] == [path.name]
    resumed = train(SMALL_CNN, *pictures(), recipe, on_epoch=kill_after(0, seen), checkpoint=path)
    assert seen == [1, 2, 3, 4]
    assert same(resumed, train(SMALL_CNN, *pictures(), recipe))
    assert not any(tmp_path.iterdir())


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    path = tmp_path / "state.safetensors"
    with pytest.raises(Killed):
        train(SMALL_CNN, *pictures(), PLAIN, on_epoch=kill_after(1, []), checkpoint=path)
    return path


def test_a_foreign_checkpoint_is_refused(unfinished: Path) -> None:
    x, y = pictures()
    wider = Network((1, 6, 6), (Flatten(), Dense(36, 3)))
    before = unfinished.read_bytes()
    for network, inputs, labels, recipe, what in [
        (SMALL_CNN, x, y, replace(PLAIN, seed=1), "recipe"),
        (wider, x, y, PLAIN, "network"),
        (SMALL_CNN, 1 - x, y, PLAIN, "data"),
        (SMALL_CNN, x, 2 - y, PLAIN, "data"),
        (wider, x[1:], y[1:], FANCY, "recipe and network and data"),
    ]:
        message = (
            rf"^checkpoint '.*state\.safetensors' is of another {what}; remove it to start anew$"
        )
        with pytest.raises(InputError, match=message):
            train(network, inputs, labels, recipe, checkpoint=unfinished)
    assert unfinished.read_bytes() == before


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(InputError, match="not a safetensors file"):
        train(SMALL_CNN, *pictures(), PLAIN, checkpoint=path)
    assert path.read_text() == "mine"
    with pytest.raises(
        InputError, match=r"would be in a folder that does not exist; make it first"
    ):
        train(SMALL_CNN, *pictures(), PLAIN, checkpoint=tmp_path / "none" / "state.safetensors")


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
        assert epoch.elbo == pytest.approx(-(epoch.nll * len(x) + epoch.kl))
        assert epoch.nll > 0
        assert epoch.kl > 0
        assert (epoch.accuracy * len(x)) == pytest.approx(round(epoch.accuracy * len(x)))


def test_the_first_epoch_is_at_the_initial_std() -> None:
    """So small a learning rate changes nothing: std = initial_std, and kl is that of the posterior
    returned."""
    trained = short(epochs=1, learning_rate=1e-12, initial_std=0.03)
    posterior = trained.posterior
    assert posterior.std.tolist() == pytest.approx([0.03] * posterior.size, rel=1e-5)
    assert trained.history[0].kl == pytest.approx(
        kl_divergence(posterior.mean, posterior.std, 1.0).item(), rel=1e-5
    )


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
    first, again = (
        train(network, x, y, BayesByBackprop(40, learning_rate=0.05), "cuda").posterior
        for _ in range(2)
    )
    assert first.mean.device.type == "cpu"
    assert torch.equal(first.mean, again.mean)
    assert torch.equal(first.std, again.std)
    assert accuracy(network, first.mean, x, y) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_killed_training_goes_on_on_a_gpu(tmp_path: Path) -> None:
    path, seen = tmp_path / "state.safetensors", list[int]()
    with pytest.raises(Killed):
        train(CNN, *digits("train"), FANCY, "cuda", kill_after(2, seen), path)
    resumed = train(CNN, *digits("train"), FANCY, "cuda", checkpoint=path)
    assert same(resumed, train(CNN, *digits("train"), FANCY, "cuda"))


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
        {"weight_decay": -0.1},
        {"weight_decay": math.inf},
        {"seed": -1},
        {"seed": 2**32},
    ],
)
def test_bad_recipes(changes: dict[str, float]) -> None:
    (name,) = changes
    with pytest.raises(InputError, match=f"^{name} is .*; give a"):
        BayesByBackprop(**({"epochs": 1} | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "choices"),
    [
        ({"bayesian": "convolutions"}, "all or dense"),
        ({"bayesian": None}, "all or dense"),
        ({"schedule": "step"}, "constant or cosine"),
        ({"augment": "flips"}, "False or True"),
    ],
)
def test_unknown_choices(changes: dict[str, object], choices: str) -> None:
    ((name, value),) = changes.items()
    with pytest.raises(InputError, match=f"^{name} is {value!r}; give {choices}$"):
        BayesByBackprop(1, **changes)  # type: ignore[arg-type]


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
    with pytest.raises(
        InputError, match=r"weights have shape \(3,\), the network takes \[..., 2\]"
    ):
        accuracy(TWO_WEIGHTS, torch.zeros(3), X, Y)


def test_divergence_is_reported() -> None:
    with pytest.raises(
        InputError, match=r"diverged in epoch \d+ .*; lower the learning rate \(now 1e\+30\)"
    ):
        short(learning_rate=1e30)


def test_recipes_that_do_not_fit_the_network() -> None:
    with pytest.raises(
        InputError, match=r"^bayesian is 'dense', but the network has no Dense layer; give all$"
    ):
        train(TWO_KERNELS, X.reshape(3, 1, 1, 1), Y, BayesByBackprop(1, bayesian="dense"))
    with pytest.raises(InputError, match=r"^augment is for images, .*; the network takes \(1,\)$"):
        train(TWO_WEIGHTS, X, Y, BayesByBackprop(1, augment=True))

"""The steps of training: convolutions, deterministic kernels, rates, augmentation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bnncert.layers import Conv2d, Dense, Flatten
from bnncert.model.network import Network, mlp
from bnncert.posteriors.base import sample
from bnncert.posteriors.independent import Normal
from bnncert.train import SHIFT, BayesByBackprop, augmented, kl_divergence, learning_rate, train
from bnncert.train.state import start
from trainings import SMALL_CNN, blobs, kernels, pictures, same

# Convolutions


def test_outputs_have_the_law_of_sampled_weights_at_every_place() -> None:
    network = Network((2, 4, 3), (Conv2d(2, 3, (2, 3), stride=(2, 1), padding=(1, 0)), Flatten()))
    x = torch.rand(1, 2, 4, 3, generator=torch.Generator().manual_seed(0))
    q = start(network, BayesByBackprop(1, initial_std=0.3, seed=1), x, None).q
    weighing = q.weighing(x)
    drawn = weighing.sample_outputs(x.expand(20000, 2, 4, 3), q.noise).detach().double()
    posterior = Normal(q.mean.detach().double(), weighing.std.detach().double())
    known = network.forward(sample(posterior, 20000, seed=0), x.double()).squeeze(1)
    assert drawn.mean(0).tolist() == pytest.approx(known.mean(0).tolist(), abs=0.03)
    assert drawn.std(0).tolist() == pytest.approx(known.std(0).tolist(), rel=0.03)


def test_kernels_start_with_the_variance_of_he() -> None:
    """2 / (channels · kernel) for weights, 0 for biases."""
    network = Network((8, 5, 5), (Conv2d(8, 64, (5, 3)), Flatten(), Dense(64 * 3, 2)))
    q = start(network, BayesByBackprop(1), torch.zeros(1, 8, 5, 5), None).q
    (kernel, bias), _, _ = network.split(q.mean.detach())
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
    before = kernels(network, start(network, recipe, x, None).q.mean.detach()).double()
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

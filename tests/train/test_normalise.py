"""Batch normalisation as weights of the network without it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from bnncert.errors import InputError
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, ReLU
from bnncert.model.network import Network, Residual, mlp
from bnncert.posteriors.independent import Normal
from bnncert.train import BayesByBackprop, kl_divergence, train
from bnncert.train.loop import _batches
from bnncert.train.state import start
from bnncert.train.variational import (
    NORMALISING_VARIANCE,
    Weighing,
    folded,
    normalised_layers,
    posterior,
)
from trainings import SMALL_CNN, blobs, pictures

RESIDUAL = Network(
    (1, 6, 6),
    (
        Conv2d(1, 3, 3, 1, 1),
        ReLU(),
        Residual((Conv2d(3, 3, 3, 1, 1), ReLU(), Conv2d(3, 3, 3, 1, 1))),
        ReLU(),
        Residual((Conv2d(3, 2, 4, 2, 1),), (Conv2d(3, 2, 2, 2),)),
        AvgPool2d(3),
        Flatten(),
        Dense(2, 3),
    ),  # type: ignore[arg-type]
)
NETWORKS = {"dense": mlp(4, 5, 6, 3), "convolutions": SMALL_CNN, "residual": RESIDUAL}


def drawn(network: Network, seed: int = 0) -> tuple[Weighing, Tensor, Tensor, Tensor]:
    """Weights, examples, and gains of either sign with shifts for every channel."""
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(network.size, generator=generator).double()
    std = torch.rand(network.size, generator=generator).double()
    x = torch.rand(20, *network.input_shape, generator=generator).double()
    channels = sum(len(network.split(mean)[k][1]) for k in normalised_layers(network))
    gain, shift = torch.randn(2, channels, generator=generator).double()
    random = torch.ones(network.size, dtype=torch.bool)
    return Weighing(network, "all", random, mean, std), x, gain, shift


def normalised_outputs(weighing: Weighing, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """The mean network with torch's own batch normalisation in training mode."""
    network = weighing.network
    held, start = [x], 0
    own = {k: network.split(weighing.mean)[k] for k in range(len(network.layers))}
    for k, layer in enumerate(network.layers):
        part = (
            Network(
                network.shape_before(k),
                (layer, Flatten(), Dense(math.prod(network.shapes[k + 1]), 1)),
            )
            if isinstance(layer, Dense | Conv2d)
            else None
        )
        if part is None:
            held.append(network._at(k, own[k], dict(enumerate(held))))
            continue
        if isinstance(layer, Conv2d):
            z = nn.functional.conv2d(
                held[network.reads[k][0]], *own[k], layer.stride, layer.padding
            )
        else:
            assert isinstance(layer, Dense)
            z = held[network.reads[k][0]] @ own[k][0] + own[k][1]
        if k in normalised_layers(network):
            count = z.shape[1]
            kind = nn.BatchNorm2d if z.dim() == 4 else nn.BatchNorm1d
            module = kind(count, eps=NORMALISING_VARIANCE, dtype=torch.float64)
            module.weight.data, module.bias.data = (
                part[start : start + count].clone() for part in (gain, shift)
            )
            z, start = module.train()(z).detach(), start + count
        held.append(z)
    assert start == len(gain)
    return held[-1]


@pytest.mark.parametrize("name", NETWORKS)
def test_folded_weights_are_torchs_batch_normalisation(name: str) -> None:
    weighing, x, gain, shift = drawn(NETWORKS[name])
    made = folded(weighing, x, gain, shift)
    torch.testing.assert_close(
        weighing.network.forward(made.mean, x), normalised_outputs(weighing, x, gain, shift)
    )
    assert made.mean.shape == made.std.shape == weighing.mean.shape


@pytest.mark.parametrize("name", NETWORKS)
def test_standard_deviations_are_scaled_as_the_weights(name: str) -> None:
    """Also where the gain is negative; the last layer is as it was."""
    weighing, x, gain, shift = drawn(NETWORKS[name])
    made = folded(weighing, x, gain, shift)
    split = weighing.network.split
    assert bool((gain < 0).any())
    assert bool((made.std > 0).all())
    for k, (before, after) in enumerate(
        zip(
            zip(split(weighing.mean), split(weighing.std), strict=True),
            zip(split(made.mean), split(made.std), strict=True),
            strict=True,
        )
    ):
        if not before[0]:
            continue
        scale = (after[0][0] / before[0][0]).abs()
        torch.testing.assert_close(after[1][0], before[1][0] * scale)
        dims = [i for i in range(scale.dim()) if i != (0 if scale.dim() == 4 else 1)]
        channel = scale.amax(dims)
        torch.testing.assert_close(scale.amin(dims), channel)  # one for each channel
        torch.testing.assert_close(after[1][1], before[1][1] * channel)
        if k not in normalised_layers(weighing.network):
            torch.testing.assert_close(channel, torch.ones_like(channel))


def test_the_law_of_a_folded_weight_is_that_of_the_normalised_one() -> None:
    """gain (W h + b - m) / s + shift for drawn W and b: mean and variance of one neuron."""
    network = mlp(1, 1, 1)
    mean, std = torch.tensor([2.0, 1, 1, 0]).double(), torch.tensor([0.3, 0.4, 1, 1]).double()
    x = torch.tensor([[0.0], [2.0]]).double()
    raw = Weighing(network, "all", torch.ones(4, dtype=torch.bool), mean, std)
    made = folded(raw, x, torch.tensor([-3.0]).double(), torch.tensor([5.0]).double())
    spread = math.sqrt(4 + NORMALISING_VARIANCE)  # pre-activations 1 and 5
    assert made.mean[:2].tolist() == pytest.approx([-6 / spread, -3 * (1 - 3) / spread + 5])
    assert made.std[:2].tolist() == pytest.approx([0.9 / spread, 1.2 / spread])
    assert made.mean[2:].tolist() == [1, 0]


def test_gradients_flow_through_the_statistics() -> None:
    """Normalised outputs do not depend on the size of the weights: the gradient along them is 0."""
    network = mlp(3, 4, 2)
    raw, x, gain, shift = drawn(network)
    mean = raw.mean.clone().requires_grad_()
    made = folded(replace(raw, mean=mean), x, gain, shift)
    outputs = network.forward(made.mean, x)
    (slope,) = torch.autograd.grad(outputs.square().sum(), mean)
    (first, _), _, _ = network.split(slope)
    (weights, _), _, _ = network.split(raw.mean)
    assert abs(float((first * weights).sum())) < 1e-3 * float((first * weights).abs().sum())
    assert float(first.abs().max()) > 0.1


# Training under it


def normal(network: Network, seed: int = 3) -> Normal:
    generator = torch.Generator().manual_seed(seed)
    return Normal(
        torch.randn(network.size, generator=generator).double(),
        0.01 + 0.1 * torch.rand(network.size, generator=generator).double(),
    )


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("normalise", [False, True])
def test_training_begins_where_it_is_told_to(name: str, normalise: bool) -> None:
    network, given = NETWORKS[name], normal(NETWORKS[name])
    x = torch.rand(30, *network.input_shape, generator=torch.Generator().manual_seed(0))
    run = start(network, BayesByBackprop(1, normalise=normalise), x, given)
    found = posterior(run.q, x)
    assert found.mean.tolist() == pytest.approx(given.mean.tolist(), rel=1e-4, abs=1e-5)
    assert found.std.tolist() == pytest.approx(given.std.tolist(), rel=1e-4)


def test_what_is_given_is_not_changed() -> None:
    x, y = blobs()
    network = mlp(2, 5, 3)
    given = normal(network)
    mean, std = given.mean.clone(), given.std.clone()
    for normalise in (False, True):
        recipe = BayesByBackprop(1, 16, learning_rate=0.1, normalise=normalise)
        trained = train(network, x, y, recipe, begin=given)
        assert not torch.equal(trained.posterior.mean, mean)
    assert torch.equal(given.mean, mean)
    assert torch.equal(given.std, std)
    assert not given.mean.requires_grad


def test_certain_weights_begin_narrow_and_finite() -> None:
    x, y = blobs()
    network = mlp(2, 5, 3)
    given = Normal(normal(network).mean, torch.zeros(network.size).double())
    trained = train(network, x, y, BayesByBackprop(1, learning_rate=1e-12), begin=given)
    assert trained.posterior.std.tolist() == pytest.approx([1e-6] * network.size, rel=1e-3)
    assert math.isfinite(trained.history[0].loss)


def test_the_posterior_at_the_end_has_the_normalised_outputs() -> None:
    """Folded at the examples: its mean network is the one under batch normalisation."""
    x, y = blobs()
    network = mlp(2, 5, 3)
    recipe = BayesByBackprop(30, 16, learning_rate=0.05, normalise=True)
    trained = train(network, x, y, recipe)
    z = network.values(trained.posterior.mean, x)[1]
    assert bool((z.mean(0).abs() < 2).all())
    assert float((network.forward(trained.posterior.mean, x).argmax(-1) == y).double().mean()) == 1
    run = start(network, recipe, x.float(), None)
    first = network.values(posterior(run.q, x.float()).mean, x)[1]
    assert first.mean(0).tolist() == pytest.approx([0] * 5, abs=1e-5)
    assert first.std(0, correction=0).tolist() == pytest.approx([1] * 5, rel=1e-3)


def test_a_batch_of_one_joins_the_one_before() -> None:
    order = torch.arange(33)
    plain, normalised = BayesByBackprop(1, 16), BayesByBackprop(1, 16, normalise=True)
    assert [len(part) for part in _batches(order, plain)] == [16, 16, 1]
    assert [len(part) for part in _batches(order, normalised)] == [16, 17]
    assert torch.equal(torch.cat(_batches(order, normalised)), order)
    assert [len(part) for part in _batches(order[:32], normalised)] == [16, 16]
    assert [len(part) for part in _batches(order[:18], normalised)] == [16, 2]
    x, y = blobs(33)
    assert train(mlp(2, 5, 3), x, y, normalised).history[0].kl < 2000


def test_refusals() -> None:
    x, y = blobs()
    recipe = BayesByBackprop(1, normalise=True)
    bare = Network((2,), (Dense(2, 4, bias=False), ReLU(), Dense(4, 3)))
    with pytest.raises(InputError, match=r"^normalise folds into biases, and layer 0 has none"):
        train(bare, x, y, recipe)
    with pytest.raises(
        InputError, match=r"^normalise is for hidden layers, and the network has none"
    ):
        train(mlp(2, 3), x, y, recipe)
    with pytest.raises(InputError, match=r"^normalise compares examples, and there is one"):
        train(mlp(2, 3, 3), x[:1], y[:1], recipe)
    with pytest.raises(InputError, match="give a batch_size above 1"):
        BayesByBackprop(1, 1, normalise=True)
    with pytest.raises(
        InputError, match=r"^the posterior to start from has 3 weights, the network"
    ):
        train(mlp(2, 3, 3), x, y, BayesByBackprop(1), begin=Normal(x[:3, 0], x[:3, 0].abs()))


# The prior


def test_a_prior_by_fan_in() -> None:
    """1/√fan-in for weights, 1 for biases: 2 · 9 terms in the kernels, 8 in the dense layer."""
    network = Network((2, 3, 3), (Conv2d(2, 8, 3), ReLU(), Flatten(), Dense(8, 2)))
    x = torch.zeros(1, 2, 3, 3)
    run = start(network, BayesByBackprop(1, prior="fan-in", prior_std=0.7, seed=4), x, None)
    weighing = run.q.weighing(x)
    found = weighing.kl_divergence(run.prior).item()
    parts = zip(network.split(weighing.mean), network.split(weighing.std), strict=True)
    known = 0.0
    for (means, stds), terms in zip(parts, (18, 0, 0, 8), strict=True):
        for mean, std, scale in zip(means, stds, (terms**-0.5 if terms else 1, 1), strict=False):
            known += kl_divergence(mean, std, 0.7 * scale).item()
    assert found == pytest.approx(known, rel=1e-5)
    one = math.log(0.7 / 0.05) + 0.05**2 / (2 * 0.49) - 0.5  # of a bias, which is N(0, 0.05²)
    assert kl_divergence(torch.zeros(1), torch.tensor([0.05]), 0.7).item() == pytest.approx(one)


def test_a_prior_by_fan_in_in_any_default_dtype() -> None:
    x, y = blobs()
    recipe = BayesByBackprop(2, 16, prior="fan-in", normalise=True)
    first = train(mlp(2, 5, 3), x, y, recipe)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        again = train(mlp(2, 5, 3), x, y, recipe)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(first.posterior.mean, again.posterior.mean)
    assert first.history == again.history


def test_pictures_learn_under_it() -> None:
    x, y = pictures()
    recipe = BayesByBackprop(60, 20, learning_rate=0.02, normalise=True, kl_weight=1e-4)
    assert train(SMALL_CNN, x, y, recipe).history[-1].accuracy > 0.6

"""blitz: its layers draw what was imported, from the tensors that are trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from bnncert import InputError, from_torch
from bnncert.layers import Conv2d, Dense, Flatten, ReLU
from importing import (
    assert_certified,
    assert_dense_moments,
    assert_same_from_file,
    assert_survives_its_file,
    fit,
)

modules = pytest.importorskip("blitz.modules")


def build(bias: bool = True) -> nn.Module:
    from blitz.utils import variational_estimator

    @variational_estimator
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = modules.BayesianLinear(2, 6, bias=bias, posterior_rho_init=-4.0)
            self.out = modules.BayesianLinear(6, 2, bias=bias, posterior_rho_init=-4.0)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(torch.relu(self.hidden(x)))

    torch.manual_seed(0)
    return Classifier()


def model(bias: bool = True) -> nn.Module:
    return fit(build(bias), lambda module: module.nn_kl_divergence())


def test_the_layers_draw_what_was_imported() -> None:
    module = model()
    network, posterior = from_torch(module)
    assert network.layers == (Dense(2, 6), ReLU(), Dense(6, 2))
    layer = module.hidden

    def forward(x: Tensor) -> Tensor:
        return nn.functional.linear(x, layer.weight_sampler.sample(), layer.bias_sampler.sample())

    assert_dense_moments(forward, network, posterior, 0)
    assert_dense_moments(layer, network, posterior, 0, 1000)


def test_a_bias_that_is_kept_but_not_used_is_left_out() -> None:
    module = model(bias=False)
    assert module.hidden.bias_mu is not None
    network, posterior = from_torch(module)
    assert network.layers == (Dense(2, 6, bias=False), ReLU(), Dense(6, 2, bias=False))
    assert_dense_moments(module.hidden, network, posterior, 0, 1000)


def test_trained_imported_certified_checked(tmp_path: Path) -> None:
    module = model()
    network, posterior = from_torch(module)
    assert_certified(network, posterior, tmp_path)
    assert_survives_its_file(network, posterior, tmp_path)
    assert_same_from_file(module, "blitz", tmp_path)


def test_a_file_cannot_tell_that_a_bias_is_unused(tmp_path: Path) -> None:
    assert_same_from_file(model(bias=False), "blitz", tmp_path, bias=False)


def test_a_layer_that_was_cast_is_read_from_what_it_draws_with(tmp_path: Path) -> None:
    """Casting or moving separates a layer's tensors from its sampler's; training then changes the
    sampler's alone."""
    module = build().double()
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        module(
            torch.randn(8, 2, dtype=torch.float64, generator=generator)
        ).square().sum().backward()
        optimiser.step()
    assert not torch.equal(module.hidden.weight_mu, module.hidden.weight_sampler.mu)
    network, posterior = from_torch(module)
    assert torch.equal(
        network.split(posterior.mean)[0][0], module.hidden.weight_sampler.mu.detach().T
    )
    assert_dense_moments(lambda x: module.hidden(x.double()), network, posterior, 0, 1000)
    assert_same_from_file(module, "blitz", tmp_path)


def test_convolutions(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(
        modules.BayesianConv2d(1, 2, (3, 3), stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        modules.BayesianLinear(18, 2),
    )
    network, posterior = from_torch(module, input_shape=(1, 6, 6))
    assert network.layers == (
        Conv2d(1, 2, (3, 3), (2, 2), (1, 1), bias=False),
        ReLU(),
        Flatten(),
        Dense(18, 2),
    )
    assert_certified(network, posterior, tmp_path)


def test_frozen_layers_are_announced() -> None:
    module = model()
    posterior = from_torch(module)[1]
    module.freeze_()
    with pytest.warns(UserWarning, match="frozen"):
        assert torch.equal(from_torch(module)[1].std, posterior.std)


def test_an_embedding_is_refused() -> None:
    with pytest.raises(InputError, match=r"^0: BayesianEmbedding is not supported"):
        from_torch(nn.Sequential(modules.BayesianEmbedding(4, 2), nn.ReLU()))

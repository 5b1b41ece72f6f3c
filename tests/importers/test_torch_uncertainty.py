"""torch-uncertainty: its layers draw what was imported.

Importing the whole library needs lightning and a torchvision that fits torch, so the package of its
Bayesian layers is loaded alone: the classes are the library's own.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from bnncert import from_torch
from bnncert.layers import Conv2d, Dense, Flatten, ReLU
from importing import (
    assert_certified,
    assert_dense_moments,
    assert_same_from_file,
    assert_survives_its_file,
    fit,
    torch_uncertainty_layers,
)


@pytest.fixture(scope="module")
def layers() -> ModuleType:
    return torch_uncertainty_layers()


def model(layers: ModuleType, bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(
        layers.BayesLinear(2, 6, bias=bias, sigma_init=-4.0),
        nn.ReLU(),
        layers.BayesLinear(6, 2, bias=bias, sigma_init=-4.0),
    )
    parts = (module[0], module[2])
    return fit(
        module, lambda _: sum(part.log_variational_posterior - part.log_prior for part in parts)
    )


@pytest.mark.parametrize(("bias", "draws"), [(True, 20_000), (False, 2000)])
def test_the_layers_draw_what_was_imported(layers: ModuleType, bias: bool, draws: int) -> None:
    module = model(layers, bias)
    network, posterior = from_torch(module)
    assert network.layers == (Dense(2, 6, bias), ReLU(), Dense(6, 2, bias))

    def forward(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, *module[0].sample())

    assert_dense_moments(forward, network, posterior, 0, draws)


def test_trained_imported_certified_checked(layers: ModuleType, tmp_path: Path) -> None:
    module = model(layers)
    network, posterior = from_torch(module)
    assert_certified(network, posterior, tmp_path)
    assert_survives_its_file(network, posterior, tmp_path)
    assert_same_from_file(module, "torch-uncertainty", tmp_path)


def test_what_is_called_sigma_is_not_a_standard_deviation(layers: ModuleType) -> None:
    module = layers.BayesLinear(1, 1, bias=False)
    module.weight_sigma.data.fill_(-1.0)
    assert from_torch(module)[1].std.tolist() == pytest.approx(
        [math.log1p(math.exp(-1.0))], rel=1e-12
    )


def test_convolutions(layers: ModuleType, tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(
        layers.BayesConv2d(1, 2, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        layers.BayesLinear(8, 2),
        nn.LogSoftmax(-1),
    )
    network, posterior = from_torch(module, input_shape=(1, 6, 6))
    assert network.layers == (Conv2d(1, 2, (3, 3), (2, 2)), ReLU(), Flatten(), Dense(8, 2))
    assert_certified(network, posterior, tmp_path)


def test_frozen_layers_are_announced(layers: ModuleType) -> None:
    module = model(layers)
    posterior = from_torch(module)[1]
    module[0].freeze()
    with pytest.warns(UserWarning, match=r"^0: BayesLinear is frozen"):
        assert torch.equal(from_torch(module)[1].std, posterior.std)

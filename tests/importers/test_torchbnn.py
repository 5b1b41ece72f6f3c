"""torchbnn: its layers draw what was imported."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from bnncert import InputError, from_torch
from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, ReLU
from importing import (
    assert_certified,
    assert_dense_moments,
    assert_same_from_file,
    assert_survives_its_file,
    fit,
)

torchbnn = pytest.importorskip("torchbnn")


def model(bias: bool = True) -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(
        torchbnn.BayesLinear(0, 0.05, 2, 6, bias=bias),
        nn.ReLU(),
        torchbnn.BayesLinear(
            prior_mu=0, prior_sigma=0.05, in_features=6, out_features=2, bias=bias
        ),
    )
    return fit(module, torchbnn.BKLLoss(reduction="mean", last_layer_only=False))


@pytest.mark.parametrize(("bias", "draws"), [(True, 20_000), (False, 2000)])
def test_the_layers_draw_what_was_imported(bias: bool, draws: int) -> None:
    module = model(bias)
    network, posterior = from_torch(module)
    assert network.layers == (Dense(2, 6, bias), ReLU(), Dense(6, 2, bias))
    assert_dense_moments(module[0], network, posterior, 0, draws)


def test_trained_imported_certified_checked(tmp_path: Path) -> None:
    module = model()
    network, posterior = from_torch(module)
    assert_certified(network, posterior, tmp_path)
    assert_survives_its_file(network, posterior, tmp_path)
    assert_same_from_file(module, "torchbnn", tmp_path)


def test_the_parameterisation_is_the_exponential() -> None:
    module = torchbnn.BayesLinear(0, math.e, 1, 1, bias=False)
    _, posterior = from_torch(module)
    assert posterior.std.tolist() == pytest.approx([math.e], rel=1e-7)


def test_convolutions_and_layers_that_are_not_random(tmp_path: Path) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        torchbnn.BayesConv2d(0, 0.01, 2, 2, 3, padding=1),
        nn.AvgPool2d(2),
        nn.Flatten(),
        torchbnn.BayesLinear(0, 0.01, 8, 2),
    )
    with pytest.warns(UserWarning, match=r"0\.weight: no standard deviation, taken as certain"):
        network, posterior = from_torch(module, input_shape=(1, 6, 6))
    expected = (
        Conv2d(1, 2, (3, 3)),
        ReLU(),
        Conv2d(2, 2, (3, 3), (1, 1), (1, 1)),
        AvgPool2d((2, 2)),
        Flatten(),
    )
    assert network.layers == (*expected, Dense(8, 2))
    assert [bool((part > 0).all()) for parts in network.split(posterior.std) for part in parts] == [
        False
    ] * 2 + [True] * 4
    assert_certified(network, posterior, tmp_path)


def test_frozen_layers_are_announced(tmp_path: Path) -> None:
    module = model()
    posterior = from_torch(module)[1]
    module[2].freeze()
    with pytest.warns(UserWarning, match=r"^2: BayesLinear is frozen"):
        found = from_torch(module)[1]
    assert torch.equal(found.std, posterior.std)
    with pytest.warns(UserWarning, match="frozen"):
        assert_same_from_file(module, "torchbnn", tmp_path)


def test_random_batch_normalisation_is_refused() -> None:
    module = nn.Sequential(
        torchbnn.BayesConv2d(0, 0.1, 1, 2, 3), torchbnn.BayesBatchNorm2d(0, 0.1, 2), nn.Flatten()
    )
    with pytest.raises(InputError, match=r"1: BayesBatchNorm2d with weights of shape \(2,\)"):
        from_torch(module, input_shape=(1, 4, 4))

"""Bayesian heads of the zoo: the module is the network, the trunk stays certain, and the head is
what laplace-torch fits."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest
import torch

from bnncert import Concentration, InputError, Problem, ball, certify, class_robust, load_posterior
from bnncert.layers import Sigmoid
from bnncert.model.network import mlp, residual
from bnncert.posteriors import LowRankNormal
from bnncert.train import BayesByBackprop
from bnncert.zoo.heads import as_module, fit_head
from bnncert.zoo.recipes import Recipe, fit_recipe

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import laplace  # noqa: F401
except ModuleNotFoundError as error:
    pytest.skip(f"laplace-torch is not installed ({error})", allow_module_level=True)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("one_thread"),
]
NETWORK = residual((1, 8, 8), 3, [(2, 2), (2, 1), (3, 2)], [4])


def weights() -> torch.Tensor:
    return torch.randn(NETWORK.size, generator=torch.Generator().manual_seed(0)).double() / 3


def images(count: int) -> torch.Tensor:
    return torch.rand(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_the_module_is_the_network() -> None:
    x = images(5)
    expected = NETWORK.forward(weights().float().double(), x.double())
    torch.testing.assert_close(as_module(NETWORK, weights())(x).double(), expected)


def test_a_layer_that_no_trunk_has_is_refused_by_name() -> None:
    network = mlp(2, 3, 1, activation=Sigmoid())
    with pytest.raises(TypeError, match="Sigmoid"):
        as_module(network, torch.zeros(network.size))


@pytest.mark.parametrize("structure", ["diag", "kron", "full"])
def test_the_trunk_stays_certain_and_the_last_layer_is_random(structure: str) -> None:
    x = images(60)
    y = x[:, 0, 0, 0].mul(2.99).long()
    network, posterior = fit_head(NETWORK, weights(), x, y, structure)
    stds = network.split(posterior.marginal_std)
    weighted = [torch.cat([part.flatten() for part in own]) for own in stds if own]
    assert all(not bool(own.any()) for own in weighted[:-1])
    assert bool((weighted[-1] > 0).all())
    expected = NETWORK.forward(weights().float().double(), x.double())
    torch.testing.assert_close(network.forward(posterior.mean, x.double()), expected)


def test_a_recipe_with_a_head_trains_fits_and_writes_both(tmp_path: Path) -> None:
    training = BayesByBackprop(1, bayesian="none", batch_size=100, learning_rate=1e-2)
    network = residual((1, 8, 8), 10, [(2, 2), (2, 1)], [4])
    path = tmp_path / "head.safetensors"
    notes = fit_recipe(Recipe(network, "digits", training, head="full"), path)
    assert notes["recipe"]["head"] == "full"
    assert notes["std"] > 0
    read, posterior = load_posterior(path)
    assert isinstance(posterior, LowRankNormal)
    x = images(2).double()
    label = read.forward(posterior.mean, x).argmax(-1)
    problem = Problem(read, posterior, class_robust(ball(x, 1e-4, clip=(0, 1)), label, 10))
    for result in certify(problem, Concentration(upper=True)):
        assert 0 <= result.lower <= result.upper <= 1


def test_without_the_library_the_head_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "laplace", None)
    with pytest.raises(InputError, match="pip install laplace-torch"):
        fit_head(NETWORK, weights(), images(4), torch.zeros(4).long(), "full")

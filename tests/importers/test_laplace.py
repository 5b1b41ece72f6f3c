"""laplace-torch: its draws and ours have the same moments, correlations included, and certificates
hold."""

from __future__ import annotations

import warnings
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from bnncert import InputError, mlp
from bnncert.importers.laplace import from_laplace
from bnncert.layers import Tanh
from bnncert.model.network import Network
from bnncert.posteriors import LowRankNormal, Normal
from bnncert.posteriors.gaussian import Gaussian
from moments import DRAWS, assert_certified, assert_same_moments, ours
from pages import blocks, run

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from laplace import Laplace
except ModuleNotFoundError as error:
    pytest.skip(f"laplace-torch is not installed ({error})", allow_module_level=True)
except (
    RuntimeError
) as error:  # torchmetrics, which it imports, imports torchvision wherever that is installed
    pytest.skip(f"laplace-torch does not import here: {error}", allow_module_level=True)

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


@cache
def trained() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        optimiser.step()
    return net


def fitted(
    structure: str, subset: str = "all", net: nn.Module | None = None, **options: Any
) -> Any:
    """A sharp posterior: the prior's precision is that of weights known to about 0.03."""
    net = deepcopy(trained()) if net is None else net
    la = Laplace(net, "classification", subset, structure, prior_precision=1000.0, **options)
    la.fit(DataLoader(TensorDataset(X, Y), batch_size=20))
    return la


def drawn(la: Any, subset: str) -> Tensor:
    """The library's draws of all weights in the network's order: matrices transposed, certain
    layers repeated."""
    found = la.sample(DRAWS, generator=torch.Generator().manual_seed(1)).double()
    values = [value.detach().double() for value in trained().parameters()]
    if subset == "last_layer":
        first = torch.cat([value.flatten() for value in values[:2]])
        found = torch.cat([first.expand(DRAWS, -1), found], 1)
    parts = found.split([value.numel() for value in values], 1)
    shaped = [part.reshape(DRAWS, *value.shape) for part, value in zip(parts, values, strict=True)]
    return torch.cat([(part.mT if part.dim() == 3 else part).flatten(1) for part in shaped], 1)


def read(la: Any, linear: bool = False) -> tuple[Network, Gaussian]:
    """As it is imported, which says where the linearised network is another one."""
    if linear:
        return from_laplace(la)
    with pytest.warns(UserWarning, match="linearised network"):
        return from_laplace(la)


CASES = [
    (structure, subset)
    for structure in ("diag", "kron", "full")
    for subset in ("all", "last_layer")
]


@pytest.mark.parametrize(("structure", "subset"), CASES)
def test_an_approximation_is_what_it_draws(structure: str, subset: str, tmp_path: Path) -> None:
    la = fitted(structure, subset)
    network, posterior = read(la, subset == "last_layer")
    assert network == mlp(2, 4, 3, activation=Tanh())
    assert isinstance(posterior, Normal if structure == "diag" else LowRankNormal)
    theirs, mine = drawn(la, subset), ours(posterior)
    assert_same_moments(theirs, mine)
    logits = la.model(X[:2]).double()
    torch.testing.assert_close(
        network.forward(posterior.center, X[:2].double()), logits, rtol=1e-5, atol=1e-5
    )
    torch.manual_seed(2)
    chances = la.predictive_samples(X[:1], pred_type="nn", n_samples=500)[:, 0]
    assert_same_moments(chances, network.forward(mine, X[:1].double())[:, 0].softmax(-1))
    assert_certified(network, posterior, theirs, X[:6], tmp_path)


@pytest.mark.parametrize("structure", ["kron", "full"])
def test_the_covariance_is_the_inverse_of_the_precision(structure: str) -> None:
    """Exactly, not only within sampling errors; for a prior precision a parameter and a
    temperature."""
    la = fitted(structure, temperature=0.5)
    la.prior_precision = torch.tensor([900.0, 1000.0, 1100.0, 1200.0])
    precision = (
        la.posterior_precision if structure == "full" else la.posterior_precision.to_matrix()
    )
    expected = precision.double().inverse()
    order = torch.cat([torch.arange(8).reshape(4, 2).T.flatten(), torch.arange(8, 12)])
    order = torch.cat(
        [order, 12 + torch.arange(12).reshape(3, 4).T.flatten(), torch.arange(24, 27)]
    )
    posterior = read(la)[1]
    assert isinstance(posterior, LowRankNormal)
    found = posterior.factor @ posterior.factor.mT
    torch.testing.assert_close(found, expected[order][:, order], rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("structure", ["diag", "full"])
def test_a_subnetwork(structure: str) -> None:
    la = fitted(structure, "subnetwork", subnetwork_indices=torch.tensor([0, 5, 20, 26]))
    posterior = read(la)[1]
    assert_same_moments(drawn(la, "subnetwork"), ours(posterior))


def test_frozen_layers_are_certain() -> None:
    net = deepcopy(trained())
    net[0].requires_grad_(False)
    posterior = from_laplace(fitted("kron", net=net))[1]
    assert isinstance(posterior, LowRankNormal)
    assert posterior.factor.shape == (15, 15)  # of the layers that are random alone
    assert bool((posterior.marginal_std[:12] == 0).all())
    assert posterior.mean[:8].reshape(2, 4).equal(net[0].weight.double().mT)


def test_a_convolution() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    la = Laplace(net, "classification", "all", "kron", prior_precision=100.0)
    la.fit(DataLoader(TensorDataset(torch.rand(20, 1, 3, 3), torch.arange(20) % 3), batch_size=10))
    with pytest.warns(UserWarning, match="linearised"):
        network, posterior = from_laplace(la, (1, 3, 3))
    x = torch.rand(4, 1, 3, 3)
    torch.testing.assert_close(
        network.forward(posterior.center, x.double()), net(x).double(), rtol=1e-5, atol=1e-5
    )
    kernels = la.sample(DRAWS)[:, :10]
    assert_same_moments(kernels, ours(posterior)[:, :10])


def test_what_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="fit"):
        from_laplace(Laplace(deepcopy(trained()), "classification", "all", "diag"))
    with pytest.raises(InputError, match="Sequential is not a Laplace"):
        from_laplace(trained())
    normalised = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3))
    with pytest.raises(InputError, match=r"'1\.weight' is random"):
        from_laplace(fitted("diag", net=normalised))
    monkeypatch.setattr("bnncert.importers.named.LARGEST_FACTOR", 27 * 26)
    for structure in ("kron", "full"):
        with pytest.raises(
            InputError, match=r"27 x 27 numbers.*'diag' or subset_of_weights='last_layer'"
        ):
            from_laplace(fitted(structure))
    assert isinstance(from_laplace(fitted("kron", "last_layer"))[1], LowRankNormal)


def test_the_page() -> None:
    (code,) = blocks("importers/laplace.md")
    names = run(
        code, net=deepcopy(trained()), loader=DataLoader(TensorDataset(X, Y), batch_size=20)
    )
    assert isinstance(names["posterior"], LowRankNormal)


def test_a_low_rank_curvature(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the library keeps and draws it; what computes it is a package that is not published."""
    monkeypatch.setattr("laplace.baselaplace.find_spec", lambda _: True)
    net = deepcopy(trained())
    la = Laplace(net, "classification", "all", "lowrank", prior_precision=500.0)
    generator = torch.Generator().manual_seed(3)
    vectors = torch.linalg.qr(torch.randn(27, 4, generator=generator)).Q
    la.H = (vectors, 4000 * torch.rand(4, generator=generator))
    la.mean = nn.utils.parameters_to_vector(net.parameters()).detach()
    la.n_data = len(X)
    network, posterior = read(la)
    assert isinstance(posterior, LowRankNormal)
    assert_same_moments(drawn(la, "all"), ours(posterior))
    torch.testing.assert_close(
        network.forward(posterior.center, X.double()), net(X).double(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("structure", ["diag", "kron", "full"])
def test_a_head_draws_what_the_linearised_network_predicts(structure: str) -> None:
    """The logits of drawn networks have the mean and covariance that `glm` computes with."""
    la = fitted(structure, "last_layer")
    network, posterior = from_laplace(la)
    mean, covariance = la._glm_predictive_distribution(X[:3])
    logits = network.forward(ours(posterior), X[:3].double())
    error = 5 * (covariance.double().amax() / DRAWS) ** 0.5
    assert bool(((logits.mean(0) - mean.double()).abs() < error).all())
    for i in range(3):
        expected = covariance[i].double()
        most = 5 * float(expected.amax()) * (2 / DRAWS) ** 0.5  # standard errors
        torch.testing.assert_close(torch.cov(logits[:, i].mT), expected, rtol=0, atol=most)


def test_a_head_of_a_convolutional_trunk_is_linear_in_its_weights() -> None:
    """Which imports without a word, frozen layers or not."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    data = TensorDataset(torch.rand(20, 1, 3, 3), torch.arange(20) % 3)
    la = Laplace(net, "classification", "last_layer", "full", prior_precision=100.0)
    la.fit(DataLoader(data, batch_size=10))
    _, posterior = from_laplace(la, (1, 3, 3))
    assert isinstance(posterior, LowRankNormal)
    assert posterior.factor.shape == (27, 27)

"""Architectures that people have, written in the usual way: residual, densely connected, separable,
branching, of sequences; every importer meets their weights under the right names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from architectures import BasicBlock, DenseNet, Inception, ResNet18, Separable, Sequence, Vgg
from bnncert import InputError, from_torch, robust_loss
from bnncert.importers import from_dropout, from_laplace, from_posteriors, from_samples, from_swag
from bnncert.importers.module import read
from importing import assert_certified
from modules import assert_same, shaken, values

pytestmark = pytest.mark.filterwarnings("ignore:.*not Monte Carlo dropout:UserWarning")
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], dict[str, int]]] = {
    "residual": (ResNet18, (3, 32, 32), {"Conv2d": 20, "Add": 8, "Dense": 1, "MaxPool2d": 1}),
    "plain": (Vgg, (3, 16, 16), {"Conv2d": 3, "MaxPool2d": 2, "AvgPool2d": 1, "Dense": 2}),
    "densely connected": (DenseNet, (3, 8, 8), {"Conv2d": 5, "Concat": 3, "Scale": 5}),
    "separable": (Separable, (3, 8, 8), {"Conv2d": 7, "Add": 2, "Dense": 1}),
    "branching": (Inception, (3, 8, 8), {"Conv2d": 5, "Concat": 2, "Take": 2, "MaxPool2d": 2}),
    "of sequences": (Sequence, (2, 12), {"Conv2d": 2, "MaxPool2d": 1, "AvgPool2d": 2, "Dense": 1}),
}


def made(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    make, shape, _ = ARCHITECTURES[name]
    return shaken(make()).eval(), shape


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_network_is_the_module(name: str) -> None:
    module, shape = made(name)
    network, _ = from_torch(module, shape, std=0.01)
    kinds = [type(layer).__name__ for layer in network.layers]
    assert {kind: kinds.count(kind) for kind in ARCHITECTURES[name][2]} == ARCHITECTURES[name][2]
    assert_same(module, read(module, shape))


def test_what_asks_for_types_is_read_from_the_exported_graph() -> None:
    """The same network, whether the first layer gets a list or the tensor alone."""
    torch.manual_seed(0)
    module = shaken(DenseNet(ask=True)).eval()
    network, posterior = from_torch(module, (3, 8, 8), std=0.01)
    module.ask = False
    expected, same = from_torch(module, (3, 8, 8), std=0.01)
    assert network == expected
    assert torch.equal(posterior.mean, same.mean)
    assert torch.equal(posterior.std, same.std)


class Tail(nn.Module):
    """Layers made in another order than they are called in, around a residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 3)
        self.inner = nn.Linear(5, 5, bias=False)
        self.norm = nn.BatchNorm1d(5)
        self.drop = nn.Dropout(0.25)
        self.stem = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        return self.head(x + self.drop(torch.relu(self.norm(self.inner(x)))))


CALLED = ("stem.weight", "stem.bias", "inner.weight", "head.weight", "head.bias")


def tail() -> nn.Module:
    torch.manual_seed(0)
    return shaken(Tail().double()).eval()


def draw(module: nn.Module, seed: int) -> dict[str, Tensor]:
    """Other values for every parameter of a linear layer."""
    generator = torch.Generator().manual_seed(seed)
    own = {name: value for name, value in values(module).items() if "norm" not in name}
    return {
        name: torch.randn(value.shape, generator=generator).double() for name, value in own.items()
    }


def outputs(module: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.func.functional_call(module, parameters, (x,))


X = torch.randn(4, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)


def test_parameters_are_met_by_name() -> None:
    reading = read(tail(), (4,))
    found = [source.name for source in reading.sources.values()]
    assert [name for name in found if name] == list(CALLED)
    assert next(iter(values(tail()))) == "head.weight"


def test_samples_of_a_graph() -> None:
    module = tail()
    draws = [draw(module, seed) for seed in range(3)]
    network, posterior = from_samples(module, [module.state_dict() | each for each in draws])
    stacked = {name: torch.stack([each[name] for each in draws]) for name in draws[0]}
    again = from_samples(module, stacked)[1]
    torch.testing.assert_close(again.samples, posterior.samples)
    for sample, parameters in zip(posterior.samples, draws, strict=True):
        torch.testing.assert_close(network.forward(sample, X), outputs(module, parameters, X))


def test_gaussians_of_a_graph_have_their_spread_where_it_belongs() -> None:
    """One parameter alone has a spread: the outputs spread as the module's do along it."""
    module = tail()
    mean = draw(module, 7)
    reading = read(module, (4,))
    for own, value in mean.items():
        squares = {name: each**2 for name, each in mean.items()}
        squares[own] = squares[own] + 0.25
        network, posterior = from_swag(module, mean, squares)
        where = posterior.std > 1e-6
        assert int(where.sum()) == value.numel()
        step = {name: torch.full_like(each, 0.5 * (name == own)) for name, each in mean.items()}
        along = reading.directions(step, step)
        assert torch.equal(along != 0, where)
        torch.testing.assert_close(along.abs()[where], posterior.std[where])
        torch.testing.assert_close(
            network.forward(posterior.mean + along, X),
            outputs(module, mean | {own: value + 0.5}, X),
        )


def test_states_of_the_posteriors_library_by_name() -> None:
    module = tail()
    mean = draw(module, 3)
    spread = {
        name: torch.full_like(value, 0.1 + i / 10) for i, (name, value) in enumerate(mean.items())
    }
    state = type("EKFDiagState", (SimpleNamespace,), {})(params=mean, sd_diag=spread)
    network, posterior = from_posteriors(state, module)
    torch.testing.assert_close(network.forward(posterior.mean, X), outputs(module, mean, X))
    expected = read(module, (4,)).flat(spread, shift=False)
    assert torch.equal(posterior.std, expected)
    stem, head = (network.split(posterior.std)[k][1] for k in (0, len(network.layers) - 1))
    assert stem.tolist() == [float(spread["stem.bias"][0])] * 5
    assert head.tolist() == [float(spread["head.bias"][0])] * 3


def test_the_laplace_approximation_of_a_graph() -> None:
    laplace = pytest.importorskip("laplace", reason="laplace-torch is not installed")
    module = tail()
    for name, value in module.named_parameters():
        value.requires_grad_("norm" not in name)
    data = torch.utils.data.TensorDataset(X, torch.tensor([0, 1, 2, 1]))
    la = laplace.Laplace(module, "classification", "all", "diag", prior_precision=1.0)
    la.fit(torch.utils.data.DataLoader(data))
    with pytest.warns(UserWarning, match="linearised network"):
        network, posterior = from_laplace(la)
    torch.testing.assert_close(network.forward(posterior.mean, X), outputs(module, {}, X))
    sizes = [value.numel() for name, value in module.named_parameters() if "norm" not in name]
    stds = torch.split(la.posterior_precision.double().rsqrt(), sizes)
    names = [name for name in dict(module.named_parameters()) if "norm" not in name]
    own = {
        name: std.reshape(values(module)[name].shape) for name, std in zip(names, stds, strict=True)
    }
    torch.testing.assert_close(posterior.std, read(module, (4,)).flat(own, shift=False))


def test_dropout_in_one_branch_of_a_graph() -> None:
    """Masks do not pass a sum; what reads the same values without the mask is let alone."""
    with pytest.raises(InputError, match=r"^drop: Dropout \(.*\) stands before Add; put it behind"):
        from_dropout(tail(), 3)

    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Conv2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3)
            self.drop = nn.Dropout2d(0.5)

        def forward(self, x: Tensor) -> Tensor:
            y = self.drop(torch.relu(x))
            return (self.one(y) + self.two(y) + self.two(torch.relu(x))).flatten(1)

    torch.manual_seed(0)
    module = Branches().double()
    network, posterior = from_dropout(module, 5, seed=1, input_shape=(4, 3, 3))
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64)
    weights = [own for own in network.split(posterior.samples) if own]
    kept = (weights[1][0] != 0).double().amax((1, 3, 4))  # [samples, in] of the second convolution
    for s in range(5):
        y = torch.relu(x) * 2 * kept[s][:, None, None]
        expected = module.one(y) + module.two(y) + module.two(torch.relu(x))
        torch.testing.assert_close(network.forward(posterior.samples[s], x), expected.flatten(1))
    assert {float(value) for value in kept.unique()} == {0.0, 1.0}


def test_a_residual_network_with_random_head_is_certified_and_checked(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = shaken(
        nn.Sequential(
            nn.BatchNorm2d(2),
            BasicBlock(2, 3, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(3, 2),
        )
    ).eval()
    certain = [name for name in values(module) if "conv" in name or "downsample.0" in name]
    std = dict.fromkeys(certain, 0.0) | {"4.weight": 0.01, "4.bias": 0.01}
    network, posterior = from_torch(module, (2, 6, 6), std)
    assert_certified(network, posterior, tmp_path, eps=1e-5)


def test_the_live_loss_of_a_residual_network() -> None:
    module = tail().train()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    loss = robust_loss(module, X, torch.tensor([0, 1, 2, 1]), 0.01, clip=None, std=0.01)
    loss.backward()
    for name, value in module.named_parameters():
        assert value.grad is not None, name
        assert bool(value.grad.isfinite().all())
        assert bool(value.grad.any())

"""What every importer's tests ask: the library's own draws have the imported moments, and
certificates are accepted."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from bnncert import (
    Concentration,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    from_torch,
    load_posterior,
    save_posterior,
)
from bnncert.importers.state_dict import from_state_dict
from bnncert.importers.torch_file import load_state_dict
from bnncert.posteriors import Normal
from bnncert.posteriors.base import Posterior
from bnncert_check import ACCEPT, check_certificate, read_model

DRAWS = 20_000
Layer = Callable[[Tensor], Tensor]


def first(output: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """A layer's output without the divergence that some return with it."""
    return output[0] if isinstance(output, tuple) else output


def draw_dense(layer: Layer, inputs: int, draws: int = DRAWS) -> Tensor:
    """Outputs [draws, inputs + 1, outputs] of a random dense layer at the unit vectors and at 0."""
    x = torch.cat([torch.eye(inputs), torch.zeros(1, inputs)])
    with torch.no_grad():
        return torch.stack([first(layer(x)) for _ in range(draws)]).double()


def assert_moments(draws: Tensor, mean: Tensor, variance: Tensor) -> None:
    """The draws [n, ...] have these moments, to five standard errors of a Gaussian's."""
    n = len(draws)
    assert ((draws.mean(0) - mean).abs() <= 5 * (variance / n).sqrt()).all()
    assert ((draws.var(0) - variance).abs() <= 5 * variance * math.sqrt(2 / n)).all()


def assert_dense_moments(
    layer: Layer, network: Network, posterior: Normal, index: int, draws: int = DRAWS
) -> None:
    """Layer `index` of the network is dense, and its weights and biases are distributed as the
    library's layer's."""
    weight, *bias = network.split(posterior.mean)[index]
    weight_std, *bias_std = network.split(posterior.std)[index]
    zero = torch.zeros(weight.shape[1], dtype=torch.float64)
    shift, shift_std = bias[0] if bias else zero, bias_std[0] if bias_std else zero
    mean = torch.cat([weight + shift, shift.unsqueeze(0)])
    variance = torch.cat([weight_std**2 + shift_std**2, shift_std.unsqueeze(0) ** 2])
    found = draw_dense(layer, weight.shape[0], draws)
    assert_moments(
        found if bias else found[:, :-1],
        mean if bias else mean[:-1],
        variance if bias else variance[:-1],
    )


def assert_certified(
    network: Network, posterior: Posterior, folder: Path, eps: float = 1e-4
) -> None:
    """Some input is certified for the class of the centre, and the independent checker accepts
    every certificate."""
    x = torch.rand(
        8, *network.input_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    labels = network.forward(posterior.center, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, eps), labels, network.outputs))
    save_posterior(folder / "posterior.safetensors", network, posterior)
    model = read_model(folder / "posterior.safetensors")
    results = [
        result for result in certify(problem, Concentration()) if result.certificate is not None
    ]
    assert max(result.lower for result in results) > 0.5
    for result in results:
        result.certificate.write(folder / "certificate.safetensors")
        assert check_certificate(folder / "certificate.safetensors", model).status == ACCEPT


def assert_survives_its_file(network: Network, posterior: Normal, folder: Path) -> None:
    """Saved and loaded, architecture, mean and std are the same bit for bit."""
    save_posterior(folder / "copy.safetensors", network, posterior)
    loaded, found = load_posterior(folder / "copy.safetensors")
    assert loaded == network
    assert isinstance(found, Normal)
    assert torch.equal(found.mean, posterior.mean)
    assert torch.equal(found.std, posterior.std)


def assert_same_from_file(module: nn.Module, library: str, folder: Path, bias: bool = True) -> None:
    """The module's state_dict, saved and read without the module, gives the same posterior bit for
    bit."""
    network, posterior = from_torch(module)
    torch.save(module.state_dict(), folder / "weights.pt")
    reading, found = from_state_dict(load_state_dict(folder / "weights.pt"), library, bias=bias)
    assert reading.network == network
    assert torch.equal(found.mean, posterior.mean)
    assert torch.equal(found.std, posterior.std)


def fit(module: nn.Module, divergence: Callable[[nn.Module], Tensor], steps: int = 20) -> nn.Module:
    """A few steps of variational inference on two Gaussian clusters in the plane."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64) % 2
    x = 0.3 * torch.randn(64, 2, generator=generator) + 2 * y.unsqueeze(1) - 1
    optimiser = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(first(module(x)), y) + 1e-3 * divergence(module)
        loss.backward()
        optimiser.step()
    return module


UNCERTAINTY = "torch_uncertainty.layers.bayesian"


def torch_uncertainty_layers() -> ModuleType:
    """The library's Bayesian layers. To import all of it needs lightning and a torchvision that
    fits torch."""
    whole = importlib.util.find_spec("torch_uncertainty")
    if whole is None or whole.origin is None:
        pytest.skip("torch-uncertainty is not installed")
    folder = Path(whole.origin).parent / "layers" / "bayesian"
    spec = importlib.util.spec_from_file_location(
        UNCERTAINTY, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[UNCERTAINTY] = package
    try:
        spec.loader.exec_module(package)
    finally:
        for name in [name for name in sys.modules if name.startswith(UNCERTAINTY)]:
            del sys.modules[name]
    return package

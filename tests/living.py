"""Small modules of every library that can be read: dense and convolutional, in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from importing import torch_uncertainty_layers

PRIOR = {"prior_mu": 0.0, "prior_sigma": 1.0, "posterior_mu_init": 0.0, "posterior_rho_init": -4.0}
SHAPES = {"dense": (2,), "convolutional": (1, 5, 5)}


def plain(kind: str) -> nn.Sequential:
    """One hidden layer, three outputs."""
    if kind == "dense":
        return nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 3))
    return nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))


def bayesian_torch(kind: str) -> nn.Sequential:
    pytest.importorskip("bayesian_torch")
    from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn

    module = plain(kind)
    dnn_to_bnn(module, PRIOR | {"type": "Reparameterization", "moped_enable": False})
    return module


def torchbnn(kind: str) -> nn.Sequential:
    library = pytest.importorskip("torchbnn")
    if kind == "dense":
        return nn.Sequential(
            library.BayesLinear(0, 0.05, 2, 6), nn.ReLU(), library.BayesLinear(0, 0.05, 6, 3)
        )
    return nn.Sequential(
        library.BayesConv2d(0, 0.05, 1, 2, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        library.BayesLinear(0, 0.05, 8, 3),
    )


def blitz(kind: str) -> nn.Sequential:
    library = pytest.importorskip("blitz.modules")
    if kind == "dense":
        return nn.Sequential(
            library.BayesianLinear(2, 6), nn.ReLU(), library.BayesianLinear(6, 3, bias=False)
        )
    return nn.Sequential(
        library.BayesianConv2d(1, 2, (3, 3), stride=2),
        nn.ReLU(),
        nn.Flatten(),
        library.BayesianLinear(8, 3),
    )


def torch_uncertainty(kind: str) -> nn.Sequential:
    library = torch_uncertainty_layers()
    if kind == "dense":
        return nn.Sequential(
            library.BayesLinear(2, 6, sigma_init=-4.0),
            nn.ReLU(),
            library.BayesLinear(6, 3, sigma_init=-4.0),
        )
    return nn.Sequential(
        library.BayesConv2d(1, 2, 3, stride=2, sigma_init=-4.0),
        nn.ReLU(),
        nn.Flatten(),
        library.BayesLinear(8, 3, sigma_init=-4.0),
    )


LIBRARIES: dict[str, Callable[[str], nn.Sequential]] = {
    "plain": plain,
    "bayesian-torch": bayesian_torch,
    "torchbnn": torchbnn,
    "blitz": blitz,
    "torch-uncertainty": torch_uncertainty,
}


def build(library: str, kind: str) -> nn.Sequential:
    torch.manual_seed(0)
    return LIBRARIES[library](kind).double()


def examples(kind: str, count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, *SHAPES[kind], generator=generator, dtype=torch.float64)
    return x, torch.arange(count) % 3

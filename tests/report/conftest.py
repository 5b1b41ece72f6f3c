"""Networks and questions to report about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import Network, mlp, save_posterior
from bnncert.model.standardisation import Column, Standardisation
from bnncert.posteriors import Normal
from question_files import property_file
from scenarios import gaussian


@pytest.fixture(scope="module")
def trained() -> tuple[Network, Normal, torch.Tensor, torch.Tensor]:
    """A random network on 8 x 8 images that it classifies as it does."""
    generator = torch.Generator().manual_seed(0)
    network = mlp(64, 6, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.01).double()
    )
    x = torch.rand(6, 64, generator=generator, dtype=torch.float64)
    return network, posterior, x, network.forward(posterior.mean, x).argmax(-1)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A regression that was measured, and a classifier, of three named inputs."""
    generator = torch.Generator().manual_seed(0)
    own = Standardisation(
        tuple(Column(name, 5.0, 2.0) for name in ("size", "age", "rooms")),
        (Column("price", 20.0, 9.0),),
    )
    regression = Network((3,), mlp(3, 4, 1).layers, standardisation=own)
    for name, network in (("r", regression), ("c", mlp(3, 4, 3))):
        mean = gaussian(network.size, generator=generator)
        save_posterior(tmp_path / f"{name}.safetensors", network, Normal(mean, mean.abs() / 50))
    x = np.random.default_rng(0).normal(5, 2, (3, 3))
    np.savez(tmp_path / "x.npz", x=x, y=np.array([20.0, 25.0, 60.0]))
    (tmp_path / "names.toml").write_text('outputs = ["stay", "left", "right"]')
    property_file(tmp_path / "q.vnnlib", np.full(3, 0.5), 0.25, 1)
    return {path.name: path for path in tmp_path.iterdir()}

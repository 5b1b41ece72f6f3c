"""Files that commands are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bnncert import mlp, save_posterior
from bnncert.posteriors import Normal
from question_files import property_file
from scenarios import gaussian


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """A small posterior, images with labels (its own predictions, so that they are right),
    regression inputs."""
    generator = torch.Generator().manual_seed(0)
    network = mlp(4, 6, 3)
    posterior = Normal(
        gaussian(network.size, generator=generator), torch.full((network.size,), 0.01).double()
    )
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x = np.random.default_rng(0).integers(0, 256, (10, 2, 2), np.uint8)
    y = (
        network.forward(posterior.mean, torch.from_numpy(x.reshape(10, 4) / 255.0))
        .argmax(-1)
        .numpy()
    )
    np.savez(tmp_path / "x.npz", x=x, y=y)
    np.savez(tmp_path / "bad_label.npz", x=x, y=np.full(10, 7))
    np.savez(tmp_path / "no_label.npz", x=x)
    np.savez(tmp_path / "identifiers.npz", x=x, y=10**9 - np.arange(10)[::-1])
    np.savez(tmp_path / "one_class.npz", x=x, y=np.zeros(10, int))
    (tmp_path / "folder.safetensors").mkdir()
    np.savez(tmp_path / "targets.npz", x=x / 255.0, y=y / 3.0)
    np.savez(tmp_path / "outside.npz", x=x / 100.0, y=y)
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 5)), y=np.zeros(2, int))
    np.savez(tmp_path / "own_eps.npz", x=x, y=y, eps=np.linspace(0, 0.009, 10))
    np.savez(tmp_path / "bad_eps.npz", x=x, y=y, eps=np.full(10, -0.5))
    np.savez(tmp_path / "short_eps.npz", x=x, y=y, eps=np.full(9, 0.1))
    (tmp_path / "text.npz").write_text("not an archive")
    property_file(tmp_path / "robust.vnnlib", x[0].flatten() / 255, 0.01, int(y[0]))
    property_file(tmp_path / "broken.vnnlib", x[0].flatten() / 255, 0.01, (int(y[0]) + 1) % 3)
    (tmp_path / "garbled.vnnlib").write_text("(assert (<= Y_0 0))")
    return {path.stem: path for path in tmp_path.iterdir()}

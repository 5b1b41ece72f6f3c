"""A network to report about."""

from __future__ import annotations

import pytest
import torch

from bnncert import Network, mlp
from bnncert.posteriors import Normal
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

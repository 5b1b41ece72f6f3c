"""Small networks and examples to train on, and what came out compared."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bnncert.layers import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU
from bnncert.model.network import Network, mlp
from bnncert.train import BayesByBackprop, Epoch, Trained, loop, train

TWO_WEIGHTS = Network((1,), (Dense(1, 2, bias=False),))
TWO_KERNELS = Network(
    (1, 1, 1), (Conv2d(1, 2, (1, 1), bias=False), Flatten())
)  # the same function of the same weights
CNN = Network(
    (1, 8, 8),
    (
        Conv2d(1, 6, (3, 3), padding=(1, 1)),
        ReLU(),
        MaxPool2d((2, 2)),
        Conv2d(6, 12, (3, 3), padding=(1, 1)),
        ReLU(),
        AvgPool2d((2, 2)),
        Flatten(),
        Dense(48, 10),
    ),
)
SMALL_CNN = Network(
    (1, 6, 6), (Conv2d(1, 2, (3, 3), stride=(2, 2)), ReLU(), Flatten(), Dense(8, 3))
)


def blobs(count: int = 60) -> tuple[Tensor, Tensor]:
    """Three classes in the plane, far apart."""
    y = torch.arange(count) % 3
    angle = 2 * math.pi * y.double() / 3
    spread = torch.randn(count, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.1 * spread, y


def pictures(count: int = 40) -> tuple[Tensor, Tensor]:
    """Noise of one channel, labelled at random: enough to see what is computed."""
    generator = torch.Generator().manual_seed(5)
    return torch.rand(count, 1, 6, 6, generator=generator), torch.randint(
        3, (count,), generator=generator
    )


def kernels(network: Network, weights: Tensor) -> Tensor:
    """The part of a flat vector that belongs to convolutions."""
    parts = zip(network.layers, network.split(weights), strict=True)
    return torch.cat([p.flatten() for layer, ps in parts if isinstance(layer, Conv2d) for p in ps])


def same(first: Trained, second: Trained) -> bool:
    (mean, std), (other_mean, other_std) = (
        trained.posterior.tensors().values() for trained in (first, second)
    )
    return (
        torch.equal(mean, other_mean)
        and torch.equal(std, other_std)
        and first.history == second.history
    )


def short(**changes: float) -> Trained:
    x, y = blobs()
    recipe = {"epochs": 3, "batch_size": 16, "learning_rate": 0.02} | changes
    return train(mlp(2, 5, 3), x, y, BayesByBackprop(**recipe))  # type: ignore[arg-type]


def digits(split: str) -> tuple[Tensor, Tensor]:
    pytest.importorskip("sklearn", reason="needs scikit-learn: pip install 'bnncert[data]'")
    from bnncert.data import load_inputs

    data = load_inputs("digits", split)
    assert data.y is not None
    return data.x.unsqueeze(1), data.y


def interrupted_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Somebody presses Ctrl-C in the second epoch; the epochs that are begun, as they begin."""
    epoch, begun = loop._epoch, list[int]()

    def interrupted(state: Any, *arguments: Any) -> Epoch:
        begun.append(len(state.history) + 1)
        if begun == [1, 2]:
            raise KeyboardInterrupt
        return epoch(state, *arguments)

    monkeypatch.setattr(loop, "_epoch", interrupted)
    return begun

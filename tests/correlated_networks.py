"""Tiny networks of one hidden layer with correlated weights at a point, and the share of them that
is safe."""

from __future__ import annotations

import numpy as np
import torch

from bnncert import Network, Problem, Specification, ball
from bnncert.layers import Dense, Sigmoid, Tanh
from bnncert.posteriors import LowRankNormal

DRAWS = 40_000


def random_correlated(seed: int) -> tuple[Problem, LowRankNormal, float]:
    """1 to 3 hidden neurons; an interval, a half-space or several rivals. By the seed: deviations
    of many scales, certain weights, own noise beside the shared one, noise of few directions,
    pre-activations that nearly determine each other, inputs of 0."""
    generator = np.random.default_rng(seed)
    inputs, hidden, outputs = (int(n) for n in generator.integers(1, 4, 3))
    activation = (Tanh(), Sigmoid())[seed % 2]
    biased = [bool(b) for b in generator.random(2) < 0.7]
    layers = (Dense(inputs, hidden, bias=biased[0]), activation, Dense(hidden, outputs, biased[1]))
    network = Network((inputs,), layers)
    count, kind = network.size, seed % 7
    mean = generator.normal(size=count) * generator.choice([0, 0.3, 1, 3])
    rank = int(generator.integers(1, 3)) if kind == 1 else count
    factor = generator.normal(size=(count, rank)) * np.exp(generator.uniform(-3, 1.5))
    std = np.zeros(count)
    if kind in (1, 2):
        std = np.exp(generator.uniform(-4, 0.5)) * generator.random(count)
    elif kind == 3:
        factor *= np.exp(2 * generator.normal(size=(count, 1)))
    elif kind == 4:
        factor[generator.random(count) < 0.4] = 0
    elif kind == 5:
        factor[:] = factor[:1] + 10.0 ** generator.uniform(-4, -1) * factor
    x = generator.normal(size=(1, inputs)) * (0 if kind == 6 else 10.0 ** generator.uniform(-1, 1))
    posterior = LowRankNormal(*(torch.from_numpy(part) for part in (mean, std, factor)))
    return _asked(network, posterior, torch.from_numpy(x), generator)


def _asked(
    network: Network,
    posterior: LowRankNormal,
    x: torch.Tensor,
    generator: np.random.Generator,
) -> tuple[Problem, LowRankNormal, float]:
    """Rows that fail with a chance of 1 to 90 %."""
    (outputs,) = network.shapes[-1]

    def drawn() -> np.ndarray:
        own = generator.normal(size=(DRAWS, network.size)) * posterior.std.numpy()
        shared = generator.normal(size=(DRAWS, posterior.rank)) @ posterior.factor.numpy().T
        weights = torch.from_numpy(posterior.mean.numpy() + own + shared)
        found: np.ndarray = network.forward(weights, x)[:, 0].numpy()
        return found

    kind = int(generator.integers(3))
    rivals = np.concatenate([np.ones((outputs - 1, 1)), -np.eye(outputs - 1)], 1)
    direction = generator.normal(size=(1, outputs))
    rows = (
        np.concatenate([direction, -direction]),
        direction,
        rivals if outputs > 1 else direction,
    )
    share = 0.01 * 90 ** generator.random() / len(rows[kind])
    offsets = -np.quantile(drawn() @ rows[kind].T, share, axis=0)
    spec = Specification(
        ball(x, 0.0), torch.from_numpy(rows[kind])[None], torch.from_numpy(offsets)[None]
    )
    safe = float((drawn() @ rows[kind].T + offsets > 0).all(1).mean())
    return Problem(network, posterior, spec), posterior, safe

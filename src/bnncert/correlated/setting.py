"""What a direction c of the output is at a point: Gaussian given all pre-activations.

    y = c·output = b + Σ_i v_i t_i,   t_i = f(m_i + σ_i z_i),

(h, v, b) jointly Gaussian with covariance C. Given h, y has the variance q = tᵀ S t with t_0 = 1
for b, S = Cov(v, b | h). Unit 0 is b: it has t = 1 and no noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.model.activations import Sigmoid, Tanh
from bnncert.model.layers import Dense
from bnncert.model.network import Network
from bnncert.posteriors.gaussian import LowRankNormal

Array: TypeAlias = NDArray[np.float64]

WORST = 1e8  # condition of the correlations that float64 can invert well enough
MOST = 128  # neurons


@dataclass(frozen=True, eq=False)
class Setting:
    """activation: f. mean, std [n]: of h. v [n + 1]: means, b first; spread [n + 1, n + 1]: of (b,
    v); along [n + 1, n]: their covariances with z. correlation [n, n]: of z. given [n + 1, n + 1]:
    S."""

    activation: Tanh | Sigmoid
    mean: Array
    std: Array
    v: Array
    spread: Array
    along: Array
    correlation: Array
    given: Array

    @property
    def random(self) -> NDArray[np.bool_]:
        """Which h are."""
        return self.std > 0

    def values(self, h: Array) -> Array:
        found: Array = self.activation(torch.from_numpy(h)).numpy()
        return found


def applies(network: Network) -> bool:
    """Whether this is a chain of one hidden layer of tanh or sigmoid."""
    chain = network.reads == ((0,), (1,), (2,)) and len(network.layers) == 3
    return chain and (
        isinstance(network.layers[0], Dense)
        and isinstance(network.layers[1], Tanh | Sigmoid)
        and isinstance(network.layers[2], Dense)
        and network.layers[0].outputs <= MOST
    )


def setting(network: Network, posterior: LowRankNormal, x: Tensor, row: Tensor) -> Setting | None:
    """At the flat point x; None where no pre-activation is random, or they nearly determine each
    other."""
    activation = network.layers[1]
    if not isinstance(activation, Tanh | Sigmoid):
        raise TypeError(f"this is for tanh and sigmoid, not for {activation}")
    factor = posterior.factor.new_zeros(posterior.rank, posterior.size)
    factor[:, posterior.size - len(posterior.factor) :] = posterior.factor.mT
    mean, shared = (_forms(network, part, x, row) for part in (posterior.mean, factor))
    own = _forms(network, posterior.std**2, x**2, row**2)
    n = len(own) // 2
    covariance = shared.T @ shared + np.diag(own)
    std = np.sqrt(np.diag(covariance)[:n])
    if not std.any():
        return None
    unit = np.where(std > 0, std, 1.0)
    correlation = covariance[:n, :n] / np.outer(unit, unit) + np.diag(np.where(std > 0, 0.0, 1.0))
    if not np.linalg.cond(correlation) < WORST:
        return None
    along = covariance[n:, :n] / unit
    given = covariance[n:, n:] - along @ np.linalg.solve(correlation, along.T)
    return Setting(
        activation, mean[:n], std, mean[n:], covariance[n:, n:], along, correlation, given
    )


def _forms(network: Network, weights: Tensor, x: Tensor, row: Tensor) -> Array:
    """h, b and v as linear forms of flat weights [..., size]: [..., 2n + 1]."""
    first, _, last = network.split(weights)
    hidden, out = x @ first[0], last[0] @ row
    if len(first) > 1:
        hidden = hidden + first[1]
    shift = last[1] @ row if len(last) > 1 else torch.zeros_like(out[..., 0])
    found: Array = torch.cat([hidden, shift.unsqueeze(-1), out], -1).cpu().numpy()
    return found

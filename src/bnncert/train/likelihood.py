"""Likelihoods: what outputs say about targets, exactly and at their certified worst."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError
from bnncert.model.network import Network

RIGHT = 2  # standard deviations of the noise that a number may be off and still count as right


@dataclass(frozen=True)
class Categorical:
    """Outputs are the logits of classes y [B]."""

    outputs: int

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, y)

    def rows(self, y: Tensor, like: Tensor) -> Tensor:
        """Output y less each other output: [B, outputs - 1, outputs]."""
        each = torch.eye(self.outputs, dtype=like.dtype, device=like.device)
        other = torch.arange(self.outputs - 1, device=y.device)
        others = other + (other >= y.unsqueeze(1))
        return each[y].unsqueeze(1) - each[others]

    def offsets(self, _: Tensor, like: Tensor) -> Tensor:
        """Outputs are right where rows·outputs + offsets are positive."""
        return torch.zeros(1, 1, dtype=like.dtype, device=like.device)

    def worst_nll(self, least: Tensor, y: Tensor) -> Tensor:
        """-log softmax where every other logit is as close to logit y as `least` [B, outputs - 1]
        allows."""
        own = torch.zeros_like(least[:, :1])
        logits = torch.cat([own, -least], 1)
        return functional.cross_entropy(logits, torch.zeros_like(y))

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Whether the largest output is that of the class."""
        return outputs.argmax(-1) == y

    def check(self, y: Tensor) -> None:
        if y.dim() != 1:
            raise InputError(f"labels have shape {tuple(y.shape)}; give one label for each input")
        if self.outputs < 2:
            raise InputError(
                "the network has one output, and one class is always right; "
                "give another, or noise_std for a regression"
            )
        if y.is_floating_point() or not 0 <= int(y.min()) <= int(y.max()) < self.outputs:
            raise InputError(
                f"labels must be integers from 0 to {self.outputs - 1}, one class for each output"
            )


@dataclass(frozen=True)
class Gaussian:
    """Every output is observed under noise: y_k ~ N(output_k, noise_std²), targets y [B, outputs],
    or [B] of one output."""

    noise_std: float
    outputs: int = 1

    def nll(self, outputs: Tensor, y: Tensor) -> Tensor:
        return self._nll((outputs - self._each(y)).square())

    def rows(self, _: Tensor, like: Tensor) -> Tensor:
        """The outputs and their negatives: [1, 2 outputs, outputs]."""
        each = torch.eye(self.outputs, dtype=like.dtype, device=like.device)
        return torch.cat([each, -each]).unsqueeze(0)

    def offsets(self, y: Tensor, like: Tensor) -> Tensor:
        """An output is right where it exceeds y - reach, and its negative -y - reach:
        [B, 2 outputs]."""
        y = self._each(y).to(like)
        return torch.cat([self._reach - y, self._reach + y], 1)

    def worst_nll(self, least: Tensor, y: Tensor) -> Tensor:
        """At the end of [least of an output, -least of its negative] that is farther from y."""
        y = self._each(y)
        low, high = least[:, : self.outputs], -least[:, self.outputs :]
        return self._nll(torch.maximum((y - low).square(), (high - y).square()))

    def right(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Whether all targets are within RIGHT standard deviations of the noise."""
        return ((outputs - self._each(y)).abs() <= self._reach).all(-1)

    def _each(self, y: Tensor) -> Tensor:
        return y.reshape(len(y), self.outputs)

    def check(self, y: Tensor) -> None:
        if y[0].numel() != self.outputs:
            raise InputError(
                f"targets have shape {tuple(y.shape)}, and the network has {self.outputs} outputs; "
                "give a target for each"
            )
        if not bool(y.isfinite().all()):
            raise InputError("targets hold NaN or infinity; every entry must be finite")

    @property
    def _reach(self) -> float:
        return RIGHT * self.noise_std

    def _nll(self, squares: Tensor) -> Tensor:
        constant = self.outputs * math.log(self.noise_std * math.sqrt(2 * math.pi))
        return squares.sum(-1).mean() / (2 * self.noise_std**2) + constant


Likelihood: TypeAlias = Categorical | Gaussian


def likelihood(network: Network, noise_std: float | None) -> Likelihood:
    """Of classes, or of a regression where there is noise."""
    if noise_std is None:
        return Categorical(network.outputs)
    return Gaussian(noise_std, network.outputs)

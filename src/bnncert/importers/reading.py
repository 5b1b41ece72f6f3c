"""What was read of a module: a network, and from which tensors its parameters take their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.conventions import Convention
from bnncert.importers.tracing import Step
from bnncert.model.layers import Shape
from bnncert.model.network import Network

Values: TypeAlias = Mapping[str, Tensor]
Cast: TypeAlias = Callable[[Tensor], Tensor]


def exact(value: Tensor) -> Tensor:
    """For certificates: in float64, on the CPU, and what happens to the module later is nothing to
    it."""
    return value.detach().cpu().double()


def live(value: Tensor) -> Tensor:
    """For training: the module's own tensor, which gradients reach."""
    return value


@dataclass(frozen=True, eq=False)
class Source:
    """Where a parameter's values come from: scale · (the module's tensor `name`) + shift.

    `name` is None for a bias that only a batch normalisation brought; its value is the shift. In a
    Bayesian layer `name` is the mean's, and `spread` names the tensor that `convention` turns into
    standard deviations.
    """

    name: str | None
    shape: Shape  # in the module's layout
    spread: str | None = None
    convention: Convention | None = None
    scale: Tensor | None = None  # [outputs]
    shift: Tensor | None = None  # [outputs]


@dataclass(frozen=True)
class Dropout:
    """A dropout, which the network leaves out: in training it acts before layer `position`."""

    step: Step
    position: int
    # It stands before a batch normalisation that was folded into the layer before both.
    normalised: bool = False


@dataclass(frozen=True, eq=False)
class Reading:
    """A network, and the source of each of its parameters, as `Network.parameters` names them.

    `cast` is how the tensors of the module are taken, those of what was folded too.
    """

    network: Network
    sources: dict[str, Source]
    dropouts: tuple[Dropout, ...] = ()
    cast: Cast = exact

    @property
    def spreads(self) -> list[str]:
        """The names of the tensors that conventions turn into standard deviations."""
        return [source.spread for source in self.sources.values() if source.spread is not None]

    def flat(self, values: Values, shift: bool = True) -> Tensor:
        """Tensors [..., *shape] by the module's names as one vector [..., size].

        Means take the scale and the shift of what was folded. Standard deviations (shift=False)
        take the scale's absolute value and no shift.
        """
        return self._flat(values, shift, absolute=not shift)

    def directions(self, values: Values) -> Tensor:
        """As `flat`, for a covariance factor's columns: with the signed scale, without shift."""
        return self._flat(values, shift=False, absolute=False)

    def _flat(self, values: Values, shift: bool, absolute: bool) -> Tensor:
        parts = {
            name: _scaled(source, self.cast(_tensor(values, source)), shift, absolute)
            for name, source in self.sources.items()
            if source.name is not None
        }
        leading = next(iter(parts.values())).shape[:-1]
        for name, source in self.sources.items():
            if source.shift is not None and name not in parts:
                parts[name] = (source.shift if shift else torch.zeros_like(source.shift)).expand(
                    *leading, -1
                )
        return torch.cat([parts[name] for name in self.sources], -1)


def _tensor(values: Values, source: Source) -> Tensor:
    name = str(source.name)
    rank = len(source.shape)
    if name not in values:
        raise InputError(
            f"there are no values for the module's tensor {name!r}; "
            "name every parameter as the module does"
        )
    value = values[name]
    if (
        tuple(value.shape[max(value.dim() - rank, 0) :]) != source.shape
        or not value.is_floating_point()
    ):
        raise InputError(
            f"values for {name!r} are {value.dtype} of shape {tuple(value.shape)}; "
            f"give floating-point numbers of shape {source.shape}"
        )
    return value


def _scaled(source: Source, value: Tensor, shift: bool, absolute: bool) -> Tensor:
    """The tensor [..., *shape] as [..., size], a matrix [out, in] transposed."""
    rank = len(source.shape)
    if source.scale is not None:
        scale = source.scale.abs() if absolute else source.scale
        value = value * scale.reshape(-1, *[1] * (rank - 1))
    if shift and source.shift is not None:
        value = value + source.shift
    return (value.mT if rank == 2 else value).flatten(value.dim() - rank)

"""What was read of a module: a network, and from which tensors its parameters take their values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.conventions import Convention
from bnncert.importers.values import Place
from bnncert.model.layers import Shape
from bnncert.model.network import Network

Values: TypeAlias = Mapping[str, Tensor]
Cast: TypeAlias = Callable[[Tensor], Tensor]
Pick: TypeAlias = int | str | None


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

    `name` is None for constants, as of a batch normalisation; their value is the shift. In a
    Bayesian layer `name` is the mean's, and `spread` names the tensor that `convention` turns into
    standard deviations.
    """

    name: str | None
    shape: Shape  # in the module's layout
    spread: str | None = None
    convention: Convention | None = None
    scale: Tensor | None = None  # [outputs]
    shift: Tensor | None = None  # [*shape]

    def followed_by(self, scale: Tensor, shift: Tensor | None = None) -> Source:
        """Of y = scale · x + shift after the layer, entry by entry of its outputs."""
        moved = shift
        if self.shift is not None:
            own = scale.reshape(-1, *[1] * (len(self.shape) - 1)) * self.shift
            moved = own if shift is None else own + shift
        return replace(self, scale=scale if self.scale is None else scale * self.scale, shift=moved)


@dataclass(frozen=True)
class Dropout:
    """A dropout, which the network leaves out: in training it acts on what the layers `readers`
    read of `node`.

    kind: the function's name, as dropout2d. normalised: it stands before a batch normalisation that
    was folded into the layer before both.
    """

    place: Place
    kind: str
    p: float
    node: int
    readers: tuple[int, ...]
    normalised: bool = False


@dataclass(frozen=True, eq=False)
class Reading:
    """A network, and the source of each of its parameters, as `Network.parameters` names them.

    dropouts: those that the network leaves out. cast: how the tensors of the module are taken,
    those of what was folded too. tied: tensors that several parameters take their values from.
    pick: which of the module's outputs it is, where it has several. fixed: tensors that are also in
    a sum or product, where they keep the values that they had when the module was read.
    """

    network: Network
    sources: dict[str, Source]
    dropouts: tuple[Dropout, ...] = ()
    cast: Cast = exact
    tied: frozenset[str] = frozenset()
    pick: Pick = None
    fixed: frozenset[str] = frozenset()

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

    def directions(self, values: Values, random: Collection[str]) -> Tensor:
        """As `flat`, for a covariance factor's columns: with the signed scale, without shift, and
        from the first layer on that has a `random` tensor."""
        return self._flat(values, shift=False, absolute=False, sources=self.from_first(random))

    def from_first(self, random: Collection[str]) -> dict[str, Source]:
        """The sources from the first layer on of which a tensor is random; all if none is."""
        layers = [[*layer] for layer in self.network.parameters_by_layer]
        own = (any(self.sources[name].name in random for name in layer) for layer in layers)
        first = next((i for i, found in enumerate(own) if found), 0)
        return {name: self.sources[name] for layer in layers[first:] for name in layer}

    def _flat(
        self,
        values: Values,
        shift: bool,
        absolute: bool,
        sources: Mapping[str, Source] | None = None,
    ) -> Tensor:
        if not shift:
            self._check_tied(values)
        sources = self.sources if sources is None else sources
        parts = {
            name: _scaled(source, self.cast(_tensor(values, source)), shift, absolute)
            for name, source in sources.items()
            if source.name is not None
        }
        some = next(iter(parts.values()))
        for name, source in sources.items():
            if source.name is None:
                parts[name] = _constant(source, some, shift)
        return torch.cat([parts[name] for name in sources], -1)

    def _check_tied(self, spreads: Values) -> None:
        """A draw gives every parameter its own noise."""
        for name in sorted(self.tied):
            if name in spreads and bool(spreads[name].detach().any()):
                raise InputError(
                    f"the module uses {name!r} twice, and every draw gives both the same; "
                    "only certain weights can be shared: use two layers, or no spread for this one"
                )


def _constant(source: Source, like: Tensor, shift: bool) -> Tensor:
    """The values of a constant [..., size], or zeros, with the leading dimensions of `like`."""
    value = torch.zeros(source.shape) if source.shift is None or not shift else source.shift
    flat = (value.mT if value.dim() == 2 else value).flatten()
    return flat.to(like).expand(*like.shape[:-1], -1)


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

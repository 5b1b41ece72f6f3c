"""A network while it is read: layers in the order in which the module computes them, and what each
reads. What nobody reads in the end is left out by `finished`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from bnncert.importers.conventions import Convention
from bnncert.importers.reading import Cast, Source
from bnncert.importers.values import At, Held, Place
from bnncert.model.layers import Layer, Scale, Shape, output_shape
from bnncert.model.moves import Flatten, Reshape


@dataclass(frozen=True)
class Mark:
    """A dropout, in the place of a layer: in evaluation it computes nothing."""

    place: Place
    kind: str
    p: float


@dataclass(frozen=True, eq=False)
class Bayesian:
    """A Bayesian layer, and whose names it has."""

    place: Place
    module: nn.Module
    convention: Convention


@dataclass(frozen=True, eq=False)
class Entry:
    """One layer, the nodes it reads, and where its parameters come from."""

    layer: Layer | Mark
    reads: tuple[int, ...]
    sources: Mapping[str, Source] = field(default_factory=dict)
    bayesian: Bayesian | None = None
    affine: tuple[Tensor, Tensor] | None = None  # factor and shift of a Scale
    constants: frozenset[str] = frozenset()  # parameters in a sum or product, taken as certain


Options: TypeAlias = Any  # the fields of an entry after its reads


class Drawing:
    """Entries, and the shape of every node: 0 is the input, k + 1 what entry k gives.

    cast: how tensors of the module are taken. like: one of them, for the dtype and device of
    constants.
    """

    def __init__(self, input_shape: Shape, cast: Cast, like: Tensor) -> None:
        self.entries: list[Entry] = []
        self.shapes: list[Shape] = [input_shape]
        self.cast = cast
        self.like = cast(like)
        self._views: dict[tuple[int, Shape], int] = {}

    def taken(self, value: Tensor) -> Tensor:
        """A tensor of the module, or a constant, as the network's parameters are."""
        if not value.is_floating_point():
            return value
        own = self.cast(value)
        return own.to(self.like.device, self.like.dtype)

    def constant(self, value: Held | float) -> Tensor:
        if isinstance(value, Held):
            own = value.value
            return self.taken(own if own.is_floating_point() else own.double())
        return self.taken(torch.tensor(value, dtype=torch.float64))

    def append(self, layer: Layer, *inputs: At, **options: Options) -> At:
        """The layer at values in the very shapes that they have."""
        nodes = tuple(map(self.node, inputs))
        shape = output_shape(layer, *(self.shapes[node] for node in nodes))
        return self._added(Entry(layer, nodes, **options), shape)

    def entrywise(self, layer: Layer, x: At, **options: Options) -> At:
        """A layer that does not care for the shape, where the entries lie."""
        shape = output_shape(layer, self.shapes[x.node])
        return At(self._added(Entry(layer, (x.node,), **options), shape).node, x.shape)

    def scaled(
        self, x: At, factor: Tensor, shift: Tensor, used: frozenset[str] = frozenset()
    ) -> At:
        """factor ∘ x + shift, both of the shape of a Scale that fits the node of x."""
        layer, sources = constant_scale(factor, shift)
        own = (factor, shift)
        return self.entrywise(layer, x, sources=sources, affine=own, constants=used)

    def mark(self, mark: Mark, x: At) -> At:
        return self._added(Entry(mark, (self.node(x),)), self.shapes[self.node(x)])

    def viewed(self, x: At, shape: Shape) -> At:
        """The same entries in another shape: a layer at once where it is a vector, and else only if
        something must have it so."""
        view = At(x.node, shape)
        return At(self.node(view), shape) if len(shape) == 1 else view

    def node(self, x: At) -> int:
        """The node that holds x in its own shape; a number is a vector of one."""
        shape = x.shape or (1,)
        if self.shapes[x.node] == shape:
            return x.node
        if (x.node, shape) not in self._views:
            layer = Flatten() if len(shape) == 1 else Reshape(shape)
            self._views[x.node, shape] = self._added(Entry(layer, (x.node,)), shape).node
        return self._views[x.node, shape]

    def _added(self, entry: Entry, shape: Shape) -> At:
        self.entries.append(entry)
        self.shapes.append(shape)
        return At(len(self.entries), shape)


def constant_scale(factor: Tensor, shift: Tensor) -> tuple[Scale, dict[str, Source]]:
    """factor ∘ x + shift, of one shape, and the sources of its parameters."""
    sources = {
        letter: Source(None, (value.numel(),), shift=value.flatten())
        for letter, value in (("W", factor), ("b", shift))
    }
    return Scale(tuple(factor.shape)), sources

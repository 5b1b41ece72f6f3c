"""Moves: layers that rearrange what they read. Every entry they give is one of those, or 0.

To add one, write its class here with what it makes of shapes, of values and of rows, and list it in
MOVES: bounds and training ask for nothing else. Shapes are those of one input, without the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.errors import InputError

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Flatten:
    """Any shape to one dimension, row by row.

    >>> from bnncert import Network, layers
    >>> Network((1, 28, 28), (Flatten(), layers.Dense(784, 10))).shapes
    ((1, 28, 28), (784,), (10,))
    """

    def shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        return (math.prod(shape),)

    def values(self, inputs: Sequence[Tensor], rank: int) -> Tensor:
        return inputs[0].flatten(-rank)

    def rows(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (rows.reshape(*rows.shape[:2], *shapes[0]),)


@dataclass(frozen=True)
class Reshape:
    """The same entries, row by row, in another shape.

    >>> Reshape((2, 1, 3)).shape((6,))
    (2, 1, 3)
    """

    to: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", _whole_numbers(self.to, "Reshape", 1))
        if not self.to:
            raise InputError("Reshape to no dimension; give at least one size")

    def shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if math.prod(shape) != math.prod(self.to):
            raise InputError(f"Reshape to {self.to} follows shape {shape}; give as many entries")
        return self.to

    def values(self, inputs: Sequence[Tensor], rank: int) -> Tensor:
        (x,) = inputs
        return x.reshape(*x.shape[: x.dim() - rank], *self.to)

    def rows(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        return (rows.reshape(*rows.shape[:2], *shapes[0]),)


@dataclass(frozen=True)
class Permute:
    """Dimensions in another order: what was dimension order[i] becomes dimension i.

    >>> Permute((1, 0)).shape((2, 3))
    (3, 2)
    """

    order: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", _whole_numbers(self.order, "Permute", 0))

    def shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if sorted(self.order) != list(range(len(shape))):
            raise InputError(
                f"Permute{self.order} follows shape {shape}; name each of its dimensions once"
            )
        return tuple(shape[axis] for axis in self.order)

    def values(self, inputs: Sequence[Tensor], rank: int) -> Tensor:
        return _permuted(inputs[0], self.order, rank)

    def rows(self, rows: Tensor, _: Sequence[Shape]) -> tuple[Tensor, ...]:
        back = [self.order.index(axis) for axis in range(len(self.order))]
        return (_permuted(rows, back, len(back)),)


@dataclass(frozen=True)
class Take:
    """Some positions of one dimension, each at most once, in the order given.

    >>> Take(0, (2, 0)).values([torch.tensor([5.0, 6.0, 7.0])], rank=1)
    tensor([7., 5.])
    """

    axis: int
    indices: Shape

    def __post_init__(self) -> None:
        _whole_numbers((self.axis,), "Take", 0)
        object.__setattr__(self, "indices", _whole_numbers(self.indices, "Take", 0))
        if not self.indices or len({*self.indices}) < len(self.indices):
            raise InputError(
                "Take names no position, or one twice; Concat repeats what it reads twice"
            )

    def shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.axis >= len(shape) or max(self.indices) >= shape[self.axis]:
            raise InputError(
                f"Take of position {max(self.indices)} of dimension {self.axis} "
                f"follows shape {shape}, which has no such position"
            )
        return _with_size(shape, self.axis, len(self.indices))

    def values(self, inputs: Sequence[Tensor], rank: int) -> Tensor:
        (x,) = inputs
        return x.index_select(self.axis - rank, self._positions(x))

    def rows(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        empty = rows.new_zeros(*rows.shape[:2], *shapes[0])
        return (empty.index_copy(self.axis + 2, self._positions(rows), rows),)

    def _positions(self, like: Tensor) -> Tensor:
        return torch.tensor(self.indices, device=like.device)


@dataclass(frozen=True)
class Pad:
    """Zeros before and after, so many in each dimension.

    >>> Pad(before=(0, 1), after=(2, 0)).shape((3, 4))
    (5, 5)
    """

    before: Shape
    after: Shape

    def __post_init__(self) -> None:
        for name in ("before", "after"):
            object.__setattr__(self, name, _whole_numbers(getattr(self, name), "Pad", 0))

    def shape(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if not len(self.before) == len(self.after) == len(shape):
            raise InputError(
                f"Pad by {self.before} and {self.after} follows shape {shape}; "
                "give one number for each dimension"
            )
        return tuple(map(sum, zip(self.before, shape, self.after, strict=True)))

    def values(self, inputs: Sequence[Tensor], _: int) -> Tensor:
        pairs = zip(reversed(self.before), reversed(self.after), strict=True)
        return functional.pad(inputs[0], [size for pair in pairs for size in pair])

    def rows(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        for axis, (start, size) in enumerate(zip(self.before, shapes[0], strict=True)):
            rows = rows.narrow(axis + 2, start, size)
        return (rows,)


@dataclass(frozen=True)
class Concat:
    """What it reads, one after the other along a dimension.

    >>> Concat(0).shape((2, 5), (3, 5))
    (5, 5)
    """

    axis: int

    def __post_init__(self) -> None:
        _whole_numbers((self.axis,), "Concat", 0)

    def shape(self, *shapes: Shape) -> Shape:
        first = shapes[0]
        alike = {_with_size(shape, self.axis, 0) for shape in shapes if self.axis < len(shape)}
        same = len(alike) == 1 and len({*map(len, shapes)}) == 1
        if len(shapes) < 2 or self.axis >= len(first) or not same:
            raise InputError(
                f"Concat along dimension {self.axis} reads shapes {list(shapes)}; "
                "give it two or more inputs that agree in all other dimensions"
            )
        return _with_size(first, self.axis, sum(shape[self.axis] for shape in shapes))

    def values(self, inputs: Sequence[Tensor], rank: int) -> Tensor:
        # A constant branch has no leading dimensions that others have.
        leads = (x.shape[: x.dim() - rank] for x in inputs)
        lead = torch.broadcast_shapes(*leads)  # type: ignore[no-untyped-call]
        wide = [x.expand(*lead, *x.shape[x.dim() - rank :]) for x in inputs]
        return torch.cat(wide, self.axis - rank)

    def rows(self, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
        sizes = [shape[self.axis] for shape in shapes]
        return torch.split(rows, sizes, self.axis + 2)


Move: TypeAlias = Flatten | Reshape | Permute | Take | Pad | Concat
MOVES: tuple[type[Move], ...] = (Flatten, Reshape, Permute, Take, Pad, Concat)


def _permuted(x: Tensor, order: Sequence[int], rank: int) -> Tensor:
    lead = x.dim() - rank
    return x.permute(*range(lead), *(lead + axis for axis in order))


def _with_size(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _whole_numbers(values: object, name: str, least: int) -> Shape:
    """As a tuple, since files hold lists."""
    found = tuple(values) if isinstance(values, list | tuple) else ()
    if not isinstance(values, list | tuple) or not all(
        type(value) is int and value >= least for value in found
    ):
        raise InputError(f"{name} has {values!r}; give whole numbers of at least {least}")
    return found

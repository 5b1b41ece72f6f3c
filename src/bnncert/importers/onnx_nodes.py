"""Nodes of ONNX graphs as their operators see them: constants, and tensors that depend on the
input.

A graph is read at a batch of one, so that every tensor has known dimensions, and with those its
entries are the same, row by row, in the file and in the network. Rules think in the file's
dimensions; the values of the network are reshaped only where a layer needs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.importers.building import NOTHING, Names, Value, check_size, reshaped
from bnncert.model.layers import Shape

Array: TypeAlias = NDArray[Any]
LISTED = 2**16  # numbers in a list of axes, sizes or indices


@dataclass(frozen=True, eq=False)
class Constant:
    """An array, and the names of the stored tensors that it was made of."""

    value: Array
    names: Names = NOTHING

    @property
    def dims(self) -> Shape:
        return self.value.shape


@dataclass(frozen=True, eq=False)
class Wire:
    """A tensor that depends on the input: a value of the network, with the file's dimensions."""

    value: Value
    dims: Shape

    def shaped(self, shape: Shape) -> Value:
        """The value in the shape that a layer needs."""
        return reshaped(self.value, shape)

    def at(self, axes: Iterable[int]) -> tuple[Value, int]:
        """The value in the file's dimensions, and how many of the first it lacks: where no axis is
        the batch of one, it is without it."""
        lacking = len(self.dims) - len(inner(self.dims))
        if lacking and 0 not in axes:
            return self.shaped(inner(self.dims)), 1
        return self.shaped(self.dims or (1,)), 0


Operand: TypeAlias = Constant | Wire


@dataclass(frozen=True, eq=False)
class Node:
    """An operator with its operands; those left out are None."""

    operator: str
    operands: tuple[Operand | None, ...]
    attributes: dict[str, Any]
    outputs: int = 1

    def operand(self, position: int) -> Operand:
        found = self.operands[position] if position < len(self.operands) else None
        if found is None:
            raise InputError(f"operand {position} is missing")
        return found

    def has(self, position: int) -> bool:
        return position < len(self.operands) and self.operands[position] is not None

    def wire(self, position: int = 0) -> Wire:
        found = self.operand(position)
        if isinstance(found, Constant):
            raise InputError(f"operand {position} must depend on the input, and is constant")
        return found

    def constant(self, position: int) -> Constant:
        """A floating-point operand, in float64."""
        found = self.operand(position)
        if isinstance(found, Wire) or not np.issubdtype(found.value.dtype, np.floating):
            raise InputError(f"operand {position} must be constant floating-point numbers")
        if not np.isfinite(found.value).all():
            raise InputError(f"operand {position} holds numbers that are not finite")
        return Constant(found.value.astype(np.float64), found.names)

    def number(self, position: int, default: float) -> float:
        """A constant of one entry."""
        if not self.has(position):
            return default
        value = self.constant(position).value
        if value.size != 1:
            raise InputError(f"operand {position} has shape {value.shape}; give one number")
        return float(value.reshape(()))

    def integers(self, position: int) -> list[int]:
        """A constant list of whole numbers."""
        value = self.whole(position)
        if value.ndim > 1 or value.size > LISTED:
            raise InputError(f"operand {position} has shape {value.shape}; give a list")
        return [int(number) for number in value.reshape(-1)]

    def whole(self, position: int) -> Array:
        found = self.operand(position)
        if isinstance(found, Wire) or not np.issubdtype(found.value.dtype, np.integer):
            raise InputError(f"operand {position} must be constant whole numbers")
        return found.value

    def options(self, **known: Any) -> dict[str, Any]:
        """The attributes, with defaults; one that is not known might change the meaning."""
        unknown = sorted(self.attributes.keys() - known.keys())
        if unknown:
            raise InputError(f"attribute {unknown[0]!r} is not supported")
        return known | self.attributes

    def listed(self, name: str, position: int, **others: Any) -> list[int] | None:
        """Whole numbers that older files have as an attribute and newer ones as an operand."""
        given = self.options(**{name: None}, **others)[name]
        if self.has(position):
            if given is not None:
                raise InputError(f"attribute {name!r} is given twice")
            return self.integers(position)
        return None if given is None else [int(number) for number in given]


Result: TypeAlias = Operand | tuple[Operand, ...]
Rule: TypeAlias = Callable[[Node], Result]


def inner(dims: Shape) -> Shape:
    """One input's shape: the dimensions behind a batch of one."""
    return dims[1:] if len(dims) > 1 and dims[0] == 1 else dims or (1,)


def axis_of(number: int, rank: int) -> int:
    """An axis, of which negative ones count from the end."""
    if not -rank <= number < rank:
        raise InputError(f"axis {number} is not one of {rank} dimensions")
    return number % rank


def axes_of(numbers: Sequence[int], rank: int) -> list[int]:
    axes = sorted(axis_of(number, rank) for number in numbers)
    if len({*axes}) < len(axes):
        raise InputError(f"axes {[*numbers]} name a dimension twice")
    return axes


def tensor(value: Array) -> Tensor:
    return torch.from_numpy(np.array(value, np.float64))


def spread(value: Array, dims: Shape) -> Array:
    """The constant on all dimensions of a tensor, which must not become larger."""
    wide = np.broadcast_shapes(value.shape, dims)
    if math.prod(wide) != math.prod(dims):
        raise InputError(
            f"a constant of shape {value.shape} widens the tensor {dims} to {wide}, "
            "which is not supported"
        )
    return np.broadcast_to(value, wide)


def limited(dims: Sequence[int]) -> Shape:
    """Dimensions of a constant or a tensor, neither empty nor too large."""
    if any(size < 1 for size in dims):
        raise InputError(f"a tensor of shape {tuple(dims)} is empty")
    check_size(dims)
    return tuple(dims)

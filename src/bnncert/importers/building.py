"""Networks built value by value: what importers of graphs append, whatever format they read.

A `Value` is what a layer makes of other values, with its weights. Nothing is counted or numbered
until `network_of` puts what the output depends on in order, so what nothing reads is left out by
itself. Functions here choose the layer for an operation: a scale for arithmetic with constants, an
average for a mean, nothing at all for what moves no entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError
from bnncert.model.activations import ReLU
from bnncert.model.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    Dense,
    Layer,
    MaxPool2d,
    Scale,
    output_shape,
    parameter_shapes,
)
from bnncert.model.moves import Concat, Flatten, Pad, Permute, Reshape, Shape, Take
from bnncert.model.network import Network

MOST = 2**28  # entries of a value
PARTS = 64  # runs of positions without a repetition
Names: TypeAlias = frozenset[str]
NOTHING: Names = frozenset()


@dataclass(frozen=True, eq=False)
class Value:
    """A node of a network to be, of one input's shape; without a layer it is the input.

    sources: for every parameter the names of the tensors that it holds, by which one that is held
    twice is found.
    """

    shape: Shape
    layer: Layer | None = None
    parameters: tuple[Tensor, ...] = ()
    reads: tuple[Value, ...] = ()
    sources: tuple[Names, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class Built:
    """A network, the flat vector of its weights, and the sources of each of its parameters."""

    network: Network
    weights: Tensor
    sources: dict[str, Names]


def append(
    layer: Layer,
    *reads: Value,
    parameters: Sequence[Tensor] = (),
    sources: Sequence[Names] = (),
) -> Value:
    """What the layer makes of the values that it reads."""
    shape = output_shape(layer, *(value.shape for value in reads))
    check_size(shape)
    expected = tuple(parameter_shapes(layer).values())
    given = tuple(tuple(parameter.shape) for parameter in parameters)
    if given != expected:
        raise InputError(f"weights have shapes {given}; {type(layer).__name__} takes {expected}")
    if not all(parameter.isfinite().all() for parameter in parameters):
        raise InputError("a weight is not finite")
    named = tuple(sources) or (NOTHING,) * len(parameters)
    return Value(shape, layer, tuple(parameters), reads, named)


def check_size(shape: Sequence[int]) -> None:
    """An `InputError` for a shape of too many entries."""
    if math.prod(shape) > MOST:
        raise InputError(f"a tensor of shape {tuple(shape)} is too large")


# -------------------------------------------------------------------------------------------- moves


def reshaped(value: Value, shape: Shape) -> Value:
    """The same entries in another shape."""
    while isinstance(value.layer, Flatten | Reshape):
        (value,) = value.reads
    if value.shape == shape:
        return value
    return append(Flatten() if len(shape) == 1 else Reshape(shape), value)


def permuted(value: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order; where only those of size 1 change places, a reshape."""
    if isinstance(value.layer, Permute):
        order = [value.layer.order[axis] for axis in order]
        (value,) = value.reads
    wide = [axis for axis in order if value.shape[axis] > 1]
    if wide == sorted(wide):
        return reshaped(value, tuple(value.shape[axis] for axis in order))
    return append(Permute(tuple(order)), value)


def taken(value: Value, axis: int, positions: Sequence[int]) -> Value:
    """Positions of one dimension, in the order given and as often as given."""
    if [*positions] == [*range(value.shape[axis])]:
        return value
    parts = [*_without_repetition(positions)]
    if len(parts) > PARTS:
        raise InputError(f"a position is taken more than {PARTS} times")
    return joined([append(Take(axis, part), value) for part in parts], axis)


def _without_repetition(positions: Sequence[int]) -> Iterable[Shape]:
    """The positions, cut where one comes again."""
    part: dict[int, None] = {}
    for position in positions:
        if position in part:
            yield tuple(part)
            part = {}
        part[position] = None
    if part:
        yield tuple(part)


def joined(values: Sequence[Value], axis: int) -> Value:
    """One after the other along a dimension."""
    return values[0] if len(values) == 1 else append(Concat(axis), *values)


def padded(value: Value, before: Sequence[int], after: Sequence[int], fill: float = 0.0) -> Value:
    """So many entries `fill` before and after in each dimension; negative numbers cut off."""
    for axis, size in enumerate(value.shape):
        kept = range(max(0, -before[axis]), size - max(0, -after[axis]))
        if not kept:
            raise InputError("nothing is left of a dimension")
        value = taken(value, axis, kept)
    first, last = ([max(0, size) for size in sides] for sides in (before, after))
    if not any((*first, *last)):
        return value
    check_size([sum(sizes) for sizes in zip(first, value.shape, last, strict=True)])
    wider = append(Pad(tuple(first), tuple(last)), value)
    if not fill:
        return wider
    shift = torch.full(wider.shape, fill, dtype=torch.float64)
    inner = (slice(start, start + size) for start, size in zip(first, value.shape, strict=True))
    shift[tuple(inner)] = 0
    return shifted(wider, shift)


# --------------------------------------------------------------------------------------- arithmetic


def affine(value: Value, scale: Tensor, shift: Tensor, names: Names = NOTHING) -> Value:
    """scale x + shift, elementwise, with constants that broadcast to the value's shape.

    names: of the tensors that the shift holds.
    """
    scale = scale.double().expand(value.shape)
    shift = shift.double().expand(value.shape)
    if (scale == 1).all() and not shift.any():
        return value
    for axis in range(len(value.shape)):
        if all(_is_alike(constant, axis) for constant in (scale, shift)):
            scale, shift = scale.narrow(axis, 0, 1), shift.narrow(axis, 0, 1)
    biased = bool(shift.any())
    return append(
        Scale(tuple(scale.shape), biased),
        value,
        parameters=(scale, shift)[: 1 + biased],
        sources=(NOTHING, names)[: 1 + biased],
    )


def _is_alike(constant: Tensor, axis: int) -> bool:
    return bool((constant == constant.narrow(axis, 0, 1)).all())


def scaled(value: Value, scale: Tensor | float) -> Value:
    return affine(value, torch.as_tensor(scale), torch.zeros(()))


def shifted(value: Value, shift: Tensor | float, names: Names = NOTHING) -> Value:
    return affine(value, torch.ones(()), torch.as_tensor(shift), names)


def added(first: Value, second: Value) -> Value:
    """x + y; x + x is 2 x."""
    return scaled(first, 2.0) if first is second else append(Add(), first, second)


def bent(value: Value, slope: Tensor) -> Value:
    """max(z, 0) + slope min(z, 0) = slope z + (1 - slope) max(z, 0), for slopes that differ."""
    return added(scaled(value, slope), scaled(append(ReLU(), value), 1 - slope))


def larger(first: Value, second: Value) -> Value:
    """max(x, y) = y + max(x - y, 0)"""
    if first is second:
        return first
    return added(second, append(ReLU(), added(first, scaled(second, -1.0))))


# ------------------------------------------------------------------------------------ linear layers


@dataclass(frozen=True, eq=False)
class Factor:
    """Weights with an optional bias, and the names of the tensors that each holds."""

    weights: Tensor
    bias: Tensor | None = None
    names: Names = NOTHING
    bias_names: Names = NOTHING

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self.weights,) if self.bias is None else (self.weights, self.bias)

    @property
    def sources(self) -> tuple[Names, ...]:
        return (self.names, self.bias_names)[: len(self.parameters)]


def multiplied(value: Value, factor: Factor) -> Value:
    """x W + b of a vector."""
    inputs, outputs = factor.weights.shape
    layer = Dense(inputs, outputs, factor.bias is not None)
    return append(layer, value, parameters=factor.parameters, sources=factor.sources)


def convolved(value: Value, factor: Factor, layer: Conv2d) -> Value:
    return append(layer, value, parameters=factor.parameters, sources=factor.sources)


def rows_multiplied(value: Value, factor: Factor) -> Value:
    """X W + b for every row of X: a convolution whose window is a row, with the weights once."""
    rows, width = value.shape
    if rows == 1:
        return multiplied(reshaped(value, (width,)), factor)
    image = reshaped(value, (1, rows, width))
    windows = Factor(factor.weights.mT[:, None, None], factor.bias, factor.names, factor.bias_names)
    layer = Conv2d(1, factor.weights.shape[1], (1, width), bias=factor.bias is not None)
    columns = convolved(image, windows, layer)  # [outputs, rows, 1]
    return permuted(reshaped(columns, columns.shape[:2]), (1, 0))


def columns_multiplied(value: Value, factor: Factor) -> Value:
    """W X for every column of X, with W [outputs, inputs]: a convolution of one pixel."""
    height, width = value.shape
    if width == 1:
        turned = Factor(factor.weights.mT, names=factor.names)
        return multiplied(reshaped(value, (height,)), turned)
    pixels = Factor(factor.weights[..., None, None], names=factor.names)
    layer = Conv2d(height, len(factor.weights), (1, 1), bias=False)
    image = convolved(reshaped(value, (height, 1, width)), pixels, layer)
    return reshaped(image, (len(factor.weights), width))


def pooled(kind: type[AvgPool2d | MaxPool2d], value: Value, axes: Sequence[int]) -> Value:
    """The mean or the maximum over some dimensions, which are left out (of all: one entry)."""
    kept = [axis for axis in range(len(value.shape)) if axis not in axes]
    last = permuted(value, [*kept, *axes])
    over = math.prod(value.shape[axis] for axis in axes)
    window = last.shape[1:] if (len(kept), len(axes)) == (1, 2) else (1, over)
    image = reshaped(last, (value.size // over, *window))
    if over == 1:
        return image
    _, height, width = image.shape
    return append(kind((height, width)), image)


# ------------------------------------------------------------------------------------- the network


def ordered(output: Value) -> list[Value]:
    """What the output depends on, each value after those that it reads."""
    order: list[Value] = []
    found: set[int] = set()
    waiting = [(output, False)]
    while waiting:
        value, is_read = waiting.pop()
        if is_read:
            order.append(value)
        elif id(value) not in found:
            found.add(id(value))
            waiting.append((value, True))
            waiting += [(each, False) for each in reversed(value.reads)]
    return order


def network_of(start: Value, output: Value) -> Built:
    """The network from `start` to `output`, which is made a vector.

    >>> start = Value((2,))
    >>> hidden = append(ReLU(), shifted(start, 1.0))
    >>> built = network_of(start, added(hidden, start))
    >>> [type(layer).__name__ for layer in built.network.layers], built.network.reads
    (['Scale', 'ReLU', 'Add'], ((0,), (1,), (2, 0)))
    """
    values = [value for value in ordered(reshaped(output, (output.size,))) if value is not start]
    position = {id(value): k for k, value in enumerate([start, *values])}
    reads = tuple(tuple(position[id(each)] for each in value.reads) for value in values)
    if not any(0 in nodes for nodes in reads):
        raise InputError("the output does not depend on the input by any layer")
    network = Network(start.shape, tuple(value.layer for value in values if value.layer), reads)
    parameters = [parameter for value in values for parameter in value.parameters]
    sources = [names for value in values for names in value.sources]
    return Built(
        network,
        torch.cat([parameter.double().reshape(-1) for parameter in parameters]),
        dict(zip(network.parameters, sources, strict=True)),
    )

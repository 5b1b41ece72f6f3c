"""Layers: shapes and options, never weights, and the tables of what each makes of shapes and
parameters.

Every table here and elsewhere is keyed by the exact type of a layer and read by `rule_for`: what is
not in it is refused, nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from bnncert.errors import InputError
from bnncert.model.activations import ACTIVATIONS, Activation, LeakyReLU, ReLU, Sigmoid, Tanh

__all__ = ["LeakyReLU", "ReLU", "Sigmoid", "Tanh"]

Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]
Rule = TypeVar("Rule")


@dataclass(frozen=True)
class Dense:
    """y = x W + b with W of shape [inputs, outputs].

    >>> from bnncert import Network
    >>> Network((2,), (Dense(2, 3), ReLU(), Dense(3, 1, bias=False))).parameters
    {'W0': (2, 3), 'b0': (3,), 'W1': (3, 1)}
    """

    inputs: int
    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size >= 1 for size in (self.inputs, self.outputs)):
            raise InputError(
                f"Dense({self.inputs}, {self.outputs}): "
                "both sizes must be whole numbers of at least 1"
            )


@dataclass(frozen=True)
class Conv2d:
    """Cross-correlation of [in_channels, height, width], padded with zeros, with W [out, in,
    *kernel], and a bias.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (Conv2d(1, 4, kernel=3, stride=2, padding=1), Flatten()))
    >>> network.shapes
    ((1, 8, 8), (4, 4, 4), (64,))
    """

    in_channels: int
    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "padding"):
            least = 0 if name == "padding" else 1
            object.__setattr__(self, name, _pair(getattr(self, name), name, least))
        if not all(isinstance(n, int) and n >= 1 for n in (self.in_channels, self.out_channels)):
            raise InputError(
                f"Conv2d has {self.in_channels} to {self.out_channels} channels; "
                "give whole numbers >= 1"
            )


@dataclass(frozen=True)
class _Pool:
    kernel: Pair
    stride: Pair | None = None  # the kernel's size unless given

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _pair(self.kernel, "kernel", least=1))
        object.__setattr__(self, "stride", _pair(self.stride or self.kernel, "stride", least=1))


@dataclass(frozen=True)
class AvgPool2d(_Pool):
    """The mean over windows of each channel.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (AvgPool2d(2), Flatten(), Dense(16, 3)))
    >>> network.shapes
    ((1, 8, 8), (1, 4, 4), (16,), (3,))
    """


@dataclass(frozen=True)
class MaxPool2d(_Pool):
    """The maximum over windows of each channel.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (MaxPool2d(3, stride=1), Flatten(), Dense(36, 3)))
    >>> network.shapes
    ((1, 8, 8), (1, 6, 6), (36,), (3,))
    """


@dataclass(frozen=True)
class Flatten:
    """Any shape to one dimension, row by row.

    >>> from bnncert import Network
    >>> Network((1, 28, 28), (Flatten(), Dense(784, 10))).shapes
    ((1, 28, 28), (784,), (10,))
    """


@dataclass(frozen=True)
class Add:
    """The sum of two or more inputs of one shape.

    >>> from bnncert import Network
    >>> layers = (Dense(2, 2), ReLU(), Add(), Dense(2, 1))
    >>> network = Network((2,), layers, reads=((0,), (1,), (0, 2), (3,)))  # x + ReLU(x W + b)
    >>> network.readers[0]  # the layers that read the input
    (0, 2)
    """


def _pair(value: object, name: str, least: int) -> Pair:
    """(n, n) for a number n, or the two numbers given."""
    pair = (value, value) if isinstance(value, int) else value
    sizes = tuple(pair) if isinstance(pair, list | tuple) else ()
    if len(sizes) != 2 or not all(isinstance(n, int) and n >= least for n in sizes):
        raise InputError(
            f"{name} is {value!r}; give a whole number or a pair, each at least {least}"
        )
    return sizes[0], sizes[1]


Weighted: TypeAlias = Dense | Conv2d
Linear: TypeAlias = Dense | Conv2d | AvgPool2d
Window: TypeAlias = Conv2d | AvgPool2d | MaxPool2d
# Layers that read several nodes: linear maps without weights whose coefficients are 0 or 1. Bounds
# ask for no more than what they make of values (`apply`) and of rows (`split_rows`).
Join: TypeAlias = Add
JOINS: tuple[type[Join], ...] = (Add,)
Layer: TypeAlias = Dense | Conv2d | AvgPool2d | MaxPool2d | Flatten | Join | Activation
LINEAR: tuple[type[Linear], ...] = (Dense, Conv2d, AvgPool2d)


def rule_for(rules: Mapping[type, Rule], layer: object) -> Rule:
    """The rule of a table for the layer's exact type: a subclass may compute something else."""
    if type(layer) not in rules:
        raise TypeError(f"there is no rule for {layer!r}")
    return rules[type(layer)]


def parameter_shapes(layer: Layer) -> dict[str, Shape]:
    """The layer's parameters by letter, in the order they stand in the flat weight vector."""
    return rule_for(PARAMETERS, layer)(layer)


def output_shape(layer: Layer, *shapes: Shape) -> Shape:
    """The shape the layer makes of those it reads; an `InputError` when it does not fit."""
    return rule_for(SHAPES, layer)(layer, shapes)


def _none(_: Layer) -> dict[str, Shape]:
    return {}


def _dense_parameters(layer: Dense) -> dict[str, Shape]:
    weights = {"W": (layer.inputs, layer.outputs)}
    return weights | ({"b": (layer.outputs,)} if layer.bias else {})


def _conv_parameters(layer: Conv2d) -> dict[str, Shape]:
    weights = {"W": (layer.out_channels, layer.in_channels, *layer.kernel)}
    return weights | ({"b": (layer.out_channels,)} if layer.bias else {})


def _dense_shape(layer: Dense, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    if shape != (layer.inputs,):
        raise InputError(
            f"Dense({layer.inputs}, {layer.outputs}) follows shape {shape}; "
            "flatten or resize before it"
        )
    return (layer.outputs,)


def _conv_shape(layer: Conv2d, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    if len(shape) != 3 or shape[0] != layer.in_channels:
        raise InputError(
            f"Conv2d follows shape {shape}; it takes ({layer.in_channels}, height, width)"
        )
    return (layer.out_channels, *_places(layer, shape))


def _pool_shape(layer: AvgPool2d | MaxPool2d, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    if len(shape) != 3:
        name = type(layer).__name__
        raise InputError(f"{name} follows shape {shape}; it takes (channels, height, width)")
    return (shape[0], *_places(layer, shape))


def _places(layer: Window, shape: Shape) -> Pair:
    """Rows and columns of windows."""
    padding = layer.padding if isinstance(layer, Conv2d) else (0, 0)
    stride = layer.stride or layer.kernel
    rows, columns = (
        (n + 2 * p - k) // s + 1
        for n, p, k, s in zip(shape[1:], padding, layer.kernel, stride, strict=True)
    )
    if min(rows, columns) < 1:
        name = type(layer).__name__
        raise InputError(f"{name} with kernel {layer.kernel} does not fit into shape {shape}")
    return rows, columns


def _flat_shape(_: Flatten, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    return (math.prod(shape),)


def _sum_shape(_: Add, shapes: Sequence[Shape]) -> Shape:
    if len(shapes) < 2 or len(set(shapes)) > 1:
        raise InputError(
            f"Add reads shapes {list(shapes)}; give it two or more inputs of one shape"
        )
    return shapes[0]


def _same_shape(_: Activation, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    return shape


PARAMETERS: dict[type, Callable[[Any], dict[str, Shape]]] = {
    Dense: _dense_parameters,
    Conv2d: _conv_parameters,
    **dict.fromkeys((AvgPool2d, MaxPool2d, Flatten, *JOINS, *ACTIVATIONS), _none),
}
SHAPES: dict[type, Callable[[Any, Sequence[Shape]], Shape]] = {
    Dense: _dense_shape,
    Conv2d: _conv_shape,
    AvgPool2d: _pool_shape,
    MaxPool2d: _pool_shape,
    Flatten: _flat_shape,
    Add: _sum_shape,
    **dict.fromkeys(ACTIVATIONS, _same_shape),
}
LAYERS: dict[str, type[Layer]] = {kind.__name__: kind for kind in SHAPES}

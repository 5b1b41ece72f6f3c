"""Layers: shapes and options, never weights, and the tables of what each makes of shapes and
parameters.

Every table here and elsewhere is keyed by the exact type of a layer and read by `rule_for`: what is
not in it is refused, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias, TypeVar

from bnncert.errors import InputError
from bnncert.model.activations import ACTIVATIONS, Activation, LeakyReLU, PReLU, ReLU, Sigmoid, Tanh
from bnncert.model.moves import MOVES, Concat, Flatten, Move, Shape

__all__ = ["Flatten", "LeakyReLU", "ReLU", "Shape", "Sigmoid", "Tanh"]

Pair: TypeAlias = tuple[int, int]
Sides: TypeAlias = tuple[int, int, int, int]
Padding: TypeAlias = Pair | Sides
Rule = TypeVar("Rule")
# Of a field that came later: where it has its default, descriptions leave it out, and digests of
# networks from before stay what they were.
LATER = {"later": True}


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
    """Cross-correlation of [in_channels, height, width], padded with zeros, with W [out, in /
    groups, *kernel], and a bias.

    padding: on both sides of each dimension, or (top, left, bottom, right). Output channels are in
    as many groups as input channels, and read their own alone.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (Conv2d(1, 4, kernel=3, stride=2, padding=1), Flatten()))
    >>> network.shapes
    ((1, 8, 8), (4, 4, 4), (64,))
    """

    in_channels: int
    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Padding = (0, 0)
    bias: bool = True
    dilation: Pair = field(default=(1, 1), metadata=LATER)
    groups: int = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "dilation"):
            object.__setattr__(self, name, _pair(getattr(self, name), name, 1))
        object.__setattr__(self, "padding", _padding(self.padding))
        if not all(isinstance(n, int) and n >= 1 for n in (self.in_channels, self.out_channels)):
            raise InputError(
                f"Conv2d has {self.in_channels} to {self.out_channels} channels; "
                "give whole numbers >= 1"
            )
        if type(self.groups) is not int or self.groups < 1 or self._left_over():
            raise InputError(
                f"Conv2d of {self.in_channels} to {self.out_channels} channels has groups "
                f"{self.groups!r}; give a whole number that divides both"
            )

    def _left_over(self) -> int:
        return self.in_channels % self.groups or self.out_channels % self.groups


@dataclass(frozen=True)
class Scale:
    """y = W∘x + b with W and b of one shape, which is that of x but for sizes of 1: entries along
    such a dimension share their numbers.

    A batch normalisation is one of shape (channels, 1, 1).

    >>> from bnncert import Network
    >>> Network((3, 8, 8), (Scale((3, 1, 1)), Flatten())).parameters
    {'W0': (3, 1, 1), 'b0': (3, 1, 1)}
    """

    shape: Shape
    bias: bool = True

    def __post_init__(self) -> None:
        sizes = tuple(self.shape) if isinstance(self.shape, list | tuple) else ()
        if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
            raise InputError(f"Scale has shape {self.shape!r}; give whole numbers of at least 1")
        object.__setattr__(self, "shape", sizes)


@dataclass(frozen=True)
class _Pool:
    kernel: Pair
    stride: Pair | None = None  # the kernel's size unless given
    padding: Padding = field(default=(0, 0), metadata=LATER)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _pair(self.kernel, "kernel", least=1))
        object.__setattr__(self, "stride", _pair(self.stride or self.kernel, "stride", least=1))
        object.__setattr__(self, "padding", _padding(self.padding))
        if any(side >= size for side, size in zip(sides(self), self.kernel * 2, strict=True)):
            raise InputError(
                f"a pool of kernel {self.kernel} has padding {self.padding}; give less than the "
                "kernel, so that no window holds padding alone"
            )

    @property
    def dilation(self) -> Pair:
        return (1, 1)


@dataclass(frozen=True)
class AvgPool2d(_Pool):
    """The mean over windows of each channel; padding counts, as zeros.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (AvgPool2d(2), Flatten(), Dense(16, 3)))
    >>> network.shapes
    ((1, 8, 8), (1, 4, 4), (16,), (3,))
    """


@dataclass(frozen=True)
class MaxPool2d(_Pool):
    """The maximum over windows of each channel; padding is never the maximum.

    >>> from bnncert import Network
    >>> network = Network((1, 8, 8), (MaxPool2d(3, stride=1), Flatten(), Dense(36, 3)))
    >>> network.shapes
    ((1, 8, 8), (1, 6, 6), (36,), (3,))
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


def _padding(value: object) -> Padding:
    """A pair where both sides of each dimension are alike, else all four."""
    if not isinstance(value, list | tuple) or len(value) != 4:
        return _pair(value, "padding", 0)
    top, left = _pair(value[:2], "padding", 0)
    bottom, right = _pair(value[2:], "padding", 0)
    return (top, left) if (top, left) == (bottom, right) else (top, left, bottom, right)


def sides(layer: Conv2d | _Pool) -> Sides:
    """The padding at the top, left, bottom and right."""
    padding = layer.padding
    return padding if len(padding) == 4 else (*padding, *padding)


Weighted: TypeAlias = Dense | Conv2d | Scale
Linear: TypeAlias = Dense | Conv2d | Scale | AvgPool2d
Windowed: TypeAlias = Conv2d | AvgPool2d | MaxPool2d
# Layers without weights that are linear with coefficients 0 and 1: moves, and sums of what they
# read. Bounds ask for no more than what they make of values (`apply`) and of rows (`split_rows`).
Sum: TypeAlias = Add
SUMS: tuple[type[Sum], ...] = (Add,)
Wiring: TypeAlias = Move | Sum
WIRING: tuple[type[Wiring], ...] = (*MOVES, *SUMS)
JOINS: tuple[type[Wiring], ...] = (Add, Concat)  # those that read several nodes
Layer: TypeAlias = Dense | Conv2d | Scale | AvgPool2d | MaxPool2d | Wiring | Activation
LINEAR: tuple[type[Linear], ...] = (Dense, Conv2d, Scale, AvgPool2d)


def rule_for(rules: Mapping[type, Rule], layer: object) -> Rule:
    """The rule of a table for the layer's exact type: a subclass may compute something else."""
    if type(layer) not in rules:
        raise TypeError(f"there is no rule for {layer!r}")
    return rules[type(layer)]


def described(layer: Layer) -> dict[str, Any]:
    """The layer as plain JSON values."""
    own = {
        entry.name: getattr(layer, entry.name)
        for entry in fields(layer)
        if not entry.metadata.get("later") or getattr(layer, entry.name) != entry.default
    }
    return {"type": type(layer).__name__, **own}


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
    weights = {"W": (layer.out_channels, layer.in_channels // layer.groups, *layer.kernel)}
    return weights | ({"b": (layer.out_channels,)} if layer.bias else {})


def _scale_parameters(layer: Scale) -> dict[str, Shape]:
    return {"W": layer.shape} | ({"b": layer.shape} if layer.bias else {})


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


def _places(layer: Windowed, shape: Shape) -> Pair:
    """Rows and columns of windows."""
    top, left, bottom, right = sides(layer)
    stride = layer.stride or layer.kernel
    sizes = zip(
        shape[1:], (top + bottom, left + right), layer.kernel, layer.dilation, stride, strict=True
    )
    rows, columns = ((n + p - d * (k - 1) - 1) // s + 1 for n, p, k, d, s in sizes)
    if min(rows, columns) < 1:
        name = type(layer).__name__
        raise InputError(f"{name} with kernel {layer.kernel} does not fit into shape {shape}")
    return rows, columns


def _scale_shape(layer: Scale, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    if len(shape) != len(layer.shape) or any(
        own not in (1, size) for own, size in zip(layer.shape, shape, strict=True)
    ):
        raise InputError(f"Scale of shape {layer.shape} follows shape {shape}; give it, or sizes 1")
    return shape


def _moved_shape(layer: Move, shapes: Sequence[Shape]) -> Shape:
    return layer.shape(*shapes)


def _sum_shape(_: Add, shapes: Sequence[Shape]) -> Shape:
    if len(shapes) < 2 or len(set(shapes)) > 1:
        raise InputError(
            f"Add reads shapes {list(shapes)}; give it two or more inputs of one shape"
        )
    return shapes[0]


def _same_shape(_: Activation, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    return shape


def _sloped_shape(layer: PReLU, shapes: Sequence[Shape]) -> Shape:
    (shape,) = shapes
    own = layer.shape
    if own and (len(own) != len(shape) or not _spreads(own, shape)):
        raise InputError(f"PReLU of shape {own} follows shape {shape}; give it, or sizes 1")
    return shape


def _spreads(own: Shape, shape: Shape) -> bool:
    return all(size in (1, given) for size, given in zip(own, shape, strict=True))


PARAMETERS: dict[type, Callable[[Any], dict[str, Shape]]] = {
    Dense: _dense_parameters,
    Conv2d: _conv_parameters,
    Scale: _scale_parameters,
    **dict.fromkeys((AvgPool2d, MaxPool2d, *WIRING, *ACTIVATIONS), _none),
}
SHAPES: dict[type, Callable[[Any, Sequence[Shape]], Shape]] = {
    Dense: _dense_shape,
    Conv2d: _conv_shape,
    Scale: _scale_shape,
    AvgPool2d: _pool_shape,
    MaxPool2d: _pool_shape,
    Add: _sum_shape,
    **dict.fromkeys(MOVES, _moved_shape),
    **dict.fromkeys(ACTIVATIONS, _same_shape),
    PReLU: _sloped_shape,
}
LAYERS: dict[str, type[Layer]] = {kind.__name__: kind for kind in SHAPES}

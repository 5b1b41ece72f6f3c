"""Layers on flat vectors: the one place that knows which layers there are, and their widths.

What an activation is like is said once, in `KINDS`; what follows from it is asked for as `traits`.

A linear layer's weights and biases are one matrix [entries + 1, channels] whose last row meets the
constant 1, so that a bias needs no case of its own. A dense layer has one entry an input and one
place; a convolution has one for each channel and position of its kernel, and applies the same
matrix at every place. `patches` are what meets the matrix, `pull` is the transposed map: rows·(W h)
= pull(matrix, rows)·(h, 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array, sum_error, up

Shape: TypeAlias = tuple[int, ...]

WINDOW = 64  # numbers' worth of slices and views that a position in a window takes


@dataclass(frozen=True)
class Dense:
    """y = h W + b; its weights start at `start` of the flat weight vector."""

    inputs: int
    outputs: int
    bias: bool
    start: int
    position: int = 0  # among all layers

    @property
    def is_image(self) -> bool:
        return False

    @property
    def size(self) -> int:
        return (self.inputs + self.bias) * self.outputs

    @property
    def terms(self) -> int:
        """Of a sum in `pull`."""
        return self.outputs

    @property
    def held(self) -> int:
        """The most numbers that a walk holds of one row, or a matrix beside the weights."""
        return max(self.inputs, self.outputs) + 1

    @property
    def parameters(self) -> dict[str, Shape]:
        """Letter and shape of the parameters, in the order of the flat weight vector."""
        return {"W": (self.inputs, self.outputs)} | ({"b": (self.outputs,)} if self.bias else {})

    def matrix(self, flat: Array) -> Array:
        """[..., inputs + 1, outputs] out of flat vectors [..., size]; without a bias its row is
        0."""
        middle = self.start + self.inputs * self.outputs
        weights = flat[..., self.start : middle].reshape(
            *flat.shape[:-1], self.inputs, self.outputs
        )
        return _with_bias(weights, flat[..., middle : middle + self.outputs] if self.bias else None)

    def pull(self, matrix: Array, rows: Array) -> Array:
        return np.asarray(rows @ matrix.T)


@dataclass(frozen=True)
class Conv:
    """A convolution over zero-padded [channels, height, width]; with `pool` the mean over windows
    of each channel."""

    shape: Shape
    channels: int
    kernel: Shape
    stride: Shape
    padding: Shape
    bias: bool
    start: int
    position: int  # among all layers
    pool: bool = False

    @property
    def places(self) -> Shape:
        """Rows and columns of the output."""
        return window_places(self.shape, self.kernel, self.stride, self.padding)

    @property
    def outputs(self) -> int:
        return self.channels * math.prod(self.places)

    @property
    def is_image(self) -> bool:
        return True

    @property
    def entries(self) -> int:
        return self.shape[0] * math.prod(self.kernel)

    @property
    def size(self) -> int:
        return 0 if self.pool else self.channels * (self.entries + self.bias)

    @property
    def terms(self) -> int:
        """The most terms of a sum: at an output, at an input, or of the constant over all
        outputs."""
        return max(self.entries + 1, self.channels * math.prod(self.kernel), self.outputs)

    @property
    def held(self) -> int:
        """The most numbers that a walk holds of one row, or a matrix beside the weights."""
        patches = (self.entries + 1) * math.prod(self.places) + WINDOW * math.prod(self.kernel)
        return max(
            math.prod(self._padded),
            self.outputs,
            2 * patches,
            (self.entries + 1) * self.channels * self.pool,
        )

    @property
    def parameters(self) -> dict[str, Shape]:
        """Letter and shape of the parameters, in the order of the flat weight vector."""
        shapes = {"W": (self.channels, self.shape[0], *self.kernel), "b": (self.channels,)}
        return {} if self.pool else {name: shapes[name] for name in "Wb"[: 1 + self.bias]}

    def matrix(self, flat: Array) -> Array:
        """[..., entries + 1, channels]; zeros for a pool, which has no weights of its own."""
        if self.pool:
            return np.zeros((*flat.shape[:-1], self.entries + 1, self.channels))
        middle = self.start + self.channels * self.entries
        weights = flat[..., self.start : middle].reshape(
            *flat.shape[:-1], self.channels, self.entries
        )
        bias = flat[..., middle : middle + self.channels] if self.bias else None
        return _with_bias(np.moveaxis(weights, -1, -2), bias)

    def patches(self, h: Array) -> Array:
        """[entries + 1, places]"""
        padded = np.zeros(self._padded)
        self._inner(padded)[...] = h.reshape(self.shape)
        windows = [
            padded[(slice(None), *window)].reshape(self.shape[0], -1) for window in self._windows()
        ]
        found = np.stack(windows, 1).reshape(self.entries, -1)
        return np.concatenate([found, np.ones((1, found.shape[1]))])

    def pull(self, matrix: Array, rows: Array) -> Array:
        """[R, inputs + 1]"""
        shaped = rows.reshape(len(rows), self.channels, -1)
        columns = (matrix[:-1] @ shaped).reshape(len(rows), self.shape[0], -1, *self.places)
        padded = np.zeros((len(rows), *self._padded))
        for k, window in enumerate(self._windows()):
            padded[(slice(None), slice(None), *window)] += columns[:, :, k]
        constant = (shaped.sum(-1) @ matrix[-1])[:, None]
        return np.concatenate([self._inner(padded).reshape(len(rows), -1), constant], -1)

    @property
    def _padded(self) -> Shape:
        return (
            self.shape[0],
            *(n + 2 * p for n, p in zip(self.shape[1:], self.padding, strict=True)),
        )

    def _inner(self, padded: Array) -> Array:
        (top, left), (_, height, width) = self.padding, self.shape
        return padded[..., top : top + height, left : left + width]

    def _windows(self) -> list[tuple[slice, slice]]:
        return windows(self.kernel, self.stride, self.places)


@dataclass(frozen=True)
class MaxPool:
    """The maximum over windows of each channel of [channels, height, width]."""

    shape: Shape
    kernel: Shape
    stride: Shape

    @property
    def places(self) -> Shape:
        return window_places(self.shape, self.kernel, self.stride, (0, 0))

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)

    @property
    def outputs(self) -> int:
        return self.shape[0] * math.prod(self.places)

    @property
    def held(self) -> int:
        """The most numbers that a walk holds of one row, or all windows."""
        return max(
            self.inputs, 2 * self.outputs * math.prod(self.kernel) + WINDOW * math.prod(self.kernel)
        )

    def gather(self, h: Array) -> Array:
        """[outputs, entries of a window]"""
        shaped, moving = h.reshape(self.shape), windows(self.kernel, self.stride, self.places)
        return np.stack([shaped[(slice(None), *window)].reshape(-1) for window in moving], -1)


@dataclass(frozen=True)
class Add:
    """The sum of several vectors or images of one shape.

    A join, as any layer that reads several nodes: it has no weights and is a linear map whose
    coefficients are 0 or 1. What it makes of values, of ends of intervals and of squares is `join`;
    what its rows are on each of its terms is `split`.
    """

    shape: Shape
    position: int  # among all layers

    def join(self, terms: list[Array], toward: Callable[[Array], Array]) -> Array:
        """Each sum rounded, up or down."""
        total = terms[0]
        for term in terms[1:]:
            total = toward(total + term)
        return total

    def split(self, rows: Array, terms: int) -> list[Array]:
        return [rows] * terms

    @property
    def is_image(self) -> bool:
        return len(self.shape) > 1

    @property
    def outputs(self) -> int:
        return math.prod(self.shape)

    @property
    def held(self) -> int:
        return self.outputs


@dataclass(frozen=True)
class Traits:
    """Of a nondecreasing activation f whose slopes are in [0, 1].

    bent: f(z) = max(z, slope z), the slope below 0 being `slope`; else f(z) = lift + height
    tanh(rate z). largest: of |f|; where it is infinite, |f(z)| <= |z|.
    """

    npz: str  # its name in `.npz` files
    slope: float | None = None  # of a leaky ReLU unless given
    curve: tuple[float, float, float] = (0.0, 0.0, 0.0)
    largest: float = math.inf

    @property
    def bent(self) -> bool:
        return self.slope is not None

    @property
    def flat_below(self) -> bool:
        """Whether f is 0 for all z <= 0, however far below."""
        return self.slope == 0


KINDS = {
    "ReLU": Traits("relu", slope=0.0),
    "LeakyReLU": Traits("leaky_relu", slope=0.01),
    "Tanh": Traits("tanh", curve=(0.0, 1.0, 1.0), largest=1.0),
    "Sigmoid": Traits("sigmoid", curve=(0.5, 0.5, 0.5), largest=1.0),
}


@dataclass(frozen=True)
class Activation:
    """One of `KINDS`; a bent one has its own slope below 0. Its slopes in proofs are named by its
    `position`."""

    kind: str
    slope: float | None
    width: int
    position: int

    @property
    def traits(self) -> Traits:
        return KINDS[self.kind]

    @property
    def outputs(self) -> int:
        return self.width

    @property
    def held(self) -> int:
        return self.width


Linear: TypeAlias = Dense | Conv
Join: TypeAlias = Add
JOINS: tuple[type[Join], ...] = (Add,)
Layer: TypeAlias = Dense | Conv | MaxPool | Join | Activation


def fixed_or(layer: Linear, flat: Array) -> Array:
    """The matrix out of a flat vector; of a pool 1 / (entries of a window): sums have SPARE for
    that rounding."""
    if isinstance(layer, Conv) and layer.pool:
        each = np.repeat(np.eye(layer.channels), math.prod(layer.kernel), 0) / math.prod(
            layer.kernel
        )
        return _with_bias(each, None)
    return layer.matrix(flat)


def pull_error(layer: Linear, matrix: Array, rows: Array) -> Array:
    """A bound of the rounding in layer.pull(matrix, rows), also when a few roundings follow; both
    are magnitudes."""
    return sum_error(layer.terms, layer.pull(matrix, rows))


def pull_up(layer: Linear, matrix: Array, rows: Array) -> Array:
    """layer.pull from above, for non-negative matrix and rows."""
    return up(layer.pull(matrix, rows) + pull_error(layer, matrix, rows))


def through_up(layer: Linear, matrix: Array, h: Array) -> Array:
    """W h + b from above, for non-negative matrix and h."""
    patches = layer.patches(h) if isinstance(layer, Conv) else np.append(h, 1.0)[:, None]
    total = (matrix.T @ patches).reshape(-1)
    return up(total + sum_error(len(matrix), total))


def window_places(shape: Shape, kernel: Shape, stride: Shape, padding: Shape) -> Shape:
    sizes = zip(shape[1:], kernel, stride, padding, strict=True)
    return tuple((n + 2 * p - k) // s + 1 for n, k, s, p in sizes)


def windows(kernel: Shape, stride: Shape, places: Shape) -> list[tuple[slice, slice]]:
    """For each position in a window, row by row, where it lies as the window moves over all
    places."""
    return [
        (
            slice(i, i + stride[0] * places[0], stride[0]),
            slice(j, j + stride[1] * places[1], stride[1]),
        )
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]


def _with_bias(weights: Array, bias: Array | None) -> Array:
    row = np.zeros((*weights.shape[:-2], weights.shape[-1])) if bias is None else bias
    return np.concatenate([weights, row[..., None, :]], -2)

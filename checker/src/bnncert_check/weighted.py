"""Linear layers on flat vectors: dense, convolution or mean over windows, scale.

A layer's weights and biases are one matrix [entries + 1, channels] whose last row meets the
constant 1, so that a bias needs no case of its own. A dense layer has one entry an input and one
place; a convolution has one for each channel of its group and position of its kernel, and applies
the same matrix at every place; a scale has one, for all entries that share it. `meet` is W h + b,
`pull` the transposed map, rows·(W h + b) = pull(matrix, rows)·(h, 1), and `slopes` the derivative
of that with respect to the matrix. All are plain sums: what rounding does to them is bounded
outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

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

    def meet(self, matrix: Array, h: Array, one: float = 1.0) -> Array:
        return np.asarray(np.append(h, one) @ matrix)

    def meets(self, matrix: Array, h: Array) -> Array:
        """W h of many h [D, inputs]."""
        return np.asarray(h @ matrix[:-1])

    def pull(self, matrix: Array, rows: Array) -> Array:
        return np.asarray(rows @ matrix.T)


@dataclass(frozen=True)
class Conv:
    """A convolution over [channels, height, width], padded with zeros at the top, left, bottom and
    right, in groups of channels; with `pool` the mean over windows of each channel."""

    shape: Shape
    channels: int
    kernel: Shape
    stride: Shape
    padding: Shape
    bias: bool
    start: int
    position: int  # among all layers
    dilation: Shape = (1, 1)
    groups: int = 1
    pool: bool = False

    @property
    def places(self) -> Shape:
        """Rows and columns of the output."""
        return window_places(self.shape, self.kernel, self.stride, self.padding, self.dilation)

    @property
    def outputs(self) -> int:
        return self.channels * math.prod(self.places)

    @property
    def is_image(self) -> bool:
        return True

    @property
    def entries(self) -> int:
        """That one channel meets."""
        return self.shape[0] // self.groups * math.prod(self.kernel)

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
        patches = self.groups * (self.entries + 1) * math.prod(self.places)
        return max(
            math.prod(self._padded),
            self.outputs,
            2 * (patches + WINDOW * math.prod(self.kernel)),
            (self.entries + 1) * self.channels * self.pool,
        )

    @property
    def parameters(self) -> dict[str, Shape]:
        """Letter and shape of the parameters, in the order of the flat weight vector."""
        inputs = self.shape[0] // self.groups
        shapes = {"W": (self.channels, inputs, *self.kernel), "b": (self.channels,)}
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

    def meet(self, matrix: Array, h: Array, one: float = 1.0) -> Array:
        grouped = matrix.T.reshape(self.groups, -1, self.entries + 1)
        return np.asarray(grouped @ self._patches(h, one)).reshape(-1)

    def meets(self, matrix: Array, h: Array) -> Array:
        """W h of many h [D, inputs], position by position of the kernel."""
        count, places = len(h), math.prod(self.places)
        padded = np.zeros((count, *self._padded))
        self._inner(padded)[...] = h.reshape(count, *self.shape)
        grouped = padded.reshape(count, self.groups, -1, *padded.shape[2:])
        kernels = self._kernels(matrix)
        total = np.zeros((count, self.groups, self._each, places))
        for k, window in enumerate(self._windows()):
            met = grouped[(slice(None), slice(None), slice(None), *window)]
            total += np.transpose(kernels[:, k], (1, 2, 0)) @ met.reshape(*met.shape[:3], places)
        return total.reshape(count, -1)

    def _kernels(self, matrix: Array) -> Array:
        """[channels in, positions, groups, channels out], both of a group."""
        return matrix[:-1].reshape(-1, math.prod(self.kernel), self.groups, self._each)

    @property
    def _each(self) -> int:
        """Channels of a group."""
        return self.channels // self.groups

    def pull(self, matrix: Array, rows: Array) -> Array:
        """[R, inputs + 1]"""
        count, places = len(rows), math.prod(self.places)
        shaped = rows.reshape(count, self.groups, self._each, places)
        kernels = self._kernels(matrix)
        padded = np.zeros((count, *self._padded))
        for k, window in enumerate(self._windows()):
            met = np.moveaxis(kernels[:, k], 1, 0) @ shaped
            part = met.reshape(count, self.shape[0], *self.places)
            padded[(slice(None), slice(None), *window)] += part
        constant = (rows.reshape(count, self.channels, places).sum(-1) @ matrix[-1])[:, None]
        return np.concatenate([self._inner(padded).reshape(count, -1), constant], -1)

    def slopes(self, rows: Array, h: Array, one: float = 1.0) -> Array:
        """[R, entries + 1, channels]"""
        patches = self._patches(h, one)
        shaped = rows.reshape(len(rows), self.groups, -1, patches.shape[-1])
        found = (shaped @ np.moveaxis(patches, -1, -2)).reshape(len(rows), self.channels, -1)
        return np.moveaxis(found, -1, -2)

    def _patches(self, h: Array, one: float) -> Array:
        """[groups, entries + 1, places]"""
        padded = np.zeros(self._padded)
        self._inner(padded)[...] = h.reshape(self.shape)
        moved = [
            padded[(slice(None), *window)].reshape(self.shape[0], -1) for window in self._windows()
        ]
        found = np.stack(moved, 1).reshape(self.groups, self.entries, -1)
        return np.concatenate([found, np.full((self.groups, 1, found.shape[-1]), one)], 1)

    @property
    def _padded(self) -> Shape:
        top, left, bottom, right = self.padding
        return (self.shape[0], self.shape[1] + top + bottom, self.shape[2] + left + right)

    def _inner(self, padded: Array) -> Array:
        (top, left, _, _), (_, height, width) = self.padding, self.shape
        return padded[..., top : top + height, left : left + width]

    def _windows(self) -> list[tuple[slice, slice]]:
        return windows(self.kernel, self.stride, self.places, self.dilation)


@dataclass(frozen=True)
class Scale:
    """y = W∘h + b, with W and b of shape `own`, which is that of h but for sizes of 1: entries
    along such a dimension share their numbers."""

    shape: Shape
    own: Shape
    bias: bool
    start: int
    position: int  # among all layers

    @property
    def inputs(self) -> int:
        return math.prod(self.shape)

    @property
    def outputs(self) -> int:
        return self.inputs

    @property
    def channels(self) -> int:
        return math.prod(self.own)

    @property
    def is_image(self) -> bool:
        return len(self.shape) > 1

    @property
    def size(self) -> int:
        return self.channels * (1 + self.bias)

    @property
    def terms(self) -> int:
        """The most terms of a sum: of the constant over all outputs."""
        return self.outputs + 1

    @property
    def held(self) -> int:
        return 2 * self.outputs + 1

    @property
    def parameters(self) -> dict[str, Shape]:
        """Letter and shape of the parameters, in the order of the flat weight vector."""
        return {"W": self.own} | ({"b": self.own} if self.bias else {})

    def matrix(self, flat: Array) -> Array:
        """[..., 2, channels]"""
        middle = self.start + self.channels
        weights = flat[..., None, self.start : middle]
        return _with_bias(
            weights, flat[..., middle : middle + self.channels] if self.bias else None
        )

    def meet(self, matrix: Array, h: Array, one: float = 1.0) -> Array:
        weights, bias = matrix[:, self._shared]
        return np.asarray(weights * h + bias * one)

    def meets(self, matrix: Array, h: Array) -> Array:
        """W h of many h [D, inputs]."""
        return np.asarray(h * matrix[0, self._shared])

    def pull(self, matrix: Array, rows: Array) -> Array:
        """[R, inputs + 1]"""
        weights, bias = matrix[:, self._shared]
        return np.concatenate([rows * weights, (rows @ bias)[:, None]], -1)

    def slopes(self, rows: Array, h: Array, one: float = 1.0) -> Array:
        """[R, 2, channels]"""
        found = np.zeros((len(rows), 2, self.channels))
        for k, met in enumerate((rows * h, rows * one)):
            np.add.at(np.moveaxis(found[:, k], 0, -1), self._shared, met.T)
        return found

    @cached_property
    def _shared(self) -> NDArray[np.int64]:
        """For every entry the number of its weight."""
        numbers = np.arange(self.channels).reshape(self.own)
        return np.broadcast_to(numbers, self.shape).reshape(-1)


Linear: TypeAlias = Dense | Conv | Scale
Sharing: TypeAlias = Conv | Scale  # weights that meet several entries


def fixed_or(layer: Linear, flat: Array) -> Array:
    """The matrix out of a flat vector; of a pool 1 / (entries of a window): sums have SPARE for
    that rounding."""
    if isinstance(layer, Conv) and layer.pool:
        return _with_bias(np.full((layer.entries, layer.channels), 1 / layer.entries), None)
    return layer.matrix(flat)


def pull_error(layer: Linear, matrix: Array, rows: Array) -> Array:
    """A bound of the rounding in layer.pull(matrix, rows), also when a few roundings follow; both
    are magnitudes."""
    return sum_error(layer.terms, layer.pull(matrix, rows))


def pull_up(layer: Linear, matrix: Array, rows: Array) -> Array:
    """layer.pull from above, for non-negative matrix and rows."""
    return up(layer.pull(matrix, rows) + pull_error(layer, matrix, rows))


def meet_error(layer: Linear, matrix: Array, h: Array, one: float = 1.0) -> Array:
    """A bound of the rounding in layer.meet(matrix, h, one), also when a few roundings follow; all
    are magnitudes."""
    return sum_error(len(matrix), layer.meet(matrix, h, one))


def meet_up(layer: Linear, matrix: Array, h: Array, one: float = 1.0) -> Array:
    """layer.meet from above, for non-negative matrix and h."""
    return up(layer.meet(matrix, h, one) + meet_error(layer, matrix, h, one))


def window_places(
    shape: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape = (1, 1)
) -> Shape:
    """Rows and columns of windows, for padding at the top, left, bottom and right."""
    around = (padding[0] + padding[2], padding[1] + padding[3])
    sizes = zip(shape[1:], kernel, stride, around, dilation, strict=True)
    return tuple((n + p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sizes)


def windows(
    kernel: Shape, stride: Shape, places: Shape, dilation: Shape = (1, 1)
) -> list[tuple[slice, slice]]:
    """For each position in a window, row by row, where it lies as the window moves over all
    places."""
    firsts = [
        (i * dilation[0], j * dilation[1]) for i in range(kernel[0]) for j in range(kernel[1])
    ]
    return [
        (
            slice(i, i + stride[0] * places[0], stride[0]),
            slice(j, j + stride[1] * places[1], stride[1]),
        )
        for i, j in firsts
    ]


def _with_bias(weights: Array, bias: Array | None) -> Array:
    row = np.zeros((*weights.shape[:-2], weights.shape[-1])) if bias is None else bias
    return np.concatenate([weights, row[..., None, :]], -2)

"""Layers on flat vectors.

A linear layer's weights and biases are one matrix [entries + 1, channels] whose last row meets the constant 1, so that
a bias needs no case of its own. A dense layer has one entry an input and one place; a convolution has one for each
channel and position of its kernel, and applies the same matrix at every place. `patches` are what meets the matrix,
`pull` is the transposed map: rows·(W h) = pull(matrix, rows)·(h, 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array, sum_error, up

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Dense:
    """y = h W + b; its weights start at `start` of the flat weight vector."""

    inputs: int
    outputs: int
    bias: bool
    start: int
    position: int = 0  # among all layers

    @property
    def size(self) -> int:
        return (self.inputs + self.bias) * self.outputs

    @property
    def terms(self) -> int:
        """Of a sum in `pull`."""
        return self.outputs

    def matrix(self, flat: Array) -> Array:
        """[..., inputs + 1, outputs] out of flat vectors [..., size]; without a bias its row is 0."""
        middle = self.start + self.inputs * self.outputs
        weights = flat[..., self.start : middle].reshape(*flat.shape[:-1], self.inputs, self.outputs)
        return _with_bias(weights, flat[..., middle : middle + self.outputs] if self.bias else None)

    def pull(self, matrix: Array, rows: Array) -> Array:
        return np.asarray(rows @ matrix.T)


@dataclass(frozen=True)
class Conv:
    """A convolution over zero-padded [channels, height, width]; with `pool` the mean over windows of each channel."""

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
    def entries(self) -> int:
        return self.shape[0] * math.prod(self.kernel)

    @property
    def size(self) -> int:
        return 0 if self.pool else self.channels * (self.entries + self.bias)

    @property
    def terms(self) -> int:
        """The most terms of a sum: at an output, at an input, or of the constant over all outputs."""
        return max(self.entries + 1, self.channels * math.prod(self.kernel), self.outputs)

    def matrix(self, flat: Array) -> Array:
        """[..., entries + 1, channels]; zeros for a pool, which has no weights of its own."""
        if self.pool:
            return np.zeros((*flat.shape[:-1], self.entries + 1, self.channels))
        middle = self.start + self.channels * self.entries
        weights = flat[..., self.start : middle].reshape(*flat.shape[:-1], self.channels, self.entries)
        bias = flat[..., middle : middle + self.channels] if self.bias else None
        return _with_bias(np.moveaxis(weights, -1, -2), bias)

    def patches(self, h: Array) -> Array:
        """[entries + 1, places]"""
        padded = np.zeros(self._padded)
        self._inner(padded)[...] = h.reshape(self.shape)
        windows = [padded[(slice(None), *window)].reshape(self.shape[0], -1) for window in self._windows()]
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
        return (self.shape[0], *(n + 2 * p for n, p in zip(self.shape[1:], self.padding, strict=True)))

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
    def outputs(self) -> int:
        return self.shape[0] * math.prod(window_places(self.shape, self.kernel, self.stride, (0, 0)))

    def gather(self, h: Array) -> Array:
        """[outputs, entries of a window]"""
        shaped, places = h.reshape(self.shape), window_places(self.shape, self.kernel, self.stride, (0, 0))
        found = [shaped[(slice(None), *window)].reshape(-1) for window in windows(self.kernel, self.stride, places)]
        return np.stack(found, -1)


@dataclass(frozen=True)
class Activation:
    """ReLU and LeakyReLU: max(z, slope z); Tanh and Sigmoid: slope None. Its slopes are named by its `position`."""

    kind: str
    slope: float | None
    position: int


Linear: TypeAlias = Dense | Conv
Layer: TypeAlias = Dense | Conv | MaxPool | Activation


def fixed_or(layer: Linear, flat: Array) -> Array:
    """The matrix out of a flat vector; of a pool 1 / (entries of a window): sums have SPARE for that rounding."""
    if isinstance(layer, Conv) and layer.pool:
        each = np.repeat(np.eye(layer.channels), math.prod(layer.kernel), 0) / math.prod(layer.kernel)
        return _with_bias(each, None)
    return layer.matrix(flat)


def pull_error(layer: Linear, matrix: Array, rows: Array) -> Array:
    """A bound of the rounding in layer.pull(matrix, rows), also when a few roundings follow; both are magnitudes."""
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
    """For each position in a window, row by row, where it lies as the window moves over all places."""
    return [
        (slice(i, i + stride[0] * places[0], stride[0]), slice(j, j + stride[1] * places[1], stride[1]))
        for i in range(kernel[0])
        for j in range(kernel[1])
    ]


def _with_bias(weights: Array, bias: Array | None) -> Array:
    row = np.zeros((*weights.shape[:-2], weights.shape[-1])) if bias is None else bias
    return np.concatenate([weights, row[..., None, :]], -2)

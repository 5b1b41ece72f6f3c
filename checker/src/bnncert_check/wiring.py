"""Layers without weights that are no activations: sums, moves, maxima over windows.

Sums and moves are linear with coefficients 0 and 1. What one makes of values, of ends of intervals
and of squares is `join`; what its rows are on each node that it reads is `split`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.weighted import WINDOW, Shape, window_places, windows

Numbers: TypeAlias = NDArray[np.int64]

NOTHING = -1  # stands for an entry that is 0


@dataclass(frozen=True)
class Add:
    """The sum of several vectors or images of one shape."""

    shape: Shape
    position: int  # among all layers

    def join(self, terms: list[Array], toward: Callable[[Array], Array]) -> Array:
        """Each sum rounded, up or down."""
        total = terms[0]
        for term in terms[1:]:
            total = toward(total + term)
        return total

    def join_all(self, terms: list[Array]) -> Array:
        """Of many [D, outputs] each, as they are computed."""
        return np.asarray(sum(terms[1:], terms[0]))

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


@dataclass(frozen=True, eq=False)
class Move:
    """Every entry of `shape` is one of those that it reads, or 0; none is there twice.

    arrange: what it makes of arrays of the shapes that it reads.
    """

    shapes: tuple[Shape, ...]
    shape: Shape
    arrange: Callable[[list[Numbers]], Numbers]

    @property
    def widths(self) -> list[int]:
        """Of what it reads."""
        return [math.prod(shape) for shape in self.shapes]

    @cached_property
    def entries(self) -> Numbers:
        """Which entry each one is, the nodes' numbered through; made when it is needed, since sizes
        are not to be trusted before."""
        ends = np.cumsum(self.widths).tolist()
        pairs = zip(self.shapes, self.widths, ends, strict=True)
        numbers = [np.arange(end - n, end).reshape(shape) for shape, n, end in pairs]
        return self.arrange(numbers).reshape(-1)

    def join(self, terms: list[Array], _: Callable[[Array], Array]) -> Array:
        """Nothing is rounded."""
        return np.append(np.concatenate(terms), 0.0)[self.entries]

    def join_all(self, terms: list[Array]) -> Array:
        """Of many [D, entries] each."""
        nothing = np.zeros((len(terms[0]), 1))
        return np.concatenate([*terms, nothing], -1)[:, self.entries]

    def split(self, rows: Array, _: int) -> list[Array]:
        whole = np.zeros((len(rows), sum(self.widths) + 1))
        whole[:, self.entries] = rows
        return np.split(whole[:, :-1], np.cumsum(self.widths)[:-1], -1)

    @property
    def outputs(self) -> int:
        return math.prod(self.shape)

    @property
    def held(self) -> int:
        return max(sum(self.widths) + 1, self.outputs)


@dataclass(frozen=True)
class MaxPool:
    """The maximum over windows of each channel of [channels, height, width]; padding, at the top,
    left, bottom and right, is never the maximum."""

    shape: Shape
    kernel: Shape
    stride: Shape
    padding: Shape = (0, 0, 0, 0)

    @property
    def places(self) -> Shape:
        return window_places(self.shape, self.kernel, self.stride, self.padding)

    @property
    def outputs(self) -> int:
        return self.shape[0] * math.prod(self.places)

    @property
    def held(self) -> int:
        """The most numbers that a walk holds of one row, or all windows."""
        top, left, bottom, right = self.padding
        padded = self.shape[0] * (self.shape[1] + top + bottom) * (self.shape[2] + left + right)
        moved = 2 * self.outputs * math.prod(self.kernel) + WINDOW * math.prod(self.kernel)
        return max(padded, moved)

    def gather(self, h: Array, padding: float) -> Array:
        """[outputs, entries of a window]"""
        top, left, bottom, right = self.padding
        sides = ((0, 0), (top, bottom), (left, right))
        padded = np.pad(h.reshape(self.shape), sides, constant_values=padding)
        moving = windows(self.kernel, self.stride, self.places)
        return np.stack([padded[(slice(None), *window)].reshape(-1) for window in moving], -1)

    def maximum(self, h: Array) -> Array:
        found: Array = self.gather(h, -np.inf).max(-1)
        return found


Wiring: TypeAlias = Add | Move
Sum: TypeAlias = Add
SUMS: tuple[type[Sum], ...] = (Add,)

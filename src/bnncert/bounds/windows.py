"""Windows: the part of an image that a few of its neurons depend on.

Rows of neurons in a tile of an image are 0 outside of what the tile's windows reach, layer by
layer. So the steps are cropped to it first, and the walk is the same on smaller images (patches,
Xu et al. 2020, but one size for a whole tile).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    MaxPool2d,
    Scale,
    Shape,
    Windowed,
    sides,
)
from bnncert.model.moves import Concat
from bnncert.model.network import Network


@dataclass(frozen=True)
class Window:
    """Rows top to bottom and columns left to right of an image, the ends not included."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        return self.bottom - self.top, self.right - self.left

    def of(self, values: Tensor) -> Tensor:
        """values [..., height, width] there."""
        return values[..., self.top : self.bottom, self.left : self.right]

    def of_flat(self, values: Tensor, shape: Shape) -> Tensor:
        """values [..., n] of flattened images there, flat again."""
        return self.of(values.reshape(*values.shape[:-1], *shape)).flatten(-3)

    def of_box(self, box: Box) -> Box:
        return box[..., self.top : self.bottom, self.left : self.right]

    def around(self, other: Window) -> Window:
        """The smallest that holds both."""
        return Window(
            min(self.top, other.top),
            max(self.bottom, other.bottom),
            min(self.left, other.left),
            max(self.right, other.right),
        )

    def margins(self, inner: Window) -> tuple[int, int, int, int]:
        """Columns left and right of a window inside it, rows above and below: as `pad` wants."""
        return (
            inner.left - self.left,
            self.right - inner.right,
            inner.top - self.top,
            self.bottom - inner.bottom,
        )


@dataclass(frozen=True)
class Crop:
    """A window on each node that a tile depends on, and for each layer on the way what its part of
    the outputs reads: no more than the nodes' windows."""

    nodes: dict[int, Window]
    reads: dict[int, Window]


def crop_of(network: Network, node: int, tile: Window) -> Crop | None:
    """What a tile of a node depends on; None where a layer on the way does not keep places."""
    nodes = {node: tile}
    reads: dict[int, Window] = {}
    for k in reversed(range(node)):
        if k + 1 not in nodes:
            continue
        found = _reach(network, k, nodes[k + 1])
        if found is None:
            return None
        reads[k] = found
        for before in network.reads[k]:
            nodes[before] = found.around(nodes.get(before, found))
    # Noise at the input is folded with rows there: all layers that read it must read the same part.
    same = all(reads[k] == nodes[0] for k in network.readers[0] if k in reads)
    return Crop(nodes, reads) if same else None


def _reach(network: Network, k: int, window: Window) -> Window | None:
    layer = network.layers[k]
    shape = network.shape_before(k)
    if type(layer) not in REACH or len(shape) != 3:
        return None
    return REACH[type(layer)](layer, window, shape)


def _windows(layer: Windowed, window: Window, shape: Shape) -> Window | None:
    """The rows and columns that the window's places read; None if one reads padding alone."""
    top, left, _, _ = sides(layer)
    first, second = (
        _reached(layer, axis, before, ends, shape[1 + axis])
        for axis, before, ends in (
            (0, top, (window.top, window.bottom)),
            (1, left, (window.left, window.right)),
        )
    )
    if first[0] >= first[1] or second[0] >= second[1]:
        return None
    return Window(*first, *second)


def _reached(
    layer: Windowed, axis: int, before: int, ends: tuple[int, int], size: int
) -> tuple[int, int]:
    stride = (layer.stride or layer.kernel)[axis]
    start = ends[0] * stride - before
    stop = (ends[1] - 1) * stride - before + layer.dilation[axis] * (layer.kernel[axis] - 1) + 1
    return max(start, 0), min(stop, size)


def _same(_: object, window: Window, __: Shape) -> Window:
    return window


def _channels(layer: Concat, window: Window, _: Shape) -> Window | None:
    return window if layer.axis == 0 else None


REACH: dict[type, Callable[[Any, Window, Shape], Window | None]] = {
    Conv2d: _windows,
    AvgPool2d: _windows,
    MaxPool2d: _windows,
    Scale: _same,
    Add: _same,
    Concat: _channels,
    **dict.fromkeys(ACTIVATIONS, _same),
}

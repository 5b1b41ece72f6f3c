"""Pools and means: over windows, over as many windows as are asked for, over whole dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from bnncert.importers.drawing import Drawing
from bnncert.importers.linear import Sizes, as_image, as_sequence, pair
from bnncert.importers.values import At, UnreadableError
from bnncert.model.layers import AvgPool2d, MaxPool2d, Shape


def max_pool(
    drawing: Drawing,
    x: At,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> At:
    """Windows that `ceil_mode` lets reach over the end read padding there, never a maximum."""
    if pair(dilation, 1)[1] != 1 or return_indices:
        raise UnreadableError("has dilation or returns indices")
    image, window = _windows(x, kernel_size, stride, padding)
    kernel, steps, (top, left) = window
    bottom, right = top, left
    if ceil_mode:
        bottom += _over(image.shape[1], kernel[0], steps[0], top)
        right += _over(image.shape[2], kernel[1], steps[1], left)
    return _as_before(
        drawing.append(MaxPool2d(kernel, steps, (top, left, bottom, right)), image), x
    )


def avg_pool(
    drawing: Drawing,
    x: At,
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> At:
    image, (kernel, steps, sides) = _windows(x, kernel_size, stride, padding)
    over = (
        _over(size, *of)
        for size, *of in zip(image.shape[1:], kernel, steps, sides, strict=True)
        if ceil_mode
    )
    if any(over) or divisor_override is not None or (any(sides) and not count_include_pad):
        raise UnreadableError(
            "has windows that are not all divided by their size "
            "(ceil_mode, divisor_override or count_include_pad=False)"
        )
    return _as_before(drawing.append(AvgPool2d(kernel, steps, sides), image), x)


def adaptive_avg_pool(drawing: Drawing, x: At, output_size: Sizes) -> At:
    kernel = _adapted(x, output_size)
    return x if kernel is None else avg_pool(drawing, x, kernel)


def adaptive_max_pool(
    drawing: Drawing, x: At, output_size: Sizes, return_indices: bool = False
) -> At:
    kernel = _adapted(x, output_size)
    return x if kernel is None else max_pool(drawing, x, kernel, return_indices=return_indices)


def mean(
    drawing: Drawing,
    x: At,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> At:
    """Over whole dimensions, which may not be that of the batch."""
    if dtype not in (None, torch.float32, torch.float64):
        raise UnreadableError(f"computes in {dtype}")
    axes = _axes(x, dim)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    left = tuple(size for axis, size in enumerate(x.shape) if axis not in axes)
    if len(x.shape) == 3 and axes == [1, 2]:
        x = drawing.append(AvgPool2d(x.shape[1:]), x)
    else:
        for axis in axes:
            x = _mean_along(drawing, x, axis)
    return drawing.viewed(x, kept if keepdim else left)


def total(
    drawing: Drawing,
    x: At,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> At:
    """A sum over whole dimensions, as so many times the mean."""
    terms = math.prod(x.shape[axis] for axis in _axes(x, dim))
    found = mean(drawing, x, dim, keepdim, dtype=dtype)
    factor = drawing.constant(float(terms)).reshape((1,) * len(drawing.shapes[found.node]))
    return drawing.scaled(found, factor, torch.zeros_like(factor))


def _mean_along(drawing: Drawing, x: At, axis: int) -> At:
    """The mean along one dimension, as that of a column of windows."""
    before, size, after = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    found = drawing.append(AvgPool2d((size, 1)), At(x.node, (before, size, after)))
    return At(found.node, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


def _axes(x: At, dim: int | Sequence[int] | None) -> list[int]:
    """Dimensions without the batch's."""
    rank = len(x.shape) + 1
    named = range(rank) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    found = sorted(axis % rank for axis in named)
    if not found or found[0] == 0:
        raise UnreadableError("runs over the examples of a batch; name the other dimensions")
    return [axis - 1 for axis in found]


def _windows(
    x: At, kernel_size: Sizes, stride: Sizes | None, padding: Sizes
) -> tuple[At, tuple[tuple[int, int], tuple[int, int], tuple[int, int]]]:
    """The input as an image, and kernel, stride and padding of each dimension."""
    dimensions = len(x.shape) - 1
    if dimensions not in (1, 2):
        raise UnreadableError(f"does not take shape {x.shape}")
    kernel = pair(kernel_size, dimensions)
    steps = kernel if stride is None or stride == [] else pair(stride, dimensions)
    return as_image(x), (kernel, steps, pair(padding, dimensions, least=0))


def _as_before(found: At, x: At) -> At:
    return as_sequence(found) if len(x.shape) == 2 else found


def _over(size: int, kernel: int, stride: int, padding: int) -> int:
    """By how much the last window of ceil_mode reaches over the padding: it must begin before."""
    room = size + 2 * padding - kernel
    windows = -(-room // stride)
    windows -= windows * stride >= size + padding
    return max(0, windows * stride - room)


def _adapted(x: At, output_size: Sizes | Sequence[int | None]) -> Shape | None:
    """The kernel, if all windows are alike and beside each other; None if each is one entry."""
    sizes = x.shape[1:]
    asked = [output_size] * len(sizes) if isinstance(output_size, int) else [*output_size]
    asked = asked * len(sizes) if len(asked) == 1 else asked
    wanted = [size if own is None else own for own, size in zip(asked, sizes, strict=True)]
    if any(own < 1 or size % own for own, size in zip(wanted, sizes, strict=True)):
        raise UnreadableError(
            f"makes {tuple(wanted)} windows of {sizes}, which are not all alike; "
            "give sizes that divide"
        )
    kernel = tuple(size // own for own, size in zip(wanted, sizes, strict=True))
    return None if set(kernel) == {1} else kernel

"""Layers as maps: forward at activations, and the linear ones backward at rows.

A linear layer is a map from its input shape to its output shape, given by weights; it is always
applied with convolution kernels, never as an unrolled matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    Join,
    Layer,
    Linear,
    MaxPool2d,
    Shape,
    output_shape,
    rule_for,
)


def apply(
    layer: Layer, parameters: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape
) -> Tensor:
    """The layer at inputs [..., batch, *shape].

    Parameters may carry leading dimensions that broadcast.
    """
    return rule_for(FORWARD, layer)(layer, parameters, inputs, shape)


def through(layer: Linear, weights: Tensor, x: Tensor) -> Tensor:
    """The layer without its bias at x [..., batch, *shape].

    Weights may carry leading dimensions that broadcast.
    """
    return rule_for(THROUGH, layer)(layer, weights, x)


def pull(layer: Linear, weights: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    """rows [B or 1, R, *outputs] as rows before the layer [B or 1, R, *shape]: rows·(W h) =
    pulled·h.

    A dense layer's weights may be one per input, [B, in, out].
    """
    return rule_for(PULL, layer)(layer, weights, rows, shape)


def split_rows(layer: Join, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    """rows [B or 1, R, *outputs] on a join as rows on each of its terms, of the given shapes."""
    return rule_for(SPLIT, layer)(layer, rows, shapes)


def fan(layer: Linear) -> int:
    """Terms of a sum in the layer, forward or backward, whichever are more."""
    return rule_for(FAN, layer)(layer)


def spread_bias(layer: Linear, bias: Tensor, shape: Shape) -> Tensor:
    """A bias [..., channels] as one number per output [..., *outputs], for the input shape."""
    if isinstance(layer, Conv2d):
        return bias[..., None, None].expand(*bias.shape, *output_shape(layer, shape)[1:])
    return bias


def weight_gradients(layer: Conv2d, rows: Tensor, h: Tensor) -> Tensor:
    """d rows·(W h) / d kernel entries: [B, R, out, in · kernel] for h [B, *shape]."""
    # [B, in · kernel, places]
    patches = functional.unfold(h, layer.kernel, padding=layer.padding, stride=layer.stride)
    return rows.flatten(3) @ patches.unsqueeze(1).mT


def _weighted(
    layer: Dense | Conv2d, parameters: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape
) -> Tensor:
    y = through(layer, parameters[0], inputs[0])
    if not layer.bias:
        return y
    return y + spread_bias(layer, parameters[1], shape).unsqueeze(-len(shape) - 1)


def _average(layer: AvgPool2d, _: Sequence[Tensor], inputs: Sequence[Tensor], __: Shape) -> Tensor:
    return _averaged(layer, inputs[0], inputs[0])


def _maximum(layer: MaxPool2d, _: Sequence[Tensor], inputs: Sequence[Tensor], __: Shape) -> Tensor:
    (x,) = inputs
    flat = functional.max_pool2d(x.flatten(0, -4), layer.kernel, layer.stride)
    return flat.reshape(*x.shape[:-2], *flat.shape[-2:])


def _flat(_: Flatten, __: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape) -> Tensor:
    return inputs[0].flatten(-len(shape))


def _sum(_: Add, __: Sequence[Tensor], inputs: Sequence[Tensor], ___: Shape) -> Tensor:
    first, *others = inputs
    total = first
    for other in others:
        total = total + other
    return total


def _activated(
    layer: Activation, _: Sequence[Tensor], inputs: Sequence[Tensor], __: Shape
) -> Tensor:
    return layer(inputs[0])


def _dense(_: Dense, weights: Tensor, x: Tensor) -> Tensor:
    return x @ weights


def _averaged(layer: AvgPool2d, _: Tensor, x: Tensor) -> Tensor:
    flat = functional.avg_pool2d(x.flatten(0, -4), layer.kernel, layer.stride)
    return flat.reshape(*x.shape[:-2], *flat.shape[-2:])


def _convolved(layer: Conv2d, weights: Tensor, x: Tensor) -> Tensor:
    lead = weights.shape[:-4]
    if not lead:
        images = x.flatten(0, -4)
        flat = functional.conv2d(images, weights, stride=layer.stride, padding=layer.padding)
        return flat.reshape(*x.shape[:-3], *flat.shape[1:])
    # Several kernels at once are groups of one convolution.
    count = math.prod(lead)
    images = x.expand(*lead, *x.shape[-4:]).flatten(0, -5)  # [S, batch, C, H, W]
    stacked = images.transpose(0, 1).flatten(1, 2)
    kernels = weights.flatten(0, -4)
    flat = functional.conv2d(stacked, kernels, None, layer.stride, layer.padding, groups=count)
    grouped = flat.reshape(len(flat), count, -1, *flat.shape[-2:]).transpose(0, 1)
    return grouped.reshape(*lead, *grouped.shape[1:])


def _pull_dense(_: Dense, weights: Tensor, rows: Tensor, __: Shape) -> Tensor:
    return rows @ weights.mT


def _pull_convolution(layer: Conv2d, weights: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    return _transposed(rows, weights, shape, layer.kernel, layer.stride, layer.padding, 1)


def _pull_average(layer: AvgPool2d, _: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    share = torch.full_like(rows[0, 0, 0, 0, 0], 1 / math.prod(layer.kernel))
    weights = share.expand(shape[0], 1, *layer.kernel)
    stride = layer.stride or layer.kernel
    return _transposed(rows, weights, shape, layer.kernel, stride, (0, 0), shape[0])


def _transposed(
    rows: Tensor,
    weights: Tensor,
    shape: Shape,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
) -> Tensor:
    # Rows and columns at the end that no window reaches.
    left = [
        n + 2 * p - k - (m - 1) * s
        for n, p, k, m, s in zip(shape[1:], padding, kernel, rows.shape[-2:], stride, strict=True)
    ]
    flat = rows.flatten(0, 1)
    pulled = functional.conv_transpose2d(flat, weights, None, stride, padding, left, groups)
    return pulled.reshape(*rows.shape[:2], *shape)


def _split_sum(_: Add, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    """A (h + h') = A h + A h'"""
    return (rows,) * len(shapes)


def _dense_fan(layer: Dense) -> int:
    return max(layer.inputs, layer.outputs)


def _conv_fan(layer: Conv2d) -> int:
    return max(layer.in_channels, layer.out_channels) * math.prod(layer.kernel)


def _pool_fan(layer: AvgPool2d) -> int:
    return 2 * math.prod(layer.kernel)


FORWARD: dict[type, Callable[[Any, Sequence[Tensor], Sequence[Tensor], Shape], Tensor]] = {
    Dense: _weighted,
    Conv2d: _weighted,
    AvgPool2d: _average,
    MaxPool2d: _maximum,
    Flatten: _flat,
    Add: _sum,
    **dict.fromkeys(ACTIVATIONS, _activated),
}
THROUGH: dict[type, Callable[[Any, Tensor, Tensor], Tensor]] = {
    Dense: _dense,
    Conv2d: _convolved,
    AvgPool2d: _averaged,
}
PULL: dict[type, Callable[[Any, Tensor, Tensor, Shape], Tensor]] = {
    Dense: _pull_dense,
    Conv2d: _pull_convolution,
    AvgPool2d: _pull_average,
}
FAN: dict[type, Callable[[Any], int]] = {Dense: _dense_fan, Conv2d: _conv_fan, AvgPool2d: _pool_fan}
SPLIT: dict[type, Callable[[Any, Tensor, Sequence[Shape]], tuple[Tensor, ...]]] = {Add: _split_sum}

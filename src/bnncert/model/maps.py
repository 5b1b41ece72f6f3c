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
from bnncert.model.kernels import convolve, transpose
from bnncert.model.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    Dense,
    Layer,
    Linear,
    MaxPool2d,
    Scale,
    Shape,
    Weighted,
    Wiring,
    output_shape,
    rule_for,
    sides,
)
from bnncert.model.moves import MOVES, Move


def apply(
    layer: Layer, parameters: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape
) -> Tensor:
    """The layer at inputs [..., batch, *shape]; of several inputs the first has that shape.

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

    Weights of a dense layer or a scale may be one per input, [B, ...].
    """
    return rule_for(PULL, layer)(layer, weights, rows, shape)


def split_rows(layer: Wiring, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    """rows [B or 1, R, *outputs] as rows on each node that the layer reads, of the given shapes."""
    return rule_for(SPLIT, layer)(layer, rows, shapes)


def fan(layer: Linear) -> int:
    """Terms of a sum in the layer, forward or backward, whichever are more."""
    return rule_for(FAN, layer)(layer)


def spread_bias(layer: Linear, bias: Tensor, shape: Shape) -> Tensor:
    """A bias [..., *its shape] as one number per output [..., *outputs], for the input shape."""
    outputs = output_shape(layer, shape)
    if isinstance(layer, Conv2d):
        return bias[..., None, None].expand(*bias.shape, *outputs[1:])
    return bias.expand(*bias.shape[: bias.dim() - len(outputs)], *outputs)


def bias_rows(layer: Linear, rows: Tensor) -> Tensor:
    """The coefficient of every bias [B, R, biases] in rows·y: of shared ones the sum over their
    places."""
    if isinstance(layer, Scale):
        return _summed(rows, layer.shape).flatten(2)
    return rows.flatten(3).sum(-1) if rows.dim() > 3 else rows


def weight_gradients(layer: Conv2d | Scale, rows: Tensor, h: Tensor) -> Tensor:
    """d rows·(W h) / d every weight: [B, R, weights] for h [B, *shape]."""
    if isinstance(layer, Scale):
        return _summed(rows * h.unsqueeze(1), layer.shape).flatten(2)
    patches = _patches(layer, h)  # [B, groups, in · kernel, places]
    grouped = rows.reshape(*rows.shape[:2], layer.groups, -1, patches.shape[-1])
    return (grouped @ patches.unsqueeze(1).mT).flatten(2)


def shares_weights(layer: Linear) -> bool:
    """Whether one weight meets several entries."""
    return isinstance(layer, Conv2d | Scale)


def _patches(layer: Conv2d, h: Tensor) -> Tensor:
    top, left, bottom, right = sides(layer)
    padded = functional.pad(h, (left, right, top, bottom))
    found = functional.unfold(padded, layer.kernel, layer.dilation, stride=layer.stride)
    return found.reshape(len(h), layer.groups, -1, found.shape[-1])


def _summed(values: Tensor, shape: Shape) -> Tensor:
    """values [B, R, *outputs] summed where the shape has size 1."""
    shared = [2 + axis for axis, size in enumerate(shape) if size == 1]
    return values.sum(shared, keepdim=True) if shared else values


def _weighted(
    layer: Weighted, parameters: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape
) -> Tensor:
    y = through(layer, parameters[0], inputs[0])
    if not layer.bias:
        return y
    return y + spread_bias(layer, parameters[1], shape).unsqueeze(-len(shape) - 1)


def _average(layer: AvgPool2d, _: Sequence[Tensor], inputs: Sequence[Tensor], __: Shape) -> Tensor:
    return _averaged(layer, inputs[0], inputs[0])


def _maximum(layer: MaxPool2d, _: Sequence[Tensor], inputs: Sequence[Tensor], __: Shape) -> Tensor:
    (x,) = inputs
    top, left, bottom, right = sides(layer)
    padded = functional.pad(x.flatten(0, -4), (left, right, top, bottom), value=-math.inf)
    flat = functional.max_pool2d(padded, layer.kernel, layer.stride)
    return flat.reshape(*x.shape[:-2], *flat.shape[-2:])


def _moved(layer: Move, _: Sequence[Tensor], inputs: Sequence[Tensor], shape: Shape) -> Tensor:
    return layer.values(inputs, len(shape))


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


def _scaled(layer: Scale, weights: Tensor, x: Tensor) -> Tensor:
    return x * weights.unsqueeze(-len(layer.shape) - 1)


def _averaged(layer: AvgPool2d, _: Tensor, x: Tensor) -> Tensor:
    top, left, bottom, right = sides(layer)
    padded = functional.pad(x.flatten(0, -4), (left, right, top, bottom))
    flat = functional.avg_pool2d(padded, layer.kernel, layer.stride)
    return flat.reshape(*x.shape[:-2], *flat.shape[-2:])


def _convolved(layer: Conv2d, weights: Tensor, x: Tensor) -> Tensor:
    lead = weights.shape[:-4]
    if not lead:
        flat = convolve(layer, weights, x.flatten(0, -4), layer.groups)
        return flat.reshape(*x.shape[:-3], *flat.shape[1:])
    # Several kernels at once are groups of one convolution.
    count = math.prod(lead)
    images = x.expand(*lead, *x.shape[-4:]).flatten(0, -5)  # [S, batch, C, H, W]
    stacked = images.transpose(0, 1).flatten(1, 2)
    flat = convolve(layer, weights.flatten(0, -4), stacked, count * layer.groups)
    grouped = flat.reshape(len(flat), count, -1, *flat.shape[-2:]).transpose(0, 1)
    return grouped.reshape(*lead, *grouped.shape[1:])


def _pull_dense(_: Dense, weights: Tensor, rows: Tensor, __: Shape) -> Tensor:
    return rows @ weights.mT


def _pull_scale(layer: Scale, weights: Tensor, rows: Tensor, _: Shape) -> Tensor:
    return _scaled(layer, weights, rows)


def _pull_convolution(layer: Conv2d, weights: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    pulled = transpose(layer, weights, rows.flatten(0, 1), shape, layer.groups)
    return pulled.reshape(*rows.shape[:2], *shape)


def _pull_average(layer: AvgPool2d, _: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    share = torch.full_like(rows[0, 0, 0, 0, 0], 1 / math.prod(layer.kernel))
    weights = share.expand(shape[0], 1, *layer.kernel)
    pulled = transpose(layer, weights, rows.flatten(0, 1), shape, shape[0])
    return pulled.reshape(*rows.shape[:2], *shape)


def _split_moved(layer: Move, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    return layer.rows(rows, shapes)


def _split_sum(_: Add, rows: Tensor, shapes: Sequence[Shape]) -> tuple[Tensor, ...]:
    """A (h + h') = A h + A h'"""
    return (rows,) * len(shapes)


def _dense_fan(layer: Dense) -> int:
    return max(layer.inputs, layer.outputs)


def _conv_fan(layer: Conv2d) -> int:
    channels = max(layer.in_channels, layer.out_channels) // layer.groups
    return channels * math.prod(layer.kernel)


def _scale_fan(_: Scale) -> int:
    return 2


def _pool_fan(layer: AvgPool2d) -> int:
    return 2 * math.prod(layer.kernel)


FORWARD: dict[type, Callable[[Any, Sequence[Tensor], Sequence[Tensor], Shape], Tensor]] = {
    Dense: _weighted,
    Conv2d: _weighted,
    Scale: _weighted,
    AvgPool2d: _average,
    MaxPool2d: _maximum,
    Add: _sum,
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(ACTIVATIONS, _activated),
}
THROUGH: dict[type, Callable[[Any, Tensor, Tensor], Tensor]] = {
    Dense: _dense,
    Conv2d: _convolved,
    Scale: _scaled,
    AvgPool2d: _averaged,
}
PULL: dict[type, Callable[[Any, Tensor, Tensor, Shape], Tensor]] = {
    Dense: _pull_dense,
    Conv2d: _pull_convolution,
    Scale: _pull_scale,
    AvgPool2d: _pull_average,
}
FAN: dict[type, Callable[[Any], int]] = {
    Dense: _dense_fan,
    Conv2d: _conv_fan,
    Scale: _scale_fan,
    AvgPool2d: _pool_fan,
}
SPLIT: dict[type, Callable[[Any, Tensor, Sequence[Shape]], tuple[Tensor, ...]]] = {
    Add: _split_sum,
    **dict.fromkeys(MOVES, _split_moved),
}

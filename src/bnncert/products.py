"""Linear maps and products that broadcast over a batch.

A linear layer is a map from its input shape to its output shape, given by weights; here it is applied forward to
activations and backward to rows, always with convolution kernels, never as an unrolled matrix.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.layers import AvgPool2d, Conv2d, Dense, Linear, Shape, output_shape


def through(layer: Linear, weights: Tensor, x: Tensor) -> Tensor:
    """The layer without its bias at x [..., batch, *shape]; weights may carry leading dimensions that broadcast."""
    if isinstance(layer, Dense):
        return x @ weights
    if isinstance(layer, AvgPool2d):
        flat = functional.avg_pool2d(x.flatten(0, -4), layer.kernel, layer.stride)
        return flat.reshape(*x.shape[:-2], *flat.shape[-2:])
    lead = weights.shape[:-4]
    if not lead:
        flat = functional.conv2d(x.flatten(0, -4), weights, stride=layer.stride, padding=layer.padding)
        return flat.reshape(*x.shape[:-3], *flat.shape[1:])
    # Several kernels at once are groups of one convolution.
    count = math.prod(lead)
    images = x.expand(*lead, *x.shape[-4:]).flatten(0, -5)  # [S, batch, C, H, W]
    stacked = images.transpose(0, 1).flatten(1, 2)
    flat = functional.conv2d(stacked, weights.flatten(0, -4), None, layer.stride, layer.padding, groups=count)
    grouped = flat.reshape(len(flat), count, -1, *flat.shape[-2:]).transpose(0, 1)
    return grouped.reshape(*lead, *grouped.shape[1:])


def pull(layer: Linear, weights: Tensor, rows: Tensor, shape: Shape) -> Tensor:
    """rows [B or 1, R, *outputs] as rows before the layer [B or 1, R, *shape]: rows·(W h) = pulled·h.

    A dense layer's weights may be one an input, [B, in, out].
    """
    if isinstance(layer, Dense):
        return rows @ weights.mT
    flat = rows.flatten(0, 1)
    if isinstance(layer, AvgPool2d):
        weights = torch.full_like(rows[0, 0, 0, 0, 0], 1 / math.prod(layer.kernel)).expand(shape[0], 1, *layer.kernel)
    groups, padding = (1, layer.padding) if isinstance(layer, Conv2d) else (shape[0], (0, 0))
    stride = layer.stride or layer.kernel
    # Rows and columns at the end that no window reaches.
    left = [
        n + 2 * p - k - (m - 1) * s
        for n, p, k, m, s in zip(shape[1:], padding, layer.kernel, rows.shape[-2:], stride, strict=True)
    ]
    pulled = functional.conv_transpose2d(flat, weights, None, stride, padding, left, groups)
    return pulled.reshape(*rows.shape[:2], *shape)


def weight_gradients(layer: Conv2d, rows: Tensor, h: Tensor) -> Tensor:
    """The derivative of rows·(W h) with respect to every kernel entry: [B, R, out, in · kernel] for h [B, *shape]."""
    patches = functional.unfold(h, layer.kernel, padding=layer.padding, stride=layer.stride)  # [B, in·kernel, places]
    return rows.flatten(3) @ patches.unsqueeze(1).mT


def fan(layer: Linear) -> int:
    """Terms of a sum in the layer, forward or backward, whichever are more."""
    if isinstance(layer, Dense):
        return max(layer.inputs, layer.outputs)
    if isinstance(layer, AvgPool2d):
        return 2 * math.prod(layer.kernel)
    return max(layer.in_channels, layer.out_channels) * math.prod(layer.kernel)


def spread_bias(layer: Linear, bias: Tensor, shape: Shape) -> Tensor:
    """A bias [..., channels] as one number an output [..., *outputs], for the layer's input shape."""
    if isinstance(layer, Conv2d):
        return bias[..., None, None].expand(*bias.shape, *output_shape(layer, shape)[1:])
    return bias


def dot(rows: Tensor, vector: Tensor) -> Tensor:
    """rows [B or 1, R, n] times a shared [n] or paired [B, n] vector, [B, R]."""
    if vector.dim() == 1:
        return rows @ vector
    if len(rows) == 1:  # rows shared by the batch: one matrix product instead of B copies
        return vector @ rows[0].mT
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)

"""Convolutions and their transposes as torch computes them fastest in float64.

On the CPU torch's own take one image after the other, and clear their memory each time. With
channels last they are one matrix product for each position in the kernel, over all images at once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from bnncert.model.layers import AvgPool2d, Conv2d, Pair, Shape, sides

FEW = 8  # channels below which products are too thin to be worth it
MANY = 32  # images from which on they are


def convolve(layer: Conv2d, weights: Tensor, images: Tensor, groups: int) -> Tensor:
    """images [N, channels, height, width] with kernels [out, in / groups, *kernel]."""
    top, left, bottom, right = sides(layer)
    if groups == 1 and len(images) >= MANY and _is_worth_it(images, weights):
        padded = functional.pad(images, (left, right, top, bottom))
        return _meet_by_position(padded, weights, layer.stride, layer.dilation)
    padding = (top, left)
    if (top, left) != (bottom, right):
        images = functional.pad(images, (left, right, top, bottom))
        padding = (0, 0)
    return functional.conv2d(images, weights, None, layer.stride, padding, layer.dilation, groups)


def transpose(
    layer: Conv2d | AvgPool2d, weights: Tensor, rows: Tensor, shape: Shape, groups: int
) -> Tensor:
    """rows [N, out, *places] of the convolution's outputs as rows [N, *shape] of its inputs."""
    stride = layer.stride or layer.kernel
    if groups == 1 and _is_worth_it(rows, weights):
        spread = _ByPosition.apply(rows, weights, stride, layer.dilation)  # type: ignore[no-untyped-call]
    else:
        spread = functional.conv_transpose2d(
            rows, weights, None, stride, 0, 0, groups, layer.dilation
        )
    # What meets the padding is dropped; rows and columns at the end that no window reaches are 0.
    top, left, _, _ = sides(layer)
    bottom = shape[1] + top - spread.shape[-2]
    right = shape[2] + left - spread.shape[-1]
    return functional.pad(spread, (-left, right, -top, bottom))


def _is_worth_it(images: Tensor, weights: Tensor) -> bool:
    wide = weights.dtype == torch.float64 and weights.shape[1] >= FEW
    return wide and not images.is_cuda and not weights.requires_grad


def _meet_by_position(images: Tensor, weights: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    """Every position in the kernel meets all places at once: [N, out, *places]."""
    kernel = weights.shape[2:]
    places = [
        (size - d * (k - 1) - 1) // s + 1
        for size, k, s, d in zip(images.shape[2:], kernel, stride, dilation, strict=True)
    ]
    last = images.permute(0, 2, 3, 1).contiguous()
    total = images.new_zeros(len(images) * places[0] * places[1], len(weights))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(dilation[0] * i, dilation[0] * i + stride[0] * places[0], stride[0])
            columns = slice(dilation[1] * j, dilation[1] * j + stride[1] * places[1], stride[1])
            met = last[:, rows, columns].reshape(len(total), -1)
            total.addmm_(met, weights[:, :, i, j].mT)
    return total.reshape(len(images), *places, -1).permute(0, 3, 1, 2)


class _ByPosition(torch.autograd.Function):
    """The transposed convolution of rows; their gradient is the convolution."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, stride: Pair, dilation: Pair) -> Tensor:
        ctx.save_for_backward(weights)
        ctx.options = stride, dilation
        return _by_position(rows, weights, stride, dilation)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (weights,) = ctx.saved_tensors
        stride, dilation = ctx.options
        (spread,) = gradients
        rows = functional.conv2d(spread, weights, None, stride, 0, dilation)
        return rows, None, None, None


def _by_position(rows: Tensor, weights: Tensor, stride: Pair, dilation: Pair) -> Tensor:
    """Every place adds its window: [N, in, ...], as far as windows reach."""
    count, outputs, height, width = rows.shape
    kernel = weights.shape[2:]
    steps = (stride[0] * (height - 1) + 1, stride[1] * (width - 1) + 1)
    reach = [size + dilation[i] * (kernel[i] - 1) for i, size in enumerate(steps)]
    flat = rows.permute(0, 2, 3, 1).reshape(-1, outputs)
    total = rows.new_zeros(count, *reach, weights.shape[1])
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            part = (flat @ weights[:, :, i, j]).reshape(count, height, width, -1)
            first, second = dilation[0] * i, dilation[1] * j
            total[
                :, first : first + steps[0] : stride[0], second : second + steps[1] : stride[1]
            ] += part
    return total.permute(0, 3, 1, 2)

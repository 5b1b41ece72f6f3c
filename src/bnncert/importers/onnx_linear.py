"""ONNX's linear operators and pools: products with constants, convolutions, means and maxima over
windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bnncert.errors import InputError
from bnncert.importers.building import (
    Factor,
    affine,
    append,
    columns_multiplied,
    convolved,
    permuted,
    pooled,
    reshaped,
    rows_multiplied,
    scaled,
)
from bnncert.importers.onnx_arithmetic import PRODUCT, summed
from bnncert.importers.onnx_nodes import (
    Array,
    Constant,
    Node,
    Operand,
    Rule,
    Wire,
    limited,
    spread,
    tensor,
)
from bnncert.importers.onnx_shapes import reduced
from bnncert.model.layers import AvgPool2d, Conv2d, MaxPool2d, Pair, Shape, Sides, output_shape

EPSILON = float(np.float32(1e-5))  # a single float, as attributes are

# ----------------------------------------------------------------------------------------- products


def _matmul(node: Node) -> Wire:
    """x W or W x, as numpy multiplies."""
    node.options()
    first, second = node.operand(0), node.operand(1)
    if isinstance(first, Wire) and isinstance(second, Wire):
        raise InputError(PRODUCT)
    # A vector is a row on the left and a column on the right, and the result is without it.
    lone = [len(each.dims) == 1 for each in (first, second)]
    if isinstance(first, Wire):
        wire = Wire(first.value, (1, *first.dims)) if lone[0] else first
        product = _rows(wire, _matrix(node.constant(1), wire, lone[1]), None)
    else:
        right = node.wire(1)
        wire = Wire(right.value, (*right.dims, 1)) if lone[1] else right
        product = _columns(wire, _matrix(node.constant(0), wire, False))
    *lead, height, width = product.dims
    last = (*([] if lone[0] else [height]), *([] if lone[1] else [width]))
    return Wire(product.value, (*lead, *last))


def _matrix(constant: Constant, wire: Wire, column: bool) -> Constant:
    """Weights as a matrix."""
    value = constant.value[:, None] if column else np.atleast_2d(constant.value)
    if any(size != 1 for size in value.shape[:-2]) or len(wire.dims) < value.ndim:
        raise InputError(f"weights have shape {constant.dims}; give a matrix")
    return Constant(value.reshape(value.shape[-2:]), constant.names)


def _rows(wire: Wire, weights: Constant, bias: Constant | None) -> Wire:
    """Every row of a tensor [..., K] times W [K, N], and a bias [N]."""
    inputs, outputs = weights.dims
    if wire.dims[-1] != inputs:
        raise InputError(f"a matrix of shape {weights.dims} follows a tensor {wire.dims}")
    dims = limited((*wire.dims[:-1], outputs))
    factor = Factor(
        tensor(weights.value),
        None if bias is None else tensor(bias.value),
        weights.names,
        bias.names if bias else frozenset(),
    )
    value = wire.shaped((math.prod(wire.dims[:-1]), inputs))
    return Wire(rows_multiplied(value, factor), dims)


def _columns(wire: Wire, weights: Constant) -> Wire:
    """W [M, K] times every matrix of a tensor [..., K, N]: all their columns at once."""
    outputs, inputs = weights.dims
    *lead, height, width = wire.dims
    if height != inputs:
        raise InputError(f"a matrix of shape {weights.dims} is before a tensor {wire.dims}")
    dims = limited((*lead, outputs, width))
    count = math.prod(lead)
    factor = Factor(tensor(weights.value), names=weights.names)
    columns = permuted(wire.shaped((count, height, width)), (1, 0, 2))
    product = columns_multiplied(reshaped(columns, (height, count * width)), factor)
    return Wire(permuted(reshaped(product, (outputs, count, width)), (1, 0, 2)), dims)


def _gemm(node: Node) -> Operand:
    """alpha A B + beta C"""
    given = node.options(alpha=1.0, beta=1.0, transA=0, transB=0)
    first, second = node.operand(0), node.operand(1)
    if isinstance(first, Wire) and isinstance(second, Wire):
        raise InputError(PRODUCT)
    bias = _gemm_bias(node, given["beta"])
    if isinstance(first, Wire):
        weights = _turned(node.constant(1), given["transB"], given["alpha"])
        wire = _turned_wire(first, given["transA"])
        if bias is not None and bias.dims[:-1] in ((), (1,)):
            wide = np.broadcast_to(bias.value, (1, weights.dims[1]))[0]
            return _rows(wire, weights, Constant(wide, bias.names))
        product = _rows(wire, weights, None)
    else:
        weights = _turned(node.constant(0), given["transA"], given["alpha"])
        product = _columns(_turned_wire(node.wire(1), given["transB"]), weights)
    if bias is not None:
        return summed(product, bias)
    if not node.has(2):
        return product
    third = node.wire(2)
    return summed(product, Wire(scaled(third.value, given["beta"]), third.dims))


def _gemm_bias(node: Node, beta: float) -> Constant | None:
    if not node.has(2) or isinstance(node.operand(2), Wire):
        return None
    constant = node.constant(2)
    return Constant(beta * constant.value, constant.names)


def _turned(constant: Constant, turns: int, alpha: float) -> Constant:
    if constant.value.ndim != 2:
        raise InputError(f"weights have shape {constant.dims}; give a matrix")
    value = constant.value.T if turns else constant.value
    return Constant(alpha * value, constant.names)


def _turned_wire(wire: Wire, turns: int) -> Wire:
    if len(wire.dims) != 2:
        raise InputError(f"it multiplies matrices, and the tensor is {wire.dims}")
    if not turns:
        return wire
    return Wire(permuted(wire.shaped(wire.dims), (1, 0)), wire.dims[::-1])


# ------------------------------------------------------------------------------------------ windows


@dataclass(frozen=True)
class Windows:
    """Over images; over sequences, which are images of one row, the first of each pair is idle."""

    kernel: Pair
    stride: Pair
    sides: Sides
    dilation: Pair
    is_sequence: bool

    def image(self, dims: Shape) -> Shape:
        """The shape [channels, height, width] of a batch of one."""
        if dims[0] != 1:
            raise InputError(f"it reads a batch of {dims[0]} images; only one is supported")
        return (dims[1], 1, dims[2]) if self.is_sequence else dims[1:]

    def dims(self, shape: Shape) -> Shape:
        """The dimensions of the result [channels, height, width]."""
        return limited((1, shape[0], *shape[1 + self.is_sequence :]))


def _windows(given: dict[str, Any], kernel: Sequence[int], dims: Shape) -> Windows:
    """What a convolution or a pool says of its windows, over a tensor."""
    rank = len(kernel)
    if rank not in (1, 2) or len(dims) != rank + 2:
        raise InputError(
            f"windows of {tuple(kernel)} over a tensor {dims}: only sequences and images, "
            "in a batch, are supported"
        )
    stride = [*(given["strides"] or [1] * rank)]
    dilation = [*(given["dilations"] or [1] * rank)]
    if not all(len(each) == rank for each in (stride, dilation)) or min(*stride, *dilation) < 1:
        raise InputError(f"strides {stride} or dilations {dilation} do not fit its windows")
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    sides = _sides(given, dims[2:], reach, stride)
    spans = zip(dims[2:], sides[:rank], sides[rank:], reach, stride, strict=True)
    left_over = any((n + a + b - r) % s for n, a, b, r, s in spans)
    if given.get("ceil_mode", 0) and left_over:
        raise InputError("windows that stand out (ceil_mode) are not supported")
    if rank == 1:
        return Windows(
            (1, kernel[0]), (1, stride[0]), (0, sides[0], 0, sides[1]), (1, dilation[0]), True
        )
    top, left, bottom, right = sides
    pairs = ((each[0], each[1]) for each in (kernel, stride, dilation))
    window, steps, spacing = pairs
    return Windows(window, steps, (top, left, bottom, right), spacing, False)


def _sides(
    given: dict[str, Any], sizes: Shape, reach: Sequence[int], stride: Sequence[int]
) -> list[int]:
    """The padding before every dimension, then behind it."""
    automatic = given["auto_pad"]
    explicit = [*(given["pads"] or [0] * 2 * len(sizes))]
    if automatic in (b"NOTSET", b""):
        if len(explicit) != 2 * len(sizes):
            raise InputError(f"pads {explicit} are not two numbers for each dimension")
        return explicit
    if automatic == b"VALID":
        return [0] * 2 * len(sizes)
    if automatic not in (b"SAME_UPPER", b"SAME_LOWER"):
        raise InputError(f"auto_pad {automatic!r} is not known")
    totals = [
        max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(sizes, reach, stride, strict=True)
    ]
    smaller, larger = [total // 2 for total in totals], [total - total // 2 for total in totals]
    return [*smaller, *larger] if automatic == b"SAME_UPPER" else [*larger, *smaller]


def _convolution(node: Node) -> Wire:
    weights = node.constant(1)
    wire = node.wire(0)
    given = node.options(
        auto_pad=b"NOTSET", dilations=None, group=1, kernel_shape=None, pads=None, strides=None
    )
    kernel = weights.dims[2:]
    if given["kernel_shape"] is not None and (*given["kernel_shape"],) != kernel:
        raise InputError(f"kernel_shape {given['kernel_shape']} is not that of its weights")
    windows = _windows(given, kernel, wire.dims)
    bias = node.constant(2) if node.has(2) else None
    layer = Conv2d(
        weights.dims[1] * given["group"],
        weights.dims[0],
        windows.kernel,
        windows.stride,
        windows.sides,
        bias is not None,
        windows.dilation,
        given["group"],
    )
    shape = windows.image(wire.dims)
    windows.dims(output_shape(layer, shape))  # before anything of that size is made
    factor = Factor(
        tensor(weights.value.reshape(*weights.dims[:2], *windows.kernel)),
        None if bias is None else tensor(bias.value),
        weights.names,
        bias.names if bias else frozenset(),
    )
    value = convolved(wire.shaped(shape), factor, layer)
    return Wire(value, windows.dims(value.shape))


def _pool(node: Node) -> Wire:
    """A mean that leaves padding out is the mean with its zeros, scaled by how many there were."""
    wire = node.wire(0)
    given = node.options(
        auto_pad=b"NOTSET",
        ceil_mode=0,
        count_include_pad=0,
        dilations=None,
        kernel_shape=None,
        pads=None,
        storage_order=0,
        strides=None,
    )
    if given["kernel_shape"] is None:
        raise InputError("attribute 'kernel_shape' is missing")
    windows = _windows(given, given["kernel_shape"], wire.dims)
    if windows.dilation != (1, 1):
        raise InputError("pools with dilation are not supported")
    kind = MaxPool2d if node.operator == "MaxPool" else AvgPool2d
    image = windows.image(wire.dims)
    layer = kind(windows.kernel, windows.stride, windows.sides)
    value = append(layer, wire.shaped(image))
    if kind is AvgPool2d and any(windows.sides) and not given["count_include_pad"]:
        value = scaled(value, tensor(_share(windows, image, value.shape)))
    return Wire(value, windows.dims(value.shape))


def _share(windows: Windows, image: Shape, shape: Shape) -> Array:
    """The size of a window over how many of its entries are not padding, for every window."""
    counts = []
    for axis in range(2):
        starts = np.arange(shape[1 + axis]) * windows.stride[axis] - windows.sides[axis]
        ends = np.minimum(starts + windows.kernel[axis], image[1 + axis])
        counts.append(ends - np.maximum(starts, 0))
    return np.asarray(math.prod(windows.kernel) / (counts[0][:, None] * counts[1]))


def _global_pool(node: Node) -> Wire:
    node.options()
    wire = node.wire(0)
    kind = MaxPool2d if node.operator == "GlobalMaxPool" else AvgPool2d
    if len(wire.dims) < 3:
        raise InputError(f"a tensor {wire.dims} has no dimensions behind its channels")
    dims = (*wire.dims[:2], *[1] * (len(wire.dims) - 2))
    return _over(kind, wire, range(2, len(wire.dims)), dims)


def _reduce(node: Node) -> Wire:
    wire = node.wire(0)
    axes, dims = reduced(node, wire.dims)
    kind = MaxPool2d if node.operator == "ReduceMax" else AvgPool2d
    found = _over(kind, wire, axes, dims)
    if node.operator != "ReduceSum":
        return found
    return Wire(scaled(found.value, math.prod(wire.dims) / math.prod(dims)), dims)


def _over(kind: type[AvgPool2d | MaxPool2d], wire: Wire, axes: Sequence[int], dims: Shape) -> Wire:
    if math.prod(dims) == math.prod(wire.dims):
        return Wire(wire.value, dims)
    value, lacking = wire.at(axes)
    return Wire(pooled(kind, value, [axis - lacking for axis in axes]), dims)


def _batch_normalisation(node: Node) -> Wire:
    """(x - mean) / sqrt(variance + epsilon) scale + bias, channel by channel."""
    given = node.options(epsilon=EPSILON, momentum=0.9, spatial=1, training_mode=0)
    if given["training_mode"] or given["spatial"] != 1 or node.outputs > 1:
        raise InputError("training and normalisation by position are not supported")
    wire = node.wire(0)
    if len(wire.dims) < 2:
        raise InputError(f"a tensor {wire.dims} has no channels")
    scale, bias, mean, variance = (node.constant(position).value for position in range(1, 5))
    if {each.shape for each in (scale, bias, mean, variance)} != {wire.dims[1:2]}:
        raise InputError(f"there are {scale.shape} numbers for {wire.dims[1]} channels")
    if not (variance + given["epsilon"] > 0).all():
        raise InputError("a variance is not positive")
    factor = scale / np.sqrt(variance + given["epsilon"])
    channels = (-1, *[1] * (len(wire.dims) - 2))
    factors, shifts = (
        tensor(spread(each.reshape(channels), wire.dims).reshape(wire.value.shape))
        for each in (factor, bias - mean * factor)
    )
    return Wire(affine(wire.value, factors, shifts), wire.dims)


LINEAR: dict[str, Rule] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _convolution,
    "BatchNormalization": _batch_normalisation,
    "AveragePool": _pool,
    "MaxPool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "ReduceMax": _reduce,
}

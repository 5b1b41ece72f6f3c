"""ONNX's arithmetic and activations on what depends on the input.

Arithmetic with constants is a scale, which may be folded into a linear layer later. What is linear
between kinks and has no layer of its own is written with ReLU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

import numpy as np

from bnncert.errors import InputError
from bnncert.importers.building import (
    Value,
    added,
    append,
    bent,
    larger,
    reshaped,
    scaled,
    shifted,
)
from bnncert.importers.onnx_nodes import (
    Array,
    Constant,
    Node,
    Operand,
    Rule,
    Wire,
    inner,
    spread,
    tensor,
)
from bnncert.model.activations import Activation, Hardtanh, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.curves import ELU, GELU, HardSwish, Mish, Softplus, Softsign
from bnncert.model.layers import Shape

SLOPE = float(np.float32(0.01))  # a single float, as attributes are
SELU_ALPHA = float(np.float32(1.6732632))
SELU_GAMMA = float(np.float32(1.050701))
PRODUCT = "a product of two tensors that depend on the input is not supported"
FARTHEST = 3.4028234663852886e38  # of float32: an end of older clips that is none


def _pair(first: Wire, second: Wire) -> tuple[Value, Value, Shape]:
    """Two tensors in one shape, and their dimensions."""
    dims = np.broadcast_shapes(first.dims, second.dims)
    if {math.prod(first.dims), math.prod(second.dims)} != {math.prod(dims)}:
        raise InputError(
            f"tensors of shapes {first.dims} and {second.dims}, of which one is repeated, "
            "are not supported"
        )
    if first.value.shape == second.value.shape:
        return first.value, second.value, dims
    shape = inner(dims)
    return reshaped(first.value, shape), reshaped(second.value, shape), dims


def _shifted(wire: Wire, constant: Constant, sign: float = 1.0) -> Wire:
    wide = spread(constant.value, wire.dims)
    shift = tensor(sign * wide.reshape(wire.value.shape))
    return Wire(shifted(wire.value, shift, constant.names), wide.shape)


def _scaled(wire: Wire, factor: object) -> Wire:
    wide = spread(np.asarray(factor, np.float64), wire.dims)
    return Wire(scaled(wire.value, tensor(wide.reshape(wire.value.shape))), wide.shape)


def summed(first: Operand, second: Operand) -> Operand:
    """x + y, either of which may be constant."""
    if isinstance(first, Constant):
        if isinstance(second, Wire):
            return _shifted(second, first)
        return Constant(first.value + second.value, first.names | second.names)
    if isinstance(second, Constant):
        return _shifted(first, second)
    one, other, dims = _pair(first, second)
    return Wire(added(one, other), dims)


def _operands(node: Node) -> list[Operand]:
    """In float64 where they are constant."""
    return [
        each if isinstance(each, Wire) else node.constant(position)
        for position, each in enumerate(node.operands)
    ]


def _two(node: Node) -> tuple[Operand, Operand]:
    node.options()
    first, second = _operands(node)
    return first, second


def _sum(node: Node) -> Operand:
    """Of two operands or of any number."""
    node.options()
    return reduce(summed, _operands(node))


def _difference(node: Node) -> Operand:
    first, second = _two(node)
    if isinstance(second, Constant):
        return _shifted(node.wire(0), second, -1.0)
    return summed(first, _scaled(second, -1.0))


def _product(node: Node) -> Wire:
    match _two(node):
        case (Wire() as wire, Constant() as constant) | (Constant() as constant, Wire() as wire):
            return _scaled(wire, constant.value)
    raise InputError(PRODUCT)


def _quotient(node: Node) -> Wire:
    _, second = _two(node)
    if isinstance(second, Wire) or not second.value.all():
        raise InputError("division by what depends on the input, or by 0, is not supported")
    return _scaled(node.wire(0), 1 / second.value)


def _negative(node: Node) -> Wire:
    node.options()
    return _scaled(node.wire(), -1.0)


def _absolute(node: Node) -> Wire:
    """|z| = max(z, 0) - min(z, 0)"""
    node.options()
    wire = node.wire()
    return Wire(bent(wire.value, tensor(np.asarray(-1.0))), wire.dims)


def _larger(first: Operand, second: Operand) -> Operand:
    if isinstance(first, Constant):
        if isinstance(second, Wire):
            return _larger(second, first)
        return Constant(np.maximum(first.value, second.value))
    if isinstance(second, Constant):  # max(z - c, 0) + c
        return _shifted(_activated(_shifted(first, second, -1.0), ReLU()), second)
    one, other, dims = _pair(first, second)
    return Wire(larger(one, other), dims)


def _maximum(node: Node) -> Operand:
    node.options()
    return reduce(_larger, _operands(node))


def _minimum(node: Node) -> Operand:
    """min(x, y) = -max(-x, -y)"""
    node.options()
    return _turned(reduce(_larger, map(_turned, _operands(node))))


def _turned(operand: Operand) -> Operand:
    if isinstance(operand, Wire):
        return _scaled(operand, -1.0)
    return Constant(-operand.value)


# -------------------------------------------------------------------------------------- activations


def _activated(wire: Wire, layer: Activation) -> Wire:
    return Wire(append(layer, wire.value), wire.dims)


def _activation(node: Node) -> Wire:
    return _activated(node.wire(), ACTIVATIONS[node.operator](node))


def _plain(layer: Activation) -> Callable[[Node], Activation]:
    def make(node: Node) -> Activation:
        node.options()
        return layer

    return make


def _leaky(node: Node) -> Wire:
    return _with_slope(node.wire(), np.asarray(node.options(alpha=SLOPE)["alpha"]))


def _prelu(node: Node) -> Wire:
    node.options()
    wire = node.wire()
    slope = spread(node.constant(1).value, wire.dims)
    if slope.shape != wire.dims:
        raise InputError(f"slopes of shape {node.constant(1).dims} are for another shape")
    return _with_slope(wire, slope)


def _with_slope(wire: Wire, slope: Array) -> Wire:
    """A leaky ReLU where there is one slope in [0, 1)."""
    first = float(slope.reshape(-1)[0])
    if (slope == first).all() and 0 <= first < 1:
        return _activated(wire, LeakyReLU(first))
    wide = np.broadcast_to(slope, wire.dims).reshape(wire.value.shape)
    return Wire(bent(wire.value, tensor(wide)), wire.dims)


def _clip(node: Node) -> Wire:
    """Between two ends, of which either may be missing."""
    given = node.options(min=-FARTHEST, max=FARTHEST)
    low, high = node.number(1, given["min"]), node.number(2, given["max"])
    return _clipped(node.wire(), low, high)


def _clipped(wire: Wire, low: float, high: float) -> Wire:
    """min(max(z, low), high); with one end only a ReLU, max(z - low, 0) + low, or upside down."""
    if not low <= high:
        raise InputError(f"the ends {low} and {high} are in the wrong order")
    if -FARTHEST < low < high < FARTHEST:
        return _activated(wire, Hardtanh(low, high))
    if low > -FARTHEST:
        risen = _activated(_shifted(wire, Constant(np.asarray(-low))), ReLU())
        wire = _shifted(risen, Constant(np.asarray(low)))
    if high < FARTHEST:
        short = _shifted(_scaled(wire, -1.0), Constant(np.asarray(high)))
        fallen = _activated(short, ReLU())
        wire = _shifted(_scaled(fallen, -1.0), Constant(np.asarray(high)))
    return wire


def _hard_sigmoid(node: Node) -> Wire:
    """max(0, min(1, alpha z + beta))"""
    given = node.options(alpha=float(np.float32(0.2)), beta=0.5)
    stretched = _scaled(node.wire(), given["alpha"])
    return _clipped(_shifted(stretched, Constant(np.asarray(given["beta"]))), 0.0, 1.0)


def _selu(node: Node) -> Wire:
    """γ ELU_α(z)"""
    given = node.options(alpha=SELU_ALPHA, gamma=SELU_GAMMA)
    return _scaled(_activated(node.wire(), ELU(float(given["alpha"]))), float(given["gamma"]))


def _elu(node: Node) -> Activation:
    return ELU(float(node.options(alpha=1.0)["alpha"]))


def _gelu(node: Node) -> Activation:
    return GELU(node.options(approximate=b"none")["approximate"].decode())


# One entry for every operator that is a layer as it stands.
ACTIVATIONS: dict[str, Callable[[Node], Activation]] = {
    "Relu": _plain(ReLU()),
    "Sigmoid": _plain(Sigmoid()),
    "Tanh": _plain(Tanh()),
    "Elu": _elu,
    "Gelu": _gelu,
    "HardSwish": _plain(HardSwish()),
    "Mish": _plain(Mish()),
    "Softplus": _plain(Softplus()),
    "Softsign": _plain(Softsign()),
}
ARITHMETIC: dict[str, Rule] = {
    "Add": _sum,
    "Sum": _sum,
    "Sub": _difference,
    "Mul": _product,
    "Div": _quotient,
    "Neg": _negative,
    "Abs": _absolute,
    "Max": _maximum,
    "Min": _minimum,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Selu": _selu,
    **dict.fromkeys(ACTIVATIONS, _activation),
}

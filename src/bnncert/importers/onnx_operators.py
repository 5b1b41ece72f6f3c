"""ONNX operators as layers: each takes the chain of layers so far and a node, and gives the longer
chain.

Elementwise arithmetic with constants (normalised inputs, batch normalisation, a bias that is added
by a node of its own) has no layer here: x -> s x + t is folded, in float64, into the linear layer
before it or else into the next one,

    (h W + b) s + t = h (W s) + (b s + t),        (s x + t) W + b = x (s W) + (b + t W).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bnncert.errors import InputError
from bnncert.model.activations import Activation, Hardtanh, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.curves import ELU, GELU, HardSwish, Mish, Softplus, Softsign
from bnncert.model.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    MaxPool2d,
    Pair,
    Shape,
    output_shape,
)

# Defaults are single floats, as attributes are.
SLOPE = float(np.float32(0.01))
# Operators without attributes.
PLAIN: tuple[Activation, ...] = (Tanh(), Sigmoid(), Softplus(), Softsign(), HardSwish(), Mish())
ACTIVATIONS = {"Relu": ReLU(), **{type(layer).__name__: layer for layer in PLAIN}}
EPSILON = float(np.float32(1e-5))
MOST = 2**28  # entries of an activation or of a constant that is computed
Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Node:
    """An operator on the activation, which is operand number `position`.

    The others are constants or absent.
    """

    operator: str
    name: str
    position: int
    operands: tuple[Array | None, ...]
    attributes: dict[str, Any]

    def constant(self, position: int) -> Array:
        """A floating-point operand, in float64."""
        value = self.operands[position] if position < len(self.operands) else None
        if value is None or not np.issubdtype(value.dtype, np.floating):
            raise InputError(f"operand {position} must be constant floating-point numbers")
        return value.astype(np.float64)

    def options(self, **known: Any) -> dict[str, Any]:
        """The attributes, with defaults; one that is not known might change the meaning."""
        unknown = sorted(self.attributes.keys() - known.keys())
        if unknown:
            raise InputError(f"attribute {unknown[0]!r} is not supported")
        return known | self.attributes


@dataclass(frozen=True, eq=False)
class Pending:
    """x -> scale x + shift, elementwise on one input's shape, for the next linear layer.

    `name` is its node's.
    """

    name: str
    scale: Array
    shift: Array


@dataclass(frozen=True, eq=False)
class Chain:
    """Layers so far, each with its weights and bias, and the shape and arithmetic they end in."""

    batch: int  # of the inputs, 0 if it is open
    input_shape: Shape
    shape: Shape
    layers: tuple[tuple[Layer, tuple[Array, ...]], ...] = ()
    pending: Pending | None = None

    def then(self, layer: Layer, *parameters: Array) -> Chain:
        shape = output_shape(layer, self.shape)
        if math.prod(shape) > MOST:
            raise InputError(f"an activation of shape {shape} is too large")
        return replace(self, layers=(*self.layers, (layer, parameters)), shape=shape, pending=None)

    def settled(self) -> Chain:
        """Itself, unless arithmetic waits for a linear layer that does not come."""
        if self.pending:
            raise InputError(
                f"the arithmetic of node {self.pending.name!r} cannot be folded into a linear layer"
            )
        return self


# ------------------------------------------------------------------------------------ linear layers


def _gemm(chain: Chain, node: Node) -> Chain:
    """alpha A B + beta C, with A the activation."""
    given = node.options(alpha=1.0, beta=1.0, transA=0, transB=0)
    if node.position != 0 or given["transA"]:
        raise InputError("the activation must be the left factor, not transposed")
    weights = _matrix(node.constant(1)) * given["alpha"]
    weights = weights.T if given["transB"] else weights
    if len(node.operands) < 3 or node.operands[2] is None:
        return _dense(chain, weights, None)
    return _dense(chain, weights, given["beta"] * _spread(node.constant(2), weights.shape[1:]))


def _matmul(chain: Chain, node: Node) -> Chain:
    node.options()
    if node.position != 0:
        raise InputError("the activation must be the left factor")
    return _dense(chain, _matrix(node.constant(1)), None)


def _matrix(value: Array) -> Array:
    if value.ndim != 2:
        raise InputError(f"weights have shape {value.shape}; give a matrix")
    return value


def _dense(chain: Chain, weights: Array, bias: Array | None) -> Chain:
    """x W + b, where x is what the chain ends in."""
    layer = Dense(weights.shape[0], weights.shape[1], bias is not None)
    output_shape(layer, chain.shape)
    if chain.pending:
        bias = _biased(bias, chain.pending.shift @ weights)
        weights = chain.pending.scale[:, None] * weights
    return chain.then(replace(layer, bias=bias is not None), weights, *_given(bias))


def _convolution(chain: Chain, node: Node) -> Chain:
    """With one group, no dilation and the same padding on both sides."""
    weights = node.constant(1)
    if weights.ndim != 4 or node.position != 0:
        raise InputError(f"weights have shape {weights.shape}; give a convolution over images")
    kernel = weights.shape[2:]
    given = node.options(
        auto_pad=b"NOTSET",
        dilations=[1, 1],
        group=1,
        kernel_shape=[*kernel],
        pads=[0] * 4,
        strides=[1, 1],
    )
    if (
        given["group"] != 1
        or [*given["dilations"]] != [1, 1]
        or (*given["kernel_shape"],) != kernel
    ):
        raise InputError("groups and dilations are not supported")
    padding = _padding(given)
    bias = node.constant(2) if len(node.operands) > 2 and node.operands[2] is not None else None
    layer = Conv2d(
        weights.shape[1],
        weights.shape[0],
        kernel,
        tuple(given["strides"]),
        padding,
        bias is not None,
    )
    output_shape(layer, chain.shape)
    if chain.pending:
        scale, shift = _per_channel(chain.pending.scale), _per_channel(chain.pending.shift)
        if shift.any() and padding != (0, 0):
            raise InputError(
                f"a shift (node {chain.pending.name!r}) before zero padding cannot be folded"
            )
        bias = _biased(bias, np.einsum("oikl,i->o", weights, shift))
        weights = weights * scale[:, None, None]
    return chain.then(replace(layer, bias=bias is not None), weights, *_given(bias))


def _padding(given: dict[str, Any]) -> Pair:
    top, left, bottom, right = given["pads"]
    if given["auto_pad"] not in (b"NOTSET", b"VALID") or (top, left) != (bottom, right):
        raise InputError("the padding is not the same on both sides")
    return (top, left) if given["auto_pad"] == b"NOTSET" else (0, 0)


def _biased(bias: Array | None, more: Array) -> Array | None:
    """The sum; still none if nothing is added."""
    return bias if not more.any() else more if bias is None else bias + more


def _given(bias: Array | None) -> tuple[Array, ...]:
    return () if bias is None else (bias,)


# --------------------------------------------------------------------------------------- arithmetic


def _arithmetic(chain: Chain, node: Node) -> Chain:
    """x + c, x - c, c - x, x c and x / c for a constant c."""
    node.options()
    constant = _spread(node.constant(1 - node.position), chain.shape)
    one, zero = np.ones(chain.shape), np.zeros(chain.shape)
    match node.operator, node.position:
        case "Add", _:
            return _affine(chain, node, one, constant)
        case "Sub", 0:
            return _affine(chain, node, one, -constant)
        case "Sub", _:
            return _affine(chain, node, -one, constant)
        case "Mul", _:
            return _affine(chain, node, constant, zero)
        case "Div", 0 if constant.all():
            return _affine(chain, node, 1 / constant, zero)
    raise InputError("division by the activation or by 0 is not supported")


def _batch_normalisation(chain: Chain, node: Node) -> Chain:
    """(x - mean) / sqrt(variance + epsilon) scale + bias, channel by channel."""
    given = node.options(epsilon=EPSILON, momentum=0.9, spatial=1, training_mode=0)
    if given["training_mode"] or given["spatial"] != 1 or node.position != 0:
        raise InputError("training and normalisation by position are not supported")
    scale, bias, mean, variance = (_channels(node.constant(i), chain.shape) for i in range(1, 5))
    if not (variance + given["epsilon"] > 0).all():
        raise InputError("a variance is not positive")
    factor = scale / np.sqrt(variance + given["epsilon"])
    return _affine(chain, node, factor, bias - mean * factor)


def _affine(chain: Chain, node: Node, scale: Array, shift: Array) -> Chain:
    """scale x + shift, in the linear layer that x comes from or for the next one."""
    if (scale == 1).all() and not shift.any():
        return chain
    if chain.pending:
        before = chain.pending
        return replace(
            chain, pending=Pending(node.name, before.scale * scale, before.shift * scale + shift)
        )
    layer, parameters = chain.layers[-1] if chain.layers else (Flatten(), ())
    if not isinstance(layer, Dense | Conv2d):
        return replace(chain, pending=Pending(node.name, scale, shift))
    weights, *biases = parameters
    if isinstance(layer, Conv2d):
        scale, shift = _per_channel(scale), _per_channel(shift)
        weights = weights * scale[:, None, None, None]
    else:
        weights = weights * scale
    bias = _biased(biases[0] * scale if biases else None, shift)
    folded = replace(layer, bias=bias is not None), (weights, *_given(bias))
    return replace(chain, layers=(*chain.layers[:-1], folded))


def _spread(constant: Array, shape: Shape) -> Array:
    """The constant, broadcast over a batch of one, on one input's shape."""
    spread: Array = np.broadcast_to(constant, (1, *shape))[0]
    return spread


def _channels(value: Array, shape: Shape) -> Array:
    """One number a channel, on the whole shape."""
    if value.shape != shape[:1]:
        raise InputError(f"there are {value.shape} numbers for {shape[0]} channels")
    return np.broadcast_to(value.reshape(-1, *[1] * (len(shape) - 1)), shape)


def _per_channel(value: Array) -> Array:
    """The one number of every channel."""
    first = value[:, 0, 0]
    if not (value == first[:, None, None]).all():
        raise InputError(
            "arithmetic that differs within a channel cannot be folded into a convolution"
        )
    return first


# ------------------------------------------------------------------------------------- other layers


def _activation(chain: Chain, node: Node) -> Chain:
    node.options()
    return chain.settled().then(ACTIVATIONS[node.operator])


def _leaky(chain: Chain, node: Node) -> Chain:
    return chain.settled().then(LeakyReLU(node.options(alpha=SLOPE)["alpha"]))


def _exponential(chain: Chain, node: Node) -> Chain:
    return chain.settled().then(ELU(node.options(alpha=1.0)["alpha"]))


def _gelu(chain: Chain, node: Node) -> Chain:
    approximate = node.options(approximate=b"none")["approximate"]
    return chain.settled().then(GELU(approximate.decode()))


def _clip(chain: Chain, node: Node) -> Chain:
    """Between two constants, which were attributes before opset 11."""
    given = node.options(min=None, max=None)
    operands = [*node.operands[1:], None, None][:2]
    ends = [
        given[name] if value is None else float(value.astype(np.float64))
        for name, value in zip(("min", "max"), operands, strict=True)
    ]
    if node.position != 0 or None in ends:
        raise InputError("both ends must be given, as constants")
    return chain.settled().then(Hardtanh(*ends))


def _pool(chain: Chain, node: Node) -> Chain:
    """Without padding, of windows that fit."""
    given = node.options(
        auto_pad=b"NOTSET",
        ceil_mode=0,
        count_include_pad=0,
        dilations=[1, 1],
        kernel_shape=None,
        pads=[0] * 4,
        storage_order=0,
        strides=[1, 1],
    )
    if given["ceil_mode"] or [*given["dilations"]] != [1, 1] or _padding(given) != (0, 0):
        raise InputError("padding, dilation and windows that stand out are not supported")
    if given["kernel_shape"] is None:
        raise InputError("attribute 'kernel_shape' is missing")
    kind = MaxPool2d if node.operator == "MaxPool" else AvgPool2d
    return chain.settled().then(kind(tuple(given["kernel_shape"]), tuple(given["strides"])))


def _flatten(chain: Chain, node: Node) -> Chain:
    if node.options(axis=1)["axis"] != 1:
        raise InputError("only the batch may stay apart; give axis 1")
    return _flat(chain)


def _reshape(chain: Chain, node: Node) -> Chain:
    """To [batch, -1] or the same in numbers."""
    wanted = node.operands[1]
    size = math.prod(chain.shape)
    plain = wanted is not None and wanted.dtype == np.int64 and wanted.shape == (2,)
    if node.position != 0 or node.options(allowzero=0)["allowzero"] or not plain or wanted is None:
        raise InputError("the new shape must be [batch, -1], as constants")
    first, second = wanted.tolist()
    if (
        (first, second) == (-1, -1)
        or first not in (0, -1, 1, chain.batch)
        or second not in (-1, size)
    ):
        raise InputError(f"new shape {[first, second]} is not [batch, {size}]")
    return _flat(chain)


def _flat(chain: Chain) -> Chain:
    if len(chain.shape) == 1:
        return chain
    pending = chain.pending
    if pending:
        pending = replace(pending, scale=pending.scale.reshape(-1), shift=pending.shift.reshape(-1))
    return replace(chain.then(Flatten()), pending=pending)


def _same(chain: Chain, node: Node) -> Chain:
    """Identity, and dropout, which does nothing outside training."""
    if node.operator == "Dropout":
        node.options(ratio=0.5, seed=0)
        training = node.operands[2] if len(node.operands) > 2 else None
        if node.position != 0 or (training is not None and training.any()):
            raise InputError("dropout in training is not supported")
    return chain


OPERATORS: dict[str, Callable[[Chain, Node], Chain]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Conv": _convolution,
    **dict.fromkeys(("Add", "Sub", "Mul", "Div"), _arithmetic),
    "BatchNormalization": _batch_normalisation,
    **dict.fromkeys(ACTIVATIONS, _activation),
    "LeakyRelu": _leaky,
    "Elu": _exponential,
    "Gelu": _gelu,
    "Clip": _clip,
    **dict.fromkeys(("AveragePool", "MaxPool"), _pool),
    "Flatten": _flatten,
    "Reshape": _reshape,
    **dict.fromkeys(("Identity", "Dropout"), _same),
}

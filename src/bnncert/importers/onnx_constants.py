"""ONNX operators on constants, which are computed: in float64, or as whole numbers.

With a batch of one all dimensions are known, so shapes that a graph computes are constants too.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bnncert.errors import InputError
from bnncert.importers.building import MOST, NOTHING, Names
from bnncert.importers.onnx_nodes import Array, Constant, Node, Rule
from bnncert.importers.onnx_shapes import (
    flatten_dims,
    gather_positions,
    permutation,
    reduced,
    reshape_dims,
    shape_span,
    slice_positions,
    split_positions,
    squeeze_dims,
    unsqueeze_dims,
)

STORED = ("value", "value_float", "value_floats", "value_int", "value_ints")
# ONNX's numbers for the types that constants are cast to.
TYPES: dict[int, type] = {
    1: np.float32,
    6: np.int32,
    7: np.int64,
    9: np.bool_,
    10: np.float16,
    11: np.float64,
}


def _value(node: Node, position: int = 0) -> Array:
    return _constant(node, position).value


def _constant(node: Node, position: int = 0) -> Constant:
    found = node.operand(position)
    if not isinstance(found, Constant):  # none is, where this table is read
        raise TypeError(f"operand {position} depends on the input")
    return found


def _names(node: Node) -> Names:
    """Of the tensors that the operands hold; a single number, or a whole one, is no weight."""
    parts = [
        each.names
        for each in node.operands
        if isinstance(each, Constant) and each.value.size > 1 and each.value.dtype.kind != "i"
    ]
    return NOTHING.union(*parts)


def _of(node: Node, value: object) -> Constant:
    array = np.asarray(value)
    if array.size > MOST:
        raise InputError(f"a constant of shape {array.shape} is too large")
    return Constant(array, _names(node))


def _stored(node: Node) -> Constant:
    given = node.options(**dict.fromkeys(STORED))
    (value,) = [value for value in given.values() if value is not None]
    if isinstance(value, Constant):
        return value
    array = np.array(value)
    return Constant(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))


def _filled(node: Node) -> Constant:
    """ConstantOfShape: of one number, 0 unless given."""
    value = node.options(value=None)["value"]
    number = np.zeros(1, np.float32) if value is None else value.value
    dims = node.integers(0)
    if math.prod(dims) > MOST:
        raise InputError(f"a constant of shape {dims} is too large")
    return Constant(np.full(dims, number.reshape(-1)[0], number.dtype))


def _cast(node: Node) -> Constant:
    kind = TYPES.get(node.options(to=0, saturate=1)["to"])
    value = _value(node)
    if kind is None or not np.isfinite(value).all():
        raise InputError("only finite numbers of ordinary types are cast")
    return _of(node, value.astype(kind))


def _numbers(node: Node) -> list[Array]:
    """All operands, as float64 or as int64."""
    values = [_value(node, position) for position in range(len(node.operands))]
    kinds = {"f": np.float64, "i": np.int64}
    found = {value.dtype.kind for value in values}
    if len(found) != 1 or not found <= kinds.keys():
        raise InputError("operands must be all floating-point or all whole numbers")
    if math.prod(np.broadcast_shapes(*(value.shape for value in values))) > MOST:
        raise InputError("the result is too large")
    return [value.astype(kinds[value.dtype.kind]) for value in values]


def _elementwise(function: Callable[..., Array], inputs: int | None) -> Rule:
    """Arithmetic of so many operands, or of any number of them, two by two."""

    def rule(node: Node) -> Constant:
        node.options()
        values = _numbers(node)
        if inputs is not None and len(values) != inputs:
            raise InputError(f"it has {len(values)} operands, not {inputs}")
        with np.errstate(all="ignore"):  # what is not finite is refused where it is used
            if inputs == 1:
                return _of(node, function(values[0]))
            result = values[0]
            for value in values[1:]:
                result = np.asarray(function(result, value))
        return _of(node, result)

    return rule


def _divided(first: Array, second: Array) -> Array:
    """Whole numbers towards 0."""
    if not second.all():
        raise InputError("division by 0")
    if first.dtype.kind == "f":
        return np.asarray(first / second)
    return np.asarray(np.sign(first) * np.sign(second) * (np.abs(first) // np.abs(second)))


def _power(first: Array, second: Array) -> Array:
    if second.dtype.kind == "i" and (second < 0).any():
        raise InputError("a whole number to a negative power")
    return np.asarray(np.power(first, second))


def _equal(node: Node) -> Constant:
    first, second = _numbers(node)
    return _of(node, first == second)


def _chosen(node: Node) -> Constant:
    """Where."""
    condition, first, second = (_value(node, position) for position in range(3))
    if math.prod(np.broadcast_shapes(condition.shape, first.shape, second.shape)) > MOST:
        raise InputError("the result is too large")
    return _of(node, np.where(condition.astype(bool), first, second))


def _expanded(node: Node) -> Constant:
    value, dims = _value(node), node.integers(1)
    wide = np.broadcast_shapes(value.shape, tuple(dims))
    if math.prod(wide) > MOST:
        raise InputError(f"a constant of shape {wide} is too large")
    return _of(node, np.broadcast_to(value, wide))


def _range(node: Node) -> Constant:
    start, limit, step = (value.reshape(()) for value in _numbers(node))
    if step == 0 or abs(float(limit - start) / float(step)) > MOST:
        raise InputError("a range without an end, or one that is too long")
    return _of(node, np.arange(start.item(), limit.item(), step.item()))


def _gathered(node: Node) -> Constant:
    axis, positions = gather_positions(node, _value(node).shape)
    return Constant(np.take(_value(node), positions, axis), _constant(node).names)


def _concatenated(node: Node) -> Constant:
    axis = node.options(axis=None)["axis"]
    values = [_value(node, position) for position in range(len(node.operands))]
    return _of(node, np.concatenate(values, axis))


def _sliced(node: Node) -> Constant:
    value = _value(node)
    for axis, positions in slice_positions(node, value.shape).items():
        value = np.take(value, positions, axis)
    return _of(node, value)


def _parts(node: Node) -> tuple[Constant, ...]:
    axis, parts = split_positions(node, _value(node).shape)
    return tuple(_of(node, np.take(_value(node), positions, axis)) for positions in parts)


def _product(node: Node) -> Constant:
    """ReduceProd, which exporters count entries with."""
    (value,) = _numbers(Node(node.operator, node.operands[:1], {}))
    axes, dims = reduced(node, value.shape)
    return _of(node, np.prod(value, axis=tuple(axes)).reshape(dims))


def _moved(dims: Callable[[Node, tuple[int, ...]], tuple[int, ...]]) -> Rule:
    return lambda node: Constant(
        _value(node).reshape(dims(node, _value(node).shape)),
        _constant(node).names,
    )


def _transposed(node: Node) -> Constant:
    return _of(node, np.transpose(_value(node), permutation(node, _value(node).ndim)))


def _shape(node: Node) -> Constant:
    dims = _value(node).shape
    return Constant(np.array(dims[shape_span(node, len(dims))], np.int64))


FOLDED: dict[str, Rule] = {
    "Constant": _stored,
    "ConstantOfShape": _filled,
    "Shape": _shape,
    "Cast": _cast,
    "Identity": lambda node: node.operand(0),
    "Add": _elementwise(np.add, 2),
    "Sub": _elementwise(np.subtract, 2),
    "Mul": _elementwise(np.multiply, 2),
    "Div": _elementwise(_divided, 2),
    "Pow": _elementwise(_power, 2),
    "Neg": _elementwise(np.negative, 1),
    "Sqrt": _elementwise(np.sqrt, 1),
    "Floor": _elementwise(np.floor, 1),
    "Max": _elementwise(np.maximum, None),
    "Min": _elementwise(np.minimum, None),
    "Equal": _equal,
    "Where": _chosen,
    "Expand": _expanded,
    "Range": _range,
    "ReduceProd": _product,
    "Gather": _gathered,
    "Concat": _concatenated,
    "Slice": _sliced,
    "Split": _parts,
    "Transpose": _transposed,
    "Reshape": _moved(reshape_dims),
    "Flatten": _moved(flatten_dims),
    "Squeeze": _moved(squeeze_dims),
    "Unsqueeze": _moved(unsqueeze_dims),
}

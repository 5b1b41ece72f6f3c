"""ONNX operators that move what depends on the input, or repeat, cut and pad it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from bnncert.errors import InputError
from bnncert.importers.building import joined, padded, permuted, shifted, taken
from bnncert.importers.onnx_nodes import (
    Constant,
    Node,
    Operand,
    Rule,
    Wire,
    axis_of,
    inner,
    limited,
    tensor,
)
from bnncert.importers.onnx_shapes import (
    flatten_dims,
    gather_positions,
    pad_sides,
    permutation,
    reshape_dims,
    shape_span,
    slice_positions,
    split_positions,
    squeeze_dims,
    unsqueeze_dims,
)
from bnncert.model.layers import Shape


def renamed(wire: Wire, dims: Shape) -> Wire:
    """The same entries by other dimensions: a layer only where they become a vector, as networks
    are written."""
    shape = inner(limited(dims))
    return Wire(wire.shaped(shape) if len(shape) == 1 else wire.value, dims)


def _moved(dims: Callable[[Node, Shape], Shape]) -> Rule:
    return lambda node: renamed(node.wire(), dims(node, node.wire().dims))


def _same(node: Node) -> Wire:
    """Identity, and casts from one floating-point type to another, which round."""
    kind = node.options(**({"to": 0, "saturate": 1} if node.operator == "Cast" else {}))
    if kind.get("to", 1) not in (1, 10, 11, 16):
        raise InputError("a cast to whole numbers jumps, and is not supported")
    return node.wire()


def _dropout(node: Node) -> Wire:
    """Nothing, outside training."""
    node.options(ratio=0.5, seed=0)
    training = node.operand(2) if node.has(2) else None
    if isinstance(training, Wire) or (training is not None and training.value.any()):
        raise InputError("dropout in training is not supported")
    return node.wire()


def _shape(node: Node) -> Constant:
    """The dimensions, at a batch of one."""
    dims = node.wire().dims
    return Constant(np.array(dims[shape_span(node, len(dims))], np.int64))


def _transpose(node: Node) -> Wire:
    wire = node.wire()
    order = permutation(node, len(wire.dims))
    dims = tuple(wire.dims[axis] for axis in order)
    moving = [axis for k, axis in enumerate(order) if axis != k]
    value, lacking = wire.at(moving)
    return Wire(permuted(value, [axis - lacking for axis in order[lacking:]]), dims)


def take(wire: Wire, axis: int, positions: Sequence[int]) -> Wire:
    dims = limited((*wire.dims[:axis], len(positions), *wire.dims[axis + 1 :]))
    value, lacking = wire.at([axis])
    return Wire(taken(value, axis - lacking, positions), dims)


def _slice(node: Node) -> Wire:
    wire = node.wire()
    for axis, positions in slice_positions(node, wire.dims).items():
        wire = take(wire, axis, positions)
    return wire


def _split(node: Node) -> tuple[Operand, ...]:
    wire = node.wire()
    axis, parts = split_positions(node, wire.dims)
    return tuple(take(wire, axis, positions) for positions in parts)


def _gather(node: Node) -> Wire:
    wire = node.wire()
    axis, positions = gather_positions(node, wire.dims)
    taken_there = take(wire, axis, positions.reshape(-1).tolist())
    dims = (*wire.dims[:axis], *positions.shape, *wire.dims[axis + 1 :])
    return renamed(taken_there, dims)


def _pad(node: Node) -> Wire:
    wire = node.wire()
    before, after = pad_sides(node, len(wire.dims))
    fill = node.number(2, float(node.attributes.get("value", 0.0)))
    axes = [axis for axis in range(len(before)) if before[axis] or after[axis]]
    value, lacking = wire.at(axes)
    dims = limited([sum(sizes) for sizes in zip(before, wire.dims, after, strict=True)])
    return Wire(padded(value, before[lacking:], after[lacking:], fill), dims)


def _concat(node: Node) -> Wire:
    """Constants are zeros beside what depends on the input, and then a shift."""
    parts = [node.operand(position) for position in range(len(node.operands))]
    ranks = {len(part.dims) for part in parts}
    if len(ranks) != 1:
        raise InputError(f"it has operands of shapes {[part.dims for part in parts]}")
    (rank,) = ranks
    axis = axis_of(node.options(axis=None)["axis"], rank)
    others = {(*part.dims[:axis], *part.dims[axis + 1 :]) for part in parts}
    if len(others) != 1:
        raise InputError(f"it has operands of shapes {[part.dims for part in parts]}")
    widths = [part.dims[axis] for part in parts]
    dims = limited((*parts[0].dims[:axis], sum(widths), *parts[0].dims[axis + 1 :]))
    values, lacking = [], 0
    for before, part, after in _with_neighbours(parts, axis):
        value, lacking = part.at([axis])
        first, last = ([size if k == axis else 0 for k in range(rank)] for size in (before, after))
        values.append(padded(value, first[lacking:], last[lacking:]))
    value = joined(values, axis - lacking)
    shift = [
        np.zeros(part.dims) if isinstance(part, Wire) else node.constant(position).value
        for position, part in enumerate(parts)
    ]
    return Wire(shifted(value, tensor(np.concatenate(shift, axis).reshape(value.shape))), dims)


def _with_neighbours(parts: Sequence[Operand], axis: int) -> list[tuple[int, Wire, int]]:
    """Each that depends on the input, with the width of the constants before it, and behind the
    last one."""
    found: list[tuple[int, Wire, int]] = []
    width = 0
    for part in parts:
        if isinstance(part, Wire):
            found.append((width, part, 0))
            width = 0
        else:
            width += part.dims[axis]
    before, last, _ = found[-1]
    return [*found[:-1], (before, last, width)]


def _expand(node: Node) -> Wire:
    """To dimensions of as many entries."""
    wire, dims = node.wire(), node.integers(1)
    wide = np.broadcast_shapes(wire.dims, tuple(dims))
    if math.prod(wide) != math.prod(wire.dims):
        raise InputError(f"it repeats entries of {wire.dims}, which is not supported")
    return renamed(wire, wide)


MOVES: dict[str, Rule] = {
    "Identity": _same,
    "Cast": _same,
    "Dropout": _dropout,
    "Shape": _shape,
    "Transpose": _transpose,
    "Reshape": _moved(reshape_dims),
    "Flatten": _moved(flatten_dims),
    "Squeeze": _moved(squeeze_dims),
    "Unsqueeze": _moved(unsqueeze_dims),
    "Expand": _expand,
    "Slice": _slice,
    "Split": _split,
    "Gather": _gather,
    "Pad": _pad,
    "Concat": _concat,
}

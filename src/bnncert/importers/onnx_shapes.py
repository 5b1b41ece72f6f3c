"""What nodes of ONNX graphs say about dimensions and positions: the same words for constants as for
tensors that depend on the input, in every version of an operator."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bnncert.errors import InputError
from bnncert.importers.onnx_nodes import LISTED, Array, Node, axes_of, axis_of
from bnncert.model.layers import Shape


def reshape_dims(node: Node, dims: Shape) -> Shape:
    """Of Reshape: 0 is the size that was there, -1 what remains."""
    allows_zero = node.options(allowzero=0)["allowzero"]
    sizes = node.integers(1)
    if not allows_zero:
        if any(size == 0 and k >= len(dims) for k, size in enumerate(sizes)):
            raise InputError(f"new shape {sizes} keeps a dimension that {dims} does not have")
        sizes = [size or dims[k] for k, size in enumerate(sizes)]
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or min([0, *(size for size in sizes if size != -1)]) < 0:
        raise InputError(f"new shape {sizes} has negative sizes, or leaves two open")
    if -1 in sizes and known:
        sizes[sizes.index(-1)] = math.prod(dims) // known
    if math.prod(sizes) != math.prod(dims):
        raise InputError(f"new shape {sizes} does not have as many entries as {dims}")
    return tuple(sizes)


def flatten_dims(node: Node, dims: Shape) -> Shape:
    """Of Flatten: a matrix, cut at an axis."""
    axis = node.options(axis=1)["axis"]
    if not -len(dims) <= axis <= len(dims):
        raise InputError(f"axis {axis} is not one of {len(dims)} dimensions")
    axis = axis + len(dims) if axis < 0 else axis
    return math.prod(dims[:axis]), math.prod(dims[axis:])


def squeeze_dims(node: Node, dims: Shape) -> Shape:
    """Of Squeeze: all dimensions of size 1 unless axes are given."""
    given = node.listed("axes", 1)
    all_ones = [axis for axis, size in enumerate(dims) if size == 1]
    axes = all_ones if given is None else axes_of(given, len(dims))
    if any(dims[axis] != 1 for axis in axes):
        raise InputError(f"axes {axes} of {dims} are not all of size 1")
    return tuple(size for axis, size in enumerate(dims) if axis not in axes)


def unsqueeze_dims(node: Node, dims: Shape) -> Shape:
    """Of Unsqueeze: its axes are those of the result."""
    given = node.listed("axes", 1)
    if given is None:
        raise InputError("it has no axes")
    sizes = iter(dims)
    rank = len(dims) + len(given)
    axes = axes_of(given, rank)
    return tuple(1 if axis in axes else next(sizes) for axis in range(rank))


def permutation(node: Node, rank: int) -> list[int]:
    """Of Transpose: all dimensions the other way round unless said otherwise."""
    given = node.options(perm=None)["perm"]
    order = [*reversed(range(rank))] if given is None else [int(axis) for axis in given]
    if sorted(order) != [*range(rank)]:
        raise InputError(f"perm {order} does not name each of {rank} dimensions once")
    return order


def shape_span(node: Node, rank: int) -> slice:
    """Of Shape: which sizes."""
    given = node.options(start=0, end=None)
    return slice(given["start"], rank if given["end"] is None else given["end"])


def slice_positions(node: Node, dims: Shape) -> dict[int, range]:
    """Of Slice: the positions of every axis that is cut."""
    old = "starts" in node.attributes
    given = node.options(**(dict.fromkeys(("starts", "ends", "axes")) if old else {}))
    starts, ends, axes, steps = (
        (given["starts"], given["ends"], given["axes"], None)
        if old
        else (node.integers(k) if node.has(k) else None for k in range(1, 5))
    )
    if starts is None or ends is None:
        raise InputError("it has no starts or no ends")
    axes = range(len(starts)) if axes is None else [axis_of(axis, len(dims)) for axis in axes]
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or len({*axes}) < len(axes):
        raise InputError("starts, ends, axes and steps do not agree")
    found = zip(axes, starts, ends, steps, strict=True)
    return {axis: _cut(dims[axis], *bounds) for axis, *bounds in found}


def _cut(size: int, start: int, end: int, step: int) -> range:
    if step == 0 or (step < 0 and start < -size):
        raise InputError(f"a step of {step} from {start} of {size} entries has no one meaning")
    return range(*slice(start, end, step).indices(size))


def split_positions(node: Node, dims: Shape) -> tuple[int, list[range]]:
    """Of Split: the axis, and the positions of every part."""
    sizes = node.listed("split", 1, axis=0, num_outputs=None)
    axis = axis_of(node.attributes.get("axis", 0), len(dims))
    count = node.attributes.get("num_outputs", node.outputs)
    size = dims[axis]
    if sizes is None:
        if size % count and "num_outputs" not in node.attributes:
            raise InputError(f"{size} entries cannot be split into {count} equal parts")
        part = -(-size // count)
        sizes = [min(part, size - k * part) for k in range(count)]
    if sum(sizes) != size or min(sizes, default=0) < 1 or len(sizes) != node.outputs:
        raise InputError(f"{size} entries cannot be split into {node.outputs} parts of {sizes}")
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return axis, [range(end - part, end) for end, part in zip(ends, sizes, strict=True)]


def gather_positions(node: Node, dims: Shape) -> tuple[int, Array]:
    """Of Gather: the axis, and the positions; negative ones count from the end."""
    axis = axis_of(node.options(axis=0)["axis"], len(dims))
    indices = node.whole(1)
    if indices.size > LISTED or indices.size == 0:
        raise InputError(f"it takes {indices.size} positions; from 1 to {LISTED} are supported")
    if indices.min() < -dims[axis] or indices.max() >= dims[axis]:
        raise InputError(f"a position is not one of {dims[axis]}")
    return axis, indices % dims[axis]


def reduced(node: Node, dims: Shape) -> tuple[list[int], Shape]:
    """Of ReduceMean and its like: the axes, and the dimensions of the result."""
    given = node.listed("axes", 1, keepdims=1, noop_with_empty_axes=0)
    if not given and node.attributes.get("noop_with_empty_axes", 0):
        return [], dims
    axes = axes_of(given or range(len(dims)), len(dims))
    keeps = node.attributes.get("keepdims", 1)
    sizes = enumerate(dims)
    return axes, tuple(
        1 if axis in axes else size for axis, size in sizes if keeps or axis not in axes
    )


def pad_sides(node: Node, rank: int) -> tuple[list[int], list[int]]:
    """Of Pad: how many entries before and after, in each dimension."""
    pads = node.listed("pads", 1, mode=b"constant", value=0.0)
    if node.attributes.get("mode", b"constant") != b"constant":
        raise InputError("only constant padding is supported")
    axes = node.integers(3) if node.has(3) else range(rank)
    if pads is None or len(pads) != 2 * len(axes):
        raise InputError(f"pads {pads} are not two numbers for each dimension")
    before, after = [0] * rank, [0] * rank
    for k, axis in enumerate(_distinct(axes, rank)):
        before[axis], after[axis] = pads[k], pads[len(axes) + k]
    return before, after


def _distinct(axes: Sequence[int], rank: int) -> list[int]:
    """Axes in the order given."""
    axes_of(axes, rank)
    return [axis_of(axis, rank) for axis in axes]

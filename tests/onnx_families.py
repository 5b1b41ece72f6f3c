"""Graphs with the operators of the verification competitions' benchmarks, small and with weights of
our own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from onnx_files import helper, node, random_array

Graph = tuple[list[Any], dict[str, object], tuple[object, ...]]


def weights(*shape: int) -> Any:
    return random_array(*shape) / np.sqrt(shape[0])


def layers(*names: str, first: str = "x", last: str = "y") -> list[Any]:
    """MatMul, Add and ReLU, with weights W0, b0 and so on."""
    found, value = [], first
    for k, name in enumerate(names):
        after = last if k == len(names) - 1 else f"r{name}"
        found += [
            node("MatMul", f"{value} W{name}", f"m{name}"),
            node("Add", f"m{name} b{name}", f"a{name}"),
        ]
        found.append(node("Relu" if k < len(names) - 1 else "Identity", f"a{name}", after))
        value = after
    return found


def parameters(*sizes: int) -> dict[str, object]:
    found: dict[str, object] = {}
    for k, (inputs, outputs) in enumerate(pairwise(sizes)):
        found |= {f"W{k}": weights(inputs, outputs), f"b{k}": random_array(outputs)}
    return found


def collision_avoidance() -> Graph:
    """Inputs [1, 1, 1, 5] normalised, then flat."""
    nodes = [node("Sub", "x mean", "c"), node("Flatten", "c", "f"), *layers(*"012", first="f")]
    return nodes, {"mean": random_array(1, 1, 1, 5), **parameters(5, 8, 8, 5)}, (1, 1, 1, 5)


def digits_in_columns() -> Graph:
    """W x with the weights on the left, without a batch."""
    nodes = [
        node("MatMul", "W x", "a"),
        node("Add", "a b", "c"),
        node("Relu", "c", "r"),
        node("MatMul", "V r", "d"),
        node("Add", "d e", "y"),
    ]
    constants = {
        "W": weights(7, 9),
        "b": random_array(7, 1),
        "V": weights(3, 7),
        "e": random_array(3, 1),
    }
    return nodes, constants, (9, 1)


def digits_behind_ones() -> Graph:
    """Inputs [1, 1, 9, 1], reshaped by numbers."""
    nodes = [node("Reshape", "x shape", "f"), *layers(*"01", first="f")]
    return nodes, {"shape": [-1, 9], **parameters(9, 6, 4)}, (1, 1, 9, 1)


def bias_field() -> Graph:
    """A few parameters make an image, which a convolutional network reads."""
    nodes = [
        node("Gemm", "x W b", "g"),
        node("Reshape", "g s", "i"),
        node("Conv", "i K k", "c", pads=[1] * 4, strides=[2, 2]),
        node("Relu", "c", "r"),
        node("Flatten", "r", "f"),
        node("Gemm", "f V v", "y"),
    ]
    constants: dict[str, object] = {
        "W": weights(4, 48),
        "b": random_array(48),
        "s": [-1, 3, 4, 4],
        "K": weights(2, 3, 3, 3),
        "k": random_array(2),
        "V": weights(8, 3),
        "v": random_array(3),
    }
    return nodes, constants, (1, 4)


def flattened_by_shape() -> Graph:
    """An exporter's Shape, Gather, Unsqueeze, Concat in the place of flatten, at an open batch."""
    nodes = [
        node("Conv", "x K", "c"),
        node("Relu", "c", "r"),
        node("Shape", "r", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n axis", "u"),
        node("Concat", "u rest", "t", axis=0),
        node("Reshape", "r t", "f"),
        node("MatMul", "f W", "y"),
    ]
    constants: dict[str, object] = {
        "K": weights(2, 3, 2, 2),
        "zero": np.int64(0),
        "axis": [0],
        "rest": [-1],
        "W": weights(18, 3),
    }
    return nodes, constants, ("N", 3, 4, 4)


def lattice() -> Graph:
    """Two-level lattice: maxima over minima of affine functions."""
    nodes = [
        node("MatMul", "x W", "a"),
        node("Add", "a b", "h"),
        node("Gather", "h i", "g", axis=1),
        node("Reshape", "g s", "q"),
        node("Neg", "q", "m"),
        node("ReduceMax", "m", "p", axes=[2], keepdims=0),
        node("Neg", "p", "o"),
        node("ReduceMax", "o", "y", axes=[1]),
    ]
    constants: dict[str, object] = {
        "W": weights(2, 4),
        "b": random_array(4),
        "i": [0, 1, 3, 1, 2, 3],
        "s": [0, 2, 3],
    }
    return nodes, constants, (1, 2)


def sensors() -> Graph:
    """Windows in one dimension of an image, as for useful life."""
    nodes = [
        node("Conv", "x K k", "c", pads=[2, 0, 2, 0]),
        node("Relu", "c", "r"),
        node("Dropout", "r", "d"),
        node("Flatten", "d", "f"),
        node("Gemm", "f W b", "y", transB=1),
    ]
    constants = {
        "K": weights(3, 1, 5, 1),
        "k": random_array(3),
        "W": weights(2, 3 * 6 * 4),
        "b": random_array(2),
    }
    return nodes, constants, (1, 1, 6, 4)


def sequences() -> Graph:
    """Convolutions in one dimension."""
    nodes = [
        node("Conv", "x K k", "c", pads=[1, 1], strides=[2]),
        node("Relu", "c", "r"),
        node("Conv", "r L", "d"),
        node("Relu", "d", "e"),
        node("MaxPool", "e", "m", kernel_shape=[2]),
        node("Squeeze", "m", "s"),
        node("Unsqueeze", "s zero", "u"),
        node("Flatten", "u", "f"),
        node("Gemm", "f W b", "y"),
    ]
    constants: dict[str, object] = {
        "K": weights(4, 3, 3),
        "k": random_array(4),
        "L": weights(2, 4, 2),
        "zero": [0],
        "W": weights(6, 2),
        "b": random_array(2),
    }
    return nodes, constants, (1, 3, 9)


def database() -> Graph:
    """Parts of the input through networks of their own, and together again."""
    split = helper.make_node("Split", ["x", "s"], ["p", "q"], "split", axis=1)
    nodes = [
        split,
        *layers(*"01", first="p", last="u"),
        node("Gather", "q i", "g", axis=1),
        node("Sigmoid", "g", "h"),
        node("Slice", "x from to axes", "z"),
        node("Concat", "u h z", "j", axis=-1),
        node("ReduceSum", "j axes", "t"),
        node("Concat", "j t", "k", axis=1),
        node("MatMul", "k V", "y"),
    ]
    constants: dict[str, object] = {
        **parameters(3, 4, 2),
        "s": [3, 2],
        "i": [1, 0],
        "from": [-2],
        "to": [2**62],
        "axes": [1],
        "V": weights(7, 2),
    }
    return nodes, constants, (1, 5)


def shift() -> Graph:
    """A generator's code in front of a classifier, with the style joined to it."""
    nodes = [
        node("Slice", "x a b one", "z"),
        node("Slice", "x b c one", "s"),
        *layers(*"01", first="z", last="i"),
        node("Sigmoid", "i", "j"),
        node("Mul", "s half", "t"),
        node("Concat", "j t", "k", axis=1),
        node("Gemm", "k V v", "y", transB=1),
    ]
    constants: dict[str, object] = {
        **parameters(3, 5, 6),
        "a": [0],
        "b": [3],
        "c": [5],
        "one": [1],
        "half": 0.5,
        "V": weights(2, 8),
        "v": random_array(2),
    }
    return nodes, constants, (1, 5)


def detector() -> Graph:
    """Leaky ReLUs, pools that keep the size, branches joined by channel."""
    nodes = [
        node("Conv", "x K", "c", pads=[1] * 4),
        node("BatchNormalization", "c s o m v", "n"),
        node("LeakyRelu", "n", "r", alpha=0.1),
        node("MaxPool", "r", "p", kernel_shape=[3, 3], pads=[1] * 4),
        node("Conv", "r L", "q"),
        node("Concat", "p q r", "j", axis=1),
        node("Conv", "j M", "d", strides=[2, 2]),
        node("ReduceMean", "d", "a", axes=[2, 3], keepdims=0),
        node("Reshape", "d f", "e"),
        node("Concat", "a e", "y", axis=1),
    ]
    constants: dict[str, object] = {
        "K": weights(2, 3, 3, 3),
        "s": random_array(2),
        "o": random_array(2),
        "m": random_array(2),
        "v": random_array(2) ** 2,
        "L": weights(1, 2, 1, 1),
        "M": weights(2, 5, 2, 2),
        "f": [1, -1],
    }
    return nodes, constants, (1, 3, 4, 4)


def controller() -> Graph:
    """A closed loop: the state beside its controller's answer, held between two ends."""
    nodes = [
        *layers(*"01", last="u"),
        node("Clip", "u lo hi", "v"),
        node("Concat", "x v", "z", axis=1),
        node("MatMul", "z V", "w"),
        node("Sub", "w x", "d"),
        node("Abs", "d", "e"),
        node("ReduceSum", "e axes", "s"),
        node("Concat", "w s", "y", axis=1),
    ]
    constants: dict[str, object] = {
        **parameters(4, 6, 1),
        "lo": -0.5,
        "hi": 0.5,
        "V": weights(5, 4),
        "axes": [-1],
    }
    return nodes, constants, (1, 4)


def linearised() -> Graph:
    """A network beside its linearisation: transposed, cut, and subtracted."""
    nodes = [
        *layers(*"01", last="u"),
        node("Transpose", "x", "t", perm=[1, 0]),
        node("MatMul", "V t", "p"),
        node("Transpose", "p", "l"),
        node("Sub", "u l", "d"),
        node("Neg", "d", "n"),
        node("Max", "d n", "y"),
    ]
    return nodes, {**parameters(3, 5, 2), "V": weights(2, 3)}, (1, 3)


GRAPHS: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        collision_avoidance,
        digits_in_columns,
        digits_behind_ones,
        bias_field,
        flattened_by_shape,
        lattice,
        sensors,
        sequences,
        database,
        shift,
        detector,
        controller,
        linearised,
    )
}

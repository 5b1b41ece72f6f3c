"""ONNX operators on graphs, each against the format's reference evaluator.

The cases are those that are easily read wrongly: axes, padding, negative numbers, defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d, pad

from bnncert.importers.onnx import read_onnx
from onnx_files import agree_at, helper, node, random_array, write

IMAGE = (1, 3, 5, 4)
KERNEL = random_array(2, 3, 3, 2)
W = random_array(4, 3)
Case = tuple[list[Any], dict[str, object], tuple[int, ...]]


# Two spaces between operands stand for one that is left out.


def after(*nodes: Any) -> list[Any]:
    """The nodes, from x to h, and then a first sum that gives every network weights."""
    return [*nodes, node("Add", "h one", "y")]


def case(
    operator: str,
    shape: tuple[int, ...],
    constants: dict[str, object] | None = None,
    **options: Any,
) -> Case:
    """One operator that takes x and then the constants."""
    constants = constants or {}
    return [node(operator, " ".join(["x", *constants]), "h", **options)], constants, shape


def second(
    operator: str, shape: tuple[int, ...], constants: dict[str, object], **options: Any
) -> Case:
    """One operator that takes the constants first."""
    return [node(operator, " ".join([*constants, "x"]), "h", **options)], constants, shape


CASES: dict[str, Case] = {
    # ------------------------------------------------------------------------------- arithmetic
    "add by channel": case("Add", IMAGE, {"c": random_array(3, 1, 1)}),
    "add by row": case("Add", IMAGE, {"c": random_array(5, 1)}),
    "add by column": case("Add", IMAGE, {"c": random_array(4)}),
    "add a square image": case("Add", (1, 4, 4, 4), {"c": random_array(4)}),
    "add by channel of squares": case("Add", (1, 4, 4, 4), {"c": random_array(4, 1, 1)}),
    "add by row of squares": case("Add", (1, 4, 4, 4), {"c": random_array(1, 1, 4, 1)}),
    "add adds dimensions": case("Add", (1, 4), {"c": random_array(1, 1, 4)}),
    "sub from a constant": second("Sub", IMAGE, {"c": random_array(3, 1, 1)}),
    "mul by position": case("Mul", IMAGE, {"c": random_array(5, 4)}),
    "mul by negative": second("Mul", IMAGE, {"c": -3.5}),
    "div": case("Div", IMAGE, {"c": 2 + random_array(3, 1, 1) ** 2}),
    "neg": case("Neg", IMAGE),
    "abs": case("Abs", IMAGE),
    "twice": ([node("Add", "x x", "h")], {}, (1, 4)),
    "x - x/2": ([node("Mul", "x c", "a"), node("Sub", "x a", "h")], {"c": 0.5}, (1, 4)),
    "residual": (
        [node("MatMul", "x W", "a"), node("Relu", "a", "b"), node("Add", "b a", "h")],
        {"W": W},
        (1, 4),
    ),
    "residual with a scale on both sides": (
        [
            node("MatMul", "x W", "a"),
            node("Mul", "a c", "b"),
            node("Relu", "b", "d"),
            node("Sub", "a d", "h"),
        ],
        {"W": W, "c": random_array(3)},
        (1, 4),
    ),
    "sum of many": ([node("Sum", "x c x d", "h")], {"c": random_array(4), "d": 2.0}, (1, 4)),
    "sum with constants first": (
        [node("Sum", "c d x", "h")],
        {"c": random_array(4), "d": 2.0},
        (1, 4),
    ),
    "max of two": ([node("Neg", "x", "a"), node("Max", "a x", "h")], {}, (1, 4)),
    "max of many": (
        [node("Mul", "x c", "a"), node("Max", "a d x", "h")],
        {"c": random_array(4), "d": random_array(4)},
        (1, 4),
    ),
    "min of many": (
        [node("Mul", "x c", "a"), node("Min", "d a x d", "h")],
        {"c": random_array(4), "d": random_array(4)},
        (1, 4),
    ),
    # ------------------------------------------------------------------------------ activations
    "relu": case("Relu", IMAGE),
    "leaky": case("LeakyRelu", IMAGE),
    "leaky, rising": case("LeakyRelu", IMAGE, alpha=1.5),
    "leaky, falling": case("LeakyRelu", IMAGE, alpha=-0.5),
    "leaky, straight": case("LeakyRelu", IMAGE, alpha=1.0),
    "prelu by channel": case("PRelu", IMAGE, {"s": random_array(3, 1, 1)}),
    "prelu of one slope": case("PRelu", IMAGE, {"s": np.full((3, 1, 1), 0.25)}),
    "clip": case("Clip", IMAGE, {"lo": -0.5, "hi": 0.25}),
    "clip from below": case("Clip", IMAGE, {"lo": 0.5}),
    "clip from above": ([node("Clip", "x  hi", "h")], {"hi": -0.25}, IMAGE),
    "clip without ends": case("Clip", IMAGE),
    "hard sigmoid": case("HardSigmoid", IMAGE),
    "hard sigmoid, steeper": case("HardSigmoid", IMAGE, alpha=0.5, beta=0.25),
    "tanh": case("Tanh", IMAGE),
    "sigmoid": case("Sigmoid", IMAGE),
    # ------------------------------------------------------------------------------------ moves
    "transpose": case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    "transpose by default": case("Transpose", IMAGE),
    "transpose the batch": case("Transpose", (1, 3, 4), perm=[1, 0, 2]),
    "transpose without a batch": case("Transpose", (3, 4)),
    "transpose twice": (
        [
            node("Transpose", "x", "a", perm=[0, 2, 3, 1]),
            node("Transpose", "a", "h", perm=[0, 3, 1, 2]),
        ],
        {},
        IMAGE,
    ),
    "transpose thrice": (
        [
            node("Transpose", "x", "a", perm=[0, 2, 3, 1]),
            node("Transpose", "a", "b", perm=[1, 2, 0, 3]),
            node("Transpose", "b", "h", perm=[3, 0, 1, 2]),
        ],
        {},
        IMAGE,
    ),
    "reshape": case("Reshape", IMAGE, {"s": [0, 4, -1, 3]}),
    "reshape keeps zeros": case("Reshape", IMAGE, {"s": [0, 0, -1]}),
    "reshape with a batch that grows": case("Reshape", IMAGE, {"s": [6, -1]}),
    "reshape to a vector": case("Reshape", IMAGE, {"s": [-1]}),
    "flatten": case("Flatten", IMAGE),
    "flatten at 0": case("Flatten", IMAGE, axis=0),
    "flatten at 2": case("Flatten", IMAGE, axis=2),
    "flatten at -1": case("Flatten", IMAGE, axis=-1),
    "flatten at the end": case("Flatten", IMAGE, axis=4),
    "squeeze": case("Squeeze", (1, 3, 1, 4, 1), {"a": [2, -1]}),
    "squeeze all": case("Squeeze", (1, 3, 1, 4, 1)),
    "unsqueeze": case("Unsqueeze", (1, 3, 4), {"a": [-1, 1]}),
    "identity": case("Identity", IMAGE),
    "dropout": case("Dropout", IMAGE),
    "cast": case("Cast", IMAGE, to=11),
    "slice": case("Slice", IMAGE, {"s": [1, 0], "e": [3, -1], "a": [1, 3]}),
    "slice without axes": case("Slice", IMAGE, {"s": [0, 1], "e": [1, 2]}),
    "slice with steps": case(
        "Slice", IMAGE, {"s": [0, 3], "e": [9, 0], "a": [2, -1], "t": [2, -1]}
    ),
    "slice backwards to the end": case(
        "Slice", IMAGE, {"s": [-1], "e": [-(2**62)], "a": [2], "t": [-1]}
    ),
    "slice far ends": case("Slice", IMAGE, {"s": [-99], "e": [2**62], "a": [1]}),
    "slice backwards by two": case("Slice", IMAGE, {"s": [99], "e": [-4], "a": [2], "t": [-2]}),
    "gather": case("Gather", IMAGE, {"i": [2, 0]}, axis=1),
    "gather from the end": case("Gather", IMAGE, {"i": [-1, 0, -2]}, axis=-2),
    "gather one": case("Gather", IMAGE, {"i": np.int64(-1)}, axis=1),
    "gather a matrix": case("Gather", IMAGE, {"i": [[0, 1], [2, 0]]}, axis=1),
    "gather repeatedly": case("Gather", (1, 4), {"i": [3, 3, 0, 3, 1]}, axis=1),
    "gather the batch": case("Gather", IMAGE, {"i": np.int64(0)}),
    "pad": case("Pad", IMAGE, {"p": [0, 0, 1, 2, 0, 1, 0, 3]}),
    "pad with a number": case("Pad", IMAGE, {"p": [0, 0, 1, 2, 0, 1, 0, 3], "v": 1.5}),
    "concat with itself": ([node("Concat", "x x", "h", axis=1)], {}, IMAGE),
    "concat from the end": (
        [node("Neg", "x", "a"), node("Concat", "x a x", "h", axis=-1)],
        {},
        IMAGE,
    ),
    "concat with constants": (
        [node("Neg", "x", "a"), node("Concat", "c x d c a d", "h", axis=1)],
        {"c": random_array(1, 2, 3), "d": random_array(1, 1, 3)},
        (1, 4, 3),
    ),
    "concat the batch": ([node("Neg", "x", "a"), node("Concat", "x a", "h", axis=0)], {}, (1, 4)),
    "concat without a batch": (
        [node("Neg", "x", "a"), node("Concat", "x a", "h", axis=0)],
        {},
        (4,),
    ),
    # ---------------------------------------------------------------------------------- products
    "matmul of rows": case("MatMul", (1, 5, 4), {"W": W}),
    "matmul of rows of images": case("MatMul", (1, 2, 5, 4), {"W": W}),
    "matmul with a vector": case("MatMul", (1, 5, 4), {"v": random_array(4)}),
    "matmul of a vector": case("MatMul", (4,), {"W": W}),
    "matmul of two vectors": case("MatMul", (4,), {"v": random_array(4)}),
    "matmul of wide weights": case("MatMul", (1, 5, 4), {"W": W[None]}),
    "matmul from the left": second("MatMul", (4, 1), {"W": W.T}),
    "matmul of a vector from the left": second("MatMul", (4,), {"W": W.T}),
    "matmul of columns": second("MatMul", (1, 4, 5), {"W": W.T}),
    "matmul of columns of images": second("MatMul", (1, 2, 4, 5), {"W": W.T}),
    "matmul of columns of many": second("MatMul", (3, 4, 1), {"W": W.T}),
    "matmul of a vector and columns": second("MatMul", (1, 4, 5), {"v": random_array(4)}),
    "gemm": case("Gemm", (1, 4), {"W": W, "b": random_array(3)}),
    "gemm of rows": case("Gemm", (5, 4), {"W": W, "b": random_array(3)}, alpha=0.5, beta=-2.0),
    "gemm of rows that differ": case("Gemm", (5, 4), {"W": W, "b": random_array(5, 3)}),
    "gemm with a column": case("Gemm", (5, 4), {"W": W, "b": random_array(5, 1)}, beta=3.0),
    "gemm turned": case("Gemm", (4, 5), {"W": W.T}, transA=1, transB=1, alpha=-1.5),
    "gemm from the left": (
        [node("Gemm", "W x b", "h", alpha=2.0, beta=0.5)],
        {"W": W.T, "b": random_array(3, 1)},
        (4, 5),
    ),
    "gemm from the left, both turned": (
        [node("Gemm", "W x", "h", transA=1, transB=1)],
        {"W": W},
        (5, 4),
    ),
    "gemm with what depends on the input": (
        [node("Gemm", "x W x", "h", beta=-0.5)],
        {"W": random_array(4, 4)},
        (1, 4),
    ),
    # ------------------------------------------------------------------------------------- windows
    "conv": case("Conv", IMAGE, {"K": KERNEL, "b": random_array(2)}),
    "conv, lopsided": case("Conv", IMAGE, {"K": KERNEL}, pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv, dilated": case("Conv", IMAGE, {"K": KERNEL}, dilations=[2, 1], pads=[1, 1, 1, 1]),
    "conv in groups": case("Conv", (1, 4, 5, 4), {"K": random_array(6, 2, 2, 3)}, group=2),
    "conv, depthwise": case("Conv", IMAGE, {"K": random_array(3, 1, 2, 2)}, group=3),
    "conv, same upper": case("Conv", IMAGE, {"K": KERNEL}, auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv, same lower": case("Conv", IMAGE, {"K": KERNEL}, auto_pad="SAME_LOWER"),
    "conv, valid": case("Conv", IMAGE, {"K": KERNEL}, auto_pad="VALID"),
    "conv over sequences": case(
        "Conv",
        (1, 3, 7),
        {"K": random_array(2, 3, 3), "b": random_array(2)},
        pads=[2, 1],
        strides=[2],
    ),
    "conv over sequences, dilated": case(
        "Conv", (1, 4, 7), {"K": random_array(2, 2, 3)}, dilations=[2], group=2
    ),
    "scaled groups": (
        [node("Mul", "x s", "a"), node("Add", "a t", "b"), node("Conv", "b K", "h", group=2)],
        {
            "s": random_array(4, 1, 1),
            "t": random_array(4, 1, 1),
            "K": random_array(6, 2, 2, 3),
        },
        (1, 4, 5, 4),
    ),
    "shifted before padding": (
        [node("Add", "x t", "b"), node("Conv", "b K", "h", pads=[1] * 4)],
        {"t": random_array(3, 1, 1), "K": KERNEL},
        IMAGE,
    ),
    "scaled within a channel": (
        [node("Conv", "x K", "a"), node("Mul", "a s", "b"), node("Conv", "b L", "h")],
        {"K": KERNEL, "s": random_array(3, 3), "L": random_array(1, 2, 2, 2)},
        IMAGE,
    ),
    "normalised": (
        [node("BatchNormalization", "x s o m v", "h", epsilon=0.5)],
        dict(
            zip(
                "somv",
                (random_array(3), random_array(3), random_array(3), random_array(3) ** 2),
                strict=True,
            )
        ),
        IMAGE,
    ),
    "normalised over sequences": (
        [node("BatchNormalization", "x s o m v", "a"), node("Relu", "a", "h")],
        dict(
            zip(
                "somv",
                (random_array(3), random_array(3), random_array(3), random_array(3) ** 2),
                strict=True,
            )
        ),
        (1, 3, 4),
    ),
    "average": case("AveragePool", IMAGE, kernel_shape=[2, 3]),
    "average without padding's zeros": case(
        "AveragePool", IMAGE, kernel_shape=[3, 2], pads=[2, 0, 1, 1], strides=[2, 1]
    ),
    "average with padding's zeros": case(
        "AveragePool", IMAGE, kernel_shape=[3, 2], pads=[2, 0, 1, 1], count_include_pad=1
    ),
    "average over sequences": case(
        "AveragePool", (1, 3, 7), kernel_shape=[3], pads=[1, 1], strides=[2]
    ),
    "average, ceil without effect": case(
        "AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], ceil_mode=1
    ),
    "maximum": case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[1, 2]),
    "maximum over sequences": case("MaxPool", (1, 3, 7), kernel_shape=[2], strides=[2]),
    "global average": case("GlobalAveragePool", IMAGE),
    "global average of sequences": case("GlobalAveragePool", (1, 3, 7)),
    "global maximum": case("GlobalMaxPool", IMAGE),
    "mean": case("ReduceMean", IMAGE, axes=[2, 3]),
    "mean of channels": case("ReduceMean", IMAGE, axes=[1], keepdims=0),
    "mean of everything": case("ReduceMean", IMAGE),
    "mean, from the end": case("ReduceMean", IMAGE, axes=[-1, 1], keepdims=0),
    "mean of the batch": case("ReduceMean", IMAGE, axes=[0]),
    "mean without a batch": case("ReduceMean", (3, 4), axes=[0], keepdims=0),
    "sum": case("ReduceSum", IMAGE, {"a": [1, 2]}, keepdims=0),
    "sum of everything": case("ReduceSum", IMAGE, keepdims=0),
    "sum of nothing": case("ReduceSum", IMAGE, noop_with_empty_axes=1),
    "maximum of a dimension": case("ReduceMax", IMAGE, axes=[2], keepdims=0),
}


def parts(count: int, **options: Any) -> list[Any]:
    """A split, of which the parts are put together in another order."""
    names = [f"p{k}" for k in range(count)]
    split = helper.make_node("Split", ["x", *options.pop("sizes", [])], names, "split", **options)
    return [split, node("Concat", " ".join(reversed(names)), "h", axis=options.get("axis", 0))]


CASES |= {
    "split": (parts(3, axis=1), {}, (1, 6)),
    "split in parts of all sizes": (parts(2, axis=-1, sizes=["s"]), {"s": [1, 3]}, IMAGE),
}
OLD: dict[str, tuple[list[Any], dict[str, object], tuple[int, ...], int]] = {
    "slice by attributes": (
        [node("Slice", "x", "h", starts=[1, -3], ends=[3, 99], axes=[1, 3])],
        {},
        IMAGE,
        9,
    ),
    "squeeze by attributes": ([node("Squeeze", "x", "h", axes=[2])], {}, (1, 3, 1, 4), 11),
    "unsqueeze by attributes": ([node("Unsqueeze", "x", "h", axes=[0, 2])], {}, (1, 3, 4), 11),
    "split by attributes": (parts(2, axis=1, split=[1, 2]), {}, IMAGE, 11),
    "pad by attributes": (
        [node("Pad", "x", "h", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5)],
        {},
        IMAGE,
        10,
    ),
    "clip by attributes": ([node("Clip", "x", "h", min=-0.5, max=0.25)], {}, IMAGE, 10),
    "clip by defaults": ([node("Clip", "x", "h", max=0.25)], {}, IMAGE, 10),
    "sum by attributes": ([node("ReduceSum", "x", "h", axes=[1], keepdims=0)], {}, IMAGE, 11),
    "mean by operand": ([node("ReduceMean", "x a", "h")], {"a": [-1]}, IMAGE, 18),
    "split by number": (parts(3, axis=1, num_outputs=3), {}, (1, 7), 18),
    "pad by axes": ([node("Pad", "x p  a", "h")], {"p": [1, 0, 0, 2], "a": [-1, 2]}, IMAGE, 18),
    "dropout, old": ([node("Dropout", "x", "h", ratio=0.25)], {}, IMAGE, 9),
}
# Far below and above 0, where a wrong sign, slope or end cannot hide.
SIZES = (1.0, 1e3)


@pytest.mark.parametrize("name", [*CASES, *OLD])
def test_operators_agree_with_the_reference(name: str, tmp_path: Path) -> None:
    nodes, constants, shape, *opset = CASES[name] if name in CASES else OLD[name]
    options = {"opset": opset[0]} if opset else {}
    path = write(tmp_path / "m.onnx", after(*nodes), {**constants, "one": 1.0}, shape, **options)
    for size in SIZES:
        agree_at(path, shape, size)


# What the reference evaluator does not do, or does otherwise than the format says.
BEYOND: dict[str, tuple[Case, Callable[[Tensor], Tensor]]] = {
    "pad and cut": (
        case("Pad", IMAGE, {"p": [0, 0, -1, 2, 0, 1, 0, -3], "v": -2.0}),
        lambda x: pad(x, (2, -3, -1, 0, 0, 1), value=-2.0),
    ),
    "maximum, padded": (
        case("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 2, 0]),
        lambda x: max_pool2d(pad(x, (1, 0, 1, 2), value=-np.inf), 3, 1),
    ),
    "maximum, same lower": (
        case("MaxPool", IMAGE, kernel_shape=[2, 3], auto_pad="SAME_LOWER", strides=[2, 1]),
        lambda x: max_pool2d(pad(x, (1, 1, 1, 0), value=-np.inf), (2, 3), (2, 1)),
    ),
    "maximum, same upper": (
        case("MaxPool", IMAGE, kernel_shape=[2, 3], auto_pad="SAME_UPPER", strides=[2, 1]),
        lambda x: max_pool2d(pad(x, (1, 1, 0, 1), value=-np.inf), (2, 3), (2, 1)),
    ),
    "slice backwards from before the first": (
        case("Slice", (1, 4), {"s": [-4], "e": [-9], "a": [1], "t": [-1]}),
        lambda x: x[:, :1],
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_operators_agree_with_the_format(name: str, tmp_path: Path) -> None:
    (nodes, constants, shape), expected = BEYOND[name]
    path = write(tmp_path / "m.onnx", after(*nodes), {**constants, "one": 1.0}, shape)
    network, weights = read_onnx(path)
    x = torch.from_numpy(10 * random_array(*shape))
    ours = network.forward(weights, x.reshape(1, *network.input_shape))
    torch.testing.assert_close(
        ours.reshape(-1), expected(x).reshape(-1) + 1, rtol=1e-12, atol=1e-12
    )

"""ONNX files that cannot be represented: refused by the name of the node."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bnncert import InputError
from bnncert.importers.onnx import read_onnx
from onnx_files import KERNEL, B, W, agree, helper, node, onnx, random_array, simple, write

IMAGE = (1, 3, 4, 4)
REFUSED: dict[str, tuple[list[Any], dict[str, object], tuple[object, ...], str]] = {
    "another operator": (
        [node("Softmax", "x", "y")],
        {},
        (1, 4),
        "node 'my_Softmax' (Softmax): the operator is not",
    ),
    "a transposed activation": (
        [node("Transpose", "x", "y")],
        {},
        (1, 4),
        "(Transpose): the operator is not",
    ),
    "a branch": (
        [node("Relu", "x", "h"), node("Add", "h x", "y")],
        {},
        (1, 4),
        "it takes h, x, not h alone: the network is",
    ),
    "a square": ([node("Mul", "x x", "y")], {}, (1, 4), "not a chain"),
    "an unknown value": ([node("MatMul", "x Z", "y")], {}, (1, 4), "it takes x, Z"),
    "two nodes of one name": ([node("Relu", "x", "x")], {}, (1, 4), "'x' is defined twice"),
    "a constant overwritten": ([node("Relu", "x", "W")], {"W": W}, (1, 4), "'W' is defined twice"),
    "an early output": (
        [node("MatMul", "x W", "y"), node("Relu", "y", "z")],
        {"W": W},
        (1, 4),
        "not the end",
    ),
    "no weights": ([node("Relu", "x", "y")], {}, (1, 4), "no weights"),
    "an image at the end": (
        [node("Conv", "x K", "y")],
        {"K": KERNEL},
        IMAGE,
        "its output must be a vector",
    ),
    "arithmetic after an activation": (
        [
            node("MatMul", "x W", "h"),
            node("Relu", "h", "g"),
            node("Mul", "g b", "i"),
            node("Relu", "i", "y"),
        ],
        {"W": W, "b": B},
        (1, 4),
        "(Relu): the arithmetic of node 'my_Mul' cannot be folded",
    ),
    "arithmetic at the end": (
        [node("MatMul", "x W", "h"), node("Relu", "h", "g"), node("Mul", "g b", "y")],
        {"W": W, "b": B},
        (1, 4),
        "the arithmetic of node 'my_Mul'",
    ),
    "a shift before padding": (
        [
            node("Sub", "x m", "h"),
            node("Conv", "h K", "g", pads=[1, 1, 1, 1]),
            node("Flatten", "g", "y"),
        ],
        {"m": 0.5, "K": KERNEL},
        IMAGE,
        "before zero padding cannot be folded",
    ),
    "pixels that differ": (
        [node("Conv", "x K", "g"), node("Add", "g d", "h"), node("Flatten", "h", "y")],
        {"K": KERNEL, "d": np.arange(18.0).reshape(2, 3, 3)},
        IMAGE,
        "differs within a channel",
    ),
    "division by the activation": (
        [node("Div", "b x", "y")],
        {"b": B},
        (1, 3),
        "division by the activation or by 0",
    ),
    "division by zero": (
        [node("Div", "x b", "y")],
        {"b": np.zeros(3)},
        (1, 3),
        "division by the activation or by 0",
    ),
    "constants divided by zero": (
        [node("Div", "b z", "y")],
        {"b": B, "z": 0.0},
        (1, 3),
        "(Div): division by 0",
    ),
    "a wider sum": (
        [node("Add", "x b", "y")],
        {"b": random_array(2, 3)},
        (1, 3),
        "node 'my_Add' (Add)",
    ),
    "whole numbers": ([node("MatMul", "x W", "y")], {"W": [[1], [2]]}, (1, 2), "floating-point"),
    "weights in three sizes": (
        [node("MatMul", "x W", "y")],
        {"W": random_array(2, 4, 3)},
        (1, 4),
        "give a matrix",
    ),
    "weights on the left": ([node("MatMul", "W x", "y")], {"W": W}, (3, 1), "the left factor"),
    "weights that do not fit": (
        [node("MatMul", "x W", "y")],
        {"W": W},
        (1, 5),
        "Dense(4, 3) follows shape (5,)",
    ),
    "a matrix on images": (
        [node("MatMul", "x W", "y")],
        {"W": W},
        (1, 3, 4),
        "follows shape (3, 4)",
    ),
    "a transposed product": (
        [node("Gemm", "x W", "y", transA=1)],
        {"W": W},
        (1, 4),
        "not transposed",
    ),
    "groups": (
        [node("Conv", "x K", "y", group=3)],
        {"K": random_array(3, 1, 2, 2)},
        IMAGE,
        "groups and dilations",
    ),
    "dilations": (
        [node("Conv", "x K", "y", dilations=[2, 2])],
        {"K": KERNEL},
        IMAGE,
        "groups and dilations",
    ),
    "lopsided padding": (
        [node("Conv", "x K", "y", pads=[1, 0, 0, 1])],
        {"K": KERNEL},
        IMAGE,
        "both sides",
    ),
    "automatic padding": (
        [node("Conv", "x K", "y", auto_pad="SAME_UPPER")],
        {"K": KERNEL},
        IMAGE,
        "both sides",
    ),
    "a convolution over sequences": (
        [node("Conv", "x K", "y")],
        {"K": KERNEL[..., 0]},
        (1, 3, 4),
        "over images",
    ),
    "padded pools": (
        [node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1] * 4)],
        {},
        IMAGE,
        "padding, dilation",
    ),
    "pools that stand out": (
        [node("AveragePool", "x", "y", kernel_shape=[2, 2], ceil_mode=1)],
        {},
        IMAGE,
        "padding, dilation and windows",
    ),
    "a pool without a size": ([node("MaxPool", "x", "y")], {}, IMAGE, "'kernel_shape' is missing"),
    "an unknown attribute": (
        [node("Relu", "x", "y", mood=1)],
        {},
        (1, 4),
        "attribute 'mood' is not supported",
    ),
    "a slope": ([node("LeakyRelu", "x", "y", alpha=-1.0)], {}, (1, 4), "LeakyReLU slope is -1.0"),
    "training": (
        [node("BatchNormalization", "x s s s s", "y", training_mode=1)],
        {"s": B},
        (1, 3),
        "training and normalisation",
    ),
    "a negative variance": (
        [node("BatchNormalization", "x s s s v", "y")],
        {"s": B, "v": -(B**2)},
        (1, 3),
        "positive",
    ),
    "another axis": ([node("Flatten", "x", "y", axis=2)], {}, IMAGE, "give axis 1"),
    "another shape": (
        [node("Reshape", "x s", "y")],
        {"s": [1, 6, 8]},
        IMAGE,
        "must be [batch, -1]",
    ),
    "another size": ([node("Reshape", "x s", "y")], {"s": [2, -1]}, IMAGE, "is not [batch, 48]"),
    "two open sizes": ([node("Reshape", "x s", "y")], {"s": [-1, -1]}, IMAGE, "is not [batch, 48]"),
    "a vector": ([node("MatMul", "x W", "y")], {"W": W}, (4,), "give a batch dimension"),
    "an open size": ([node("MatMul", "x W", "y")], {"W": W}, (1, "N"), "known sizes"),
    "a huge input": ([node("Sub", "x b", "y")], {"b": 1.0}, (1, 2**40), "give a batch dimension"),
    "a huge padding": (
        [node("Conv", "x K", "h", pads=[2**20] * 4), node("Add", "h b", "y")],
        {"K": KERNEL, "b": 1.0},
        IMAGE,
        "too large",
    ),
    "a huge sum": (
        [node("Add", "a b", "c"), node("Add", "x c", "y")],
        {"a": np.ones((2**15, 1)), "b": np.ones(2**15)},
        (1, 4),
        "too large",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_represented_is_refused_by_node(name: str, tmp_path: Path) -> None:
    nodes, constants, shape, message = REFUSED[name]
    path = write(tmp_path / "m.onnx", nodes, constants, shape)
    with pytest.raises(InputError) as refused:
        read_onnx(path)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_graphs_of_another_form_are_refused(tmp_path: Path) -> None:
    def info(name: str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, (1, 4))

    nodes, path = [node("MatMul", "x W", "y")], tmp_path / "m.onnx"
    for options, message in (
        ({"inputs": [info("x"), info("z")]}, "2 inputs and 1 outputs"),
        ({"outputs": [info("y"), info("x")]}, "1 inputs and 2 outputs"),
        ({"opset": 6}, "operator set"),
    ):
        with pytest.raises(InputError, match=message):
            read_onnx(write(path, nodes, {"W": W}, (1, 4), **options))
    # Old files list their initializers among the inputs.
    assert agree(write(path, nodes, {"W": W}, (1, 4), inputs=[info("x"), info("W")])).outputs == 3


def test_other_files_are_neither_read_nor_run(tmp_path: Path) -> None:
    """External data, truncated tensors, and files that are not ONNX at all."""
    path = tmp_path / "m.onnx"
    model = onnx.load_model_from_string(simple(tmp_path).read_bytes())
    outside = onnx.ModelProto.FromString(model.SerializeToString())
    outside.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    outside.graph.initializer[0].external_data.add(key="location", value="../../etc/passwd")
    short = onnx.ModelProto.FromString(model.SerializeToString())
    short.graph.initializer[0].raw_data = b"\x00" * 8
    wide = onnx.ModelProto.FromString(model.SerializeToString())
    wide.graph.initializer[0].dims[:] = [2**40, 2**20]
    for content, message in (
        (outside.SerializeToString(), "lies in another file"),
        (short.SerializeToString(), "malformed"),
        (wide.SerializeToString(), "malformed"),
        (b"\x80\x04 not a model", "not an ONNX model"),
        (b"", "operator set"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_onnx(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_onnx(tmp_path / "none.onnx")


def test_broken_bytes_are_refused_or_read(tmp_path: Path) -> None:
    content = bytearray(simple(tmp_path).read_bytes())
    choose = random.Random(0)
    for _ in range(300):
        broken = bytearray(content)
        for _ in range(choose.randint(1, 4)):
            broken[choose.randrange(len(broken))] = choose.randrange(256)
        (tmp_path / "m.onnx").write_bytes(bytes(broken))
        try:
            network, _ = read_onnx(tmp_path / "m.onnx")
        except InputError:
            continue
        assert network.size > 0


def test_without_the_package_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from bnncert.importers.onnx import read_onnx\n"
        f"try: read_onnx({str(simple(tmp_path))!r})\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.startswith("InputError")
    assert "pip install 'bnncert[onnx]'" in done.stdout

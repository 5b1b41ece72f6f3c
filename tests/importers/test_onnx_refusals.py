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
from bnncert.importers.onnx import NEWEST, read_onnx
from bnncert.importers.onnx_operators import OPERATORS
from bnncert.importers.onnx_operators import REFUSED as REASONS
from onnx_files import KERNEL, B, W, agree, helper, node, onnx, random_array, simple, write

IMAGE = (1, 3, 4, 4)
Refusal = tuple[list[Any], dict[str, object], tuple[object, ...], str]
REFUSED: dict[str, Refusal] = {
    "another operator": (
        [node("Softmax", "x", "y")],
        {},
        (1, 4),
        "node 'my_Softmax' (Softmax): the operator is not",
    ),
    "an operator nobody knows": (
        [node("Frobnicate", "x", "y")],
        {},
        (1, 4),
        "node 'my_Frobnicate' (Frobnicate): the operator is not",
    ),
    "another domain": (
        [node("Gelu", "x", "y", domain="com.microsoft")],
        {},
        (1, 4),
        "(Gelu): operators of the domain 'com.microsoft' are not",
    ),
    "an operator on constants": (
        [node("Sin", "b", "c"), node("Add", "x c", "y")],
        {"b": B},
        (1, 3),
        "(Sin): the operator is not supported on constants",
    ),
    "a square": ([node("Mul", "x x", "y")], {}, (1, 4), "(Mul): a product of two tensors"),
    "a product of two": (
        [node("MatMul", "x W", "h"), node("MatMul", "h x", "y")],
        {"W": random_array(4, 1)},
        (1, 4),
        "(MatMul): a product of two tensors",
    ),
    "a gemm of two": ([node("Gemm", "x x", "y")], {}, (4, 4), "(Gemm): a product of two tensors"),
    "a kernel from the input": (
        [node("Conv", "x x", "y")],
        {},
        IMAGE,
        "(Conv): operand 1 must be constant",
    ),
    "a sum that repeats": (
        [node("ReduceMean", "x", "m", axes=[1]), node("Sub", "x m", "y")],
        {},
        (1, 4),
        "(Sub): tensors of shapes (1, 4) and (1, 1)",
    ),
    "a sum of vectors and their column": (
        [node("Unsqueeze", "x a", "h"), node("Add", "x h", "y")],
        {"a": [1]},
        (4, 4),
        "(Add): tensors of shapes (4, 4) and (4, 1, 4)",
    ),
    "an unknown value": (
        [node("MatMul", "x Z", "y")],
        {},
        (1, 4),
        "(MatMul): it takes 'Z', which no supported output before it gives",
    ),
    "an output that is not read": (
        [helper.make_node("Dropout", ["x"], ["h", "mask"]), node("Add", "h mask", "y")],
        {},
        (1, 4),
        "it takes 'mask', which no supported output",
    ),
    "two nodes of one name": ([node("Relu", "x", "x")], {}, (1, 4), "'x' is defined twice"),
    "a constant overwritten": ([node("Relu", "x", "W")], {"W": W}, (1, 4), "'W' is defined twice"),
    "no such output": ([node("Relu", "x", "z")], {}, (1, 4), "no node gives the output 'y'"),
    "a constant output": (
        [node("Add", "b b", "y"), node("Relu", "x", "z")],
        {"b": B},
        (1, 4),
        "output 'y' is constant",
    ),
    "an output that ignores the input": (
        [node("Shape", "x", "s"), node("Cast", "s", "y", to=11)],
        {},
        (1, 4),
        "output 'y' is constant",
    ),
    "no weights": ([node("Relu", "x", "y")], {}, (1, 4), "no weights"),
    "the input alone": ([node("Identity", "x", "y")], {}, (1, 4), "does not depend on the input"),
    "division by the activation": (
        [node("Div", "b x", "y")],
        {"b": B},
        (1, 3),
        "(Div): division by what depends on the input, or by 0",
    ),
    "division by zero": (
        [node("Div", "x b", "y")],
        {"b": np.zeros(3)},
        (1, 3),
        "(Div): division by what depends on the input, or by 0",
    ),
    "constants divided by zero": (
        [node("Div", "b z", "y")],
        {"b": B, "z": 0.0},
        (1, 3),
        "(Div): division by 0",
    ),
    "infinite constants": (
        [node("Add", "x b", "y")],
        {"b": [0.0, np.inf, 0.0]},
        (1, 3),
        "(Add): operand 1 holds numbers that are not finite",
    ),
    "a wider sum": (
        [node("Add", "x b", "y")],
        {"b": random_array(2, 3)},
        (1, 3),
        "node 'my_Add' (Add): a constant of shape (2, 3) widens",
    ),
    "slopes of another shape": (
        [node("PRelu", "x b", "y")],
        {"b": random_array(1, 1, 3)},
        (1, 3),
        "(PRelu): slopes of shape (1, 1, 3)",
    ),
    "ends in the wrong order": (
        [node("Clip", "x lo hi", "y")],
        {"lo": 1.0, "hi": 0.0},
        (1, 3),
        "(Clip): the ends 1.0 and 0.0",
    ),
    "ends by entry": (
        [node("Clip", "x lo", "y")],
        {"lo": B},
        (1, 3),
        "(Clip): operand 1 has shape (3,); give one number",
    ),
    "an end from the input": ([node("Clip", "x x", "y")], {}, (1, 3), "(Clip): operand 1 must be"),
    "whole numbers": ([node("MatMul", "x W", "y")], {"W": [[1], [2]]}, (1, 2), "floating-point"),
    "a cast that rounds": ([node("Cast", "x", "y", to=7)], {}, (1, 2), "(Cast): a cast to whole"),
    "weights in three sizes": (
        [node("MatMul", "x W", "y")],
        {"W": random_array(2, 4, 3)},
        (1, 4),
        "give a matrix",
    ),
    "a vector of gemm": ([node("Gemm", "x b", "y")], {"b": B}, (1, 3), "give a matrix"),
    "a gemm of images": (
        [node("Gemm", "x W", "y")],
        {"W": W},
        (1, 3, 4),
        "(Gemm): it multiplies matrices, and the tensor is (1, 3, 4)",
    ),
    "weights that do not fit": (
        [node("MatMul", "x W", "y")],
        {"W": W},
        (1, 5),
        "(MatMul): a matrix of shape (4, 3) follows a tensor (1, 5)",
    ),
    "weights on the left that do not fit": (
        [node("MatMul", "W x", "y")],
        {"W": W},
        (4, 1),
        "(MatMul): a matrix of shape (4, 3) is before a tensor (4, 1)",
    ),
    "a batch of images": (
        [node("Conv", "x K", "y")],
        {"K": KERNEL},
        (2, 3, 4, 4),
        "(Conv): it reads a batch of 2 images",
    ),
    "a convolution over volumes": (
        [node("Conv", "x K", "y")],
        {"K": random_array(2, 3, 2, 2, 2)},
        (1, 3, 4, 4, 4),
        "only sequences and images",
    ),
    "a convolution of a vector": (
        [node("Conv", "x K", "y")],
        {"K": KERNEL},
        (1, 3),
        "only sequences and images",
    ),
    "too many groups": (
        [node("Conv", "x K", "y", group=3)],
        {"K": KERNEL},
        IMAGE,
        "(Conv): Conv2d of 9 to 2 channels has groups",
    ),
    "another kernel": (
        [node("Conv", "x K", "y", kernel_shape=[3, 3])],
        {"K": KERNEL},
        IMAGE,
        "is not that of its weights",
    ),
    "negative padding": (
        [node("Conv", "x K", "y", pads=[-1, 0, 0, 0])],
        {"K": KERNEL},
        IMAGE,
        "(Conv): padding is",
    ),
    "half of a padding": (
        [node("Conv", "x K", "y", pads=[1, 1])],
        {"K": KERNEL},
        IMAGE,
        "pads [1, 1] are not two numbers",
    ),
    "unknown automatic padding": (
        [node("Conv", "x K", "y", auto_pad="SAME")],
        {"K": KERNEL},
        IMAGE,
        "auto_pad b'SAME' is not known",
    ),
    "a bias of another size": (
        [node("Conv", "x K b", "y")],
        {"K": KERNEL, "b": B},
        IMAGE,
        "(Conv): weights have shapes",
    ),
    "pools of padding alone": (
        [node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[2] * 4)],
        {},
        IMAGE,
        "give less than the kernel",
    ),
    "dilated pools": (
        [node("MaxPool", "x", "y", kernel_shape=[2, 2], dilations=[2, 2])],
        {},
        IMAGE,
        "pools with dilation",
    ),
    "pools that stand out": (
        [node("AveragePool", "x", "y", kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1)],
        {},
        IMAGE,
        "windows that stand out (ceil_mode)",
    ),
    "positions of maxima": (
        [
            helper.make_node("MaxPool", ["x"], ["h", "i"], kernel_shape=[2, 2]),
            node("Add", "h i", "y"),
        ],
        {},
        IMAGE,
        "it takes 'i', which no supported output",
    ),
    "a pool without a size": ([node("MaxPool", "x", "y")], {}, IMAGE, "'kernel_shape' is missing"),
    "an unknown attribute": (
        [node("Relu", "x", "y", mood=1)],
        {},
        (1, 4),
        "attribute 'mood' is not supported",
    ),
    "training": (
        [node("BatchNormalization", "x s s s s", "y", training_mode=1)],
        {"s": B},
        (1, 3),
        "training and normalisation",
    ),
    "training by its outputs": (
        [helper.make_node("BatchNormalization", [*"xssss"], [*"ymv"])],
        {"s": B},
        (1, 3),
        "training and normalisation",
    ),
    "dropout in training": (
        [node("Dropout", "x r t", "y")],
        {"r": 0.5, "t": np.int64(1)},
        (1, 3),
        "dropout in training",
    ),
    "a negative variance": (
        [node("BatchNormalization", "x s s s v", "y")],
        {"s": B, "v": -(B**2)},
        (1, 3),
        "positive",
    ),
    "channels of another number": (
        [node("BatchNormalization", "x s s s s", "y")],
        {"s": B},
        (1, 4),
        "there are (3,) numbers for 4 channels",
    ),
    "statistics of one number": (
        [node("BatchNormalization", "x s s s v", "y")],
        {"s": B, "v": [1.0]},
        (1, 3),
        "for 3 channels",
    ),
    "another axis": ([node("Flatten", "x", "y", axis=5)], {}, IMAGE, "axis 5 is not one of 4"),
    "another size": ([node("Reshape", "x s", "y")], {"s": [5, -1]}, IMAGE, "as many entries"),
    "two open sizes": ([node("Reshape", "x s", "y")], {"s": [-1, -1]}, IMAGE, "leaves two open"),
    "a negative size": ([node("Reshape", "x s", "y")], {"s": [-2, 24]}, IMAGE, "negative sizes"),
    "a size that is not there": (
        [node("Reshape", "x s", "y")],
        {"s": [1, 3, 16, 1, 0]},
        IMAGE,
        "keeps a dimension",
    ),
    "zeros allowed": (
        [node("Reshape", "x s", "y", allowzero=1)],
        {"s": [0, 48]},
        IMAGE,
        "as many entries",
    ),
    "a shape from the input": ([node("Reshape", "x x", "y")], {}, IMAGE, "operand 1 must be"),
    "axes that name one twice": (
        [node("Squeeze", "x a", "y")],
        {"a": [0, -4]},
        IMAGE,
        "name a dimension twice",
    ),
    "axes that are wide": ([node("Squeeze", "x a", "y")], {"a": [1]}, IMAGE, "not all of size 1"),
    "an axis too far": (
        [node("Unsqueeze", "x a", "y")],
        {"a": [5]},
        IMAGE,
        "axis 5 is not one of 5",
    ),
    "a wrong order": (
        [node("Transpose", "x", "y", perm=[0, 1, 2, 2])],
        {},
        IMAGE,
        "does not name each",
    ),
    "an empty slice": (
        [node("Slice", "x s e", "y")],
        {"s": [1], "e": [1]},
        IMAGE,
        "is empty",
    ),
    "a slice without a step": (
        [node("Slice", "x s e a t", "y")],
        {"s": [0], "e": [1], "a": [1], "t": [0]},
        IMAGE,
        "a step of 0",
    ),
    "slices of one axis twice": (
        [node("Slice", "x s e a", "y")],
        {"s": [0, 0], "e": [1, 1], "a": [1, -3]},
        IMAGE,
        "do not agree",
    ),
    "parts that do not add up": (
        [node("Split", "x s", "y", axis=1)],
        {"s": [2]},
        IMAGE,
        "cannot be split",
    ),
    "parts that are not equal": (
        [helper.make_node("Split", ["x"], ["y", "z"], axis=1)],
        {},
        IMAGE,
        "cannot be split into 2 equal parts",
    ),
    "a position too far": (
        [node("Gather", "x i", "y", axis=1)],
        {"i": [3]},
        IMAGE,
        "a position is not one of 3",
    ),
    "a position from the input": ([node("Gather", "x x", "y")], {}, IMAGE, "operand 1 must be"),
    "an embedding": (
        [node("Gather", "W x", "y")],
        {"W": W},
        (1, 4),
        "(Gather): operand 0 must depend on the input",
    ),
    "a position taken often": (
        [node("Gather", "x i", "y", axis=1)],
        {"i": [0] * 65},
        IMAGE,
        "taken more than 64 times",
    ),
    "padding by reflection": (
        [node("Pad", "x p", "y", mode="reflect")],
        {"p": [0, 0, 1, 1, 0, 0, 1, 1]},
        IMAGE,
        "only constant padding",
    ),
    "half of the pads": ([node("Pad", "x p", "y")], {"p": [1, 1]}, IMAGE, "are not two numbers"),
    "nothing left": (
        [node("Pad", "x p", "y")],
        {"p": [0, -3, 0, 0, 0, 0, 0, 0]},
        IMAGE,
        "is empty",
    ),
    "operands that are not alike": (
        [node("Concat", "x c", "y", axis=1)],
        {"c": random_array(1, 1, 4)},
        IMAGE,
        "(Concat): it has operands of shapes [(1, 3, 4, 4), (1, 1, 4)]",
    ),
    "operands of other sizes": (
        [node("Concat", "x c", "y", axis=1)],
        {"c": random_array(1, 1, 4, 1)},
        IMAGE,
        "(Concat): it has operands of shapes",
    ),
    "an expansion": (
        [node("Expand", "x s", "y")],
        {"s": [2, 3, 4, 4]},
        IMAGE,
        "(Expand): it repeats entries",
    ),
    "an open vector": ([node("MatMul", "x W", "y")], {"W": W}, ("N",), "give known sizes"),
    "an open size": ([node("MatMul", "x W", "y")], {"W": W}, (1, "N"), "give known sizes"),
    "no dimension": ([node("Add", "x b", "y")], {"b": 1.0}, (), "give known sizes"),
    "a huge input": ([node("Sub", "x b", "y")], {"b": 1.0}, (1, 2**40), "give known sizes"),
    "a huge padding": (
        [node("Conv", "x K", "h", pads=[2**20] * 4), node("Add", "h b", "y")],
        {"K": KERNEL, "b": 1.0},
        IMAGE,
        "too large",
    ),
    "more huge padding": (
        [node("Pad", "x p v", "y")],
        {"p": [0, 0, 0, 0, 0, 0, 2**20, 2**20], "v": 1.0},
        IMAGE,
        "too large",
    ),
    "a huge sum": (
        [node("Add", "a b", "c"), node("Add", "x c", "y")],
        {"a": np.ones((2**15, 1)), "b": np.ones(2**15)},
        (1, 4),
        "too large",
    ),
    "a huge constant": (
        [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")],
        {"s": [2**20, 2**20]},
        (1, 4),
        "too large",
    ),
    "a huge expansion": (
        [node("Expand", "a s", "c"), node("Add", "x c", "y")],
        {"a": 1.0, "s": [2**20, 2**20]},
        (1, 4),
        "too large",
    ),
    "a huge range": (
        [node("Range", "a b c", "d"), node("Add", "x d", "y")],
        {"a": 0.0, "b": 1e18, "c": 1.0},
        (1, 4),
        "too long",
    ),
    "a huge product": (
        [node("Unsqueeze", "x i", "h"), node("MatMul", "h W", "y")],
        {"W": np.ones((1, 2**15)), "i": [-1]},
        (1, 2**14),
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


def test_every_reason_is_given_with_its_operator(tmp_path: Path) -> None:
    for operator, reason in REASONS.items():
        path = write(tmp_path / "m.onnx", [node(operator, "x", "y")], {}, (1, 4))
        with pytest.raises(InputError) as refused:
            read_onnx(path)
        assert f"node 'my_{operator}' ({operator}): the operator is not" in str(refused.value)
        assert str(refused.value).endswith(reason)
    assert not REASONS.keys() & OPERATORS.keys()


def test_graphs_of_another_form_are_refused(tmp_path: Path) -> None:
    nodes, path = [node("MatMul", "x W", "y")], tmp_path / "m.onnx"
    for options, message in (
        ({"inputs": [info("x"), info("z")]}, r"2 inputs and 1 outputs \(x, z; y\)"),
        ({"outputs": [info("y"), info("x")]}, r"1 inputs and 2 outputs \(x; y, x\)"),
        ({"inputs": [info("x", onnx.TensorProto.INT64)]}, "'x' does not hold floating-point"),
    ):
        with pytest.raises(InputError, match=message):
            read_onnx(write(path, nodes, {"W": W}, (1, 4), **options))
    # Old files list their initializers among the inputs.
    assert agree(write(path, nodes, {"W": W}, (1, 4), inputs=[info("x"), info("W")])).outputs == 3


def info(name: str, kind: int = onnx.TensorProto.DOUBLE) -> Any:
    return helper.make_tensor_value_info(name, kind, (1, 4))


def test_operator_sets(tmp_path: Path) -> None:
    """What is said of them is true: of one that is named twice too."""
    path = tmp_path / "m.onnx"

    def imports(*versions: tuple[str, int]) -> Path:
        model = onnx.load_model_from_string(simple(tmp_path).read_bytes())
        del model.opset_import[:]
        model.opset_import.extend(helper.make_opsetid(*version) for version in versions)
        path.write_bytes(model.SerializeToString())
        return path

    for versions, message in (
        ((("", 6),), "operator set 6 is too old; export with version 7 or later"),
        ((("", 6), ("ai.onnx", 6)), "operator set 6 is too old"),
        ((("", 11), ("ai.onnx", 13)), "names 2 operator sets, 11, 13; export with one"),
        ((("ai.onnx.ml", 3),), "names no operator set"),
        ((("", NEWEST + 1),), f"operator set {NEWEST + 1} is newer than {NEWEST}"),
        ((), "names no operator set"),
    ):
        with pytest.raises(InputError, match=message):
            read_onnx(imports(*versions))
    for accepted in (
        (("", 11), ("", 11)),
        (("", 11), ("ai.onnx", 11)),
        (("", 7), ("ai.onnx.ml", 3)),
    ):
        assert read_onnx(imports(*accepted))[0].outputs == 3
    assert onnx.defs.onnx_opset_version() >= NEWEST  # nothing is read before it is published


def test_names_are_given_once(tmp_path: Path) -> None:
    path = simple(tmp_path)
    model = onnx.load_model_from_string(path.read_bytes())
    model.graph.initializer.append(model.graph.initializer[0])
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="'W' is defined twice"):
        read_onnx(path)


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
        (b"", "no operator set"),
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

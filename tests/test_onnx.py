"""ONNX files: outputs as the reference evaluator computes them, folding, and refusals by the name
of the node."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bnncert import (
    Concentration,
    InputError,
    Network,
    Problem,
    ball,
    certify,
    class_robust,
    load_posterior,
    save_posterior,
)
from bnncert.importers.onnx import from_onnx, read_onnx
from bnncert.layers import (
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
    Tanh,
)
from bnncert.results.folder import result_folder
from bnncert_check import ACCEPT, check_results, read_model, read_results
from pages import blocks, fenced, text
from test_cli import Run, run  # noqa: F401 (a fixture)

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
RANDOM = np.random.default_rng(0)


def evaluate(path: Path, x: Any) -> Any:
    """The outputs by the reference implementation of the format itself."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    return evaluator.run(None, {evaluator.input_names[0]: x})[0]


def agree(path: Path, dtype: type = np.float64, count: int = 4) -> Network:
    """Read the file and compare its outputs one by one; the file's batch may be fixed to one."""
    network, weights = read_onnx(path)
    x = RANDOM.standard_normal((count, *network.input_shape)).astype(dtype)
    ours = network.forward(weights, torch.from_numpy(x).double()).numpy()
    theirs = np.stack([evaluate(path, each[None])[0] for each in x])
    scale = 1e-12 if dtype is np.float64 else 1e-5
    np.testing.assert_allclose(ours, theirs, rtol=scale, atol=scale * (1 + abs(theirs).max()))
    return network


# ------------------------------------------------------------------------------------------------- exported modules


def export(
    path: Path, module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, batch: bool = False
) -> Path:
    module = module.to(dtype).eval()
    target = io.BytesIO()
    axes = {"input": {0: "batch"}} if batch else None
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # it announces another exporter, which needs another package
        torch.onnx.export(
            module,
            (torch.zeros(1, *shape, dtype=dtype),),
            target,
            dynamo=False,
            input_names=["input"],
            dynamic_axes=axes,
        )
    path.write_bytes(target.getvalue())
    return path


def normalised(channels: int) -> nn.BatchNorm2d:
    """Batch normalisation with statistics of its own."""
    layer = nn.BatchNorm2d(channels)
    for value in (layer.running_mean, layer.running_var, layer.weight, layer.bias):
        nn.init.uniform_(value, 0.5, 1.5)  # type: ignore[arg-type]
    return layer


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[type, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), (4,), (Dense, ReLU, Dense)
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Sigmoid(), nn.Linear(4, 2, bias=False), nn.LeakyReLU(0.25)
        ),
        (3,), (Dense, Tanh, Dense, Sigmoid, Dense, LeakyReLU),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, (2, 3), stride=(1, 2)),
            nn.AvgPool2d(2, 1), nn.Flatten(), nn.Dropout(), nn.Linear(8, 3),
        ),
        (2, 9, 11), (Conv2d, ReLU, MaxPool2d, Conv2d, AvgPool2d, Flatten, Dense),
    ),
    "normalised": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), normalised(2), nn.ReLU(), normalised(2), nn.Conv2d(2, 3, 2), nn.Flatten(),
            nn.Linear(12, 2),
        ),
        (1, 5, 5), (Conv2d, ReLU, Conv2d, Flatten, Dense),
    ),
    "identity": (lambda: nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(4, 2)), (2, 2), (Flatten, Dense)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_exported_modules(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """The layers one expects, and the outputs of the file and of the module."""
    make, shape, kinds = MODULES[name]
    torch.manual_seed(0)
    module = make()
    path = export(tmp_path / "m.onnx", module, shape, dtype, batch=dtype == torch.float64)
    network = agree(path, np.float32 if dtype == torch.float32 else np.float64)
    assert network.input_shape == shape
    assert tuple(map(type, network.layers)) == kinds
    x = torch.rand(3, *shape, dtype=torch.float64)
    expected = module.double().eval()(x)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    assert torch.allclose(
        network.forward(read_onnx(path)[1], x), expected, rtol=tolerance, atol=tolerance
    )


def test_weights_are_the_stored_floats(tmp_path: Path) -> None:
    """float32 weights come out bit for bit, transposed to [in, out]."""
    module = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    _, weights = read_onnx(export(tmp_path / "m.onnx", module, (4,), torch.float32))
    parts = [module[0].weight.T, module[0].bias, module[2].weight.T, module[2].bias]
    assert torch.equal(weights, torch.cat([part.detach().double().reshape(-1) for part in parts]))


# ------------------------------------------------------------------------------------------------- graphs by hand


def tensor(name: str, value: object, dtype: type = np.float64) -> Any:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def write(
    path: Path,
    nodes: list[Any],
    constants: dict[str, object],
    shape: tuple[object, ...],
    output: str = "y",
    **options: Any,
) -> Path:
    """A graph from `x` to `output`; constants that are not floating-point keep their type."""
    values = [
        tensor(name, value, np.int64 if np.asarray(value).dtype.kind == "i" else np.float64)
        for name, value in constants.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        options.get("inputs", [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, shape)]),
        options.get(
            "outputs", [helper.make_tensor_value_info(output, onnx.TensorProto.DOUBLE, None)]
        ),
        values,
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", options.get("opset", 17))], ir_version=9
    )
    path.write_bytes(model.SerializeToString())
    return path


def node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], name=f"my_{operator}", **attributes)


def random_array(*shape: int) -> Any:
    return RANDOM.standard_normal(shape)


ARITHMETIC = ("Add", "Sub", "Mul", "Div")
W, B = random_array(4, 3), random_array(3)
KERNEL = random_array(2, 3, 2, 2)
DENSE = [node("MatMul", "h W", "g"), node("Add", "g b", "y")]
GRAPHS: dict[str, tuple[list[Any], dict[str, object], tuple[object, ...], tuple[type, ...]]] = {
    "matmul and add": ([node("MatMul", "x W", "h"), node("Add", "h b", "y")], {"W": W, "b": B}, ("N", 4), (Dense,)),
    "add from the left": ([node("MatMul", "x W", "h"), node("Add", "b h", "y")], {"W": W, "b": B}, (1, 4), (Dense,)),
    "matmul alone": ([node("MatMul", "x W", "y")], {"W": W}, (1, 4), (Dense,)),
    "two biases": (
        [node("Gemm", "x W b", "h"), node("Add", "h b", "g"), node("Sub", "g b", "i"), node("Sub", "b i", "y")],
        {"W": W, "b": B}, (1, 4), (Dense,),
    ),
    "gemm with factors": (
        [node("Gemm", "x W b", "y", alpha=0.5, beta=-2.0, transB=1)], {"W": W.T, "b": B[None]}, (1, 4), (Dense,)
    ),
    "gemm with a scalar": ([node("Gemm", "x W b", "y")], {"W": W, "b": 0.5}, (1, 4), (Dense,)),
    "gemm without bias": ([node("Gemm", "x W", "y")], {"W": W}, (1, 4), (Dense,)),
    "inputs normalised": (
        [node("Sub", "x m", "c"), node("Div", "c s", "h"), *DENSE],
        {"m": random_array(4), "s": 1 + random_array(4) ** 2, "W": W, "b": B}, (1, 4), (Dense,),
    ),
    "images normalised, then flat": (
        [node("Sub", "x m", "c"), node("Mul", "c s", "f"), node("Flatten", "f", "h"), *DENSE],
        {"m": random_array(2, 1), "s": random_array(2, 2), "W": W, "b": B}, (1, 2, 2), (Flatten, Dense),
    ),
    "a convolution of normalised images": (
        [
            node("Sub", "x m", "c"), node("Div", "c s", "f"), node("Conv", "f K k", "i"), node("Add", "i d", "j"),
            node("Mul", "j d", "h"), node("Reshape", "h shape", "y"),
        ],
        {"m": random_array(3, 1, 1), "s": random_array(1, 3, 1, 1), "K": KERNEL, "k": random_array(2),
         "d": random_array(2, 1, 1), "shape": [0, -1]},
        ("N", 3, 4, 4), (Conv2d, Flatten),
    ),
    "a padded convolution of scaled images": (
        [node("Mul", "x s", "f"), node("Conv", "f K", "h", pads=[1, 2, 1, 2], strides=[2, 1]),
         node("Flatten", "h", "y")],
        {"s": 0.25, "K": KERNEL}, (1, 3, 4, 4), (Conv2d, Flatten),
    ),
    "trivial arithmetic": (
        [node("Sub", "x zero", "a"), node("Div", "a one", "c"), node("Relu", "c", "h"), *DENSE],
        {"zero": np.zeros(4), "one": 1.0, "W": W, "b": B}, (1, 4), (ReLU, Dense),
    ),
    "batch normalisation of vectors": (
        [node("BatchNormalization", "x s o m v", "h", epsilon=0.1), *DENSE],
        {"s": random_array(4), "o": random_array(4), "m": random_array(4), "v": random_array(4) ** 2, "W": W, "b": B},
        (1, 4), (Dense,),
    ),
    "constants computed": (
        [
            node("Constant", "", "V", value=tensor("V", W.T)), node("Transpose", "V", "U", perm=[1, 0]),
            node("Sub", "U t", "T"), node("Div", "T s", "S"), node("Identity", "S", "W"), node("Identity", "x", "h"),
            *DENSE,
        ],
        {"t": 0.5, "s": [2.0, 4.0, 8.0], "b": B}, (1, 4), (Dense,),
    ),
    "reshape in numbers": (
        [node("Reshape", "x shape", "h"), *DENSE], {"shape": [1, 4], "W": W, "b": B}, (1, 2, 2), (Flatten, Dense)
    ),
    "reshape with an open batch": (
        [node("Reshape", "x shape", "h"), *DENSE], {"shape": [-1, 4], "W": W, "b": B}, ("N", 2, 2), (Flatten, Dense)
    ),
    "dropout": ([node("Dropout", "x", "h"), *DENSE], {"W": W, "b": B}, (1, 4), (Dense,)),
    "default slopes and strides": (
        [node("LeakyRelu", "x", "a"), node("MaxPool", "a", "c", kernel_shape=[2, 2]),
         node("AveragePool", "c", "d", kernel_shape=[2, 1], count_include_pad=1), node("Flatten", "d", "e"),
         node("MatMul", "e W", "y")],
        {"W": W}, (1, 1, 4, 3), (LeakyReLU, MaxPool2d, AvgPool2d, Flatten, Dense),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_by_hand(name: str, tmp_path: Path) -> None:
    nodes, constants, shape, kinds = GRAPHS[name]
    network = agree(write(tmp_path / "m.onnx", nodes, constants, shape))
    assert tuple(map(type, network.layers)) == kinds


def test_slopes_are_the_stored_floats(tmp_path: Path) -> None:
    """Attributes are float32: 0.3 is not the double 0.3."""
    nodes = [node("MatMul", "x W", "h"), node("LeakyRelu", "h", "y", alpha=0.3)]
    network, _ = read_onnx(write(tmp_path / "m.onnx", nodes, {"W": W}, (1, 4)))
    assert network.layers[1] == LeakyReLU(float(np.float32(0.3)))


def test_nothing_is_added_where_nothing_is_folded(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x W", "h"), node("Add", "h zero", "g"), node("Mul", "g one", "y")]
    network, weights = read_onnx(
        write(tmp_path / "m.onnx", nodes, {"W": W, "zero": np.zeros(3), "one": 1.0}, (1, 4))
    )
    assert network.layers == (Dense(4, 3, bias=False),)
    assert torch.equal(weights, torch.from_numpy(W).reshape(-1))


@pytest.mark.parametrize("seed", range(20))
def test_random_chains(seed: int, tmp_path: Path) -> None:
    """Dense layers, arithmetic and activations in any order that can be folded."""
    choose = random.Random(seed)
    generator = np.random.default_rng(seed)
    nodes: list[Any] = []
    constants: dict[str, object] = {}
    width, value, before = (
        choose.randint(1, 4),
        "x",
        "input",
    )  # what the last node but for arithmetic was
    shape, waiting = (1, width), False
    for i in range(8):
        kinds = (
            ["MatMul"]
            if i == 7
            else ["MatMul", *ARITHMETIC, *([] if waiting else ["Tanh", "Relu", "Sigmoid"])]
        )
        kind, operands = choose.choice(kinds), [value]
        if kind == "MatMul" or kind in ARITHMETIC:
            outputs = choose.randint(1, 4) if kind == "MatMul" else width
            constants[f"c{i}"] = (
                generator.standard_normal((width, outputs) if kind == "MatMul" else outputs) + 3
            )
            operands = (
                [value, f"c{i}"]
                if kind in ("MatMul", "Div") or choose.random() < 0.5
                else [f"c{i}", value]
            )
            width = outputs
        before = before if kind in ARITHMETIC else kind
        waiting = kind in ARITHMETIC and before != "MatMul"
        value = f"v{i}"
        nodes.append(helper.make_node(kind, operands, [value]))
    agree(write(tmp_path / "m.onnx", nodes, constants, shape, output=value))


# ------------------------------------------------------------------------------------------------- posteriors


def simple(tmp_path: Path) -> Path:
    nodes = [node("MatMul", "x W", "h"), node("Add", "h b", "y")]
    return write(tmp_path / "m.onnx", nodes, {"W": W, "b": B}, (1, 4))


def test_standard_deviations(tmp_path: Path) -> None:
    path = simple(tmp_path)
    assert from_onnx(path)[1].std.tolist() == [0.0] * 15
    assert from_onnx(path, 0.5)[1].std.tolist() == [0.5] * 15
    assert from_onnx(path, {"b0": 0.25})[1].std.tolist() == [0.0] * 12 + [0.25] * 3
    wide = torch.arange(12, dtype=torch.float32).reshape(4, 3)
    assert from_onnx(path, {"W0": wide})[1].std.tolist() == [*map(float, range(12)), 0, 0, 0]
    for wrong, message in (
        ({"W1": 0.1}, "'W1'; the parameters are W0, b0"),
        ({"W0": torch.ones(3, 4)}, "shape"),
        (-0.1, "negative"),
        (float("nan"), "NaN"),
    ):
        with pytest.raises(InputError, match=message):
            from_onnx(path, wrong)  # type: ignore[arg-type]


def test_certificates_of_a_convolutional_file_are_accepted(tmp_path: Path) -> None:
    """From the file to a checked certificate."""
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3), normalised(2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3)
    )
    network, posterior = from_onnx(
        export(tmp_path / "m.onnx", module, (1, 6, 6), torch.float32), {"W1": 0.01}
    )
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x = torch.rand(3, 1, 6, 6, dtype=torch.float64)
    labels = network.forward(posterior.mean, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, 0.001), labels, 3))
    with result_folder(tmp_path / "out") as store:
        results = certify(problem, Concentration(upper=True))
        store(results)
    assert any(result.lower > 0.5 for result in results)
    verdicts = check_results(
        tmp_path / "out", read_results(tmp_path / "out"), read_model(tmp_path / "p.safetensors")
    )
    assert [verdict.status for verdict in verdicts] == [ACCEPT] * 3


def test_the_page_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    (code,) = blocks("importers/onnx.md")
    monkeypatch.chdir(tmp_path)
    simple(tmp_path).rename("network.onnx")
    exec(code, {})
    written = load_posterior("imported.safetensors")
    assert written[0] == from_onnx("network.onnx")[0]
    ((_, command),) = [block for block in fenced(text("importers/onnx.md")) if block[0] == "sh"]
    Path("imported.safetensors").unlink()
    assert run(*command.split()[1:])[0] == 0
    again = load_posterior("imported.safetensors")
    assert (again[0].digest, again[1].digest) == (written[0].digest, written[1].digest)


# ------------------------------------------------------------------------------------------------- refusals


IMAGE = (1, 3, 4, 4)
REFUSED: dict[str, tuple[list[Any], dict[str, object], tuple[object, ...], str]] = {
    "another operator": ([node("Softmax", "x", "y")], {}, (1, 4), ("node 'my_Softmax' (Softmax): the operator is " "not")),
    "a transposed activation": ([node("Transpose", "x", "y")], {}, (1, 4), ("(Transpose): the operator is " "not")),
    "a branch": (
        [node("Relu", "x", "h"), node("Add", "h x", "y")], {}, (1, 4), ("it takes h, x, not h alone: the network " "is"),
    ),
    "a square": ([node("Mul", "x x", "y")], {}, (1, 4), "not a chain"),
    "an unknown value": ([node("MatMul", "x Z", "y")], {}, (1, 4), "it takes x, Z"),
    "two nodes of one name": ([node("Relu", "x", "x")], {}, (1, 4), "'x' is defined twice"),
    "a constant overwritten": ([node("Relu", "x", "W")], {"W": W}, (1, 4), "'W' is defined twice"),
    "an early output": ([node("MatMul", "x W", "y"), node("Relu", "y", "z")], {"W": W}, (1, 4), "not the end"),
    "no weights": ([node("Relu", "x", "y")], {}, (1, 4), "no weights"),
    "an image at the end": ([node("Conv", "x K", "y")], {"K": KERNEL}, IMAGE, ("its output must be a " "vector")),
    "arithmetic after an activation": (
        [node("MatMul", "x W", "h"), node("Relu", "h", "g"), node("Mul", "g b", "i"), node("Relu", "i", "y")],
        {"W": W, "b": B}, (1, 4), "(Relu): the arithmetic of node 'my_Mul' cannot be folded",
    ),
    "arithmetic at the end": (
        [node("MatMul", "x W", "h"), node("Relu", "h", "g"), node("Mul", "g b", "y")], {"W": W, "b": B}, (1, 4),
        "the arithmetic of node 'my_Mul'",
    ),
    "a shift before padding": (
        [node("Sub", "x m", "h"), node("Conv", "h K", "g", pads=[1, 1, 1, 1]), node("Flatten", "g", "y")],
        {"m": 0.5, "K": KERNEL}, IMAGE, "before zero padding cannot be folded",
    ),
    "pixels that differ": (
        [node("Conv", "x K", "g"), node("Add", "g d", "h"), node("Flatten", "h", "y")],
        {"K": KERNEL, "d": np.arange(18.0).reshape(2, 3, 3)}, IMAGE, "differs within a channel",
    ),
    "division by the activation": ([node("Div", "b x", "y")], {"b": B}, (1, 3), "division by the activation or by 0"),
    "division by zero": ([node("Div", "x b", "y")], {"b": np.zeros(3)}, (1, 3), "division by the activation or by 0"),
    "constants divided by zero": ([node("Div", "b z", "y")], {"b": B, "z": 0.0}, (1, 3), "(Div): division by 0"),
    "a wider sum": ([node("Add", "x b", "y")], {"b": random_array(2, 3)}, (1, 3), ("node 'my_Add' " "(Add)")),
    "whole numbers": ([node("MatMul", "x W", "y")], {"W": [[1], [2]]}, (1, 2), "floating-point"),
    "weights in three sizes": ([node("MatMul", "x W", "y")], {"W": random_array(2, 4, 3)}, (1, 4), "give a matrix"),
    "weights on the left": ([node("MatMul", "W x", "y")], {"W": W}, (3, 1), "the left factor"),
    "weights that do not fit": ([node("MatMul", "x W", "y")], {"W": W}, (1, 5), ("Dense(4, 3) follows shape " "(5,)")),
    "a matrix on images": ([node("MatMul", "x W", "y")], {"W": W}, (1, 3, 4), ("follows shape (3, " "4)")),
    "a transposed product": ([node("Gemm", "x W", "y", transA=1)], {"W": W}, (1, 4), "not transposed"),
    "groups": ([node("Conv", "x K", "y", group=3)], {"K": random_array(3, 1, 2, 2)}, IMAGE, "groups and dilations"),
    "dilations": ([node("Conv", "x K", "y", dilations=[2, 2])], {"K": KERNEL}, IMAGE, "groups and dilations"),
    "lopsided padding": ([node("Conv", "x K", "y", pads=[1, 0, 0, 1])], {"K": KERNEL}, IMAGE, "both sides"),
    "automatic padding": ([node("Conv", "x K", "y", auto_pad="SAME_UPPER")], {"K": KERNEL}, IMAGE, "both sides"),
    "a convolution over sequences": ([node("Conv", "x K", "y")], {"K": KERNEL[..., 0]}, (1, 3, 4), "over images"),
    "padded pools": ([node("MaxPool", "x", "y", kernel_shape=[2, 2], pads=[1] * 4)], {}, IMAGE, "padding, dilation"),
    "pools that stand out": (
        [node("AveragePool", "x", "y", kernel_shape=[2, 2], ceil_mode=1)], {}, IMAGE, ("padding, dilation and " "windows"),
    ),
    "a pool without a size": ([node("MaxPool", "x", "y")], {}, IMAGE, "'kernel_shape' is missing"),
    "an unknown attribute": ([node("Relu", "x", "y", mood=1)], {}, (1, 4), ("attribute 'mood' is not " "supported")),
    "a slope": ([node("LeakyRelu", "x", "y", alpha=-1.0)], {}, (1, 4), "LeakyReLU slope is -1.0"),
    "training": (
        [node("BatchNormalization", "x s s s s", "y", training_mode=1)], {"s": B}, (1, 3), ("training and " "normalisation"),
    ),
    "a negative variance": ([node("BatchNormalization", "x s s s v", "y")], {"s": B, "v": -B**2}, (1, 3), "positive"),
    "another axis": ([node("Flatten", "x", "y", axis=2)], {}, IMAGE, "give axis 1"),
    "another shape": ([node("Reshape", "x s", "y")], {"s": [1, 6, 8]}, IMAGE, ("must be [batch, " "-1]")),
    "another size": ([node("Reshape", "x s", "y")], {"s": [2, -1]}, IMAGE, "is not [batch, 48]"),
    "two open sizes": ([node("Reshape", "x s", "y")], {"s": [-1, -1]}, IMAGE, "is not [batch, 48]"),
    "a vector": ([node("MatMul", "x W", "y")], {"W": W}, (4,), "give a batch dimension"),
    "an open size": ([node("MatMul", "x W", "y")], {"W": W}, (1, "N"), "known sizes"),
    "a huge input": ([node("Sub", "x b", "y")], {"b": 1.0}, (1, 2**40), "give a batch dimension"),
    "a huge padding": (
        [node("Conv", "x K", "h", pads=[2**20] * 4), node("Add", "h b", "y")], {"K": KERNEL, "b": 1.0}, IMAGE,
        "too large",
    ),
    "a huge sum": (
        [node("Add", "a b", "c"), node("Add", "x c", "y")], {"a": np.ones((2**15, 1)), "b": np.ones(2**15)}, (1, 4),
        "too large",
    ),
}  # fmt: skip


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

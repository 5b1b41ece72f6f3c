"""ONNX files: exported modules, graphs by hand, and the format's reference evaluator."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bnncert import Network
from bnncert.importers.onnx import read_onnx

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
RANDOM = np.random.default_rng(0)


def evaluate(path: Path, x: Any) -> Any:
    """The outputs by the reference implementation of the format itself."""
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(str(path))
    with np.errstate(all="ignore"):  # its sigmoid divides infinities far from 0
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


def agree_at(path: Path, dims: tuple[int, ...], size: float = 1.0, count: int = 3) -> Network:
    """The same at inputs of the file's own dimensions, batch or not, entry by entry."""
    network, weights = read_onnx(path)
    for _ in range(count):
        x = size * RANDOM.standard_normal(dims)
        flat = torch.from_numpy(x).reshape(1, *network.input_shape)
        ours = network.forward(weights, flat).numpy().reshape(-1)
        theirs = np.asarray(evaluate(path, x))
        tolerance = 1e-11 * (1 + abs(theirs).max())
        np.testing.assert_allclose(ours, theirs.reshape(-1), rtol=1e-11, atol=tolerance)
    return network


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
    return helper.make_node(
        operator, inputs.split(" ") if inputs else [], [output], name=f"my_{operator}", **attributes
    )


def random_array(*shape: int) -> Any:
    return RANDOM.standard_normal(shape)


W, B = random_array(4, 3), random_array(3)


def simple(tmp_path: Path) -> Path:
    nodes = [node("MatMul", "x W", "h"), node("Add", "h b", "y")]
    return write(tmp_path / "m.onnx", nodes, {"W": W, "b": B}, (1, 4))


KERNEL = random_array(2, 3, 2, 2)

"""Posteriors around graphs from ONNX files, and questions about them: from the file to a checked
certificate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bnncert import (
    Concentration,
    InputError,
    Problem,
    ball,
    certify,
    class_robust,
    save_posterior,
)
from bnncert.importers.onnx import from_onnx
from bnncert.results.folder import result_folder
from bnncert_check import ACCEPT, check_results, read_model, read_results
from commands import Run
from onnx_families import GRAPHS
from onnx_files import agree_at, node, onnx, random_array, write
from vnnlib_files import bounds, declare

SHARED = (4, 4)


def siamese(path: Path, second: str = "W", constants: dict[str, object] | None = None) -> Path:
    """x W, ReLU, then `second` again."""
    nodes = [node("MatMul", "x W", "h"), node("Relu", "h", "r"), node("MatMul", f"r {second}", "y")]
    stored = {"W": random_array(*SHARED), **(constants or {})}
    return write(path / "m.onnx", nodes, stored, (1, 4))


def test_a_tensor_used_twice_is_not_random(tmp_path: Path) -> None:
    """Its noise would be the same in both places, and a posterior of independent weights is not."""
    path = siamese(tmp_path)
    for std in (0.1, {"W0": 0.1, "W1": 0.2}, {"W0": 0.1, "W1": torch.eye(4)}):
        with pytest.raises(InputError, match="tensor 'W' is in both W0 and W1"):
            from_onnx(path, std)
    # One of the two alone is, or neither.
    assert from_onnx(path, {"W1": 0.1})[1].std.tolist() == [0.0] * 16 + [0.1] * 16
    assert not from_onnx(path)[1].std.any()
    assert from_onnx(siamese(tmp_path, "V", {"V": random_array(4, 4)}), 0.1)[1].std.min() == 0.1


DERIVED: dict[str, tuple[list[Any], dict[str, object], bool]] = {
    "transposed": ([node("Transpose", "W", "V")], {}, True),
    "reshaped": ([node("Reshape", "W s", "V")], {"s": [4, 4]}, True),
    "a sum": ([node("Add", "U W", "V")], {"U": random_array(4, 4)}, True),
    "cast": ([node("Cast", "W", "V", to=11)], {}, True),
    "scaled": ([node("Mul", "U two", "V")], {"U": random_array(4, 4), "two": 2.0}, False),
}


@pytest.mark.parametrize("name", DERIVED)
def test_tensors_made_of_others_share_their_noise(name: str, tmp_path: Path) -> None:
    made, constants, shares = DERIVED[name]
    # The number 2 is in both, and is nobody's weight.
    nodes = [
        *made,
        node("Mul", "W two", "Q"),
        node("MatMul", "x Q", "h"),
        node("Relu", "h", "r"),
        node("MatMul", "r V", "y"),
    ]
    stored = {"W": random_array(4, 4), "two": 2.0, **constants}
    path = write(tmp_path / "m.onnx", nodes, stored, (1, 4))
    if shares:
        with pytest.raises(InputError, match="'W' is in both W0 and W1"):
            from_onnx(path, 0.1)
    else:
        assert from_onnx(path, 0.1)[1].std.min() == 0.1


def test_a_bias_that_is_added_twice_is_shared(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", "x W", "h"),
        node("Add", "h b", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "r V", "g"),
        node("Add", "b g", "y"),
    ]
    stored = {"W": random_array(4, 4), "V": random_array(4, 4), "b": random_array(4)}
    path = write(tmp_path / "m.onnx", nodes, stored, (1, 4))
    with pytest.raises(InputError, match="'b' is in both b0 and b1"):
        from_onnx(path, 0.1)
    assert from_onnx(path, {"W0": 0.1, "b1": 0.1})[1].std.sum() == pytest.approx(2.0)


def test_arithmetic_is_certain_unless_named(tmp_path: Path) -> None:
    """One number is for dense layers and convolutions; what remains of normalisation is no
    weight."""
    nodes = [
        node("Sub", "x m", "c"),
        node("Relu", "c", "r"),
        node("MatMul", "r W", "h"),
        node("Add", "h c", "y"),
    ]
    stored = {"m": random_array(4), "W": random_array(4, 4)}
    network, posterior = from_onnx(write(tmp_path / "m.onnx", nodes, stored, (1, 4)), 0.1)
    assert [type(layer).__name__ for layer in network.layers] == ["Scale", "ReLU", "Dense", "Add"]
    spread = dict(zip(network.parameters, posterior.std.split([4, 4, 16]), strict=True))
    assert {name: value.unique().tolist() for name, value in spread.items()} == {
        "W0": [0.0],
        "b0": [0.0],
        "W1": [0.1],
    }
    named = from_onnx(tmp_path / "m.onnx", {"b0": 0.5})[1]
    assert named.std.sum() == 2.0


def test_halves_and_singles_are_the_stored_floats(tmp_path: Path) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        stored = random_array(4, 3).astype(dtype)
        graph = onnx.helper.make_graph(
            [node("MatMul", "x W", "y")],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, (1, 4))],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT16, (1, 3))],
            [onnx.numpy_helper.from_array(stored, "W")],
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
        model.ir_version = 3
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        mean = from_onnx(path)[1].mean
        assert mean.tolist() == stored.astype(np.float64).reshape(-1).tolist()


@pytest.mark.parametrize("name", ["bias_field", "controller", "database", "detector", "linearised"])
def test_certificates_of_graphs_are_accepted(name: str, tmp_path: Path) -> None:
    nodes, constants, shape = GRAPHS[name]()
    network, posterior = from_onnx(write(tmp_path / "m.onnx", nodes, constants, shape), 0.001)
    save_posterior(tmp_path / "p.safetensors", network, posterior)
    x = torch.randn(2, *network.input_shape, dtype=torch.float64)
    labels = network.forward(posterior.mean, x).argmax(-1)
    problem = Problem(network, posterior, class_robust(ball(x, 0.0001), labels, network.outputs))
    with result_folder(tmp_path / "out") as store:
        results = certify(problem, Concentration(upper=True))
        store(results)
    assert any(result.lower > 0.5 for result in results)
    verdicts = check_results(
        tmp_path / "out", read_results(tmp_path / "out"), read_model(tmp_path / "p.safetensors")
    )
    assert [verdict.status for verdict in verdicts] == [ACCEPT] * 2


def test_questions_count_inputs_as_the_file_does(run: Run, tmp_path: Path) -> None:
    """X_i is entry i of the file's input, row by row, whatever the graph does with it: y is
    (x[1, 0], x[0, 1]), which are X_3 and X_1, and after transposing entries 1 and 2."""
    weights = np.zeros((6, 2))
    weights[1, 0] = weights[2, 1] = 1
    nodes = [
        node("Transpose", "x", "t", perm=[0, 2, 1]),
        node("Flatten", "t", "f"),
        node("MatMul", "f W", "y"),
    ]
    path = write(tmp_path / "m.onnx", nodes, {"W": weights}, (1, 2, 3))
    agree_at(path, (1, 2, 3))
    posterior = tmp_path / "p.safetensors"
    assert run("import", path, "--as", "onnx", "--std", 0.001, "--out", posterior)[0] == 0
    intervals: list[tuple[object, object]] = [(0, 1)] * 6
    intervals[3], intervals[1] = (0.6, 0.7), (0.1, 0.2)
    for question, code, said in (
        ("(>= Y_1 Y_0)", 0, "unsat"),
        ("(>= Y_0 Y_1)", 1, "sat"),
    ):
        text = declare(6, 2) + bounds(*intervals) + f"(assert {question})\n"
        (tmp_path / "q.vnnlib").write_text(text)
        options = ["--upper", "--at-least", 0.9, "--out", tmp_path / "out"]
        found = run("certify", posterior, "--vnnlib", tmp_path / "q.vnnlib", *options)
        assert (found[0], found[1].splitlines()[-1]) == (code, f"q.vnnlib: {said}")

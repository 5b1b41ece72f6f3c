"""ONNX files: outputs as the reference evaluator computes them, folding, and posteriors."""

from __future__ import annotations

import random
import re
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
    Problem,
    ball,
    certify,
    class_robust,
    load_posterior,
    save_posterior,
)
from bnncert.importers.onnx import NEWEST, OLDEST, from_onnx, read_onnx
from bnncert.importers.onnx_constants import FOLDED
from bnncert.importers.onnx_operators import OPERATORS
from bnncert.layers import (
    ELU,
    GELU,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    HardSwish,
    Hardtanh,
    LeakyReLU,
    MaxPool2d,
    Mish,
    ReLU,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
)
from bnncert.results.folder import result_folder
from bnncert_check import ACCEPT, check_results, read_model, read_results
from commands import Run
from onnx_files import (
    KERNEL,
    B,
    W,
    agree,
    evaluate,
    export,
    helper,
    node,
    normalised,
    random_array,
    simple,
    tensor,
    write,
)
from pages import blocks, fenced, text

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[type, ...]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)),
        (4,),
        (Dense, ReLU, Dense),
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(3, 4),
            nn.Tanh(),
            nn.Linear(4, 4),
            nn.Sigmoid(),
            nn.Linear(4, 2, bias=False),
            nn.LeakyReLU(0.25),
        ),
        (3,),
        (Dense, Tanh, Dense, Sigmoid, Dense, LeakyReLU),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(3, 4, (2, 3), stride=(1, 2)),
            nn.AvgPool2d(2, 1),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(8, 3),
        ),
        (2, 9, 11),
        (Conv2d, ReLU, MaxPool2d, Conv2d, AvgPool2d, Flatten, Dense),
    ),
    "normalised": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3),
            normalised(2),
            nn.ReLU(),
            normalised(2),
            nn.Conv2d(2, 3, 2),
            nn.Flatten(),
            nn.Linear(12, 2),
        ),
        (1, 5, 5),
        (Conv2d, ReLU, Conv2d, Flatten, Dense),
    ),
    "identity": (
        lambda: nn.Sequential(nn.Identity(), nn.Flatten(), nn.Linear(4, 2)),
        (2, 2),
        (Flatten, Dense),
    ),
}


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


ARITHMETIC = ("Add", "Sub", "Mul", "Div")

DENSE = [node("MatMul", "h W", "g"), node("Add", "g b", "y")]
GRAPHS: dict[str, tuple[list[Any], dict[str, object], tuple[object, ...], tuple[type, ...]]] = {
    "matmul and add": (
        [node("MatMul", "x W", "h"), node("Add", "h b", "y")],
        {"W": W, "b": B},
        ("N", 4),
        (Dense,),
    ),
    "add from the left": (
        [node("MatMul", "x W", "h"), node("Add", "b h", "y")],
        {"W": W, "b": B},
        (1, 4),
        (Dense,),
    ),
    "matmul alone": ([node("MatMul", "x W", "y")], {"W": W}, (1, 4), (Dense,)),
    "two biases": (
        [
            node("Gemm", "x W b", "h"),
            node("Add", "h b", "g"),
            node("Sub", "g b", "i"),
            node("Sub", "b i", "y"),
        ],
        {"W": W, "b": B},
        (1, 4),
        (Dense,),
    ),
    "gemm with factors": (
        [node("Gemm", "x W b", "y", alpha=0.5, beta=-2.0, transB=1)],
        {"W": W.T, "b": B[None]},
        (1, 4),
        (Dense,),
    ),
    "gemm with a scalar": ([node("Gemm", "x W b", "y")], {"W": W, "b": 0.5}, (1, 4), (Dense,)),
    "gemm without bias": ([node("Gemm", "x W", "y")], {"W": W}, (1, 4), (Dense,)),
    "inputs normalised": (
        [node("Sub", "x m", "c"), node("Div", "c s", "h"), *DENSE],
        {"m": random_array(4), "s": 1 + random_array(4) ** 2, "W": W, "b": B},
        (1, 4),
        (Dense,),
    ),
    "images normalised, then flat": (
        [node("Sub", "x m", "c"), node("Mul", "c s", "f"), node("Flatten", "f", "h"), *DENSE],
        {"m": random_array(2, 1), "s": random_array(2, 2), "W": W, "b": B},
        (1, 2, 2),
        (Flatten, Dense),
    ),
    "a convolution of normalised images": (
        [
            node("Sub", "x m", "c"),
            node("Div", "c s", "f"),
            node("Conv", "f K k", "i"),
            node("Add", "i d", "j"),
            node("Mul", "j d", "h"),
            node("Reshape", "h shape", "y"),
        ],
        {
            "m": random_array(3, 1, 1),
            "s": random_array(1, 3, 1, 1),
            "K": KERNEL,
            "k": random_array(2),
            "d": random_array(2, 1, 1),
            "shape": [0, -1],
        },
        ("N", 3, 4, 4),
        (Conv2d, Flatten),
    ),
    "a padded convolution of scaled images": (
        [
            node("Mul", "x s", "f"),
            node("Conv", "f K", "h", pads=[1, 2, 1, 2], strides=[2, 1]),
            node("Flatten", "h", "y"),
        ],
        {"s": 0.25, "K": KERNEL},
        (1, 3, 4, 4),
        (Conv2d, Flatten),
    ),
    "trivial arithmetic": (
        [node("Sub", "x zero", "a"), node("Div", "a one", "c"), node("Relu", "c", "h"), *DENSE],
        {"zero": np.zeros(4), "one": 1.0, "W": W, "b": B},
        (1, 4),
        (ReLU, Dense),
    ),
    "batch normalisation of vectors": (
        [node("BatchNormalization", "x s o m v", "h", epsilon=0.1), *DENSE],
        {
            "s": random_array(4),
            "o": random_array(4),
            "m": random_array(4),
            "v": random_array(4) ** 2,
            "W": W,
            "b": B,
        },
        (1, 4),
        (Dense,),
    ),
    "constants computed": (
        [
            node("Constant", "", "V", value=tensor("V", W.T)),
            node("Transpose", "V", "U", perm=[1, 0]),
            node("Sub", "U t", "T"),
            node("Div", "T s", "S"),
            node("Identity", "S", "W"),
            node("Identity", "x", "h"),
            *DENSE,
        ],
        {"t": 0.5, "s": [2.0, 4.0, 8.0], "b": B},
        (1, 4),
        (Dense,),
    ),
    "reshape in numbers": (
        [node("Reshape", "x shape", "h"), *DENSE],
        {"shape": [1, 4], "W": W, "b": B},
        (1, 2, 2),
        (Flatten, Dense),
    ),
    "reshape with an open batch": (
        [node("Reshape", "x shape", "h"), *DENSE],
        {"shape": [-1, 4], "W": W, "b": B},
        ("N", 2, 2),
        (Flatten, Dense),
    ),
    "dropout": ([node("Dropout", "x", "h"), *DENSE], {"W": W, "b": B}, (1, 4), (Dense,)),
    "default slopes and strides": (
        [
            node("LeakyRelu", "x", "a"),
            node("MaxPool", "a", "c", kernel_shape=[2, 2]),
            node("AveragePool", "c", "d", kernel_shape=[2, 1], count_include_pad=1),
            node("Flatten", "d", "e"),
            node("MatMul", "e W", "y"),
        ],
        {"W": W},
        (1, 1, 4, 3),
        (LeakyReLU, MaxPool2d, AvgPool2d, Flatten, Dense),
    ),
    "curves": (
        [
            node("MatMul", "x W", "a"),
            node("Elu", "a", "c", alpha=0.5),
            node("Softplus", "c", "d"),
            node("Softsign", "d", "y"),
        ],
        {"W": W},
        (1, 4),
        (Dense, ELU, Softplus, Softsign),
    ),
    "a clip": (
        [node("MatMul", "x W", "a"), node("Clip", "a low high", "y")],
        {"W": W, "low": -0.25, "high": 0.5},
        (1, 4),
        (Dense, Hardtanh),
    ),
}


def test_curves_of_later_operator_sets_are_read(tmp_path: Path) -> None:
    """Which the reference evaluates with constants in float32."""
    nodes = [
        node("MatMul", "x W", "a"),
        node("Gelu", "a", "b"),
        node("Mish", "b", "c"),
        node("HardSwish", "c", "d"),
        node("Gelu", "d", "y", approximate="tanh"),
    ]
    file = write(tmp_path / "m.onnx", nodes, {"W": W}, (1, 4), opset=20)
    network, weights = read_onnx(file)
    assert network.layers[1:] == (GELU(), Mish(), HardSwish(), GELU("tanh"))
    x = random_array(1, 4)
    ours = network.forward(weights, torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(ours, evaluate(file, x), rtol=1e-5, atol=1e-7)


def test_a_clip_needs_both_ends(tmp_path: Path) -> None:
    nodes = [node("MatMul", "x W", "a"), node("Clip", "a low", "y")]
    with pytest.raises(InputError, match="both ends"):
        read_onnx(write(tmp_path / "m.onnx", nodes, {"W": W, "low": 0.0}, (1, 4)))


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


def test_the_page_runs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_page_names_the_operators() -> None:
    """Those of the table, and those that are computed."""
    page = text("importers/onnx.md")
    table = " ".join(row.split("|")[1] for row in page.splitlines() if row.startswith("| "))
    _, computed = page.split("as whole numbers: ")
    for said, known in ((table, OPERATORS), (computed.split(". So")[0], FOLDED)):
        words = set(re.findall(r"\b[A-Z][A-Za-z]+", said))
        assert words == set(known)
    assert f"operator sets {OLDEST} to {NEWEST}" in page

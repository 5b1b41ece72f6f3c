"""`bnncert import`: what it writes, and one clear line for what it cannot read."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from bnncert import load_posterior, mlp
from bnncert.importers.conventions import CONVENTIONS
from bnncert.layers import Tanh
from commands import Run

# What each library's layers store, as its own tests in this folder find it.
BESIDE = {
    "blitz": lambda mean, spread: {
        "sampler.mu": mean,
        "sampler.rho": spread,
        "sampler.eps_w": torch.zeros_like(mean),
    },
    "torch-uncertainty": lambda mean, spread: {
        "sampler.mu": mean,
        "sampler.rho": spread,
        **{f"prior_dist.{name}": torch.ones(2) for name in ("pi", "mus", "sigmas")},
    },
}


def state(library: str, *widths: int) -> dict[str, Tensor]:
    """A state_dict of dense layers by the library's names."""
    torch.manual_seed(0)
    convention, tensors = CONVENTIONS[library], {}
    for i, (inputs, outputs) in enumerate(pairwise(widths)):
        for part, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
            mean, spread = torch.randn(shape), torch.full(shape, -3.0)
            tensors[f"net.{2 * i}.{convention.mean.format(part)}"] = mean
            tensors[f"net.{2 * i}.{convention.spread.format(part)}"] = spread
            beside = BESIDE[library](mean, spread) if library in BESIDE else {}
            tensors |= {f"net.{2 * i}.{part}_{name}": value for name, value in beside.items()}
    return tensors


def notes(path: Path) -> dict[str, object]:
    with safe_open(path, framework="pt") as file:
        return dict(json.loads(file.metadata()["bnncert"])["notes"])


@pytest.mark.parametrize("library", CONVENTIONS)
def test_a_state_dict_of_every_library(library: str, run: Run, tmp_path: Path) -> None:
    source, out = tmp_path / "weights.pt", tmp_path / "p.safetensors"
    tensors = state(library, 3, 5, 2)
    torch.save(tensors, source)
    code, text, error = run("import", source, "--as", library, "--out", out, "--activation", "tanh")
    assert (code, error) == (0, "")
    assert (
        "Dense(inputs=3, outputs=5, bias=True), Tanh(), Dense(inputs=5, outputs=2, bias=True)"
        in text
    )
    network, posterior = load_posterior(out)
    assert network == mlp(3, 5, 2, activation=Tanh())
    mean = tensors["net.0." + CONVENTIONS[library].mean.format("weight")]
    assert torch.equal(network.split(posterior.center)[0][0], mean.double().T)
    assert notes(out) == {
        "library": library,
        "parameterisation": CONVENTIONS[library].formula,
        "file": "weights.pt",
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.safetensors", "weights.pt"]


def test_plain_weights_npz_and_native(run: Run, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 2)).state_dict(), tmp_path / "plain.pt")
    code, _, error = run(
        "import", tmp_path / "plain.pt", "--as", "torch", "--out", tmp_path / "a.safetensors"
    )
    assert code == 0
    assert error == (
        "bnncert: warning: 0.weight, 0.bias: no standard deviation, taken as certain; give "
        "std=...\n"
    )
    arguments = [
        "import",
        tmp_path / "plain.pt",
        "--as",
        "torch",
        "--std",
        0.1,
        "--out",
        tmp_path / "b.safetensors",
    ]
    assert run(*arguments)[::2] == (0, "")
    assert load_posterior(tmp_path / "b.safetensors")[1].tensors()["std"].tolist() == [0.1] * 6
    np.savez(tmp_path / "c.npz", W0_mean=np.ones((2, 2)), W0_std=np.ones((2, 2)))
    assert (
        run("import", tmp_path / "c.npz", "--as", "npz", "--out", tmp_path / "c.safetensors")[0]
        == 0
    )
    assert (
        run(
            "import",
            tmp_path / "c.safetensors",
            "--as",
            "native",
            "--out",
            tmp_path / "d.safetensors",
        )[0]
        == 0
    )
    first, second = (load_posterior(tmp_path / f"{name}.safetensors")[1] for name in "cd")
    assert first.digest == second.digest
    assert notes(tmp_path / "d.safetensors")["library"] == "native"


def onnx_file(path: Path) -> Path:
    """x W + b of two inputs and two outputs."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    constants = {"W": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array([5.0, 6.0])}
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [1, 2]) for name in "xy")
    stored = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "W", "b"], ["y"])], "g", [x], [y], stored
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def test_an_onnx_file(run: Run, tmp_path: Path) -> None:
    source, out = onnx_file(tmp_path / "n.onnx"), tmp_path / "p.safetensors"
    code, text, error = run("import", source, "--as", "onnx", "--std", 0.25, "--out", out)
    assert (code, error) == (0, "")
    assert "Dense(inputs=2, outputs=2, bias=True)" in text
    network, posterior = load_posterior(out)
    assert network == mlp(2, 2)
    assert posterior.tensors()["mean"].tolist() == [1, 2, 3, 4, 5, 6]
    assert posterior.tensors()["std"].tolist() == [0.25] * 6
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    assert notes(out) == {"library": "onnx", "file": "n.onnx", "sha256": sha256}
    code, _, error = run("import", source, "--as", "onnx", "--out", out)
    assert (code, error) == (
        0,
        "bnncert: warning: n.onnx: no standard deviation, taken as certain; give std=...\n",
    )
    assert load_posterior(out)[1].tensors()["std"].tolist() == [0] * 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--activation", "tanh"],
            "onnx files say all but standard deviations; leave out what they say",
        ),
        (["--input-shape", "2"], "leave out what they say"),
        (["--layers", "a,b"], "leave out what they say"),
        (["--no-bias", "--std", "0.1"], "leave out what they say"),
        (["--std", "-0.1"], "std"),
        (["--std", "nan"], "std"),
    ],
)
def test_one_line_for_what_an_onnx_file_does_not_take(
    arguments: list[str],
    message: str,
    run: Run,
    tmp_path: Path,
) -> None:
    out = tmp_path / "p.safetensors"
    code, text, error = run(
        "import", onnx_file(tmp_path / "n.onnx"), "--as", "onnx", "--out", out, *arguments
    )
    assert (code, text) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["w.pt", "--as", "edward"],
            "'edward' is not known; choose bayesian-torch, torchbnn, blitz",
        ),
        (["missing.pt", "--as", "torchbnn"], "does not exist"),
        (["w.pt", "--as", "torchbnn", "--out", "p.npz"], "must be a .safetensors file"),
        (
            ["w.pt", "--as", "torchbnn", "--activation", "swish"],
            "choose relu, leaky_relu, tanh, sigmoid",
        ),
        (["w.pt", "--as", "torchbnn", "--input-shape", "3,x"], "--input-shape '3,x'"),
        (["w.pt", "--as", "torchbnn", "--input-shape", "2,5"], "use bnncert.from_torch in Python"),
        (["w.pt", "--as", "torchbnn", "--layers", "net.2"], "must be all of net.0, net.2"),
        (["w.pt", "--as", "torchbnn", "--layers", "net.2,net.0"], "do not fit together"),
        (["w.pt", "--as", "torchbnn", "--std", "0.1"], "leave it out"),
        (["w.pt", "--as", "torchbnn", "--no-bias"], "leave the biases in"),
        (["w.pt", "--as", "blitz"], "looks like torchbnn"),
        (["w.npz", "--as", "npz", "--activation", "tanh"], "leave out"),
        (["w.npz", "--as", "npz", "--std", "0.1"], "leave out"),
        (["w.npz", "--as", "onnx", "--std", "0.1"], "this is not an ONNX model"),
        (["missing.onnx", "--as", "onnx"], "does not exist"),
        (["w.npz", "--as", "torchbnn"], "unknown ending"),
        (["hostile.pt", "--as", "torchbnn"], "torch.save"),
    ],
)
def test_one_line_for_what_cannot_be_read(
    arguments: list[str],
    message: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(state("torchbnn", 3, 5, 2), "w.pt")
    np.savez("w.npz", W0_mean=np.ones((2, 2)), W0_std=np.ones((2, 2)))
    Path("hostile.pt").write_bytes(b"\x80\x04.")
    code, text, error = run("import", *arguments)
    assert (code, text) == (2, "")
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.glob("*.safetensors"))

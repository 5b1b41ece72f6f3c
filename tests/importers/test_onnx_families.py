"""Graphs with the operators of the verification competitions' benchmarks: read, and in agreement
with the reference evaluator, or refused by the operator's name and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bnncert import InputError
from bnncert.importers.onnx import read_onnx
from onnx_families import GRAPHS
from onnx_files import agree_at, export, node, normalised, random_array, write


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_are_read(name: str, tmp_path: Path) -> None:
    nodes, constants, shape = GRAPHS[name]()
    dims = tuple(size if isinstance(size, int) else 1 for size in shape)
    path = write(tmp_path / "m.onnx", nodes, constants, shape)
    for size in (1.0, 100.0):
        agree_at(path, dims, size)


class Block(nn.Module):
    """A residual block, which halves the image where its channels change."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if channels == outputs else 2
        self.first = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([normalised(outputs), normalised(outputs)])
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(channels, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(hidden)) + self.shortcut(x)).relu()


MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 2, 3, padding=1),
            normalised(2),
            nn.ReLU(),
            Block(2, 2),
            Block(2, 4),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
        ),
        (3, 6, 6),
    ),
    "pools and dropout": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(),
            nn.Linear(4, 6),
            nn.ReLU(),
            nn.Linear(6, 3),
        ),
        (3, 4, 4),
    ),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2),
            nn.Hardtanh(),
            nn.Conv2d(4, 4, 2, dilation=2, groups=4),
            nn.ReLU6(),
            nn.AvgPool2d(2, padding=1),
            nn.Flatten(),
            nn.PReLU(),
            nn.Linear(16, 3),
        ),
        (2, 6, 6),
    ),
    "sequences": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 3, 3, padding=1),
            nn.BatchNorm1d(3),
            nn.LeakyReLU(),
            nn.Conv1d(3, 2, 3),
            nn.ReLU(),
            nn.AvgPool1d(2),
            nn.Flatten(),
            nn.Linear(6, 2),
            nn.Tanh(),
        ),
        (2, 8),
    ),
    "tokens": (
        lambda: nn.Sequential(
            nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2), nn.Flatten(-2), nn.Linear(6, 2)
        ),
        (3, 4),
    ),
}


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_exported_modules_are_read(name: str, batch: bool, tmp_path: Path) -> None:
    make, shape = MODULES[name]
    torch.manual_seed(0)
    module = make()
    path = export(tmp_path / "m.onnx", module, shape, torch.float64, batch=batch)
    network, center = read_onnx(path)
    assert network.input_shape == shape
    x = 10 * torch.randn(4, *shape, dtype=torch.float64)
    with torch.no_grad():
        expected = module(x)
    # Slopes and epsilons are single floats in the file.
    torch.testing.assert_close(network.forward(center, x), expected, rtol=1e-7, atol=1e-7)


REFUSED: dict[str, tuple[list[Any], tuple[int, ...], str]] = {
    "a generator of images": (
        [node("ConvTranspose", "x K", "y")],
        (1, 2, 2, 2),
        "(ConvTranspose): the operator is not supported on what depends on the input: "
        "no layer makes images larger",
    ),
    "signs": ([node("Sign", "x", "y")], (1, 4), "(Sign): the operator is not supported"),
    "power flow": ([node("Sin", "x", "y")], (1, 4), "(Sin): the operator is not supported"),
    "powers": ([node("Pow", "x two", "y")], (1, 4), "(Pow): the operator is not supported"),
    "products": ([node("Mul", "x x", "y")], (1, 4), "(Mul): a product of two tensors"),
    "attention": (
        [node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t", "y")],
        (1, 3, 4),
        "(MatMul): a product of two tensors that depend on the input is not supported",
    ),
    "attention's weights": ([node("Softmax", "x", "y")], (1, 4), "export the network without it"),
    "boxes": ([node("ArgMax", "x", "y")], (1, 4), "(ArgMax): the operator is not supported"),
    "masks": ([node("Less", "x two", "y")], (1, 4), "(Less): the operator is not supported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_graphs_are_refused_by_operator(name: str, tmp_path: Path) -> None:
    nodes, shape, message = REFUSED[name]
    constants = {"K": random_array(2, 1, 3, 3), "two": 2.0}
    with pytest.raises(InputError) as refused:
        read_onnx(write(tmp_path / "m.onnx", nodes, constants, shape))
    assert message in str(refused.value)
    assert f"node 'my_{nodes[-1].op_type}'" in str(refused.value)

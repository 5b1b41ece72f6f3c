"""VNN-LIB files for tests, and what was read from them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from bnncert import Network
from bnncert.importers.vnnlib import Query, load_vnnlib
from bnncert.layers import Dense


def linear(inputs: int, outputs: int) -> Network:
    return Network((inputs,), (Dense(inputs, outputs, bias=False),))


def declare(inputs: int, outputs: int) -> str:
    names = [f"X_{i}" for i in range(inputs)] + [f"Y_{j}" for j in range(outputs)]
    return "".join(f"(declare-const {name} Real)\n" for name in names)


def bounds(*intervals: tuple[object, object]) -> str:
    return "".join(
        f"(assert (>= X_{i} {low}))\n(assert (<= X_{i} {high}))\n"
        for i, (low, high) in enumerate(intervals)
    )


def load(path: Path, text: str, network: Network, weights: Tensor) -> Query:
    file = path / "property.vnnlib"
    file.write_text(text)
    return load_vnnlib(file, network, weights)


def identity(path: Path, outputs: str, *intervals: tuple[object, object], extra: str = "") -> Query:
    """The question about y = x on the given box, unsafe where `outputs` holds."""
    n = len(intervals)
    text = declare(n, n) + bounds(*intervals) + f"(assert {outputs})\n" + extra
    return load(path, text, linear(n, n), torch.eye(n, dtype=torch.float64).flatten())


def rows(query: Query, index: int = 0) -> tuple[list[list[float]], list[float]]:
    spec = query.specifications[index]
    return spec.rows[0].tolist(), spec.offsets[0].tolist()


def box(query: Query, index: int = 0) -> tuple[list[float], list[float]]:
    region = query.specifications[index].region
    return region.box.lower.flatten().tolist(), region.box.upper.flatten().tolist()


TWO_BOXES = """(assert (or
 (and (>= X_0 0) (<= X_0 1) (<= Y_0 -1)) (and (>= X_0 2) (<= X_0 3) (>= Y_0 7) )
 (and (>= X_0 2) (<= X_0 3) (<= Y_0 0)) (and (>= X_0 9) (<= X_0 8) (<= Y_0 0)) ))"""

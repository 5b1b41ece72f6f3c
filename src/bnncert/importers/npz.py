"""Posteriors as `.npz` with plain arrays W{i}_mean [in, out], b{i}_mean, W{i}_std, b{i}_std and
optionally `meta`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.npz import read_arrays
from bnncert.model.activations import Activation, Hardtanh, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.model.curves import ELU, GELU, SELU, HardSwish, Mish, SiLU, Softplus, Softsign
from bnncert.model.layers import Dense, Layer
from bnncert.model.network import Network
from bnncert.posteriors.independent import Normal

ACTIVATIONS: dict[str, Activation | None] = {
    "relu": ReLU(),
    "leaky_relu": LeakyReLU(),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "gelu": GELU(),
    "gelu_tanh": GELU("tanh"),
    "silu": SiLU(),
    "mish": Mish(),
    "softplus": Softplus(),
    "elu": ELU(),
    "selu": SELU(),
    "hardswish": HardSwish(),
    "softsign": Softsign(),
    "hardtanh": Hardtanh(),
    "relu6": Hardtanh(0.0, 6.0),
    "linear": None,
    "softmax": None,  # monotone per class difference: the logits decide
}


def load(path: Path) -> tuple[Network, Normal]:
    """Independent Gaussian weights of a fully connected network."""
    arrays = read_arrays(path)
    depth = sum(f"W{i}_mean" in arrays for i in range(len(arrays)))
    if depth == 0:
        raise InputError(
            f"{str(path)!r} holds no array 'W0_mean'; "
            "name the arrays W0_mean, b0_mean, W0_std, b0_std, W1_…"
        )
    layers: list[Layer] = []
    means: list[Tensor] = []
    stds: list[Tensor] = []
    for i, activation in enumerate(_activations(arrays, depth, path)):
        weights = _numbers(arrays, f"W{i}_mean", path)
        if weights.dim() != 2:
            raise InputError(
                f"{str(path)!r}: W{i}_mean has shape {tuple(weights.shape)}; give [inputs, outputs]"
            )
        bias = f"b{i}_mean" in arrays
        layers += [
            Dense(weights.shape[0], weights.shape[1], bias),
            *([activation] if activation else []),
        ]
        for letter in "Wb"[: 1 + bias]:
            mean, std = (_numbers(arrays, f"{letter}{i}_{part}", path) for part in ("mean", "std"))
            expected = weights.shape if letter == "W" else weights.shape[1:]
            if mean.shape != expected or std.shape != expected:
                raise InputError(
                    f"{str(path)!r}: {letter}{i}_mean and "
                    f"{letter}{i}_std must have shape {tuple(expected)}"
                )
            means.append(mean.flatten())
            stds.append(std.flatten())
    network = Network((layers[0].inputs,), tuple(layers))  # type: ignore[union-attr]
    return network, Normal(torch.cat(means), torch.cat(stds))


def _numbers(arrays: dict[str, NDArray[np.generic]], name: str, path: Path) -> Tensor:
    if name not in arrays:
        raise InputError(
            f"{str(path)!r} lacks the array {name!r}; every W and b needs a _mean and a _std"
        )
    if not np.issubdtype(arrays[name].dtype, np.floating):
        raise InputError(
            f"{str(path)!r}: {name} is {arrays[name].dtype}; give floating-point numbers"
        )
    return torch.from_numpy(arrays[name].astype(np.float64))


def _activations(
    arrays: dict[str, NDArray[np.generic]], depth: int, path: Path
) -> list[Activation | None]:
    """`meta`'s list, one a layer; without it ReLU between the layers."""
    default = ["relu"] * (depth - 1) + ["linear"]
    try:
        meta = json.loads(str(arrays["meta"])) if "meta" in arrays else {}
        names = [str(name) for name in meta.get("activations", default)]
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"{str(path)!r}: 'meta' is not a JSON object with a list 'activations' ({error})"
        ) from error
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown or len(names) != depth:
        raise InputError(
            f"{str(path)!r}: activations {names} must be {depth} of {', '.join(ACTIVATIONS)}"
        )
    if "softmax" in names[:-1]:
        raise InputError(
            f"{str(path)!r}: activations {names} have a softmax before the end, "
            "which is not supported; only at the end do the logits decide"
        )
    return [ACTIVATIONS[name] for name in names]

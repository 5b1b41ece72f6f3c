"""The question that options ask about a data set: which inputs, which region, which condition, and by which method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bnncert.data import Dataset
from bnncert.errors import InputError
from bnncert.methods import METHODS, Method
from bnncert.network import Network
from bnncert.specification import Clip, Region, Specification, ball, class_robust, output_interval


def method_named(name: str, options: Mapping[str, Any]) -> Method:
    """The method with the options given; one that it does not have is refused by name."""
    if name not in METHODS:
        raise InputError(f"method {name!r} is not known; choose {', '.join(METHODS)}")
    kind = METHODS[name]
    for key in options:
        if key not in kind.__dataclass_fields__:
            known = ", ".join(field.replace("_", "-") for field in kind.__dataclass_fields__) or "none"
            raise InputError(f"method {name} has no option {key.replace('_', '-')!r}; leave it out (it has {known})")
    return kind(**options)


def selection(text: str, count: int) -> list[int]:
    """Indices named by START:STOP, an index or a list of them."""
    if ":" in text:
        ends = text.split(":")
        if len(ends) != 2 or not all(end == "" or end.isdigit() for end in ends):
            raise InputError(f"select {text!r} is not START:STOP; give for example 0:50")
        indices = list(range(count))[slice(*(int(end) if end else None for end in ends))]
    else:
        indices = whole_numbers(text, "select")
    if len(set(indices)) < len(indices):
        raise InputError(f"select {text!r} names an input twice; give each once")
    if not indices or max(indices) >= count or (":" in text and text.split(":")[1] and int(text.split(":")[1]) > count):
        raise InputError(f"select {text!r} leaves the {count} inputs; give indices from 0 to {count - 1}")
    return indices


def whole_numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = [-1]
    if min(numbers) < 0:
        raise InputError(f"{name} {text!r} is not a list of whole numbers; give for example 50,50")
    return numbers


def region_of(network: Network, x: Tensor, eps: float | Tensor, norm: str, clip: Clip) -> Region:
    """Balls around inputs [B, ...], which take the network's shape."""
    if x[0].numel() != math.prod(network.input_shape):
        raise InputError(
            f"inputs have shape {tuple(x.shape[1:])}, the network takes {network.input_shape}; give matching inputs"
        )
    return ball(x.reshape(len(x), *network.input_shape), eps, norm, clip)


def labels_of(data: Dataset, indices: list[int]) -> Tensor:
    if data.y is None:
        raise InputError(f"inputs {data.name!r} have no labels; add an array 'y' to the .npz")
    return data.y[indices]


def condition_on(
    network: Network, region: Region, y: Tensor, target: int | None, tolerance: float | None
) -> Specification:
    """Class robustness from labels, or with a tolerance a regression interval around y."""
    if tolerance is None:
        if y.is_floating_point():
            raise InputError("labels are not whole numbers; give classes, or certify a regression with a tolerance")
        return class_robust(region, y, network.outputs, target)
    if target is not None or not tolerance >= 0:
        raise InputError(f"tolerance is {tolerance}; give a distance of at least 0, and no target class")
    return output_interval(region, y.double() - tolerance, y.double() + tolerance, network.outputs)

"""Layers written out entry by entry, on described networks with every layer that there is."""

from __future__ import annotations

import math
from itertools import product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]
Description: TypeAlias = dict[str, Any]


def conv(inputs: int, outputs: int, kernel: list[int], **options: Any) -> Description:
    plain = {"stride": [1, 1], "padding": [0, 0], "bias": True}
    own = {"type": "Conv2d", "in_channels": inputs, "out_channels": outputs, "kernel": kernel}
    return own | plain | options


def every_layer() -> Description:
    """A network in which each layer without noise has its turn, then a dense one."""
    max_pool = {"kernel": [2, 2], "stride": [1, 2], "padding": [1, 0, 0, 1]}
    mean_pool = {"kernel": [2, 2], "stride": [2, 1], "padding": [0, 1]}
    layers: list[Description] = [
        {"type": "Scale", "shape": [2, 1, 1], "bias": True},  # 1: (2, 4, 5)
        {"type": "Permute", "order": [0, 2, 1]},  # 2: (2, 5, 4)
        conv(2, 4, [2, 3], padding=[1, 0, 0, 1], dilation=[2, 1], groups=2),  # 3: (4, 4, 3)
        {"type": "ReLU"},  # 4
        {"type": "MaxPool2d", **max_pool, "reads": [3]},  # 5: (4, 4, 2)
        {"type": "AvgPool2d", **mean_pool},  # 6: (4, 2, 3)
        {"type": "Take", "axis": 0, "indices": [3, 0], "reads": [6]},  # 7: (2, 2, 3)
        {"type": "Pad", "before": [0, 1, 0], "after": [0, 1, 0]},  # 8: (2, 4, 3)
        {"type": "Take", "axis": 2, "indices": [0, 2, 1], "reads": [8]},  # 9: (2, 4, 3)
        {"type": "Add", "reads": [8, 9, 9]},  # 10: (2, 4, 3)
        {"type": "ReLU"},  # 11
        {"type": "Concat", "axis": 0, "reads": [11, 4]},  # 12: (6, 4, 3)
        conv(6, 3, [1, 1], bias=False),  # 13: (3, 4, 3)
        {"type": "LeakyReLU", "slope": 0.25},  # 14
        {"type": "Reshape", "to": [6, 6]},  # 15
        {"type": "Scale", "shape": [1, 6], "bias": False},  # 16
        {"type": "Flatten"},  # 17: (36,)
        {"type": "Dense", "inputs": 36, "outputs": 2, "bias": True},
    ]
    return {"input_shape": [2, 4, 5], "layers": layers}


def nodes(description: Description, flat: Array, x: Array) -> list[Array]:
    """What every node of the network holds at x."""
    found = [x.reshape(description["input_shape"])]
    start = 0
    for k, layer in enumerate(description["layers"]):
        inputs = [found[node] for node in layer.get("reads", [k])]
        value, used = _layer(layer, flat[start:], inputs)
        found.append(value)
        start += used
    assert start == len(flat)
    return found


def _layer(layer: Description, flat: Array, inputs: list[Array]) -> tuple[Array, int]:
    """The layer's value, and how many weights it took."""
    h = inputs[0]
    match layer["type"]:
        case "Scale":
            shape, count = layer["shape"], math.prod(layer["shape"])
            bias = flat[count : 2 * count].reshape(shape) if layer["bias"] else 0.0
            return flat[:count].reshape(shape) * h + bias, count * (1 + layer["bias"])
        case "Dense":
            middle = layer["inputs"] * layer["outputs"]
            weights = flat[:middle].reshape(layer["inputs"], layer["outputs"])
            return h @ weights + flat[middle : middle + layer["outputs"]], middle + layer["outputs"]
        case "Conv2d":
            return _convolution(layer, flat, h)
        case "AvgPool2d":
            return _windowed(layer, h, 0.0, np.mean), 0
        case "MaxPool2d":
            return _windowed(layer, h, -np.inf, np.max), 0
        case _:
            return _moved(layer, inputs), 0


def _moved(layer: Description, inputs: list[Array]) -> Array:
    h = inputs[0]
    match layer["type"]:
        case "Permute":
            return h.transpose(layer["order"])
        case "Take":
            return np.stack(
                [h.take(i, layer["axis"]) for i in layer["indices"]], axis=layer["axis"]
            )
        case "Pad":
            return np.pad(h, [*zip(layer["before"], layer["after"], strict=True)])
        case "Concat":
            return np.concatenate(inputs, layer["axis"])
        case "Add":
            return sum(inputs[1:], h)
        case "Reshape":
            return h.reshape(layer["to"])
        case "Flatten":
            return h.reshape(-1)
        case kind:
            return np.maximum(h, h * {"ReLU": 0.0, "LeakyReLU": layer.get("slope")}[kind])


def _convolution(layer: Description, flat: Array, h: Array) -> tuple[Array, int]:
    groups, outputs = layer.get("groups", 1), layer["out_channels"]
    inputs = layer["in_channels"] // groups
    size = inputs * math.prod(layer["kernel"])
    weights = flat[: outputs * size].reshape(outputs, inputs, *layer["kernel"])
    bias = flat[outputs * size :][:outputs] if layer["bias"] else np.zeros(outputs)
    channels = []
    for o in range(outputs):
        first = o // (outputs // groups) * inputs
        own = h[first : first + inputs]
        found = [
            _windowed(layer, own[i : i + 1], 0.0, lambda w, k=weights[o, i]: (w * k).sum())
            for i in range(inputs)
        ]
        channels.append(sum(found) + bias[o])
    return np.concatenate(channels), outputs * (size + layer["bias"])


def _windowed(layer: Description, h: Array, padding: float, of: Any) -> Array:
    top, left, bottom, right = (layer.get("padding", [0, 0]) * 2)[:4]
    padded = np.pad(h, ((0, 0), (top, bottom), (left, right)), constant_values=padding)
    (down, across), (a, b) = layer.get("dilation", [1, 1]), layer["kernel"]
    rows = range(0, padded.shape[1] - down * (a - 1), layer["stride"][0])
    columns = range(0, padded.shape[2] - across * (b - 1), layer["stride"][1])
    found = np.zeros((len(h), len(rows), len(columns)))
    for c, (i, top), (j, left) in product(range(len(h)), enumerate(rows), enumerate(columns)):
        window = padded[c, top : top + down * a : down, left : left + across * b : across]
        found[c, i, j] = of(window)
    return found

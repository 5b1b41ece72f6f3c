"""Layers of every kind at random, and which shapes they take, as the format says it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import TypeAlias

import numpy as np

from forger.nets import Layer, Random, apply, parameters, pick, sides

Shape: TypeAlias = tuple[int, ...]

JOINS = ("Add", "Concat")
MOST = 8  # entries after a pad


def shape_after(layer: Layer, shapes: Sequence[Shape]) -> Shape:
    own = [np.zeros((1, *shape)) for shape in parameters(layer)]
    return apply(layer, own, *(np.zeros((1, 1, *shape)) for shape in shapes)).shape[2:]


def takes(layer: Layer, shapes: Sequence[Shape]) -> bool:
    """Whether the layer may read nodes of these shapes."""
    shape = shapes[0]
    match layer["type"]:
        case "Add":
            return len({*shapes}) == 1
        case "Concat":
            axis = layer["axis"]
            if not all(len(other) == len(shape) > axis for other in shapes):
                return False
            return len({other[:axis] + other[axis + 1 :] for other in shapes}) == 1
        case "Dense":
            return shape == (layer["inputs"],)
        case "Conv2d":
            return len(shape) == 3 and shape[0] == layer["in_channels"] and _within(layer, shape)
        case "AvgPool2d" | "MaxPool2d":
            return len(shape) == 3 and _within(layer, shape)
        case "Scale":
            pairs = zip(layer["shape"], shape, strict=False)
            return len(layer["shape"]) == len(shape) and all(a in (1, b) for a, b in pairs)
        case "PReLU" if layer["shape"]:
            return takes(layer | {"type": "Scale"}, shapes)
        case "Reshape":
            return math.prod(layer["to"]) == math.prod(shape)
        case "Permute":
            return len(layer["order"]) == len(shape)
        case "Take":
            return layer["axis"] < len(shape) and max(layer["indices"]) < shape[layer["axis"]]
        case "Pad":
            return len(layer["before"]) == len(shape)
    return True


def _within(layer: Layer, shape: Shape) -> bool:
    """Whether a window fits into the padded image."""
    top, left, bottom, right = sides(layer)
    around = (shape[1] + top + bottom, shape[2] + left + right)
    pairs = zip(layer["kernel"], layer.get("dilation", [1, 1]), around, strict=True)
    return all(d * (k - 1) < size for k, d, size in pairs)


def linear(r: Random, shape: Shape) -> Layer:
    """With weights, or a pool of images."""
    bias = bool(r.random() < 0.6)
    if len(shape) != 3 or r.random() < 0.25:
        if len(shape) == 1 and r.random() < 0.7:
            outputs = int(r.integers(1, 4))
            return {"type": "Dense", "inputs": shape[0], "outputs": outputs, "bias": bias}
        own = [int(pick(r, [1, size])) for size in shape]
        return {"type": "Scale", "shape": own, "bias": bias}
    return _pool(r, shape) if r.random() < 0.3 else _convolution(r, shape, bias)


def _convolution(r: Random, shape: Shape, bias: bool) -> Layer:
    groups = int(pick(r, [n for n in (1, 2, 3) if shape[0] % n == 0]))
    channels = groups * int(r.integers(1, 3))
    layer = {"type": "Conv2d", "in_channels": shape[0], "out_channels": channels}
    layer |= {"kernel": [1, 1], "stride": [1, 1], "padding": [0, 0], "bias": bias}
    layer |= {"groups": groups} if groups > 1 or r.random() < 0.1 else {}
    options = {"kernel": _sizes(r, 1, 2), "padding": _padding(r, [2, 2]), "stride": _sizes(r, 1, 2)}
    options |= {"dilation": _sizes(r, 1, 2)} if r.random() < 0.5 else {}
    bent = layer | options
    small = takes(bent, [shape]) and math.prod(shape_after(bent, [shape])) <= MOST
    return bent if small else layer


def _pool(r: Random, shape: Shape) -> Layer:
    kernel = [int(r.integers(1, size + 1)) for size in shape[1:]]
    kind = pick(r, ["MaxPool2d", "AvgPool2d"])
    layer = {"type": kind, "kernel": kernel, "stride": _sizes(r, 1, 2)}
    wider = layer | {"padding": _padding(r, kernel)}
    small = math.prod(shape_after(wider, [shape])) <= MOST
    return wider if small and r.random() < 0.6 else layer


def _sizes(r: Random, least: int, most: int) -> list[int]:
    return r.integers(least, most + 1, 2).tolist()


def _padding(r: Random, below: Sequence[int]) -> list[int]:
    """Of two or four sides, each below those numbers."""
    two = [int(r.integers(size)) for size in below]
    return two if r.random() < 0.5 else [*two, *(int(r.integers(size)) for size in below)]


def move(r: Random, shape: Shape) -> Layer:
    axis, rank = int(r.integers(len(shape))), len(shape)
    match pick(r, ["Flatten", "Reshape", "Permute", "Take", "Pad"]):
        case "Flatten":
            return {"type": "Flatten"}
        case "Reshape":
            to = [*shape, 1, 1][:3] if rank < 3 else [shape[1], shape[0] * shape[2]]
            return {"type": "Reshape", "to": r.permutation(to).tolist()}
        case "Permute":
            return {"type": "Permute", "order": list(pick(r, [*permutations(range(rank))]))}
        case "Take":
            count = int(r.integers(1, shape[axis] + 1))
            indices = r.permutation(shape[axis])[:count].tolist()
            return {"type": "Take", "axis": axis, "indices": indices}
    pads = r.integers(0, 2, (2, rank)) * (np.arange(rank) == axis)
    small = math.prod(a + b + size for a, b, size in zip(*pads, shape, strict=True)) <= MOST
    before, after = (pads * small).tolist()
    return {"type": "Pad", "before": before, "after": after}

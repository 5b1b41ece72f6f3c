"""Layers as files describe them: one reader a type, which demands every field
and that shapes fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from bnncert_check.grammar import flag, listed, members, number, whole, word
from bnncert_check.layers import KINDS, Activation, Add, Conv, Dense, Join, Layer, MaxPool, Shape
from bnncert_check.verdict import CannotCheck

LARGEST_SLOPE = math.nextafter(1.0, 0.0)  # of a leaky ReLU: below 1

# Each takes a layer's description, the shape that it reads, the weights before it and its position,
# and gives the layer and the shape after it. Flatten is none: vectors are flat here.
Read: TypeAlias = tuple[Layer | None, Shape]


def _flatten(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    members(entry, f"layer {position}", ("type",))
    return None, (math.prod(shape),)


def _dense(entry: dict[str, Any], shape: Shape, start: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "inputs", "outputs", "bias"))
    inputs, outputs = (
        whole(found[name], f"{name} of layer {position}", 1) for name in ("inputs", "outputs")
    )
    _require(shape == (inputs,), f"layer {position} takes {inputs} numbers and gets {shape}")
    return Dense(
        inputs, outputs, flag(found["bias"], f"bias of layer {position}"), start, position
    ), (outputs,)


def _conv(entry: dict[str, Any], shape: Shape, start: int, position: int) -> Read:
    names = ("type", "in_channels", "out_channels", "kernel", "stride", "padding", "bias")
    found = members(entry, f"layer {position}", names)
    inputs, channels = (whole(found[name], f"{name} of layer {position}", 1) for name in names[1:3])
    kernel, stride = (_pair(found[name], 1) for name in ("kernel", "stride"))
    padding, bias = _pair(found["padding"], 0), flag(found["bias"], f"bias of layer {position}")
    _require(
        len(shape) == 3 and shape[0] == inputs,
        f"layer {position} takes {inputs} channels and gets {shape}",
    )
    layer = Conv(shape, channels, kernel, stride, padding, bias, start, position)
    return layer, (channels, *_places(layer))


def _average(entry: dict[str, Any], shape: Shape, start: int, position: int) -> Read:
    kernel, stride = _window(entry, shape, position)
    layer = Conv(shape, shape[0], kernel, stride, (0, 0), False, start, position, pool=True)
    return layer, (shape[0], *_places(layer))


def _maximum(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    layer = MaxPool(shape, *_window(entry, shape, position))
    return layer, (shape[0], *_places(layer))


def _window(entry: dict[str, Any], shape: Shape, position: int) -> tuple[Shape, Shape]:
    found = members(entry, f"layer {position}", ("type", "kernel", "stride"))
    _require(len(shape) == 3, f"layer {position} takes an image and gets {shape}")
    return _pair(found["kernel"], 1), _pair(found["stride"], 1)


def _places(layer: Conv | MaxPool) -> Shape:
    _require(min(layer.places) >= 1, f"a window of {layer.kernel} does not fit into {layer.shape}")
    return layer.places


def _pair(value: Any, least: int) -> Shape:
    first, second = (
        whole(size, "a size of a window", least) for size in listed(value, "a pair", 2)
    )
    return first, second


def _add(entry: dict[str, Any], shapes: list[Shape], position: int) -> tuple[Join, Shape]:
    members(entry, f"layer {position}", ("type",))
    _require(len({*shapes}) == 1, f"layer {position} adds up {shapes}, which differ")
    return Add(shapes[0], position), shapes[0]


def _activation(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    kind = word(entry["type"], f"the type of layer {position}", KINDS)
    leaky = kind == "LeakyReLU"
    found = members(entry, f"layer {position}", ("type", "slope") if leaky else ("type",))
    slope = (
        number(found["slope"], f"slope of layer {position}", 0.0, LARGEST_SLOPE)
        if leaky
        else KINDS[kind].slope
    )
    return Activation(kind, slope, math.prod(shape), position), shape


def _require(fits: bool, message: str) -> None:
    if not fits:
        raise CannotCheck("malformed", message)


READERS: dict[str, Callable[[dict[str, Any], Shape, int, int], Read]] = {
    "Flatten": _flatten,
    "Dense": _dense,
    "Conv2d": _conv,
    "AvgPool2d": _average,
    "MaxPool2d": _maximum,
    **dict.fromkeys(KINDS, _activation),
}

# Of layers that read several nodes: from all of their shapes.
JOIN_READERS: dict[str, Callable[[dict[str, Any], list[Shape], int], tuple[Join, Shape]]] = {
    "Add": _add,
}

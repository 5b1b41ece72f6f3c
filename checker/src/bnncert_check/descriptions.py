"""Layers as files describe them: one reader a type, which demands every field
and that shapes fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from bnncert_check import curves
from bnncert_check.grammar import flag, index, listed, members, number, whole, word
from bnncert_check.layers import KINDS, Activation, Layer, Traits, clip, curved, parametric
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Conv, Dense, Scale, Shape
from bnncert_check.wiring import NOTHING, Add, MaxPool, Move, Numbers, Wiring

LARGEST_SLOPE = math.nextafter(1.0, 0.0)  # of a leaky ReLU: below 1
LARGEST_PARAMETER = 1000.0  # of ELU and PReLU; of Softplus also its inverse

# Each takes a layer's description, the shape that it reads, the weights before it and its position,
# and gives the layer and the shape after it. Flatten and Reshape are none: vectors are flat here.
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
    found = members(entry, f"layer {position}", names, ("dilation", "groups"))
    inputs, channels = (whole(found[name], f"{name} of layer {position}", 1) for name in names[1:3])
    kernel, stride, dilation = (
        _pair(found.get(name, [1, 1]), 1) for name in ("kernel", "stride", "dilation")
    )
    padding, bias = _sides(found["padding"]), flag(found["bias"], f"bias of layer {position}")
    groups = whole(found.get("groups", 1), f"groups of layer {position}", 1)
    _require(
        len(shape) == 3 and shape[0] == inputs and not inputs % groups and not channels % groups,
        f"layer {position} takes {inputs} channels in {groups} groups and gets {shape}",
    )
    layer = Conv(shape, channels, kernel, stride, padding, bias, start, position, dilation, groups)
    return layer, (channels, *_places(layer))


def _scale(entry: dict[str, Any], shape: Shape, start: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "shape", "bias"))
    own = _sizes(found["shape"], f"the shape of layer {position}", 1)
    fits = len(own) == len(shape) and all(
        size in (1, given) for size, given in zip(own, shape, strict=True)
    )
    _require(fits, f"layer {position} scales {own} and gets {shape}")
    bias = flag(found["bias"], f"bias of layer {position}")
    return Scale(shape, own, bias, start, position), shape


def _average(entry: dict[str, Any], shape: Shape, start: int, position: int) -> Read:
    kernel, stride, padding = _window(entry, shape, position)
    layer = Conv(
        shape,
        shape[0],
        kernel,
        stride,
        padding,
        False,
        start,
        position,
        groups=shape[0],
        pool=True,
    )
    return layer, (shape[0], *_places(layer))


def _maximum(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    layer = MaxPool(shape, *_window(entry, shape, position))
    return layer, (shape[0], *_places(layer))


def _window(entry: dict[str, Any], shape: Shape, position: int) -> tuple[Shape, Shape, Shape]:
    found = members(entry, f"layer {position}", ("type", "kernel", "stride"), ("padding",))
    _require(len(shape) == 3, f"layer {position} takes an image and gets {shape}")
    kernel, padding = _pair(found["kernel"], 1), _sides(found.get("padding", [0, 0]))
    within = all(side < size for side, size in zip(padding, kernel * 2, strict=True))
    _require(within, f"layer {position} pads more than its window of {kernel}")
    return kernel, _pair(found["stride"], 1), padding


def _places(layer: Conv | MaxPool) -> Shape:
    _require(min(layer.places) >= 1, f"a window of {layer.kernel} does not fit into {layer.shape}")
    return layer.places


def _pair(value: Any, least: int) -> Shape:
    first, second = (
        whole(size, "a size of a window", least) for size in listed(value, "a pair", 2)
    )
    return first, second


def _sides(value: Any) -> Shape:
    """Padding at the top, left, bottom and right; of two numbers on both sides."""
    sizes = _sizes(value, "the padding", 0)
    _require(len(sizes) in (2, 4), f"the padding is {sizes}, neither two numbers nor four")
    return sizes if len(sizes) == 4 else sizes * 2


def _sizes(value: Any, where: str, least: int) -> Shape:
    return tuple(whole(size, f"a number of {where}", least) for size in listed(value, where))


def _reshape(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "to"))
    to = _sizes(found["to"], f"the shape of layer {position}", 1)
    fits = len(to) > 0 and math.prod(to) == math.prod(shape)
    _require(fits, f"layer {position} makes {to} of {shape}")
    return None, to


def _permute(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "order"))
    order = _sizes(found["order"], f"the order of layer {position}", 0)
    _require(
        sorted(order) == list(range(len(shape))), f"layer {position} puts {shape} in order {order}"
    )
    after = tuple(shape[axis] for axis in order)
    return Move((shape,), after, lambda parts: parts[0].transpose(order)), after


def _take(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "axis", "indices"))
    axis = index(found["axis"], f"the dimension of layer {position}", len(shape))
    indices = _sizes(found["indices"], f"the positions of layer {position}", 0)
    once = 0 < len(indices) == len({*indices}) and max(indices) < shape[axis]
    _require(once, f"layer {position} takes no position, one twice, or one beyond {shape}")
    after = (*shape[:axis], len(indices), *shape[axis + 1 :])
    return Move((shape,), after, lambda parts: parts[0].take(indices, axis)), after


def _pad(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    found = members(entry, f"layer {position}", ("type", "before", "after"))
    sides = [_sizes(found[name], f"{name} of layer {position}", 0) for name in ("before", "after")]
    _require(
        all(len(side) == len(shape) for side in sides), f"layer {position} pads {shape} by {sides}"
    )
    pairs = list(zip(*sides, strict=True))
    after = tuple(size + sum(pair) for size, pair in zip(shape, pairs, strict=True))
    return Move((shape,), after, lambda parts: _padded(parts[0], pairs)), after


def _padded(numbers: Numbers, pairs: list[tuple[int, int]]) -> Numbers:
    return np.pad(numbers, pairs, constant_values=NOTHING)


def _add(entry: dict[str, Any], shapes: list[Shape], position: int) -> tuple[Wiring, Shape]:
    members(entry, f"layer {position}", ("type",))
    _require(len({*shapes}) == 1, f"layer {position} adds up {shapes}, which differ")
    return Add(shapes[0], position), shapes[0]


def _concat(entry: dict[str, Any], shapes: list[Shape], position: int) -> tuple[Wiring, Shape]:
    found = members(entry, f"layer {position}", ("type", "axis"))
    axis = index(found["axis"], f"the dimension of layer {position}", min(map(len, shapes)))
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    _require(len(others) == 1, f"layer {position} puts {shapes} one after the other")
    after = (*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])
    return Move(tuple(shapes), after, lambda parts: np.concatenate(parts, axis)), after


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


def _own(entry: dict[str, Any], shape: Shape, _: int, position: int) -> Read:
    kind = word(entry["type"], f"the type of layer {position}", OWN)
    names, read = OWN[kind]
    found = members(entry, f"layer {position}", ("type", *names))
    traits = read(found, shape, f"layer {position}")
    return Activation(kind, None, math.prod(shape), position, traits), shape


def _gelu(found: dict[str, Any], _: Shape, where: str) -> Traits:
    exact = word(found["approximate"], f"what {where} is", ("none", "tanh")) == "none"
    return curved(curves.GELU if exact else curves.TANH_GELU)


def _softplus(found: dict[str, Any], _: Shape, where: str) -> Traits:
    beta = number(found["beta"], f"beta of {where}", 1 / LARGEST_PARAMETER, LARGEST_PARAMETER)
    return curved(curves.softplus(beta))


def _elu(found: dict[str, Any], _: Shape, where: str) -> Traits:
    alpha = number(found["alpha"], f"alpha of {where}", 0.0, LARGEST_PARAMETER)
    _require(alpha > 0, f"alpha of {where} is 0")
    return curved(curves.exponential(1.0, alpha))


def _hardtanh(found: dict[str, Any], _: Shape, where: str) -> Traits:
    low, high = (number(found[name], f"{name} of {where}") for name in ("low", "high"))
    _require(low < high, f"the ends of {where} are {low} and {high}")
    return clip(low, high)


def _parametric(found: dict[str, Any], shape: Shape, where: str) -> Traits:
    """One slope, or those of a shape whose sizes of 1 spread."""
    own = _sizes(found["shape"], f"the shape of {where}", 1)
    limits = -LARGEST_PARAMETER, LARGEST_PARAMETER
    slopes = [
        number(slope, f"a slope of {where}", *limits)
        for slope in listed(found["slopes"], f"the slopes of {where}", math.prod(own))
    ]
    fits = not own or (
        len(own) == len(shape)
        and all(size in (1, given) for size, given in zip(own, shape, strict=True))
    )
    _require(fits, f"{where} has slopes of shape {own} and gets {shape}")
    return parametric(np.broadcast_to(np.reshape(slopes, own), shape).reshape(-1).copy())


def _fixed(form: curves.Curve) -> Callable[[dict[str, Any], Shape, str], Traits]:
    return lambda _, __, ___: curved(form)


# Activations with traits of their own: their fields, and what reads those.
OWN: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any], Shape, str], Traits]]] = {
    "GELU": (("approximate",), _gelu),
    "SiLU": ((), _fixed(curves.SILU)),
    "Mish": ((), _fixed(curves.MISH)),
    "Softplus": (("beta",), _softplus),
    "ELU": (("alpha",), _elu),
    "SELU": ((), _fixed(curves.SELU)),
    "HardSwish": ((), _fixed(curves.HARD_SWISH)),
    "Softsign": ((), _fixed(curves.SOFTSIGN)),
    "Hardtanh": (("low", "high"), _hardtanh),
    "PReLU": (("slopes", "shape"), _parametric),
}


def _require(fits: bool, message: str) -> None:
    if not fits:
        raise CannotCheck("malformed", message)


READERS: dict[str, Callable[[dict[str, Any], Shape, int, int], Read]] = {
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "Take": _take,
    "Pad": _pad,
    "Dense": _dense,
    "Conv2d": _conv,
    "Scale": _scale,
    "AvgPool2d": _average,
    "MaxPool2d": _maximum,
    **dict.fromkeys(KINDS, _activation),
    **dict.fromkeys(OWN, _own),
}

# Of layers that read several nodes: from all of their shapes.
JOIN_READERS: dict[str, Callable[[dict[str, Any], list[Shape], int], tuple[Wiring, Shape]]] = {
    "Add": _add,
    "Concat": _concat,
}

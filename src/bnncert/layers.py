"""Layers: shapes and options, never weights. Dense, Conv2d and AvgPool2d are linear in their input."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.errors import InputError

Shape: TypeAlias = tuple[int, ...]
Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Dense:
    """y = x W + b with W of shape [inputs, outputs]."""

    inputs: int
    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size >= 1 for size in (self.inputs, self.outputs)):
            raise InputError(f"Dense({self.inputs}, {self.outputs}): both sizes must be whole numbers of at least 1")


@dataclass(frozen=True)
class Conv2d:
    """Cross-correlation of [in_channels, height, width], padded with zeros, with W [out, in, *kernel], and a bias."""

    in_channels: int
    out_channels: int
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("kernel", "stride", "padding"):
            object.__setattr__(self, name, _pair(getattr(self, name), name, least=name != "padding"))
        if not all(isinstance(size, int) and size >= 1 for size in (self.in_channels, self.out_channels)):
            raise InputError(f"Conv2d has {self.in_channels} to {self.out_channels} channels; give whole numbers >= 1")


@dataclass(frozen=True)
class AvgPool2d:
    """The mean over windows of each channel."""

    kernel: Pair
    stride: Pair | None = None  # the kernel's size unless given

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _pair(self.kernel, "kernel", least=1))
        object.__setattr__(self, "stride", _pair(self.stride or self.kernel, "stride", least=1))


@dataclass(frozen=True)
class MaxPool2d:
    """The maximum over windows of each channel."""

    kernel: Pair
    stride: Pair | None = None  # the kernel's size unless given

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernel", _pair(self.kernel, "kernel", least=1))
        object.__setattr__(self, "stride", _pair(self.stride or self.kernel, "stride", least=1))


def _pair(value: object, name: str, least: int) -> Pair:
    """(n, n) for a number n, or the two numbers given."""
    pair = (value, value) if isinstance(value, int) else tuple(value) if isinstance(value, list | tuple) else ()
    if len(pair) != 2 or not all(isinstance(n, int) and n >= least for n in pair):
        raise InputError(f"{name} is {value!r}; give a whole number or a pair, each at least {int(least)}")
    return pair[0], pair[1]


@dataclass(frozen=True)
class Flatten:
    """Any shape to one dimension, row by row."""


@dataclass(frozen=True)
class ReLU:
    """max(z, 0)"""

    def __call__(self, z: Tensor) -> Tensor:
        return z.clamp_min(0)


@dataclass(frozen=True)
class LeakyReLU:
    """max(z, slope z), 0 <= slope < 1"""

    slope: float = 0.01

    def __post_init__(self) -> None:
        if type(self.slope) not in (int, float) or not 0 <= self.slope < 1:
            raise InputError(f"LeakyReLU slope is {self.slope!r}; give a number in [0, 1)")

    def __call__(self, z: Tensor) -> Tensor:
        return torch.maximum(z, self.slope * z)


@dataclass(frozen=True)
class Tanh:
    """tanh(z)"""

    def __call__(self, z: Tensor) -> Tensor:
        return z.tanh()


@dataclass(frozen=True)
class Sigmoid:
    """1 / (1 + exp(-z))"""

    def __call__(self, z: Tensor) -> Tensor:
        return z.sigmoid()


Activation: TypeAlias = ReLU | LeakyReLU | Tanh | Sigmoid
Weighted: TypeAlias = Dense | Conv2d
Linear: TypeAlias = Dense | Conv2d | AvgPool2d
Layer: TypeAlias = Linear | MaxPool2d | Flatten | Activation
LAYERS: dict[str, type[Layer]] = {
    kind.__name__: kind for kind in (Dense, Conv2d, AvgPool2d, MaxPool2d, Flatten, ReLU, LeakyReLU, Tanh, Sigmoid)
}


def parameter_shapes(layer: Layer) -> dict[str, Shape]:
    """The layer's parameters by letter, in the order they stand in the flat weight vector."""
    if isinstance(layer, Dense):
        return {"W": (layer.inputs, layer.outputs)} | ({"b": (layer.outputs,)} if layer.bias else {})
    if isinstance(layer, Conv2d):
        shape = (layer.out_channels, layer.in_channels, *layer.kernel)
        return {"W": shape} | ({"b": (layer.out_channels,)} if layer.bias else {})
    return {}


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """The shape the layer makes of `shape`; an `InputError` when it does not fit."""
    if isinstance(layer, Dense):
        if shape != (layer.inputs,):
            raise InputError(
                f"Dense({layer.inputs}, {layer.outputs}) follows shape {shape}; flatten or resize before it"
            )
        return (layer.outputs,)
    if isinstance(layer, Conv2d | AvgPool2d | MaxPool2d):
        return _image_shape(layer, shape)
    return (math.prod(shape),) if isinstance(layer, Flatten) else shape


def _image_shape(layer: Conv2d | AvgPool2d | MaxPool2d, shape: Shape) -> Shape:
    name = type(layer).__name__
    if len(shape) != 3 or (isinstance(layer, Conv2d) and shape[0] != layer.in_channels):
        channels = layer.in_channels if isinstance(layer, Conv2d) else "channels"
        raise InputError(f"{name} follows shape {shape}; it takes ({channels}, height, width)")
    padding = layer.padding if isinstance(layer, Conv2d) else (0, 0)
    stride = layer.stride or layer.kernel
    sizes = [(n + 2 * p - k) // s + 1 for n, p, k, s in zip(shape[1:], padding, layer.kernel, stride, strict=True)]
    if min(sizes) < 1:
        raise InputError(f"{name} with kernel {layer.kernel} does not fit into shape {shape}")
    return (layer.out_channels if isinstance(layer, Conv2d) else shape[0], *sizes)

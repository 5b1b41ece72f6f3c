"""Network: a sequence of layers over one flat weight vector.

A posterior is a distribution on R^n; the network alone knows which entries of that vector are which layer's weights.
Layers hold shapes, never weights, so that one `Network` serves every draw from the posterior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bnncert.digest import digest
from bnncert.errors import InputError

Shape: TypeAlias = tuple[int, ...]


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
        if not 0 <= self.slope < 1:
            raise InputError(f"LeakyReLU slope is {self.slope}; give a number in [0, 1)")

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
Layer: TypeAlias = Dense | Flatten | Activation
LAYERS: dict[str, type[Layer]] = {kind.__name__: kind for kind in (Dense, Flatten, ReLU, LeakyReLU, Tanh, Sigmoid)}


def parameter_shapes(layer: Layer) -> dict[str, Shape]:
    """The layer's parameters by letter, in the order they stand in the flat weight vector."""
    if isinstance(layer, Dense):
        return {"W": (layer.inputs, layer.outputs)} | ({"b": (layer.outputs,)} if layer.bias else {})
    return {}


def output_shape(layer: Layer, shape: Shape) -> Shape:
    """The shape the layer makes of `shape`; an `InputError` when it does not fit."""
    if isinstance(layer, Dense):
        if shape != (layer.inputs,):
            raise InputError(
                f"Dense({layer.inputs}, {layer.outputs}) follows shape {shape}; flatten or resize before it"
            )
        return (layer.outputs,)
    return (math.prod(shape),) if isinstance(layer, Flatten) else shape


def apply(layer: Layer, parameters: Sequence[Tensor], x: Tensor, shape: Shape) -> Tensor:
    """The layer at x of shape [..., batch, *shape]; parameters may carry leading dimensions that broadcast."""
    if isinstance(layer, Dense):
        y = x @ parameters[0]
        return y + parameters[1].unsqueeze(-2) if layer.bias else y
    if isinstance(layer, Flatten):
        return x.flatten(-len(shape))
    return layer(x)


@dataclass(frozen=True)
class Network:
    """Layers in order, from inputs of `input_shape` to a vector of outputs."""

    input_shape: Shape
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(size, int) and size >= 1 for size in self.input_shape):
            raise InputError(f"network input shape {self.input_shape} must be whole numbers of at least 1")
        if not any(isinstance(layer, Dense) for layer in self.layers):
            raise InputError("network has no weights; give it at least one Dense layer")
        if len(self.shapes[-1]) != 1:
            raise InputError(f"network ends in shape {self.shapes[-1]}; its output must be a vector")

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape before each layer, and the output's."""
        shapes = [tuple(self.input_shape)]
        for layer in self.layers:
            shapes.append(output_shape(layer, shapes[-1]))
        return tuple(shapes)

    @property
    def outputs(self) -> int:
        return self.shapes[-1][0]

    @cached_property
    def parameters(self) -> dict[str, Shape]:
        """Name (W0, b0, W1, ...) and shape of every parameter, in the order of the flat weight vector."""
        weighted = [layer for layer in self.layers if parameter_shapes(layer)]
        return {f"{name}{i}": s for i, layer in enumerate(weighted) for name, s in parameter_shapes(layer).items()}

    @cached_property
    def size(self) -> int:
        """Length of the flat weight vector."""
        return sum(math.prod(shape) for shape in self.parameters.values())

    def split(self, weights: Tensor) -> list[tuple[Tensor, ...]]:
        """Views of a flat vector [..., size] as each layer's parameters; empty for layers without any."""
        parts: list[tuple[Tensor, ...]] = []
        start = 0
        for layer in self.layers:
            views = []
            for shape in parameter_shapes(layer).values():
                stop = start + math.prod(shape)
                views.append(weights[..., start:stop].reshape(*weights.shape[:-1], *shape))
                start = stop
            parts.append(tuple(views))
        return parts

    def forward(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs [..., batch, outputs] of the networks `weights` [..., size] at all of x [batch, *input_shape]."""
        for layer, parameters, shape in zip(self.layers, self.split(weights), self.shapes, strict=False):
            x = apply(layer, parameters, x, shape)
        return x

    def describe(self) -> dict[str, Any]:
        """The architecture as plain JSON values; `from_description` reads it back."""
        layers = [{"type": type(layer).__name__, **asdict(layer)} for layer in self.layers]
        return {"input_shape": list(self.input_shape), "layers": layers}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the architecture."""
        return digest(self.describe())


def from_description(description: Mapping[str, Any]) -> Network:
    """A network from `Network.describe`; unknown layers and fields are refused by name."""
    layers: list[Layer] = []
    try:
        shape = tuple(int(n) for n in description["input_shape"])
        entries = [dict(entry) for entry in description["layers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"architecture is malformed ({error!r}); it needs 'input_shape' and a list 'layers'"
        ) from error
    for fields in entries:
        kind = fields.pop("type", None)
        if not isinstance(kind, str) or kind not in LAYERS:
            raise InputError(f"layer {kind!r} is not known; known layers: {', '.join(LAYERS)}")
        try:
            layers.append(LAYERS[kind](**fields))
        except TypeError as error:
            raise InputError(f"layer {kind} has wrong fields {sorted(fields)}: {error}") from error
    return Network(shape, tuple(layers))


def mlp(*widths: int, activation: Activation | None = None) -> Network:
    """A fully connected network of the given widths with `activation` (ReLU unless given) between its layers."""
    if len(widths) < 2:
        raise InputError(f"mlp{widths} has no layer; give the input width and at least one more")
    layers: list[Layer] = []
    for inputs, outputs in pairwise(widths):
        layers += [Dense(inputs, outputs), activation or ReLU()]
    return Network((widths[0],), tuple(layers[:-1]))

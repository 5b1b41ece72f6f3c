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
from typing import Any

from torch import Tensor
from torch.nn import functional

from bnncert.digest import digest
from bnncert.errors import InputError
from bnncert.layers import (
    LAYERS,
    Activation,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    MaxPool2d,
    ReLU,
    Shape,
    output_shape,
    parameter_shapes,
)
from bnncert.products import spread_bias, through


def apply(layer: Layer, parameters: Sequence[Tensor], x: Tensor, shape: Shape) -> Tensor:
    """The layer at x of shape [..., batch, *shape]; parameters may carry leading dimensions that broadcast."""
    if isinstance(layer, Dense | Conv2d):
        y = through(layer, parameters[0], x)
        return y + spread_bias(layer, parameters[1], shape).unsqueeze(-len(shape) - 1) if layer.bias else y
    if isinstance(layer, AvgPool2d):
        return through(layer, x, x)
    if isinstance(layer, MaxPool2d):
        flat = functional.max_pool2d(x.flatten(0, -4), layer.kernel, layer.stride)
        return flat.reshape(*x.shape[:-2], *flat.shape[-2:])
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
        for layer in self.layers:
            # Exactly: every bound rests on knowing what a layer computes, and a subclass may compute something else.
            if LAYERS.get(type(layer).__name__) is not type(layer):
                raise InputError(f"layer {layer!r} is not known; known layers: {', '.join(LAYERS)}")
        if not any(isinstance(layer, Dense | Conv2d) for layer in self.layers):
            raise InputError("network has no weights; give it at least one Dense or Conv2d layer")
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


def cnn(input_shape: Shape, outputs: int) -> Network:
    """Five convolutions, three of which halve the image, then two dense layers: from 3 x 32 x 32 by 256 features."""
    if len(input_shape) != 3:
        raise InputError(f"cnn takes images (channels, height, width), not {input_shape}; use an mlp")
    halving, keeping = ((4, 4), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1))
    widths = ((24, halving), (24, keeping), (48, halving), (48, keeping), (16, halving))
    layers: list[Layer] = []
    shape: Shape = input_shape
    for channels, how in widths:
        layers += [Conv2d(shape[0], channels, *how), ReLU()]
        shape = output_shape(layers[-2], shape)
    layers += [Flatten(), Dense(math.prod(shape), 64), ReLU(), Dense(64, outputs)]
    return Network(input_shape, tuple(layers))

"""Network: layers as nodes of a graph over one flat weight vector.

Node 0 is the input, node k + 1 what layer k gives; a layer reads nodes that come before its own. A
chain, in which every layer reads the one before it, is the ordinary case and needs no words:
`Network(shape, layers)`.

A posterior is a distribution on R^n; the network alone knows which entries of that vector are which
layer's weights. Layers hold shapes, never weights, so that one `Network` serves every draw from the
posterior.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

from torch import Tensor

from bnncert.errors import InputError
from bnncert.files.digest import digest
from bnncert.model.activations import Activation, ReLU
from bnncert.model.layers import (
    JOINS,
    LAYERS,
    Add,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    Shape,
    described,
    output_shape,
    parameter_shapes,
)
from bnncert.model.maps import apply
from bnncert.model.moves import Reshape
from bnncert.model.standardisation import Standardisation

Reads: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Residual:
    """h ↦ f(h) + g(h), written in the place of a layer: f the layers, g the shortcut (nothing: h
    itself).

    >>> network = Network((2,), (Residual((Dense(2, 2), ReLU())), Dense(2, 1)))
    >>> [type(layer).__name__ for layer in network.layers]
    ['Dense', 'ReLU', 'Add', 'Dense']
    >>> network.reads
    ((0,), (1,), (2, 0), (3,))
    """

    layers: tuple[Layer | Residual, ...]
    shortcut: tuple[Layer | Residual, ...] = ()


Block: TypeAlias = Layer | Residual


@dataclass(frozen=True)
class Network:
    """Layers in topological order, from inputs of `input_shape` to a vector of outputs.

    reads: for each layer the nodes it reads; left out, each reads the one before it. Residual
    blocks among the layers are unfolded into their layers and an `Add`. standardisation: what its
    numbers were measured as, where that is known; no part of the function, nor of the digest.

    >>> Network((2,), (Dense(2, 3), ReLU(), Dense(3, 1))).outputs
    1
    """

    input_shape: Shape
    layers: tuple[Layer, ...]
    reads: Reads = ()
    standardisation: Standardisation | None = None

    def __post_init__(self) -> None:
        layers, reads = _unfolded(self.layers) if not self.reads else (self.layers, self.reads)
        object.__setattr__(self, "layers", tuple(layers))
        object.__setattr__(self, "reads", tuple(map(tuple, reads)))
        if not all(isinstance(size, int) and size >= 1 for size in self.input_shape):
            raise InputError(
                f"network input shape {self.input_shape} must be whole numbers of at least 1"
            )
        for layer in self.layers:
            # Exactly: every bound rests on knowing what a layer computes, and a subclass may
            # compute something else.
            if LAYERS.get(type(layer).__name__) is not type(layer):
                raise InputError(f"layer {layer!r} is not known; known layers: {', '.join(LAYERS)}")
        self._check_reads()
        if not self.size:
            raise InputError(
                "network has no weights; give it at least one Dense, Conv2d or Scale layer"
            )
        if len(self.shapes[-1]) != 1:
            raise InputError(
                f"network ends in shape {self.shapes[-1]}; its output must be a vector"
            )
        self._check_standardisation()

    def _check_standardisation(self) -> None:
        own = self.standardisation or Standardisation()
        for name, columns, count in (
            ("inputs", own.inputs, math.prod(self.input_shape)),
            ("outputs", own.outputs, self.outputs),
        ):
            if len(columns) not in (0, count):
                raise InputError(
                    f"standardisation has {len(columns)} columns of {name}, the network {count}; "
                    "give one for each, or none"
                )

    def _check_reads(self) -> None:
        if len(self.reads) != len(self.layers):
            raise InputError(
                f"network has {len(self.layers)} layers and "
                f"reads for {len(self.reads)}; give one for each"
            )
        for k, (layer, nodes) in enumerate(zip(self.layers, self.reads, strict=True)):
            if not all(type(node) is int and 0 <= node <= k for node in nodes):
                raise InputError(
                    f"layer {k} reads nodes {nodes}; give nodes before its own, 0 to {k}"
                )
            if len(nodes) != 1 and not isinstance(layer, JOINS):
                raise InputError(
                    f"layer {k}, {type(layer).__name__}, reads {len(nodes)} nodes; it takes one"
                )
        for node, readers in enumerate(self.readers[:-1]):
            if not readers:
                raise InputError(f"nothing reads node {node}; leave its layer out")

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """The shape of every node."""
        shapes = [tuple(self.input_shape)]
        for layer, nodes in zip(self.layers, self.reads, strict=True):
            shapes.append(output_shape(layer, *(shapes[node] for node in nodes)))
        return tuple(shapes)

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For every node the layers that read it, each as often as it does."""
        found: list[list[int]] = [[] for _ in range(len(self.layers) + 1)]
        for k, nodes in enumerate(self.reads):
            for node in nodes:
                found[node].append(k)
        return tuple(map(tuple, found))

    def reading(self, node: int) -> tuple[Layer, ...]:
        """The layers that read a node."""
        return tuple(self.layers[k] for k in self.readers[node])

    def shape_before(self, k: int) -> Shape:
        """The shape that layer k reads."""
        return self.shapes[self.reads[k][0]]

    @cached_property
    def origins(self) -> tuple[int, ...]:
        """For every node the first that holds the same entries in the same order: `Flatten` and
        `Reshape` give them another shape, no more."""
        found = [0]
        for k, layer in enumerate(self.layers):
            same = isinstance(layer, Flatten | Reshape)
            found.append(found[self.reads[k][0]] if same else k + 1)
        return tuple(found)

    @cached_property
    def inputs(self) -> frozenset[int]:
        """The nodes that are the network's input, but for their shape."""
        return frozenset(node for node, origin in enumerate(self.origins) if origin == 0)

    @property
    def outputs(self) -> int:
        return self.shapes[-1][0]

    @cached_property
    def parameters(self) -> dict[str, Shape]:
        """Name (W0, b0, W1, ...) and shape of every parameter, in the order of the flat vector."""
        weighted = [layer for layer in self.layers if parameter_shapes(layer)]
        return {
            f"{name}{i}": shape
            for i, layer in enumerate(weighted)
            for name, shape in parameter_shapes(layer).items()
        }

    @property
    def parameters_by_layer(self) -> list[dict[str, Shape]]:
        """The same, layer by layer, for those that have any."""
        return [
            {name: self.parameters[name] for name in self.parameters if name[1:] == str(i)}
            for i in range(sum(bool(parameter_shapes(layer)) for layer in self.layers))
        ]

    @cached_property
    def size(self) -> int:
        """Length of the flat weight vector."""
        return sum(math.prod(shape) for shape in self.parameters.values())

    def split(self, weights: Tensor) -> list[tuple[Tensor, ...]]:
        """Views of a flat vector [..., size] as each layer's parameters.

        Empty for layers without any.
        """
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
        """Outputs [..., batch, outputs] of `weights` [..., size] at x [batch, *input_shape]."""
        return self.run(self.split(weights), x)

    def run(self, parameters: Sequence[Sequence[Tensor]], x: Tensor) -> Tensor:
        """The same for each layer's parameters."""
        held = {0: x}
        for k, own in enumerate(parameters):
            held[k + 1] = self._at(k, own, held)
            for node in set(self.reads[k]):
                if self.readers[node][-1] == k:
                    del held[node]  # nobody reads it any more
        return held[len(self.layers)]

    def values(self, weights: Tensor, x: Tensor) -> list[Tensor]:
        """What every node holds [..., batch, *shape], the outputs last."""
        held = {0: x}
        for k, own in enumerate(self.split(weights)):
            held[k + 1] = self._at(k, own, held)
        return list(held.values())

    def _at(self, k: int, parameters: Sequence[Tensor], held: Mapping[int, Tensor]) -> Tensor:
        nodes = self.reads[k]
        return apply(
            self.layers[k], parameters, [held[node] for node in nodes], self.shapes[nodes[0]]
        )

    def describe(self) -> dict[str, Any]:
        """The architecture as plain JSON values; `from_description` reads it back."""
        layers = []
        for k, layer in enumerate(self.layers):
            nodes = {} if self.reads[k] == (k,) else {"reads": list(self.reads[k])}
            layers.append({**described(layer), **nodes})
        return {"input_shape": list(self.input_shape), "layers": layers}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the architecture."""
        return digest(self.describe())


def _unfolded(blocks: Sequence[Block]) -> tuple[list[Layer], list[tuple[int, ...]]]:
    """The layers of blocks, and what each reads."""
    layers: list[Layer] = []
    reads: list[tuple[int, ...]] = []

    def append(parts: Sequence[Block], node: int) -> int:
        """The node that the parts make of another one."""
        for part in parts:
            if isinstance(part, Residual):
                ends = (append(part.layers, node), append(part.shortcut, node))
                layers.append(Add())
                reads.append(ends)
            else:
                layers.append(part)
                reads.append((node,))
            node = len(layers)
        return node

    append(blocks, 0)
    return layers, reads


def from_description(description: Mapping[str, Any]) -> Network:
    """A network from `Network.describe`; unknown layers and fields are refused by name."""
    layers: list[Layer] = []
    reads: list[tuple[int, ...]] = []
    try:
        shape = tuple(int(n) for n in description["input_shape"])
        entries = [dict(entry) for entry in description["layers"]]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"architecture is malformed ({error!r}); it needs 'input_shape' and a list 'layers'"
        ) from error
    for k, fields in enumerate(entries):
        kind = fields.pop("type", None)
        nodes = fields.pop("reads", [k])
        if not isinstance(kind, str) or kind not in LAYERS:
            raise InputError(f"layer {kind!r} is not known; known layers: {', '.join(LAYERS)}")
        if not isinstance(nodes, list):
            raise InputError(f"layer {kind} reads {nodes!r}; give a list of nodes")
        try:
            layers.append(LAYERS[kind](**fields))
        except TypeError as error:
            raise InputError(f"layer {kind} has wrong fields {sorted(fields)}: {error}") from error
        reads.append(tuple(nodes))
    return Network(shape, tuple(layers), tuple(reads))


def mlp(*widths: int, activation: Activation | None = None) -> Network:
    """A fully connected network of the given widths with `activation` (ReLU unless given) between
    its layers.

    >>> mlp(784, 128, 10).size
    101770
    """
    if len(widths) < 2:
        raise InputError(f"mlp{widths} has no layer; give the input width and at least one more")
    layers: list[Layer] = []
    for inputs, outputs in pairwise(widths):
        layers += [Dense(inputs, outputs), activation or ReLU()]
    return Network((widths[0],), tuple(layers[:-1]))


# Channels and stride of each convolution: 2 halves the image, 1 keeps it.
Convolutions: TypeAlias = Sequence[tuple[int, int]]

CONVOLUTIONS: Convolutions = ((24, 2), (24, 1), (48, 2), (48, 1), (16, 2))


def cnn(
    input_shape: Shape,
    outputs: int,
    convolutions: Convolutions = CONVOLUTIONS,
    hidden: Sequence[int] = (64,),
) -> Network:
    """Convolutions, then dense layers of the hidden widths, with ReLU between all of them.

    Unless said otherwise five convolutions, three of which halve the image, and two dense layers.

    >>> cnn((1, 28, 28), 10, [(16, 2), (32, 2)], [100]).shapes[4]
    (32, 7, 7)
    """
    layers: list[Block] = []
    shape = _image(input_shape)
    for channels, stride in convolutions:
        layers += [_convolution(shape, channels, stride), ReLU()]
        shape = _after(layers[-2:], shape)
    return _with_head(input_shape, layers, shape, hidden, outputs)


def residual(
    input_shape: Shape,
    outputs: int,
    convolutions: Convolutions = ((16, 2), (16, 1), (32, 2)),
    hidden: Sequence[int] = (64,),
) -> Network:
    """A first convolution, then for each further one a residual block of two convolutions, then
    dense layers of the hidden widths; ReLU after each but the last.

    The shortcut of a block that changes the shape is a convolution with a window of its stride.

    >>> residual((1, 28, 28), 10, [(8, 2), (8, 1)]).reads[2:6]
    ((2,), (3,), (4,), (5, 2))
    """
    layers: list[Block] = []
    shape = _image(input_shape)
    for position, (channels, stride) in enumerate(convolutions):
        first = _convolution(shape, channels, stride)
        if position == 0:
            layers.append(first)
        else:
            own = (first, ReLU(), _convolution(_after([first], shape), channels, 1))
            same = stride == 1 and channels == shape[0]
            window = (stride, stride)
            shortcut = () if same else (Conv2d(shape[0], channels, window, window),)
            layers.append(Residual(own, shortcut))
        layers.append(ReLU())
        shape = _after([first], shape)
    return _with_head(input_shape, layers, shape, hidden, outputs)


def _image(shape: Shape) -> Shape:
    if len(shape) != 3:
        raise InputError(
            f"convolutions take images (channels, height, width), not {shape}; use an mlp"
        )
    return shape


def _convolution(shape: Shape, channels: int, stride: int) -> Conv2d:
    """3 x 3 that keeps the image, or 4 x 4 that halves it."""
    if stride not in (1, 2) or channels < 1:
        raise InputError(
            f"convolution of {channels} channels and stride {stride}; "
            "give at least one channel, and stride 1 or 2"
        )
    return Conv2d(shape[0], channels, (stride + 2,) * 2, (stride,) * 2, (1, 1))


def _after(layers: Sequence[Block], shape: Shape) -> Shape:
    for layer in layers:
        if not isinstance(layer, Residual):
            shape = output_shape(layer, shape)
    return shape


def _with_head(
    input_shape: Shape, layers: Sequence[Block], shape: Shape, hidden: Sequence[int], outputs: int
) -> Network:
    head: list[Block] = [Flatten()]
    for inputs, width in pairwise((math.prod(shape), *hidden, outputs)):
        head += [Dense(inputs, width), ReLU()]
    return Network(input_shape, (*layers, *head[:-1]))  # type: ignore[arg-type]  # unfolded there

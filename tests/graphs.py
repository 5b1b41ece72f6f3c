"""Random small networks that are no chains: nodes read twice, sums of two and three, sums before
the output, everything moved about."""

from __future__ import annotations

import math
import random

from bnncert.layers import (
    Add,
    AvgPool2d,
    Concat,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    Pad,
    Permute,
    ReLU,
    Reshape,
    Scale,
    Sigmoid,
    Take,
    Tanh,
)
from bnncert.model.activations import Activation
from bnncert.model.layers import Layer, Shape, output_shape
from bnncert.model.network import Network

KINDS: tuple[Activation, ...] = (ReLU(), ReLU(), LeakyReLU(0.2), Tanh(), Sigmoid())
BENT = KINDS[:3]


class Builder:
    """Layers so far, what they read, and the nodes that nothing reads yet."""

    def __init__(self, shape: Shape) -> None:
        self.shapes, self.unread = [shape], [0]
        self.layers: list[Layer] = []
        self.reads: list[tuple[int, ...]] = []

    def add(self, layer: Layer, *nodes: int) -> int:
        self.layers.append(layer)
        self.reads.append(nodes)
        self.shapes.append(output_shape(layer, *(self.shapes[node] for node in nodes)))
        self.unread = [node for node in self.unread if node not in nodes] + [len(self.layers)]
        return len(self.layers)

    def alike(self, node: int) -> list[int]:
        return [other for other, shape in enumerate(self.shapes) if shape == self.shapes[node]]


def random_graph(
    seed: int, images: bool = False, activations: tuple[Activation, ...] = KINDS
) -> Network:
    """3 to 7 layers on nodes of any age, then whatever is unread is brought together at the
    output."""
    choose = random.Random(seed)
    width = choose.randint(1, 3)
    made = Builder((1, choose.randint(2, 3), 2) if images else (width,))
    for _ in range(choose.randint(3, 7)):
        node = choose.choice([*made.unread, *made.unread, *range(len(made.shapes))])
        kind = choose.random()
        if kind < 0.35:
            made.add(_linear(choose, made.shapes[node], width), node)
        elif kind < 0.55:
            made.add(choose.choice(activations), node)
        elif kind < 0.7:
            alike = made.alike(node)
            made.add(Add(), node, *(choose.choice(alike) for _ in range(choose.randint(1, 2))))
        elif kind < 0.9 or not images:
            _move(choose, made, node)
        else:
            made.add(_pool(choose, made.shapes[node]), node)
    outputs = choose.randint(1, 3)
    ends = [_end(choose, made, node, outputs) for node in list(made.unread)]
    if len(ends) > 1:
        made.add(Add(), *ends)
    return Network(made.shapes[0], tuple(made.layers), tuple(made.reads))


def _linear(choose: random.Random, shape: Shape, width: int) -> Layer:
    bias = choose.random() < 0.7
    if choose.random() < 0.25:
        return Scale(tuple(choose.choice((1, size)) for size in shape), bias)
    if len(shape) != 3:
        return Dense(shape[0], width, bias) if len(shape) == 1 else Scale(shape, bias)
    groups = choose.choice([n for n in (1, 2, 3) if shape[0] % n == 0])
    kernel = (choose.randint(1, min(3, shape[1] + 1)), choose.randint(1, 3))
    dilation = tuple(choose.choice((1, 2)) if size == 2 else 1 for size in kernel)
    padding = tuple(choose.randint(0, 1) for _ in range(4))
    around = [size + padding[i] + padding[i + 2] for i, size in enumerate(shape[1:])]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if any(most < size for most, size in zip(around, reach, strict=True)):
        kernel, dilation = (1, 1), (1, 1)
    stride = (choose.choice((1, 1, 2)), 1)
    channels = groups * choose.randint(1, 2)
    return Conv2d(shape[0], channels, kernel, stride, padding, bias, dilation, groups)


def _move(choose: random.Random, made: Builder, node: int) -> None:
    """Any of them; what it gives has at most twelve entries."""
    shape = made.shapes[node]
    axis = choose.randrange(len(shape))
    kind = choose.choice(("reshape", "permute", "take", "pad", "concat"))
    if kind == "reshape" and len(shape) == 1:
        made.add(Reshape((1, shape[0], 1)), node)
    elif kind == "reshape":
        made.add(Reshape((shape[-1], *shape[:-1])), node)
    elif kind == "permute":
        made.add(Permute(tuple(choose.sample(range(len(shape)), len(shape)))), node)
    elif kind == "take":
        made.add(Take(axis, tuple(choose.sample(range(shape[axis]), (shape[axis] + 1) // 2))), node)
    elif kind == "pad" and math.prod(shape) < 6:
        sides = [tuple(int(i == axis) * choose.randint(0, 1) for i in range(len(shape)))] * 2
        made.add(Pad(*sides), node)
    elif math.prod(shape) < 7:
        made.add(Concat(axis), node, choose.choice(made.alike(node)))
    else:
        made.add(Flatten(), node)


def _pool(choose: random.Random, shape: Shape) -> Layer:
    if len(shape) != 3:
        return Flatten()
    kind = choose.choice((MaxPool2d, AvgPool2d))
    kernel = tuple(choose.randint(1, min(2, size)) for size in shape[1:])
    sides = tuple(choose.randint(0, size - 1) for size in kernel * 2)
    return kind(kernel, (1, choose.randint(1, 2)), sides)


def _end(choose: random.Random, made: Builder, node: int, outputs: int) -> int:
    if len(made.shapes[node]) > 1:
        node = made.add(Flatten(), node)
    return made.add(Dense(math.prod(made.shapes[node]), outputs, choose.random() < 0.7), node)

"""Random small networks that are no chains: nodes read twice, sums of two and three, sums before
the output."""

from __future__ import annotations

import math
import random

from bnncert.layers import (
    Add,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
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
        if kind < 0.4:
            made.add(_linear(choose, made.shapes[node], width), node)
        elif kind < 0.65:
            made.add(choose.choice(activations), node)
        elif kind < 0.95 or not images:
            alike = made.alike(node)
            made.add(Add(), node, *(choose.choice(alike) for _ in range(choose.randint(1, 2))))
        else:
            pool = (
                MaxPool2d((1, 2), (1, 1)) if made.shapes[node][2] > 1 else AvgPool2d((1, 1), (1, 1))
            )
            made.add(pool, node)
    outputs = choose.randint(1, 3)
    ends = [_end(choose, made, node, outputs) for node in list(made.unread)]
    if len(ends) > 1:
        made.add(Add(), *ends)
    return Network(made.shapes[0], tuple(made.layers), tuple(made.reads))


def _linear(choose: random.Random, shape: Shape, width: int) -> Layer:
    bias = choose.random() < 0.7
    if len(shape) == 1:
        return Dense(shape[0], width, bias)
    kernel = choose.choice([1, 3])
    return Conv2d(
        shape[0], choose.randint(1, 2), (kernel, kernel), (1, 1), (kernel // 2, kernel // 2), bias
    )


def _end(choose: random.Random, made: Builder, node: int, outputs: int) -> int:
    if len(made.shapes[node]) > 1:
        node = made.add(Flatten(), node)
    return made.add(Dense(math.prod(made.shapes[node]), outputs, choose.random() < 0.7), node)

"""Random graphs: sums of two and three, skips, nodes that are read twice; and hostile ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from forger.kinds import JOINS, linear, move, shape_after, takes
from forger.nets import Layer, Net, Random, activation, parameters, pick, random_chain


def random_net(r: Random) -> Net:
    """A chain, or a graph of vectors, of images, or of every layer there is."""
    if r.random() < 0.4:
        return random_chain(r)
    if r.random() < 0.5:
        return mixed_graph(r)
    return _image_graph(r) if r.random() < 0.2 else _vector_graph(r)


class _Drawing:
    """A graph as it is drawn: layers, with the shape of every node and those that nothing reads."""

    def __init__(self, r: Random, input_shape: tuple[int, ...]) -> None:
        self.r = r
        self.layers: list[Layer] = []
        self.shapes = [input_shape]
        self.unread = {0}

    def add(self, layer: Layer, *nodes: int) -> int:
        """The node that the layer gives; it says what it reads where it must, or now and then."""
        k = len(self.layers)
        said = [*nodes] != [k] or self.r.random() < 0.1
        self.layers.append(layer | ({"reads": [*nodes]} if said else {}))
        shape = shape_after(layer, [self.shapes[node] for node in nodes])
        self.shapes.append(shape)
        self.unread = (self.unread - {*nodes}) | {k + 1}
        return k + 1

    def dense(self, node: int, outputs: int) -> int:
        (inputs,) = self.shapes[node]
        entry = {"type": "Dense", "inputs": inputs, "outputs": outputs}
        return self.add(entry | {"bias": bool(self.r.random() < 0.7)}, node)

    def flat(self, node: int) -> int:
        return node if len(self.shapes[node]) == 1 else self.add({"type": "Flatten"}, node)

    def sum(self, *nodes: int) -> int:
        return self.add({"type": "Add"}, *nodes)

    def some(self) -> int:
        """A node to read, mostly one that nothing has read."""
        waiting = sorted(self.unread)
        return int(pick(self.r, waiting if self.r.random() < 0.6 else range(len(self.shapes))))

    def alike(self, node: int) -> list[int]:
        """Two or three nodes of one shape, perhaps one of them twice."""
        same = [i for i, shape in enumerate(self.shapes) if shape == self.shapes[node]]
        return [node, *(int(pick(self.r, same)) for _ in range(int(self.r.integers(1, 3))))]

    def net(self) -> Net:
        return Net(self.shapes[0], tuple(self.layers))


def _vector_graph(r: Random) -> Net:
    """Dense layers, activations and sums that read any node before them."""
    drawn = _Drawing(r, (int(pick(r, [1, 1, 2])),))
    width = int(pick(r, [1, 2, *drawn.shapes[0]]))
    for _ in range(int(r.integers(2, 6))):
        match pick(r, ["dense", "dense", "sum", "activation"]):
            case "dense":
                drawn.dense(drawn.some(), width)
            case "sum":
                drawn.sum(*drawn.alike(drawn.some()))
            case "activation":
                drawn.add(activation(r), drawn.some())
    return _joined(r, drawn)


def _image_graph(r: Random) -> Net:
    """1 x 2 x 1 pixels: convolutions that keep the size, added up; then a pool, and vectors."""
    drawn = _Drawing(r, (1, 2, 1))
    for _ in range(int(r.integers(1, 3))):
        size = {"in_channels": 1, "out_channels": 1, "kernel": [1, 1], "stride": [1, 1]}
        conv = {"type": "Conv2d", **size, "padding": [0, 0], "bias": bool(r.random() < 0.5)}
        node = drawn.add(conv, drawn.some())
        if r.random() < 0.4:
            drawn.add(activation(r), node)
    node = drawn.sum(*dict.fromkeys([*sorted(drawn.unread), int(r.integers(len(drawn.shapes)))]), 0)
    if r.random() < 0.4:
        node = drawn.add(activation(r), node)
    if r.random() < 0.4:
        kind = pick(r, ["MaxPool2d", "AvgPool2d"])
        node = drawn.add({"type": kind, "kernel": [2, 1], "stride": [1, 1]}, node)
    drawn.dense(drawn.add({"type": "Flatten"}, node), int(pick(r, [1, 2])))
    return _joined(r, drawn)


def mixed_graph(r: Random) -> Net:
    """Any layers on nodes of any shape, with at most eight entries."""
    drawn = _Drawing(r, pick(r, [(1,), (2,), (1, 2, 1), (2, 1, 1), (1, 1, 2)]))
    for _ in range(int(r.integers(2, 7))):
        node = drawn.some()
        shape = drawn.shapes[node]
        match pick(r, ["linear", "linear", "activation", "sum", "concat", "move", "move"]):
            case "linear":
                drawn.add(linear(r, shape), node)
            case "activation":
                drawn.add(activation(r, shape), node)
            case "sum":
                drawn.sum(*drawn.alike(node))
            case "concat" if math.prod(shape) < 4:
                axis = int(r.integers(len(shape)))
                drawn.add({"type": "Concat", "axis": axis}, *drawn.alike(node)[:2])
            case _:
                drawn.add(move(r, shape), node)
    return _joined(r, drawn)


def _joined(r: Random, drawn: _Drawing) -> Net:
    """With every node read: what waits is brought to one width and added, right at the end or
    before a last layer."""
    outputs = int(pick(r, [1, 2, 3]))
    if r.random() < 0.5:
        drawn.dense(drawn.flat(max(drawn.unread)), outputs)
    waiting = sorted(drawn.unread)
    for node in waiting:
        if drawn.shapes[node] != (outputs,):
            drawn.dense(drawn.flat(node), outputs)
    waiting = sorted(drawn.unread)
    if len(waiting) > 1:
        drawn.sum(*waiting)
    elif r.random() < 0.4:
        drawn.sum(*drawn.alike(*waiting))
    if not any(map(parameters, drawn.layers)):
        drawn.dense(len(drawn.layers), outputs)
    if r.random() < 0.3:
        drawn.dense(len(drawn.layers), int(pick(r, [1, 2])))
    return drawn.net()


# ---- hostile graphs ------------------------------------------------------------------------------


def is_network(net: Net) -> bool:
    """Whether the layers read what a network's layers may read, as the format says it."""
    read: set[int] = set()
    for k, layer in enumerate(net.layers):
        nodes = layer.get("reads", [k])
        if type(nodes) is not list or not all(type(node) is int for node in nodes):
            return False
        if not all(0 <= node <= k for node in nodes):
            return False
        if len(nodes) < 1 or (len(nodes) > 1) != (layer["type"] in JOINS):
            return False
        read.update(nodes)
    return read >= {*range(len(net.layers))} and _fits(net)


def _fits(net: Net) -> bool:
    """Whether every layer gets shapes that it takes."""
    shapes = [net.input_shape]
    for nodes, layer in zip(net.reads, net.layers, strict=True):
        read = [shapes[node] for node in nodes]
        if not takes(layer, read):
            return False
        shapes.append(shape_after(layer, read))
    return len(shapes[-1]) == 1


def hostile(r: Random, net: Net) -> Net:
    """The network with one layer that reads something else."""
    layers = deepcopy(list(net.layers))
    k = int(r.integers(len(layers)))
    reads = layers[k].get("reads", [k])
    layers[k]["reads"] = pick(r, HOSTILE)(r, k, len(layers), list(reads))
    return Net(net.input_shape, tuple(layers))


def _later(r: Random, k: int, count: int, reads: list[int]) -> Any:
    reads[int(r.integers(len(reads)))] = int(r.integers(k + 1, count + 2))
    return reads


def _another(r: Random, k: int, _: int, reads: list[int]) -> Any:
    """Of a wrong shape, or so that nothing reads a node, or neither."""
    reads[int(r.integers(len(reads)))] = int(r.integers(k + 1))
    return reads


def _repeated(r: Random, _k: int, _count: int, reads: list[int]) -> Any:
    return reads * int(r.integers(2, 4))


def _fewer(_r: Random, _k: int, _count: int, reads: list[int]) -> Any:
    return reads[1:]


def _odd(r: Random, k: int, _: int, reads: list[int]) -> Any:
    values: list[Any] = [[-1], [*reads, -1], [float(k)], [True], [str(k)], [None], [[k]], k, None]
    return pick(r, [*values, {}, "", [10**30], [2**63 - 1], [*reads, k, k]])


HOSTILE: tuple[Callable[[Random, int, int, list[int]], Any], ...] = (
    _later,
    _another,
    _another,
    _repeated,
    _fewer,
    _odd,
)

"""The network: layers as nodes of a graph. Node 0 is the input, node k + 1 what layer k gives.

A layer reads nodes before its own; every node but the last is read. A chain is the ordinary case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from bnncert_check.descriptions import JOIN_READERS, READERS
from bnncert_check.grammar import index, listed, members, whole
from bnncert_check.layers import Layer
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Linear, Shape
from bnncert_check.wiring import SUMS

Reads: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Network:
    """Layers in topological order, and the nodes that each reads: several for a join, one for any
    other."""

    input_shape: Shape
    layers: tuple[Layer, ...]
    reads: Reads

    @property
    def inputs(self) -> int:
        return math.prod(self.input_shape)

    @property
    def outputs(self) -> int:
        return self.layers[-1].outputs

    @cached_property
    def readers(self) -> tuple[tuple[int, ...], ...]:
        """For every node the layers that read it, each as often as it does."""
        found: list[list[int]] = [[] for _ in range(len(self.layers) + 1)]
        for k, nodes in enumerate(self.reads):
            for node in nodes:
                found[node].append(k)
        return tuple(map(tuple, found))

    def reading(self, node: int) -> tuple[Layer, ...]:
        return tuple(self.layers[k] for k in self.readers[node])

    def is_term(self, node: int) -> bool:
        """Whether a node is only a term of one sum, whose own interval is enough."""
        readers = self.reading(node)
        return len(readers) == 1 and isinstance(readers[0], SUMS)

    @property
    def widths(self) -> tuple[int, ...]:
        """Of all nodes."""
        return (self.inputs, *(layer.outputs for layer in self.layers))

    @cached_property
    def held(self) -> int:
        """The most numbers that a walk holds of one row: in a layer, or on nodes that wait for
        their turn."""
        most, waiting = max(layer.held for layer in self.layers), {len(self.layers)}
        for k in reversed(range(len(self.layers))):
            waiting = (waiting - {k + 1}) | {*self.reads[k]}
            most = max(most, sum(self.widths[node] for node in waiting))
        return most


def read_network(description: Any) -> Network:
    """An architecture; whatever is not exactly one of the `READERS`' is refused."""
    described = members(description, "the network", ("input_shape", "layers"))
    sizes = listed(described["input_shape"], "the input's shape")
    shape: Shape = tuple(whole(size, "a size of the input", 1) for size in sizes)
    start, layers, reads = 0, list[Layer](), list[tuple[int, ...]]()
    # As described: which node it is here, its shape, and whether it waits for a reader.
    nodes, shapes, unread = [0], [shape], set[int]()
    for position, entry in enumerate(listed(described["layers"], "the list of layers")):
        kind = entry.get("type") if type(entry) is dict else None
        if type(kind) is not str or kind not in (*READERS, *JOIN_READERS):
            raise CannotCheck(
                "unsupported",
                f"layer {position} is of the type {str(kind)[:40]!r}, which is not known",
            )
        own = {name: value for name, value in entry.items() if name != "reads"}
        named = _reads(entry, kind, position)
        layer, shape = (
            JOIN_READERS[kind](own, [shapes[node] for node in named], position)
            if kind in JOIN_READERS
            else READERS[kind](own, shapes[named[0]], start, position)
        )
        if layer is not None:
            layers.append(layer)
            reads.append(tuple(nodes[node] for node in named))
            start += layer.size if isinstance(layer, Linear) else 0
        nodes.append(nodes[named[0]] if layer is None else len(layers))
        shapes.append(shape)
        unread = (unread | {position}) - {*named}
    if unread:
        raise CannotCheck(
            "malformed", f"nothing reads what node {min(unread)} of the network holds"
        )
    if start == 0 or len(shape) != 1:
        raise CannotCheck(
            "malformed", f"the network has no weights, or gives {shape} instead of a vector"
        )
    return Network(shapes[0], tuple(layers), tuple(reads))


def _reads(entry: dict[str, Any], kind: str, position: int) -> list[int]:
    """The nodes that a layer reads, the one before it unless it says so."""
    where = f"what layer {position} reads"
    named = [
        index(node, where, position + 1) for node in listed(entry.get("reads", [position]), where)
    ]
    if not named or (len(named) > 1) != (kind in JOIN_READERS):
        raise CannotCheck("malformed", f"{where} is not one node, or of a join several")
    return named

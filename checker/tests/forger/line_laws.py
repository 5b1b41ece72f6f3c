"""Random laws by lines, of one hidden layer of any activation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.graphs import random_net
from forger.nets import CURVES, Array, Layer, Net, Random, activation, pick


def hidden_layer(r: Random) -> Net:
    """Dense, an activation and Dense, on the input or on any other network."""
    before = Net((int(pick(r, [1, 1, 2])),), ())
    if r.random() < 0.5:
        before = random_net(r)
    elif r.random() < 0.2:
        before = Net(before.input_shape, ({"type": "Flatten"},))
    return Net(before.input_shape, (*before.layers, *_ending(r, *before.shapes[-1])))


def _ending(r: Random, inputs: int) -> tuple[Layer, ...]:
    hidden, outputs = (int(pick(r, [1, 2, 3])) for _ in range(2))
    first = {"type": "Dense", "inputs": inputs, "outputs": hidden, "bias": bool(r.random() < 0.7)}
    last = {"type": "Dense", "inputs": hidden, "outputs": outputs, "bias": bool(r.random() < 0.7)}
    return first, activation(r), last


def has_form(net: Net) -> bool:
    """Dense, an activation and Dense at the end, each of which reads the one before it."""
    types, count = [layer["type"] for layer in net.layers[-3:]], len(net.layers)
    return (
        len(types) == 3
        and (types[0], types[2]) == ("Dense", "Dense")
        and types[1] in CURVES
        and net.reads[-2:] == [[count - 2], [count - 1]]
    )


def has_trunk(net: Net) -> bool:
    """Whether the hidden layer reads something else than the input's entries as they are."""
    (node,) = net.reads[-3]
    while node > 0 and net.layers[node - 1]["type"] in ("Flatten", "Reshape"):
        (node,) = net.reads[node - 1]
    return node > 0


def line_law(r: Random, made: Forgery, prefix: str, rows: int) -> dict[str, Any]:
    """Lines with a threshold, or about anchors: a lattice and slopes, mostly such as could prove
    something."""
    hidden, found = made.net.layers[-3]["outputs"], lattice(r)
    cells, size = found["cells"], found["size"]
    moving = 0 if prefix.count(".") > 1 else len(_sides(made))  # nothing does at a point
    if r.random() < (0.5 if moving == 1 else 0.03):
        shape: tuple[int, ...] = (rows, hidden, cells[0], 2)
        made.tensors[f"{prefix}law.numbers"] = numbers(r, size, (rows, 3))
        made.tensors |= _anchors(r, made, prefix, rows)
        found["along"] = int(pick(r, [1, 4, 8]))
    else:
        shape = (hidden, cells[0], 2)
        made.tensors[f"{prefix}law.numbers"] = numbers(r, size, (rows,))
        found["threshold"] = float(pick(r, [0.0, 2.0, 4.0, 5.0])).hex()
    made.tensors[f"{prefix}law.slopes"] = np.array(
        pick(r, [np.zeros(shape), np.ones(shape), r.random(shape), r.normal(0, 1, shape)])
    )
    if has_trunk(made.net) != (r.random() < 0.03):
        found["trunk"] = True
        made.tensors |= _box(r, made, prefix)
    return {"probability": (0.5).hex(), "law": found}


def lattice(r: Random) -> dict[str, Any]:
    """Cells and a size."""
    cells = [int(pick(r, [4, 16, 32])), int(r.integers(1, 4)), 8, int(r.integers(1, 4))]
    return {"cells": cells, "size": 2 ** int(pick(r, [6, 10, 12]))}


def numbers(r: Random, size: int, shape: tuple[int, ...]) -> Array:
    """Of lattices."""
    step = 2.0 ** int(r.integers(-8, -2))
    each = [
        [
            step,
            -(size // int(pick(r, [2, 2, 2, 4]))),
            float(pick(r, [10.0, 30.0, 100.0, 0.0])),
            float(pick(r, [0.3, 1.0, 10.0, 0.0])),
            float(pick(r, [1e-3, 1e-2, 0.5])),
            float(pick(r, [0.1, 1.0, 4.0])),
        ]
        for _ in range(math.prod(shape))
    ]
    return np.array(each).reshape(*shape, 6)


def _anchors(r: Random, made: Forgery, prefix: str, rows: int) -> dict[str, Array]:
    """At an end of the side that moves, between them, or elsewhere; where several move, of one."""
    low, high = _ends(made)
    side = int((high - low).argmax())
    places = [pick(r, [0.0, 1.0, 0.5, float(r.normal())]) for _ in range(rows)]
    return {
        f"{prefix}law.anchors": np.array([low[side] + p * (high - low)[side] for p in places]),
        f"{prefix}law.spared": r.exponential(float(pick(r, [0.1, 0.5])), rows),
    }


def _ends(made: Forgery) -> tuple[Array, Array]:
    """Of the region, as far as its points show them."""
    points = made.points()
    x = (points if len(points) else made.tensors["x"][None]).reshape(max(len(points), 1), -1)
    return x.min(0), x.max(0)


def _sides(made: Forgery) -> Array:
    """Those that move."""
    low, high = _ends(made)
    return np.flatnonzero(high > low)


def _box(r: Random, made: Forgery, prefix: str) -> dict[str, Array]:
    """Of what the hidden layer reads: a little wider than it is, mostly, or too narrow."""
    part, *side = prefix.rstrip(".").split(".")
    points = made.tensors[f"{part}.point"][None] if side else made.points()
    points = points if len(points) else made.tensors["x"][None]
    law = made.posterior.laws[int(part[1:])]
    (node,) = made.net.reads[-3]
    read = made.net.nodes(law.center[None], points)[node][0].reshape(len(points), -1)
    wider = float(pick(r, [1e-9, 1e-3, 0.1, 0.3, -0.01]))
    ends = {"lower": read.min(0) - wider, "upper": read.max(0) + wider}
    return {f"{prefix}law.{name}": end for name, end in ends.items()}

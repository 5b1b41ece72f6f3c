"""Random laws by lines, of one hidden layer of any activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.nets import CURVES, Array, Net, Random, pick


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
    """A threshold, slopes and a lattice, mostly such as could prove something."""
    hidden, law = made.net.layers[-3]["outputs"], lattice(r, made, prefix, rows)
    shape = (hidden, law["cells"][0], 2)
    made.tensors[f"{prefix}law.slopes"] = np.array(
        pick(r, [np.zeros(shape), np.ones(shape), r.random(shape), r.normal(0, 1, shape)])
    )
    law["threshold"] = float(pick(r, [0.0, 2.0, 4.0, 5.0])).hex()
    if has_trunk(made.net) != (r.random() < 0.03):
        law["trunk"] = True
        made.tensors |= _box(r, made, prefix)
    return {"probability": (0.5).hex(), "law": law}


def lattice(r: Random, made: Forgery, prefix: str, rows: int) -> dict[str, Any]:
    """Cells, and a lattice for every row."""
    cells = [int(pick(r, [4, 16, 32])), int(r.integers(1, 4)), 8, int(r.integers(1, 4))]
    size = 2 ** int(pick(r, [6, 10, 12]))
    step = 2.0 ** int(r.integers(-8, -2))
    number = [
        [
            step,
            -(size // int(pick(r, [2, 2, 2, 4]))),
            float(pick(r, [10.0, 30.0, 100.0, 0.0])),
            float(pick(r, [0.3, 1.0, 10.0, 0.0])),
            float(pick(r, [1e-3, 1e-2, 0.5])),
            float(pick(r, [0.1, 1.0, 4.0])),
        ]
        for _ in range(rows)
    ]
    made.tensors[f"{prefix}law.numbers"] = np.array(number)
    return {"cells": cells, "size": size}


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

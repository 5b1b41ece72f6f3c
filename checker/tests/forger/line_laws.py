"""Random laws by lines, of one hidden layer of any activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.nets import CURVES, MOVES, Net, Random, pick


def has_form(net: Net) -> bool:
    """Dense, an activation, Dense, and moves before."""
    types = [layer["type"] for layer in net.layers if layer["type"] not in MOVES]
    return (
        len(types) == 3
        and (types[0], types[2]) == ("Dense", "Dense")
        and types[1] in CURVES
        and not net.is_graph
    )


def line_law(r: Random, made: Forgery, prefix: str, rows: int) -> dict[str, Any]:
    """A threshold, slopes and a lattice, mostly such as could prove something."""
    (hidden,) = (layer["outputs"] for layer in made.net.layers[:-1] if layer["type"] == "Dense")
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
    shape = (hidden, cells[0], 2)
    made.tensors[f"{prefix}law.numbers"] = np.array(number)
    made.tensors[f"{prefix}law.slopes"] = np.array(
        pick(r, [np.zeros(shape), np.ones(shape), r.random(shape), r.normal(0, 1, shape)])
    )
    threshold = float(pick(r, [0.0, 2.0, 4.0, 5.0]))
    law = {"cells": cells, "size": size, "threshold": threshold.hex()}
    return {"probability": (0.5).hex(), "law": law}

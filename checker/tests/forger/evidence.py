"""Random evidence of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from forger.forgery import Forgery
from forger.laws import BOXED, Law
from forger.line_laws import has_form, line_law
from forger.nets import CURVES, Array, Layer, Net, Random, pick
from forger.replies import can_reply, reply

BENT = ("ReLU", "LeakyReLU")


def boxes(r: Random, made: Forgery) -> dict[str, Any]:
    law = made.posterior.laws[0]
    if law.family not in BOXED:
        law = Law("normal", {"mean": law.center, "std": np.full(len(law.center), 0.1)})
    count, size = int(pick(r, [1, 1, 2, 3])), len(law.center)
    entries = []
    for i in range(count):
        drawn = r.random() < 0.6
        entries.append({"draw": i if drawn else None, "steps": float(pick(r, [1, 2, 3, 0, 0.5]))})
        if drawn:
            made.tensors[f"center{i}"] = law.center + law.spread * r.normal(0, 1, size)
        if r.random() < 0.3:
            made.tensors[f"signs{i}"] = r.integers(-1, 2, size).astype(np.int8)
    growth = {"step": float(pick(r, [0.2, 0.5, 1.0])), "rho": float(pick(r, [0.0, 0.2, 1.0]))}
    growth["zero_gradient_only"] = bool(r.random() < 0.3)
    union: dict[str, Any] = {
        "rule": pick(r, ["cells", "cells", "inclusion-exclusion", "bonferroni"])
    }
    if union["rule"] == "cells" and count > 1:
        union |= _cells(r, made, law, entries, growth)
    return {"bound": "lbp", "growth": growth, "boxes": entries, "union": union}


def _cells(
    r: Random, made: Forgery, law: Law, entries: list[Any], growth: dict[str, Any]
) -> dict[str, Any]:
    """Halves of the boxes in a random weight, apart or not."""
    size = len(law.center)
    weight = int(r.integers(size))
    cells, separators = [], []
    for i, entry in enumerate(entries):
        center = made.tensors.get(f"center{i}", law.center)
        half = entry["steps"] * growth["step"] * law.spread
        ends = [center[weight] - half[weight], center[weight] + half[weight]]
        if r.random() < 0.7:
            cut = float(r.uniform(*sorted(ends)))
            ends = [ends[0], cut] if r.random() < 0.5 else [cut, ends[1]]
        cells.append({"parent": i, "cuts": [[weight, float(ends[0]).hex(), float(ends[1]).hex()]]})
        separators += [
            [i, j, weight if r.random() < 0.8 else int(r.integers(size))] for j in range(i)
        ]
    return {"cells": cells, "separators": separators}


def concentration(r: Random, made: Forgery) -> dict[str, Any]:
    rows = len(made.tensors["rows"])
    parts = []
    for i, weight in enumerate(made.posterior.weights):
        chain = has_form(made.net) and (made.posterior.laws[i].family == "normal")
        by_lines = chain and r.random() < 0.8
        lower = (
            line_law(r, made, f"c{i}.", rows)
            if by_lines
            else divided(r, made, f"c{i}.", rows, i, depth=0)
        )
        upper = _upper(r, made, i, chain) if r.random() < 0.85 else None
        parts.append({"weight": weight.hex(), "lower": lower, "upper": upper})
    return {"components": parts}


def _upper(r: Random, made: Forgery, part: int, chain: bool) -> dict[str, Any]:
    """At a point, or by a reply about it."""
    point, row = _weakest(r, made, part)
    if chain and r.random() < 0.5 and can_reply(r, made):
        return {"row": row, "failure": reply(r, made, f"c{part}.upper.", point, row)}
    made.tensors[f"c{part}.point"] = point
    upper = _failure(r, made, f"c{part}.upper.", row, part, chain)
    against = _opposite(made, row)
    if against is not None or r.random() < 0.05:
        other = int(r.integers(len(made.tensors["rows"]))) if against is None else against
        upper["opposite"] = _failure(r, made, f"c{part}.opposite.", other, part, chain)
    return upper


def _failure(
    r: Random, made: Forgery, prefix: str, row: int, part: int, chain: bool
) -> dict[str, Any]:
    by_lines = chain and r.random() < 0.8
    found = line_law(r, made, prefix, 1) if by_lines else proof(r, made, prefix, 1, part)
    return {"row": row, "failure": found}


def _opposite(made: Forgery, row: int) -> int | None:
    rows = made.tensors["rows"]
    found = np.flatnonzero((rows == -rows[row]).all(-1))
    return int(found[0]) if len(found) else None


def _weakest(r: Random, made: Forgery, part: int) -> tuple[Array, int]:
    """A point of the region and a row: mostly those where the component's central network is
    worst."""
    points, rows = made.points(), made.tensors["rows"]
    if not len(points):
        return made.tensors["x"], 0
    outputs = made.net.forward(made.posterior.laws[part].center[None], points)[0]
    margins = outputs @ rows.T + made.tensors["offsets"]
    if r.random() < 0.3:
        return points[int(r.integers(len(points)))], int(r.integers(len(rows)))
    p, row = np.unravel_index(int(margins.argmin()), margins.shape)
    return points[p], int(row)


def divided(
    r: Random, made: Forgery, prefix: str, rows: int, part: int, depth: int
) -> dict[str, Any]:
    """A proof, or the region cut in two."""
    if depth == 3 or r.random() < 0.75:
        return proof(r, made, prefix, rows, part)
    points = made.points().reshape(-1, math.prod(made.net.input_shape))
    dimension = int(r.integers(points.shape[1]))
    at = float(pick(r, points[:, dimension].tolist())) if len(points) else 0.0
    halves = [divided(r, made, f"{prefix}{k}", rows, part, depth + 1) for k in range(2)]
    return {
        "probability": (0.5).hex(),
        "dimension": dimension,
        "at": at.hex(),
        "below": halves[0],
        "above": halves[1],
    }


def proof(
    r: Random, made: Forgery, prefix: str, rows: int, part: int, probability: bool = True
) -> dict[str, Any]:
    """A threshold and slopes; with rows of their own and trees, sometimes."""
    found: dict[str, Any] = {
        "t": float(pick(r, [0.5, 1.5, 2.5, 3.5, 5.0])).hex(),
        "rows_optimised": False,
    }
    for said in ("layers_alone", "forward", "affine"):
        found |= {said: True} if r.random() < 0.5 else {}
    found |= {"probability": (0.5).hex()} if probability else {}
    own, after = r.random() < 0.4, made.net.shapes[1:]
    for k, (layer, shape) in enumerate(zip(made.net.layers, made.net.shapes_before, strict=True)):
        width = math.prod(shape)
        if layer["type"] in CURVES:
            for side in ("lower", "upper"):
                made.tensors[f"{prefix}{side}_slopes{k}"] = slopes(r, width)
            if own:
                made.tensors[f"{prefix}row_slopes{k}"] = slopes(r, rows, width)
                found["rows_optimised"] = True
        elif _may_be_refined(layer, shape) and r.random() < 0.5:
            outputs = math.prod(after[k])
            made.tensors[f"{prefix}refined{k}"] = r.integers(0, 2, outputs).astype(np.int8)
    if probability and r.random() < 0.5:
        found |= trees(r, made, prefix, rows, part)
    return found


def _may_be_refined(layer: Layer, shape: tuple[int, ...]) -> bool:
    """What is linear and gives an image, and sums of images."""
    wide = layer["type"] in ("Scale", "Add") and len(shape) > 1
    return layer["type"] in ("Conv2d", "AvgPool2d") or wide


def slopes(r: Random, *shape: int) -> Array:
    return pick(r, [r.random(shape), np.zeros(shape), np.ones(shape), np.round(r.random(shape))])


def places(net: Net) -> int:
    """Kinks of all neurons that are linear between them: of ReLUs that are steeper above 0 than
    below, and of clips."""
    pairs = zip(net.layers, net.shapes_before, strict=True)
    return sum(_kinks(layer) * math.prod(shape) for layer, shape in pairs)


def _kinks(layer: Layer) -> int:
    if layer["type"] == "Hardtanh":
        return 2
    return int(layer["type"] in BENT or max(layer.get("slopes", [2.0])) <= 1)


def trees(r: Random, made: Forgery, prefix: str, rows: int, part: int) -> dict[str, Any]:
    total = places(made.net)
    if not total:
        return {}
    count = int(r.integers(1, total + 1)) if r.random() < 0.95 else 0
    made.tensors[f"{prefix}open"] = r.permutation(total)[:count].astype(np.int32)
    listed = []
    for row in range(rows):
        if r.random() < 0.7:
            paths = tree(r, count)
            own = f"{prefix}tree{row}."
            made.tensors[f"{own}paths"] = paths
            made.tensors[f"{own}multipliers"] = (
                r.exponential(0.5, paths.shape) * (paths != 0)
            ).astype(np.float32)
            made.tensors[f"{own}slopes"] = slopes(r, len(paths), count).astype(np.float32)
            listed.append(
                {"row": row, "scale": common(r, made, own, part) if r.random() < 0.4 else None}
            )
    return {"trees": listed}


def tree(r: Random, count: int) -> Array:
    """Ends of a random binary tree, now and then with one missing or one too many, or with a place
    split twice."""
    leaves: list[list[int]] = [[]]
    for _ in range(int(r.integers(0, 4)) if count else 0):
        leaf = leaves.pop(int(r.integers(len(leaves))))
        k = int(r.integers(1, count + 1))
        fresh = k not in map(abs, leaf) or r.random() < 0.05
        leaves += [[*leaf, k], [*leaf, -k]] if fresh else [leaf]
    if r.random() < 0.1:
        leaves = leaves[1:] if r.random() < 0.5 else [*leaves, leaves[0]]
    depth = max((len(leaf) for leaf in leaves), default=0)
    return np.array([leaf + [0] * (depth - len(leaf)) for leaf in leaves], np.int32).reshape(
        len(leaves), depth
    )


def common(r: Random, made: Forgery, prefix: str, part: int) -> str:
    """A reference for the common noise, of the sizes it must have."""
    random = made.posterior.laws[part].random_layers(made.net)
    for k, (layer, shape) in enumerate(zip(made.net.layers, made.net.shapes_before, strict=True)):
        if layer["type"] == "Dense" and random[k]:
            made.tensors[f"{prefix}rows{k}"] = r.normal(0, 1, layer["outputs"])
            if not made.net.reads_input(k, random):
                made.tensors[f"{prefix}centers{k}"] = r.normal(0, 1, math.prod(shape))
    return float(10 ** r.uniform(-1, 1.5)).hex()


def networks(r: Random, made: Forgery) -> dict[str, Any]:
    """Verified and refuted networks: mostly those that are, sometimes others."""
    samples = made.posterior.laws[0].fields.get("samples", np.zeros((1, made.net.size)))
    points = made.points()
    points = points if len(points) else made.tensors["x"][None]
    margins = made.net.forward(samples, points) @ made.tensors["rows"].T + made.tensors["offsets"]
    stored: list[Array] = [points[0]]
    verified: list[int] = []
    refuted: list[list[int]] = []
    for s, own in enumerate(margins):
        p, row = np.unravel_index(int(own.argmin()), own.shape)
        if (own.min() > 0) == (r.random() < 0.9):
            verified.append(s)
        elif r.random() < 0.8:
            stored.append(points[p])
            refuted.append([s, len(stored) - 1, int(row)])
    made.tensors["points"] = np.stack(stored)
    return {"networks": len(samples), "verified": verified, "refuted": refuted}


def predictive(r: Random, made: Forgery) -> dict[str, Any]:
    if made.posterior.laws[0].family == "empirical":
        return {"networks": len(made.posterior.laws[0].fields["samples"])}
    rows = len(made.tensors["rows"]) if made.header["kind"] == "softmax" else 1
    parts = []
    for i, weight in enumerate(made.posterior.weights):
        sides = {"lower": f"c{i}.", "upper": f"c{i}.upper."}
        found = {
            side: proof(r, made, prefix, rows, i, probability=False)
            for side, prefix in sides.items()
        }
        parts.append({"weight": weight.hex(), **found})
    return {"components": parts}

"""Random evidence of every kind, and ways to break it, for `forger`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from forger import (
    BOXED,
    Array,
    Forgery,
    Law,
    Net,
    Posterior,
    Random,
    pick,
    random_net,
    random_posterior,
)

KINDS = ("boxes", "concentration", "concentration", "concentration", "networks", "softmax", "mean")
BENT = ("ReLU", "LeakyReLU")


def forge(r: Random) -> Forgery:
    """A random question with random evidence of a kind that mostly fits the posterior."""
    net = random_net(r)
    posterior = random_posterior(r, net.size)
    kind = pick(r, KINDS)
    if r.random() < 0.85:  # otherwise whatever comes: it must be refused
        kind = _fitting(r, posterior)
    made = Forgery(net, posterior, {"schema": "bnncert-certificate/1", "kind": kind})
    ask(r, made)
    claim = {"lower": (0.0).hex(), "upper": (1.0).hex()}
    claim |= {"gap": (-1.0).hex()} if kind == "softmax" else {}
    made.header["claim"] = (
        claim if kind != "mean" else {"lower": (-1e300).hex(), "upper": (1e300).hex()}
    )
    made.header["evidence"] = EVIDENCE[kind](r, made)
    return made


def _fitting(r: Random, posterior: Posterior) -> str:
    families = posterior.families
    if families == {"empirical"}:
        return str(pick(r, ["networks", "softmax", "mean"]))
    if families <= {"normal", "low-rank-normal"}:
        boxed = ["boxes"] if families == {"normal"} and not posterior.mixture else []
        return str(pick(r, ["concentration", "concentration", "softmax", "mean", *boxed]))
    return "boxes"


def ask(r: Random, made: Forgery) -> None:
    """A region of any norm, and rows of any form; predictive means mostly get rows that they are
    for."""
    shape, kind = made.net.input_shape, made.header["kind"]
    x = np.round(r.normal(0, 1, shape), 2)
    norm = pick(r, ["linf", "linf", "l2", "l1", "box"])
    eps = float(pick(r, [0.0, 0.05, 0.2, 1.0]))
    clip = (
        [float(x.min()) - 0.1, float(x.max()) + 0.1] if norm != "box" and r.random() < 0.3 else None
    )
    made.header["region"] = {
        "norm": norm,
        "clip": clip,
        "eps": None if norm == "box" else eps.hex(),
    }
    made.tensors["x"] = x
    if norm == "box":
        sides = r.exponential(0.2, (2, *shape)) * (r.random((2, *shape)) < 0.8)
        made.tensors |= {"lower": x - sides[0], "upper": x + sides[1]}
    rows = _rows(r, made, kind)
    made.tensors["rows"] = rows
    if _is_duel(rows) and r.random() < 0.9:
        made.tensors["offsets"] = np.zeros(len(rows))
    else:  # true at the clean input, or false: upper bounds want that
        middle = 0.7 * pick(r, [1, 1, -1] if kind == "boxes" else [1, -1])
        made.tensors["offsets"] = (
            r.normal(middle, 0.7, len(rows)) - rows @ _central(made, x[None])[0]
        )


def _central(made: Forgery, points: Array) -> Array:
    """The outputs of the first component's central network, [P, outputs]."""
    return made.net.forward(made.posterior.laws[0].center[None], points)[0]


def _rows(r: Random, made: Forgery, kind: str) -> Array:
    outputs, style = made.net.shapes[-1][0], r.random()
    if kind == "mean" and style < 0.9:
        first = r.normal(0, 1, outputs)
        return np.stack(
            [first * pick(r, [1, -1]) if i else first for i in range(int(r.integers(1, 4)))]
        )
    if outputs > 1 and (style < 0.5 or kind == "softmax"):
        label = int(r.integers(outputs))
        if r.random() < 0.5:
            label = int(_central(made, made.tensors["x"][None])[0].argmax())
        rivals = [j for j in range(outputs) if j != label]
        chosen = (
            [*rivals]
            if r.random() < 0.8
            else [int(pick(r, rivals)) for _ in range(int(r.integers(1, 5)))]
        )
        return np.eye(outputs)[label] - np.eye(outputs)[chosen]
    count = int(r.integers(1, 4))
    return (
        r.normal(0, 1, (count, outputs))
        if style < 0.8
        else np.repeat(r.normal(0, 1, (1, outputs)), count, 0)
    )


def _is_duel(rows: Array) -> bool:
    return bool((np.sort(rows)[:, [0, -1]] == [-1, 1]).all()) and rows.shape[1] > 1


# ---- boxes ---------------------------------------------------------------------------------------


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


# ---- concentration -------------------------------------------------------------------------------


def concentration(r: Random, made: Forgery) -> dict[str, Any]:
    rows = len(made.tensors["rows"])
    parts = []
    for i, weight in enumerate(made.posterior.weights):
        lower = divided(r, made, f"c{i}.", rows, i, depth=0)
        upper = None
        if r.random() < 0.85:
            point, row = _weakest(r, made, i)
            made.tensors[f"c{i}.point"] = point
            upper = {"row": row, "failure": proof(r, made, f"c{i}.upper.", 1, i)}
        parts.append({"weight": weight.hex(), "lower": lower, "upper": upper})
    return {"components": parts}


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
        "probability": (0.5).hex(), "dimension": dimension, "at": at.hex(), "below": halves[0], "above": halves[1],
    }  # fmt: skip


def proof(
    r: Random, made: Forgery, prefix: str, rows: int, part: int, probability: bool = True
) -> dict[str, Any]:
    """A threshold and slopes; with rows of their own and trees, sometimes."""
    found: dict[str, Any] = {
        "t": float(pick(r, [0.5, 1.5, 2.5, 3.5, 5.0])).hex(),
        "rows_optimised": False,
    }
    found |= {"probability": (0.5).hex()} if probability else {}
    own = r.random() < 0.4
    for k, (layer, shape) in enumerate(zip(made.net.layers, made.net.shapes, strict=False)):
        width = math.prod(shape)
        if layer["type"] in (*BENT, "Tanh", "Sigmoid"):
            for side in ("lower", "upper"):
                made.tensors[f"{prefix}{side}_slopes{k}"] = slopes(r, width)
            if own:
                made.tensors[f"{prefix}row_slopes{k}"] = slopes(r, rows, width)
                found["rows_optimised"] = True
        elif layer["type"] == "Conv2d" and r.random() < 0.5:
            outputs = math.prod(made.net.shapes[k + 1])
            made.tensors[f"{prefix}refined{k}"] = r.integers(0, 2, outputs).astype(np.int8)
    if probability and r.random() < 0.5:
        found |= trees(r, made, prefix, rows, part)
    return found


def slopes(r: Random, *shape: int) -> Array:
    return pick(r, [r.random(shape), np.zeros(shape), np.ones(shape), np.round(r.random(shape))])


def bent(net: Net) -> list[tuple[int, int]]:
    """Position and width of every ReLU and leaky ReLU."""
    pairs = enumerate(zip(net.layers, net.shapes, strict=False))
    return [(k, math.prod(shape)) for k, (layer, shape) in pairs if layer["type"] in BENT]


def trees(r: Random, made: Forgery, prefix: str, rows: int, part: int) -> dict[str, Any]:
    total = sum(width for _, width in bent(made.net))
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
    """Ends of a random binary tree, now and then with one missing or one too many."""
    leaves: list[list[int]] = [[]]
    for _ in range(int(r.integers(0, 4)) if count else 0):
        leaf = leaves.pop(int(r.integers(len(leaves))))
        k = int(r.integers(1, count + 1))
        leaves += [[*leaf, k], [*leaf, -k]]
    if r.random() < 0.1:
        leaves = leaves[1:] if r.random() < 0.5 else [*leaves, leaves[0]]
    depth = max((len(leaf) for leaf in leaves), default=0)
    return np.array([leaf + [0] * (depth - len(leaf)) for leaf in leaves], np.int32).reshape(
        len(leaves), depth
    )


def common(r: Random, made: Forgery, prefix: str, part: int) -> str:
    """A reference for the common noise, of the sizes it must have."""
    law = made.posterior.laws[part]
    start, first = 0, True
    for k, (layer, shape) in enumerate(zip(made.net.layers, made.net.shapes, strict=False)):
        if layer["type"] == "Flatten":
            continue
        if layer["type"] in ("Dense", "Conv2d"):
            size = _size(layer)
            noise = [
                law.fields[name][start : start + size]
                for name in ("std", "factor")
                if name in law.fields
            ]
            start += size
            if layer["type"] == "Dense" and any(values.any() for values in noise):
                made.tensors[f"{prefix}rows{k}"] = r.normal(0, 1, layer["outputs"])
                if not first:
                    made.tensors[f"{prefix}centers{k}"] = r.normal(0, 1, math.prod(shape))
        first = False
    return float(10 ** r.uniform(-1, 1.5)).hex()


def _size(layer: dict[str, Any]) -> int:
    return Net((), (layer,)).size


# ---- networks and means --------------------------------------------------------------------------


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


EVIDENCE: dict[str, Callable[[Random, Forgery], dict[str, Any]]] = {
    "boxes": boxes,
    "concentration": concentration,
    "networks": networks,
    "softmax": predictive,
    "mean": predictive,
}


# ---- ways to break it ----------------------------------------------------------------------------


def break_something(r: Random, made: Forgery) -> str:
    """One thing is not as it should be; what it was."""
    name = str(pick(r, list(BREAKS)))
    BREAKS[name](r, made)
    return name


def _tensor(r: Random, made: Forgery) -> str:
    return str(pick(r, sorted(made.tensors)))


def _repeat_rows(r: Random, made: Forgery) -> None:
    times = int(pick(r, [2, 3, 50]))
    for name in ("rows", "offsets"):
        made.tensors[name] = np.repeat(made.tensors[name], times, 0)


def _empty(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    value = made.tensors[name]
    made.tensors[name] = value.reshape(-1)[:0].reshape(
        (0, *value.shape[1:]) if value.ndim else (0,)
    )


def _one_entry(r: Random, made: Forgery) -> None:
    """What would broadcast, if that were allowed."""
    name = _tensor(r, made)
    value = made.tensors[name]
    made.tensors[name] = (
        value.reshape(-1)[:1].reshape((1,) * max(1, value.ndim)) if value.size else value
    )


def _more_dimensions(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    made.tensors[name] = made.tensors[name][None]


def _other_type(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    made.tensors[name] = made.tensors[name].astype(
        pick(r, [np.float32, np.float64, np.int8, np.int32, np.float16])
    )


def _extreme(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    value = made.tensors[name].astype(made.tensors[name].dtype).copy()
    if value.size and value.dtype.kind == "f":
        value.reshape(-1)[int(r.integers(value.size))] = pick(
            r, [np.nan, np.inf, -1.0, 2.0, 1e30, -0.0]
        )
        made.tensors[name] = value


def _swap(r: Random, made: Forgery) -> None:
    first, second = _tensor(r, made), _tensor(r, made)
    made.tensors[first], made.tensors[second] = made.tensors[second], made.tensors[first]


def _drop(r: Random, made: Forgery) -> None:
    name = _tensor(r, made)
    if name not in ("x", "rows", "offsets", "lower", "upper"):
        del made.tensors[name]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with every key."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [
            pair for inner in value.values() for pair in _places(inner)
        ]
    if isinstance(value, list):
        return [(value, i) for i in range(len(value))] + [
            pair for inner in value for pair in _places(inner)
        ]
    return []


def _json(r: Random, made: Forgery) -> None:
    container, key = pick(r, _places(made.header["evidence"]))
    values = [None, 0, 1, -1, 0.5, True, "", "0x1p0", "nan", [], {}, [[]], 10**30, "1"]
    container[key] = pick(r, values)


def _json_twice(r: Random, made: Forgery) -> None:
    lists = [c[k] for c, k in _places(made.header["evidence"]) if isinstance(c[k], list) and c[k]]
    if lists:
        chosen = pick(r, lists)
        chosen.append(chosen[int(r.integers(len(chosen)))])


def _json_dropped(r: Random, made: Forgery) -> None:
    container, key = pick(r, _places(made.header["evidence"]))
    del container[key]


def _json_added(r: Random, made: Forgery) -> None:
    objects = [c for c, _ in _places(made.header["evidence"]) if isinstance(c, dict)]
    pick(r, objects)["more"] = pick(r, [1, None, "0x1p0"])


def _other_kind(r: Random, made: Forgery) -> None:
    made.header["kind"] = pick(r, KINDS)


def _other_weights(_: Random, made: Forgery) -> None:
    for part in made.header["evidence"].get("components", []):
        if isinstance(part, dict):
            part["weight"] = (1.0).hex()


BREAKS: dict[str, Callable[[Random, Forgery], None]] = {
    "rows repeated": _repeat_rows,
    "empty array": _empty,
    "one entry": _one_entry,
    "more dimensions": _more_dimensions,
    "another type": _other_type,
    "extreme value": _extreme,
    "tensors swapped": _swap,
    "tensor dropped": _drop,
    "JSON changed": _json,
    "JSON repeated": _json_twice,
    "JSON dropped": _json_dropped,
    "JSON added": _json_added,
    "another kind": _other_kind,
    "other weights": _other_weights,
}

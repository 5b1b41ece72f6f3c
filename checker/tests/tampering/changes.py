"""Changes of meaning: of claims, questions, boxes and concentration."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from bnncert.layers import LeakyReLU, Sigmoid, Tanh
from tampering.desk import Array, Draft, Pair, Random, pick, ulps

# Changes of meaning: each edits a draft, or returns False where it does not apply.
Change: TypeAlias = Callable[[Draft, Random], object]


def edit(d: Draft, part: str, change: Callable[[Array], Array]) -> bool:
    """Change every tensor whose name holds the part."""
    found = {name: change(value) for name, value in d.tensors.items() if part in name}
    d.tensors |= found
    return bool(found)


def claims(d: Draft, lower: float | None = None, upper: float | None = None) -> None:
    new = {
        "lower": d.claim[0] if lower is None else lower,
        "upper": d.claim[1] if upper is None else upper,
    }
    d.header["claim"] = {end: float(value).hex() for end, value in new.items()}


def edit_hints(d: Draft, r: Random) -> None:
    """Nothing rests on these."""
    d.header |= {
        "method": {"name": "magic"},
        "versions": int(r.integers(999)),
        "bound_calls": "many",
        "seed": None,
    }
    for entry in d.header["evidence"].get("components", []):
        entry["lower"]["probability"] = r.random().hex()


def edit_region(d: Draft, r: Random, kind: str) -> object:
    region, x, (a, b) = (
        d.header["region"],
        float(d.tensors["x"].flat[0]),
        r.exponential(0.3, 2).tolist(),
    )
    if kind == "clip":
        region["clip"] = None if r.random() < 0.2 else [x - a, x + b - 0.1]
        return True
    if d.eps is None:
        return kind == "eps" and edit(d, "lower", lambda end: end - r.normal(0.05, 0.1, 2))
    near, far = ulps(d.eps, int(r.integers(-9, 9))), d.eps * math.exp(r.normal())
    region[kind] = (
        pick(r, ["linf", "l2", "l1"])
        if kind == "norm"
        else pick(r, [0.0, near, far, far, far]).hex()
    )
    return True


def edit_rows(d: Draft, r: Random) -> None:
    changes = [
        lambda a: -a,
        lambda a: a[:, ::-1].copy(),
        lambda a: a * r.exponential(),
        lambda a: a + r.normal(0, 0.1),
    ]
    edit(d, "rows", pick(r, changes))


def add_row(d: Draft, r: Random) -> None:
    d.tensors["rows"] = np.concatenate(
        [d.tensors["rows"], r.normal(0, 1, (1, d.tensors["rows"].shape[1]))]
    )
    d.tensors["offsets"] = np.append(d.tensors["offsets"], r.normal(1, 1))


def edit_growth(d: Draft, r: Random) -> None:
    growth, name = d.header["evidence"]["growth"], pick(r, ["step", "rho"])
    old = growth[name]
    growth[name] = pick(r, [old * (1 + 2.0**-52), -old, old * math.exp(r.normal()), r.random()])


def edit_signs(d: Draft, r: Random) -> object:
    d.header["evidence"]["growth"]["zero_gradient_only"] = pick(r, [True, False])
    return edit(d, "signs", lambda signs: r.integers(-1, 2, signs.shape).astype(np.int8))


def edit_boxes(d: Draft, r: Random) -> None:
    """One box larger, smaller, twice, or left out."""
    boxes, i = d.header["evidence"]["boxes"], int(r.integers(len(d.header["evidence"]["boxes"])))
    action = r.random()
    if action < 0.6:
        boxes[i]["steps"] = boxes[i]["steps"] + pick(r, [1, 1, 2, -1, -20, r.normal(), r.normal()])
    elif action < 0.8:
        del boxes[i]
    else:
        d.tensors |= {
            f"{n}{len(boxes)}": d.tensors[f"{n}{i}"]
            for n in ("center", "signs")
            if f"{n}{i}" in d.tensors
        }
        boxes.append(boxes[i])


def edit_rule(d: Draft, r: Random) -> None:
    union = d.header["evidence"]["union"]
    union["rule"] = pick(r, ["cells", "inclusion-exclusion", "bonferroni"])
    if r.random() < 0.3:
        union.pop("cells", None)


def leave_parent(d: Draft, r: Random) -> object:
    """One end of a cell beyond its box, by an ulp or more."""
    evidence, growth = d.header["evidence"], d.header["evidence"]["growth"]
    if "cells" not in evidence["union"]:
        return False
    (_, mean, std), cell = d.tiny.components[0], pick(r, evidence["union"]["cells"])
    parent, entry, w = cell["parent"], evidence["boxes"][cell["parent"]], int(r.integers(2))
    center = mean[w] if entry["draw"] is None else float(d.tensors[f"center{parent}"][w])
    rho, sign = (
        (growth["rho"], int(d.tensors[f"signs{parent}"][w]))
        if f"signs{parent}" in d.tensors
        else (0.0, 0)
    )
    rates = [growth["step"] * std[w] * (1 + rho * grows) for grows in (sign <= 0, sign >= 0)]
    ends = [center - entry["steps"] * rates[0], center + entry["steps"] * rates[1]]
    side, beyond = int(r.integers(2)), pick(r, [0.0, r.random()])
    ends[side] = ulps(ends[side] + (2 * side - 1) * beyond, 2 * side - 1)
    cell["cuts"] = [*cell["cuts"], [w, ends[0].hex(), ends[1].hex()]]
    return True


def edit_cells(d: Draft, r: Random) -> object:
    """A cell twice, with another parent, with fewer cuts or with others; or another weight between
    two cells."""
    union, (a, b) = d.header["evidence"]["union"], r.normal(0, 0.05, 2).tolist()
    if not (cells := union.get("cells")):
        return False
    cell = pick(r, cells)
    match r.integers(5):
        case 0:
            union["separators"] += [[len(cells), j, int(r.integers(2))] for j in range(len(cells))]
            cells.append(cell)
        case 1:
            cell["parent"] = int(r.integers(len(d.header["evidence"]["boxes"])))
        case 2:
            cell["cuts"] = cell["cuts"][1:]
        case 3:
            cell["cuts"] = [
                [w, (float.fromhex(l) + a).hex(), (float.fromhex(u) + b).hex()]
                for w, l, u in cell["cuts"]
            ]
        case _:
            pick(r, union["separators"])[int(r.integers(3))] = int(r.integers(4))
    return True


def drop_separator(d: Draft, r: Random) -> object:
    separators = d.header["evidence"]["union"].get("separators")
    return bool(separators and separators.pop(int(r.integers(len(separators)))))


def edit_slope(d: Draft, r: Random, *values: float) -> object:
    names = [name for name in d.tensors if "slopes" in name]
    if names:
        slopes = d.tensors[pick(r, names)]
        slopes.flat[int(r.integers(slopes.size))] = pick(r, values)
    return bool(names)


def edit_threshold(d: Draft, r: Random, *values: float) -> None:
    entry = pick(r, d.header["evidence"]["components"])
    proof = pick(
        r, [entry["upper"]["failure"] if entry["upper"] else entry["lower"], entry["lower"]]
    )
    proof["t"] = float(pick(r, values)).hex()


def edit_components(d: Draft, r: Random) -> None:
    entries = d.header["evidence"]["components"]
    d.header["evidence"]["components"] = pick(r, [entries[1:], entries * int(r.integers(2, 30))])


def edit_upper(d: Draft, r: Random) -> object:
    """Another row, or nothing at all, as reason of the upper bound."""
    entry = d.header["evidence"]["components"][0]
    old, row = entry["upper"], pick(r, [1, -1, 9, 0.0, True, "0"])
    edited = r.random()
    if old and edited < 0.2:
        old["opposite"] = {"row": 0, "failure": old["failure"]}
        return True
    entry["upper"] = {**old, "row": row} if old and edited < 0.9 else None
    return bool(old)


def edit_posterior(
    d: Draft, change: Callable[[float, Pair, Pair], tuple[float, Pair, Pair]]
) -> None:
    d.tiny = replace(d.tiny, components=tuple(change(*part) for part in d.tiny.components))


def edit_sigma(d: Draft, r: Random) -> None:
    a, b = pick(r, [np.exp(r.normal(0.2, 0.5, 2)).tolist()] * 4 + [[1 + 2.0**-52, 1.0]])
    edit_posterior(d, lambda weight, mean, std: (weight, mean, (a * std[0], b * std[1])))


def edit_mean(d: Draft, r: Random) -> None:
    k, (a, b) = (
        int(r.integers(1, 9)),
        pick(r, [r.normal(0, scale, 2).tolist() for scale in (0.0, 0.05, 0.3)]),
    )
    edit_posterior(d, lambda weight, mean, std: (weight, (ulps(mean[0], k) + a, mean[1] + b), std))


def edit_mixture(d: Draft, r: Random) -> object:
    weights = iter(r.dirichlet(np.ones(len(d.tiny.components))).tolist())
    edit_posterior(d, lambda _, mean, std: (next(weights), mean, std))
    return len(d.tiny.components) > 1


def edit_activation(d: Draft, r: Random) -> object:
    d.tiny = replace(
        d.tiny, activation=pick(r, [LeakyReLU(), LeakyReLU(r.random()), Tanh(), Sigmoid()])
    )
    return d.tiny.kind == "hidden"


CLAIMS: dict[str, Change] = {
    "claim up by ulps": lambda d, r: claims(d, ulps(d.supported[0], int(r.integers(1, 60)))),
    "claim up": lambda d, r: claims(
        d, d.supported[0] + (1 - d.supported[0]) * r.uniform(1e-9, 1), 1
    ),
    "upper down by ulps": lambda d, r: claims(
        d, None, ulps(d.supported[1], -int(r.integers(1, 60)))
    ),
    "upper down": lambda d, r: claims(d, 0, d.supported[1] * r.random()),
    "claim as supported": lambda d, _: claims(d, *d.supported),
    "claim weaker": lambda d, r: claims(
        d, d.claim[0] * r.random(), d.claim[1] + (1 - d.claim[1]) * r.random()
    ),
    "claim nonsense": lambda d, r: claims(
        d, *pick(r, [(math.nan, 1), (-r.random(), 1), (0, 1 + r.random()), (1, 0)])
    ),
    "hints": edit_hints,
}


QUESTIONS: dict[str, Change] = {
    "eps": lambda d, r: edit_region(d, r, "eps"),
    "norm": lambda d, r: edit_region(d, r, "norm"),
    "clip": lambda d, r: edit_region(d, r, "clip"),
    "x": lambda d, r: d.tensors.update(x=d.tensors["x"] + r.normal(0, 0.2, d.tensors["x"].shape)),
    "rows": edit_rows,
    "one row more": add_row,
    "offsets": lambda d, r: d.tensors.update(offsets=d.tensors["offsets"] + r.normal(0, 0.2)),
    "sigma": edit_sigma,
    "mean": edit_mean,
    "activation": edit_activation,
    "mixture": edit_mixture,
}


BOXES: dict[str, Change] = {
    "growth": edit_growth,
    "signs": edit_signs,
    "centre": lambda d, r: edit(
        d, "center", lambda c: c + pick(r, [1e-16, 0.01, 0.1, 0.3]) * r.normal(0, 1, c.shape)
    ),
    "boxes": edit_boxes,
    "rule": edit_rule,
    "cells": edit_cells,
    "cell beyond its box": leave_parent,
    "separator missing": drop_separator,
    "boxes as concentration": lambda d, _: d.header.update(kind="concentration"),
}


CONCENTRATION: dict[str, Change] = {
    "slope": lambda d, r: edit_slope(d, r, r.random(), 0.0, 1.0),
    "slope not finite": lambda d, r: edit_slope(d, r, math.nan, math.inf, -math.inf),
    "slope out of range": lambda d, r: edit_slope(
        d, r, -5e-324, 1 + 2.0**-52, -r.random(), 1 + r.random()
    ),
    "threshold": lambda d, r: edit_threshold(d, r, 8 * r.random()),
    "threshold not positive": lambda d, r: edit_threshold(
        d, r, 0.0, -r.random(), math.nan, math.inf
    ),
    "components": edit_components,
    "point": lambda d, r: edit(
        d, "point", lambda p: p + pick(r, [1e-16, -1e-3, 1e-3, -0.1]) * (1 + r.random(p.shape))
    ),
    "point outside": lambda d, r: edit(
        d, "point", lambda p: p + pick(r, [-5, 5]) * (1 + r.random(p.shape))
    ),
    "upper bound": edit_upper,
    "concentration as boxes": lambda d, _: d.header.update(kind="boxes"),
}

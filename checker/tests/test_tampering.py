"""Tampering: over 10,000 changed certificates, and the checker accepts none whose claim is not
provably true still.

Two kinds of change: single bits of the file, and changes of meaning after which every digest is
made anew, so that only the mathematics can object. Most problems here have two Gaussian weights, so
P_safe of any changed question is an integral over the first of them, computed below without
anything of the checker.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy.special import ndtr

from bnncert import Box, Problem, certify, save_posterior
from bnncert.layers import Dense, LeakyReLU, ReLU, Sigmoid, Tanh
from bnncert.methods import GIE, PIE, Concentration, Method, Sampling
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.model.specification import (
    Region,
    Specification,
    ball,
    class_robust,
    explicit_box,
    half_space,
    output_interval,
)
from bnncert.posteriors import Mixture, Normal
from bnncert_check import ACCEPT, ERROR, REJECT, Verdict, check_certificate, read_model
from bnncert_check.files import digest
from bnncert_check.model import Model
from bnncert_check.verdict import ERRORS, REJECTIONS
from scenarios import gaussian, paper_probability, uniform, vector

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = np.random.Generator
Pair: TypeAlias = tuple[float, float]

FLIPS, REPEATS = 620, 20  # of every certificate; of every change of meaning of every certificate
FLIPPED, CHANGED, FALSE = (
    7_000,
    3_500,
    300,
)  # mutants at least: flipped, changed, and of these surely false
NODES, REACH, QUADRATURE = (
    3000,
    9.0,
    1e-6,
)  # of the integral: nodes, standard deviations, and its error
CORNERS = 64  # of the polygon that stands for a disc
EVERYWHERE = (-math.inf, math.inf)
RELU = ReLU()


@dataclass(frozen=True)
class Tiny:
    """Two Gaussian weights, or a mixture of such pairs; linear: y = w·x, hidden: y = w2 f(w1 x),
    classes: y = w x."""

    kind: str
    components: tuple[tuple[float, Pair, Pair], ...]  # weight, means, standard deviations
    activation: Activation = RELU

    @property
    def network(self) -> Network:
        first = Dense(
            *{"linear": (2, 1), "hidden": (1, 1), "classes": (1, 2)}[self.kind], bias=False
        )
        return Network(
            (first.inputs,),
            (first, self.activation, replace(first)) if self.kind == "hidden" else (first,),
        )

    @property
    def posterior(self) -> Normal | Mixture:
        parts = tuple(Normal(vector(*mean), vector(*std)) for _, mean, std in self.components)
        return (
            parts[0]
            if len(parts) == 1
            else Mixture(tuple(part[0] for part in self.components), parts)
        )

    def probability(self, points: Array, rows: Array, offsets: Array) -> float:
        """P(every row is positive at every point): rows are linear in w2 given w1, so the safe w2
        are an interval."""
        total = 0.0
        for weight, mean, std in self.components:
            ends = [mean[0] - REACH * std[0], mean[0] + REACH * std[0]]
            for first, last in pairwise(sorted([*ends, 0.0]) if ends[0] < 0 < ends[1] else ends):
                w1 = first + (np.arange(NODES) + 0.5) * (last - first) / NODES
                density = np.exp(-(((w1 - mean[0]) / std[0]) ** 2) / 2) / (
                    std[0] * math.sqrt(2 * math.pi)
                )
                low, high = (
                    (end - mean[1]) / std[1] for end in self._safe(w1, points, rows, offsets)
                )
                share = np.maximum(ndtr(high) - ndtr(low), 0)
                total += weight * float((density * share).sum()) * (last - first) / NODES
        return total

    def _safe(self, w1: Array, points: Array, rows: Array, offsets: Array) -> tuple[Array, Array]:
        low, high = np.full_like(w1, -np.inf), np.full_like(w1, np.inf)
        for x, (row, offset) in product(points, zip(rows, offsets, strict=True)):
            match self.kind:
                case "hidden":
                    constant, slope = (
                        offset + 0 * w1,
                        row[0] * self.activation(torch.from_numpy(w1 * x[0])).numpy(),
                    )
                case "linear":
                    constant, slope = offset + row[0] * x[0] * w1, row[0] * x[1] + 0 * w1
                case _:
                    constant, slope = offset + row[0] * x[0] * w1, row[1] * x[0] + 0 * w1
            with np.errstate(all="ignore"):
                bound = -constant / slope
            low = np.where(slope > 0, np.maximum(low, bound), low)
            high = np.where(slope < 0, np.minimum(high, bound), high)
            high = np.where((slope == 0) & (constant <= 0), -np.inf, high)
        return low, high


@dataclass(frozen=True)
class Wide(Tiny):
    """Twelve weights, the boxes of which the prover unites by inclusion-exclusion; P_safe is not
    known."""

    @property
    def network(self) -> Network:
        return mlp(2, 2, 2)

    @property
    def posterior(self) -> Normal:
        mean = gaussian(12, generator=torch.Generator().manual_seed(1))
        return Normal(mean, torch.full_like(mean, 0.05))


@dataclass
class Draft:
    """A certificate on the desk, with the posterior it is checked against and the bounds that its
    evidence supports."""

    header: dict[str, Any]
    tensors: dict[str, Array]
    tiny: Tiny
    supported: Pair = (0.0, 1.0)

    @property
    def claim(self) -> Pair:
        return float.fromhex(self.header["claim"]["lower"]), float.fromhex(
            self.header["claim"]["upper"]
        )

    @property
    def eps(self) -> float | None:
        return (
            None
            if self.header["region"]["norm"] == "box"
            else float.fromhex(self.header["region"]["eps"])
        )

    @property
    def question(self) -> str:
        region = self.header["region"]
        arrays = [self.tensors[name].tolist() for name in ("x", "rows", "offsets")]
        return repr(
            (
                region["norm"],
                region["clip"],
                self.eps,
                arrays,
                [end.tolist() for end in self.box],
                self.tiny,
            )
        )

    @property
    def box(self) -> list[Array]:
        """The two ends of the bounding box; of a box the region itself."""
        x, eps = self.tensors["x"], self.eps
        ends = [self.tensors["lower"], self.tensors["upper"]] if eps is None else [x - eps, x + eps]
        return [np.clip(end, *(self.header["region"]["clip"] or EVERYWHERE)) for end in ends]

    def sealed(self, model: Model) -> bytes:
        """The file, with all digests made for what it holds and for this posterior."""
        region = self.header["region"]
        extent = [end[None] for end in self.box] if self.eps is None else [np.array([self.eps])]
        arrays = [
            self.tensors["x"][None],
            *extent,
            self.tensors["rows"][None],
            self.tensors["offsets"][None],
        ]
        parts = {"architecture": model.architecture_digest, "posterior": model.posterior_digest}
        parts["specification"] = digest({"norm": region["norm"], "clip": region["clip"]}, arrays)
        self.header["digests"] = parts | {"problem": digest(list(parts.values()))}
        return bytes(save(self.tensors, {"bnncert": json.dumps(self.header)}))

    def corners(self) -> tuple[Array, Array]:
        """Points whose hull holds the region, and points of it: the same, except for discs and
        clipped balls."""
        region, x = self.header["region"], self.tensors["x"]
        if region["norm"] in ("box", "linf") or len(x) == 1:
            points = np.array(list(product(*np.stack(self.box, 1))))
            return points, points
        angles = 2 * np.pi * np.arange(CORNERS) / CORNERS
        steps = (self.eps or 0.0) * np.stack([np.cos(angles), np.sin(angles)], 1)
        if region["norm"] == "l1":
            return x + steps[:: CORNERS // 4], np.clip(
                x + steps[:: CORNERS // 4], *(region["clip"] or EVERYWHERE)
            )
        return x + steps / math.cos(math.pi / CORNERS), np.clip(
            x + steps, *(region["clip"] or EVERYWHERE)
        )


def parse(content: bytes, tiny: Tiny) -> Draft:
    """A certificate's header and tensors, read as plainly as can be."""
    size = int.from_bytes(content[:8], "little")
    index = json.loads(content[8 : 8 + size])
    header, data = json.loads(index.pop("__metadata__")["bnncert"]), content[8 + size :]
    dtypes, tensors = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "<i1"}, {}
    for name, entry in index.items():
        part = data[slice(*entry["data_offsets"])]
        tensors[name] = np.frombuffer(part, dtypes[entry["dtype"]]).reshape(entry["shape"]).copy()
    return Draft(header, tensors, tiny)


@dataclass
class Desk:
    """Where certificates are checked, and where answers and verdicts are remembered."""

    folder: Path
    models: dict[Tiny, Model] = field(default_factory=dict)
    answers: dict[str, Pair | None] = field(default_factory=dict)
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def model(self, tiny: Tiny) -> Model:
        if tiny not in self.models:
            save_posterior(self.folder / "posterior.safetensors", tiny.network, tiny.posterior)
            self.models[tiny] = read_model(self.folder / "posterior.safetensors")
        return self.models[tiny]

    def check(self, content: bytes, tiny: Tiny, kind: str) -> Verdict:
        """The verdict, which is one of the documented ones."""
        path = self.folder / "changed.safetensors"
        path.unlink(missing_ok=True)  # much faster than to overwrite it
        path.write_bytes(content)
        verdict = check_certificate(path, self.model(tiny))
        known: dict[str, Any] = {ACCEPT: {None: ""}, REJECT: REJECTIONS, ERROR: ERRORS}
        assert verdict.code in known[verdict.status]
        self.verdicts[kind, verdict.code or ACCEPT] += 1
        return verdict

    def answer(self, draft: Draft) -> Pair | None:
        """Bounds of P_safe, up to the error of the quadrature; None where it is not known or not
        defined."""
        if draft.question not in self.answers:
            known = draft.tiny.components and (draft.eps or 0.0) >= 0
            rows, offsets = draft.tensors["rows"], draft.tensors["offsets"]
            found = (
                [draft.tiny.probability(points, rows, offsets) for points in draft.corners()]
                if known
                else None
            )
            self.answers[draft.question] = (found[0], found[1]) if found else None
        return self.answers[draft.question]

    def true(self, bounds: Pair, changed: Draft, draft: Draft) -> bool:
        """Whether lower <= P_safe <= upper of the changed question: by its answer, or because it
        claims less of the same question than the draft does, which was certified."""
        answer = self.answer(changed)
        by_answer = (
            answer and bounds[0] <= answer[0] + QUADRATURE and bounds[1] >= answer[1] - QUADRATURE
        )
        certified = changed.question == draft.question
        return bool(by_answer) or (
            certified and bounds[0] <= draft.claim[0] and bounds[1] >= draft.claim[1]
        )

    def false(self, changed: Draft) -> bool:
        answer, (lower, upper) = self.answer(changed), changed.claim
        return bool(answer and (lower > answer[1] + QUADRATURE or upper < answer[0] - QUADRATURE))

    def report(self) -> None:
        """The table of changes and verdicts, shown with -s."""
        for kind in sorted({kind for kind, _ in self.verdicts}):
            found = {
                code: count for (name, code), count in sorted(self.verdicts.items()) if name == kind
            }
            print(
                f"\n{kind:<24}" + ", ".join(f"{code} {count}" for code, count in found.items()),
                end="",
            )
        print(f"\n{self.verdicts.total()} mutants")


# Changes of meaning: each edits a draft, or returns False where it does not apply.
Change: TypeAlias = Callable[[Draft, Random], object]


def ulps(value: float, count: int) -> float:
    for _ in range(abs(count)):
        value = math.nextafter(value, math.copysign(math.inf, count))
    return value


def pick(r: Random, values: Sequence[Any]) -> Any:
    return values[int(r.integers(len(values)))]


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
    entry["upper"] = {**old, "row": row} if old and r.random() < 0.9 else None
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
# What a change leads to, None being acceptance; where nothing is said to anything, as long as it is
# true.
OUTCOMES: dict[str | None, tuple[str, ...]] = {
    None: ("claim as supported", "claim weaker", "hints"),
    "probability-too-high": ("claim up by ulps", "claim up"),
    "upper-too-low": ("upper down by ulps", "upper down", "upper bound"),
    "claim-not-a-probability": ("claim nonsense",),  # or malformed, where it is no number
    "cell-outside-parent": ("cell beyond its box",),
    "cells-overlap": ("separator missing",),
    "malformed": (
        "claim nonsense", "slope not finite", "components", "upper bound", "boxes as concentration",
        "concentration as boxes", "cell beyond its box", "threshold not positive",
    ),
    "slope-out-of-range": ("slope out of range",),
    "threshold-not-positive": ("threshold not positive",),
    "point-outside-region": ("point outside",),
    "unsupported": ("concentration as boxes",),
}  # fmt: skip


def base(
    tiny: Tiny, spec: Specification, method: Method, folder: Path, rule: str | None = None
) -> Draft:
    """The certificate that the prover writes; with another rule of union its claim is what that
    rule supports."""
    found = certify(Problem(tiny.network, tiny.posterior, spec), method)[0].certificate
    assert found is not None
    found.write(folder / "base.safetensors")
    draft, desk = parse((folder / "base.safetensors").read_bytes(), tiny), Desk(folder)
    if rule:
        draft.header["evidence"]["union"] = {"rule": rule}
        claims(draft, 0.0)
    verdict = desk.check(draft.sealed(desk.model(tiny)), tiny, "base")
    assert verdict.status == ACCEPT
    draft.supported = verdict.supported or (0.0, 1.0)
    if rule or not tiny.components:
        claims(draft, *draft.supported)
    return draft


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Draft]:
    """Certificates of every kind."""
    folder = tmp_path_factory.mktemp("bases")
    linear = Tiny("linear", ((1.0, (1.0, 0.5), (0.3, 0.3)),))
    classes = Tiny("classes", ((1.0, (1.0, 0.3), (0.2, 0.2)),))
    hidden = Tiny("hidden", ((1.0, (1.0, 1.0), (0.3, 0.3)),))
    narrow = Tiny("hidden", ((1.0, (1.0, 1.0), (0.1, 0.1)),))
    crossing = Tiny("hidden", ((1.0, (0.3, 1.0), (0.2, 0.1)),))
    mixture = Tiny("hidden", ((0.25, (1.0, 1.0), (0.1, 0.1)), (0.75, (0.9, 1.2), (0.12, 0.08))))
    x, two = vector(1.0).reshape(1, 1), vector(1.0, 0.5).reshape(1, 2)
    around, clipped = ball(x, 0.1), class_robust(ball(x, 0.1, clip=(0.0, 1.05)), [0], 2)

    def above(region: Region, bound: float) -> Specification:
        return half_space(region, vector(1.0), bound)

    found = {
        "one box": base(linear, above(ball(two, 0.1), 0.4), PIE(samples=1, step=0.3), folder),
        "cells": base(hidden, above(around, 0.2), PIE(samples=3, step=0.3), folder),
        "signs": base(linear, above(ball(two, 0.1, "l2"), 0.4), GIE(samples=3, step=0.3), folder),
        "inclusion-exclusion": base(
            classes, clipped, PIE(samples=3), folder, "inclusion-exclusion"
        ),
        "bonferroni": base(
            linear, above(ball(two, 0.1, "l1"), 0.4), PIE(samples=2), folder, "bonferroni"
        ),
        "input box": base(
            linear, above(explicit_box(Box(two - 0.1, two + 0.05)), 0.3), PIE(samples=2), folder
        ),
        "lower": base(narrow, above(around, 0.3), Concentration(effort=0), folder),
        "upper": base(narrow, output_interval(around, 1.3, 3.0), Concentration(upper=True), folder),
        "classes": base(classes, clipped, Concentration(), folder),
        "optimised rows": base(crossing, above(around, -0.2), Concentration(), folder),
        "mixture": base(mixture, above(around, 0.4), Concentration(), folder),
        "wide": base(Wide("wide", ()), wide_specification(), Sampling(samples=3, step=2.0), folder),
    }
    unions = [draft.header["evidence"].get("union", {}) for draft in found.values()]
    assert {(union.get("rule"), "cells" in union) for union in unions} == {
        ("cells", True), ("cells", False), ("inclusion-exclusion", False), ("bonferroni", False), (None, False)
    }  # fmt: skip
    tensors = {name for draft in found.values() for name in draft.tensors}
    assert tensors >= {
        "signs0",
        "center1",
        "c0.row_slopes1",
        "c0.point",
        "c1.lower_slopes1",
        "lower",
    }
    return found


def wide_specification() -> Specification:
    x = uniform(1, 2, generator=torch.Generator().manual_seed(2))
    network, posterior = Wide("wide", ()).network, Wide("wide", ()).posterior
    return class_robust(ball(x, 0.01), network.forward(posterior.mean, x).argmax(-1), 2)


def test_the_truth_is_known() -> None:
    """The integral, against the paper's example and a difference of two Gaussians."""
    hidden = Tiny("hidden", ((1.0, (0.0, 0.0), (1.0, 1.0)),))
    for eps in (0.0, 0.3):
        found = hidden.probability(
            np.array([[1 - eps], [1 + eps]]), np.array([[-1.0]]), np.array([1.0])
        )
        assert abs(found - paper_probability(eps)) < QUADRATURE
    classes = Tiny("classes", ((0.5, (1.0, 0.3), (0.2, 0.1)), (0.5, (1.0, 0.3), (0.2, 0.1))))
    found = classes.probability(np.array([[0.5], [1.5]]), np.array([[1.0, -1.0]]), np.zeros(1))
    assert abs(found - ndtr(0.7 / math.hypot(0.2, 0.1))) < QUADRATURE


def test_flipped_bits(bases: dict[str, Draft], tmp_path: Path) -> None:
    """What is accepted with a bit flipped speaks of the same question, and what it claims is
    true."""
    desk, random = Desk(tmp_path), np.random.default_rng(0)
    for name, draft in bases.items():
        content = draft.sealed(desk.model(draft.tiny))
        for place in random.choice(8 * len(content), FLIPS, replace=False).tolist():
            flipped = bytearray(content)
            flipped[place // 8] ^= 1 << place % 8
            if desk.check(bytes(flipped), draft.tiny, f"bit of {name}").status == ACCEPT:
                changed = parse(bytes(flipped), draft.tiny)
                assert changed.question == draft.question
                assert desk.true(changed.claim, changed, draft)
    desk.report()
    assert desk.verdicts.total() >= FLIPPED


def test_changed_meaning(bases: dict[str, Draft], tmp_path: Path) -> None:
    """With all digests made anew what is accepted is true, and so is whatever the checker says is
    supported."""
    desk, seen, false = Desk(tmp_path), set[tuple[bytes, Tiny]](), 0
    for name, draft in bases.items():
        evidence = BOXES if draft.header["kind"] == "boxes" else CONCENTRATION
        changes = CLAIMS | evidence | (QUESTIONS if draft.tiny.components else {})
        for number, (kind, _) in enumerate(product(changes, range(REPEATS))):
            changed = deepcopy(draft)
            if changes[kind](changed, np.random.default_rng(number)) is False:
                continue
            content = changed.sealed(desk.model(changed.tiny))
            if (content, changed.tiny) in seen:
                continue
            seen.add((content, changed.tiny))
            verdict = desk.check(content, changed.tiny, kind)
            expected = [code for code, kinds in OUTCOMES.items() if kind in kinds]
            assert verdict.code in expected or not expected, (name, kind, number, verdict)
            assert verdict.code != "digest-mismatch"
            false += desk.false(changed)
            if verdict.status == ACCEPT:
                assert desk.true(changed.claim, changed, draft), (name, kind, number, verdict)
            if verdict.supported and draft.tiny.components:
                assert desk.true(verdict.supported, changed, draft), (name, kind, number, verdict)
    desk.report()
    print(f"{false} with a false claim")
    assert desk.verdicts.total() >= CHANGED
    assert false >= FALSE
    assert {kind for kind, _ in desk.verdicts} == {*CLAIMS, *QUESTIONS, *BOXES, *CONCENTRATION}


def test_another_posterior(bases: dict[str, Draft], tmp_path: Path) -> None:
    """A certificate is for one posterior, to the last bit of it, and for one network."""
    desk = Desk(tmp_path)
    for draft in bases.values():
        content = draft.sealed(desk.model(draft.tiny))
        for change, number in product(
            (edit_sigma, edit_mean, edit_activation, edit_mixture), range(3)
        ):
            changed = deepcopy(draft)
            if (
                draft.tiny.components
                and change(changed, np.random.default_rng(number)) is not False
            ):
                assert desk.check(content, changed.tiny, "posterior").code == "digest-mismatch"
        other = next(
            other.tiny for other in bases.values() if other.tiny.network != draft.tiny.network
        )
        assert desk.check(content, other, "network").code in ("digest-mismatch", "malformed")
    desk.report()

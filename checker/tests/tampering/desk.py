"""A desk to change certificates on, and P_safe of whatever they then ask, without the checker."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy.special import ndtr

from bnncert import save_posterior
from bnncert.layers import Dense, ReLU
from bnncert.model.activations import Activation
from bnncert.model.network import Network, mlp
from bnncert.posteriors import Mixture, Normal
from bnncert_check import ACCEPT, ERROR, REJECT, Verdict, check_certificate, read_model
from bnncert_check.files import digest
from bnncert_check.model import Model
from bnncert_check.verdict import ERRORS, REJECTIONS
from scenarios import gaussian, vector

Array: TypeAlias = NDArray[Any]
Random: TypeAlias = np.random.Generator
Pair: TypeAlias = tuple[float, float]
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
    dtypes, tensors = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I8": "<i1", "I32": "<i4"}, {}
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


def pick(r: Random, values: Sequence[Any]) -> Any:
    return values[int(r.integers(len(values)))]


def ulps(value: float, count: int) -> float:
    for _ in range(abs(count)):
        value = math.nextafter(value, math.copysign(math.inf, count))
    return value

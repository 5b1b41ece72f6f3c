"""Forged certificates about tiny networks: a problem, evidence, and claims about its truth."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any, TypeAlias

import mpmath
import numpy as np
from safetensors.numpy import save_file

from bnncert_check.files import digest
from mutants.outcomes import Checker

Claim: TypeAlias = tuple[
    float | str, ...
]  # lower, upper, of softmax the gap; a string as it stands in the file


Evidence: TypeAlias = tuple[str, dict[str, Any], dict[str, Any]]  # kind, evidence, tensors


@dataclass(frozen=True)
class Problem:
    """Layers: (inputs, outputs) with a bias, the name of an activation or its entry in a header, or
    the slope of a LeakyReLU. The posterior's fields are flat: W0, b0, W1, b1, ...; several
    components make a mixture."""

    layers: tuple[Any, ...]
    components: tuple[dict[str, Any], ...]
    x: Any = (0.0,)
    eps: float = 0.0
    rows: Any = ((1.0,),)
    offsets: Any = (0.0,)
    norm: str = "linf"
    clip: tuple[float, float] | None = None
    family: str = "normal"
    weights: tuple[float, ...] = (1.0,)
    families: tuple[str, ...] = ()  # of a mixture's components, where they differ

    @property
    def network(self) -> dict[str, Any]:
        def entry(layer: Any) -> dict[str, Any]:
            if isinstance(layer, tuple):
                return {"type": "Dense", "inputs": layer[0], "outputs": layer[1], "bias": True}
            if isinstance(layer, dict):
                return layer
            return (
                {"type": layer} if isinstance(layer, str) else {"type": "LeakyReLU", "slope": layer}
            )

        return {"input_shape": [len(self.x)], "layers": [entry(layer) for layer in self.layers]}

    def write(self, path: Path) -> None:
        """The posterior."""
        shapes = [
            shape
            for layer in self.layers
            if isinstance(layer, tuple)
            for shape in (layer, layer[1:])
        ]
        header: dict[str, Any] = {
            "schema": "bnncert-posterior/1",
            "network": self.network,
            "family": self.family,
        }
        tensors, mixture = {}, len(self.components) > 1
        for i, (name, values) in (
            (i, item) for i, part in enumerate(self.components) for item in part.items()
        ):
            flat = np.array(values, float).T if name == "samples" else np.array(values, float)
            parts = np.split(flat, np.cumsum([math.prod(shape) for shape in shapes])[:-1])
            for k, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
                key = f"{f'{i}.' if mixture else ''}{'Wb'[k % 2]}{k // 2}_{name}"
                tensors[key] = np.ascontiguousarray(part.T.reshape(*part.shape[1:], *shape))
        if mixture:
            header |= {"family": "mixture", "weights": [weight.hex() for weight in self.weights]}
            header["components"] = [{"family": family} for family in self._families]
        save_file(tensors, path, {"bnncert": json.dumps(header)})

    @property
    def _families(self) -> tuple[str, ...]:
        return self.families or (self.family,) * len(self.components)

    @property
    def digests(self) -> dict[str, str]:
        def arrays(*values: Any) -> list[Any]:
            return [np.array(value, float) for value in values]

        parts = zip(self._families, self.components, strict=True)
        own = [
            digest({"family": family, "tensors": list(p)}, arrays(*p.values()))
            for family, p in parts
        ]
        mixture = {
            "family": "mixture",
            "weights": [weight.hex() for weight in self.weights],
            "components": own,
        }
        ends = (
            [[np.array(self.x) - self.eps], [np.array(self.x) + self.eps]]
            if self.norm == "box"
            else [[self.eps]]
        )
        question = arrays([self.x], *ends, [self.rows], [self.offsets])
        found = {
            "architecture": digest(self.network),
            "posterior": digest(mixture) if own[1:] else own[0],
        }
        found["specification"] = digest({"norm": self.norm, "clip": self.clip}, question)
        return found | {"problem": digest(list(found.values()))}


@dataclass(frozen=True)
class Case:
    """P_safe (at least, at most; None where the format forbids the certificate), false claims, and
    one that holds."""

    name: str
    problem: Problem
    evidence: Evidence
    truth: tuple[Any, Any] | None
    false: list[Claim]
    true: Claim | None = None
    changes: dict[str, Any] = field(default_factory=dict)  # of the header

    @property
    def claims(self) -> dict[str, Claim]:
        return {f"false{i}": claim for i, claim in enumerate(self.false)} | (
            {"true": self.true} if self.true else {}
        )

    def write(self, folder: Path, number: int) -> None:
        problem, (kind, evidence, tensors) = self.problem, self.evidence
        problem.write(folder / f"{number}.posterior")
        question = {"x": problem.x, "rows": problem.rows, "offsets": problem.offsets}
        arrays = {
            name: np.array(values, stored_as(name)) for name, values in (question | tensors).items()
        }
        region = {"norm": problem.norm, "clip": problem.clip, "eps": float(problem.eps).hex()}
        if problem.norm == "box":
            region["eps"] = None
            arrays |= {"lower": arrays["x"] - problem.eps, "upper": arrays["x"] + problem.eps}
        for name, claim in self.claims.items():
            ends = [end if isinstance(end, str) else float(end).hex() for end in claim]
            header = {
                "schema": "bnncert-certificate/1",
                "kind": kind,
                "evidence": evidence,
                "region": region,
            }
            said = dict(zip(("lower", "upper", "gap"), ends, strict=False))
            header |= {"digests": problem.digests, "claim": said} | self.changes
            save_file(arrays, folder / f"{number}.{name}", {"bnncert": json.dumps(header)})


def stored_as(name: str) -> Any:
    """The type that a tensor has in files."""
    if name.endswith(("open", "paths")):
        return np.int32
    return np.float32 if "tree" in name and name.endswith(("multipliers", "slopes")) else float


def accepted(checker: Checker, folder: Path, number: int, name: str) -> bool:
    try:
        model = checker.read_model(folder / f"{number}.posterior")
    except checker.CannotCheck:
        return False
    return bool(
        checker.check_certificate(folder / f"{number}.{name}", model).status == checker.ACCEPT
    )


def proof(t: float, own: bool = False) -> dict[str, Any]:
    return {
        "probability": (0.5).hex(),
        "t": t.hex(),
        "rows_optimised": own,
        "layers_alone": True,
    }


def smooth(
    t: float = 3.0,
    point: Any = None,
    row: int = 0,
    weights: Any = (1.0,),
    opposite: int | None = None,
    **slopes: Any,
) -> Evidence:
    """Concentration; with a point also for the upper bound of every component, and with the row
    opposite to the first. Slopes by the tensor's name."""
    upper: dict[str, Any] | None = None if point is None else {"row": row, "failure": proof(t)}
    if upper and opposite is not None:
        upper["opposite"] = {"row": opposite, "failure": proof(t)}
    tensors: dict[str, Any] = {f"c0.{name}": values for name, values in slopes.items()}
    tensors |= {} if point is None else {f"c{i}.point": point for i in range(len(weights))}
    lower = proof(t, any(name.startswith("row_slopes") for name in slopes))
    parts = [{"weight": weight.hex(), "lower": lower, "upper": upper} for weight in weights]
    return "concentration", {"components": parts}, tensors


def averaged(*weights: float, t: float = 5.0) -> Evidence:
    """Of a softmax or a mean of a network without activations."""
    side = {"t": t.hex(), "rows_optimised": False}
    parts = [{"weight": weight.hex(), "lower": side, "upper": side} for weight in weights or (1.0,)]
    return "softmax", {"components": parts}, {}


def boxes(*chosen: tuple[Any, float], rule: str = "cells", **union: Any) -> Evidence:
    """Boxes of so many spreads about a centre; without any the posterior's own."""
    entries = [{"draw": i, "steps": steps} for i, (_, steps) in enumerate(chosen)] or [
        {"draw": None, "steps": 1}
    ]
    growth = {"step": 1.0, "rho": 0.0, "zero_gradient_only": False}
    evidence = {"bound": "lbp", "boxes": entries, "growth": growth, "union": {"rule": rule} | union}
    return "boxes", evidence, {f"center{i}": center for i, (center, _) in enumerate(chosen)}


def fields(mean: Any, std: Any = 0.0, **others: Any) -> tuple[dict[str, Any]]:
    return ({"mean": mean, "std": np.zeros(len(mean)) + std} | others,)


def cdf(z: float) -> float:
    return float(mpmath.ncdf(z))


def case(
    name: str,
    layers: Any,
    mean: Any,
    std: Any,
    proof: Evidence,
    most: Any,
    false: float,
    true: float = 0,
    **more: Any,
) -> Case:
    """P_safe is at most `most`, so `false` is too high; `true` is not."""
    claim = (true, 1) if true else None
    return Case(
        name, Problem(layers, fields(mean, std), **more), proof, (true, most), [(false, 1)], claim
    )


LINE, RELU, LEAKY = ((1, 1),), ((1, 1), "ReLU", (1, 1)), ((1, 1), 0.5, (1, 1))
FLAT, STEEP = ({"lower_slopes1": [slope], "upper_slopes1": [slope]} for slope in (0.0, 1.0))
TRAPS = list(permutations((2.0**54, -1.0, -(2.0**54))))  # the sum is -1; in some order 0 in float64

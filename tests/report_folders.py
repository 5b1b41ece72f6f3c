"""Result folders for the tests of the report: synthetic ones of any size and shape, written without
certifying."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bnncert.evidence.certificate import SCHEMA
from bnncert.files.digest import canonical_json
from bnncert.files.tensors import KEY


def header(number: int, lower: float, upper: float, **changes: Any) -> dict[str, Any]:
    """A certificate's header of kind concentration; with an upper bound below 1, refuted at a
    point."""
    proof = {"probability": lower.hex(), "t": (5.5).hex(), "rows_optimised": False}
    failure = {
        "row": 0,
        "failure": {"probability": (1 - upper).hex(), "t": (5.5).hex(), "rows_optimised": False},
    }
    component = {"weight": (1.0).hex(), "lower": proof, "upper": failure if upper < 1 else None}
    return {
        "schema": SCHEMA,
        "kind": "concentration",
        "claim": {"lower": lower.hex(), "upper": upper.hex()},
        "digests": {
            "architecture": "a" * 64,
            "posterior": "b" * 64,
            "specification": f"{number:064x}",
            "problem": f"{number:063x}c",
        },
        "region": {"norm": "linf", "clip": [0.0, 1.0], "eps": (0.025).hex()},
        "evidence": {"components": [component]},
        "method": {"name": "concentration", "effort": 1, "upper": True},
        "bound_calls": 1,
        "seed": 0,
        "versions": {"bnncert": "0.1.0", "torch": "2.6", "python": "3.11"},
    } | changes


def write_folder(
    folder: Path,
    count: int,
    shape: tuple[int, ...] = (784,),
    line: Callable[[int, dict[str, Any]], dict[str, Any]] = lambda _, fields: fields,
    more: Mapping[str, torch.Tensor] | None = None,
    **changes: Any,
) -> list[dict[str, Any]]:
    """A folder of `count` results: open (without a certificate), certified, certified from both
    sides, misclassified.

    line: changes the fields of a line, whose certificate is written where they say. more: tensors
    of every certificate. changes: of every header.
    """
    (folder / "certificates").mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    lines = []
    for i in range(count):
        kinds = (
            (0.0, 1.0),
            (1 - 10.0 ** -(1 + i % 7), 1.0),
            (0.25 + 0.5 * i / count, 0.9),
            (0.0, 1e-6 * (1 + i)),
        )
        lower, upper = kinds[i % 4]
        lines.append(line(i, fields(i, lower, upper)))
        name = lines[-1]["certificate"]
        if name is None:
            continue
        x = torch.rand(*shape, generator=generator, dtype=torch.float64)
        tensors = {
            "x": x,
            "rows": torch.tensor([[1.0, -1.0]]).double(),
            "offsets": torch.zeros(1).double(),
        }
        tensors |= more or {}
        if upper < 1:
            tensors["c0.point"] = (
                x + 0.025 * torch.randint(-1, 2, shape, generator=generator)
            ).clamp(0, 1)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path, {KEY: canonical_json(header(i, lower, upper, **changes))})
    (folder / "results.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    return lines


def at_radii(*radii: float, **more: Any) -> Callable[[int, dict[str, Any]], dict[str, Any]]:
    """For `write_folder`: its lines as every input at each of the radii, with more fields in
    all."""

    def line(i: int, own: dict[str, Any]) -> dict[str, Any]:
        index, eps = 3 * (i // len(radii)), radii[i % len(radii)]
        name = own["certificate"] and f"certificates/{index:06d}_{eps!r}.safetensors"
        return own | {"index": index, "eps": eps, "certificate": name} | more

    return line


def settled(lower: float, upper: float) -> str:
    return "certified" if lower >= 0.95 else "falsified" if upper < 0.95 else "undecided"


def fields(i: int, lower: float, upper: float) -> dict[str, Any]:
    known = lower > 0 or upper < 1
    return {
        "index": 3 * i,
        "label": i % 10,
        "predicted": (i + (i % 4 == 3)) % 10,
        "status": "misclassified" if i % 4 == 3 else settled(lower, upper),
        "lower": lower,
        "upper": upper,
        "at_least": "0.95",
        "method": "concentration",
        "eps": 0.025,
        "bound_calls": 1,
        "seconds": 0.001 * (1 + i % 11),
        "seed": 0,
        "certificate": f"certificates/{3 * i:06d}.safetensors" if known else None,
    }


def verdicts(folder: Path, lines: list[dict[str, Any]], **changes: dict[int, Any]) -> None:
    """check.json as the checker prints it, everything accepted but for the changes: field -> {line:
    value}."""
    found = []
    for number, line in enumerate(lines):
        name = line["certificate"]
        bounds = None if name is None else [line["lower"], line["upper"]]
        verdict = {
            "path": str(folder / name) if name else f"{folder}/results.jsonl:{number + 1}",
            "status": "ACCEPT",
            "code": None,
            "message": "" if name else "claims nothing",
            "claimed": bounds,
            "supported": bounds,
            "question": "class 0 before every other",
            "eps": line["eps"] if name else None,
            "label": line["label"] if name else None,
            "seconds": 0.1,
        }
        found.append(
            verdict
            | {field: values[number] for field, values in changes.items() if number in values}
        )
    worst = "REJECT" if any(v["status"] == "REJECT" for v in found) else "ACCEPT"
    (folder / "check.json").write_text(json.dumps({"verdict": worst, "certificates": found}))

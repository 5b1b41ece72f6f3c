"""Questions as files, for the command line, and the lines it answers with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

FIELDS = ["index", "label", "target", "predicted", "status", "lower", "upper", "at_least"]
FIELDS += ["method", "eps", "bound_calls", "seconds", "seed"]
FIELDS += ["lower_by", "upper_by", "certificate"]


def property_file(path: Path, x: np.ndarray, eps: float, label: int, rest: str = "") -> None:
    """Class `label` on a box around x, the way competitions write it: a counterexample is any other
    class."""
    names = [f"X_{i}" for i in range(len(x))] + [f"Y_{j}" for j in range(3)]
    text = "".join(f"(declare-const {name} Real)\n" for name in names)
    text += "".join(
        f"(assert (>= X_{i} {v - eps:.8f}))\n(assert (<= X_{i} {v + eps:.8f}))\n"
        for i, v in enumerate(x)
    )
    rivals = " ".join(f"(and (>= Y_{j} Y_{label}))" for j in range(3) if j != label)
    path.write_text(text + f"(assert (or {rivals}))\n" + rest)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def wide_steps(method: str) -> list[object]:
    return [] if method == "concentration" else ["--step", 1.0]

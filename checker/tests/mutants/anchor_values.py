"""Laws by anchors of networks with one hidden neuron whose P_safe is known, from choices that make
one rule after another count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mutants.fresh import chain
from mutants.outcomes import Checker, never_above

ROUGH, FINE = (4, 1, 4, 1), (32, 4, 4, 1)
SURE = (0.0,) * 4


@dataclass(frozen=True)
class Known:
    """v f(w x + b) + β > 0 between the ends, with probability `truth`; the means and deviations of
    w, b, v, β; f is z above 0 and `below` z below it; and what a certificate chose."""

    what: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    truth: float
    ends: tuple[float, float]
    anchor: float
    spared: float
    slope: float = 1.0
    below: float = 1.0
    rate: float = 0.0
    cells: tuple[int, int, int, int] = ROUGH


BOX, SIDE = (-0.5, 0.5), (0.0, 1.0)
KNOWN = (
    Known("a fall to the upper end", (-1, 1, 1, -0.6), SURE, 0.0, BOX, -0.5, 0.6),
    Known("a fall to the lower end", (1, 1, 1, -0.6), SURE, 0.0, BOX, 0.5, 0.6),
    Known("what is spared", (-1, 1, 1, -0.6), SURE, 0.0, BOX, -0.5, 2.0),
    Known("a line on the way up", (-1, 0, 1, 0.8), SURE, 0.0, BOX, -0.5, 1.05, below=2.0),
    Known("a line on the way down", (1, 0, 1, 0.8), SURE, 0.0, BOX, 0.5, 1.05, below=2.0),
    Known("lines above", (0, 1, -1, 1.2), (0, 1, 0, 0), 0.5793, BOX, 0.0, 0.05, 0.0, 0.0),
    Known("lines below", (0, 1, 1, -0.8), (0, 1, 0, 0), 0.5793, BOX, 0.0, 0.05, 0.0, 0.0),
    Known("what follows z", (0, 0, 1, 0.6), (1, 0, 0, 0), 0.7258, (0.5, 1.0), 0.5, 0.1, cells=FINE),
    Known("what does not", (0, 0, 1, 0.6), (1, 0, 0, 0), 0.7258, SIDE, 0.0, 0.5),
    Known("parts of z", (0, 0, 1, 0.8), (0, 1, 0, 0), 0.7882, BOX, 0.0, 0.05, rate=1e3),
    Known("parts of v", (0, 1, 0, 0.8), (0, 0, 1, 0), 0.7882, BOX, 0.0, 0.05, rate=1e3),
    Known("parts of z on the way", (0, 0, 0.1, 6), (1, 0, 0, 0), 0.7247, (0.5, 100.5), 0.5, 5.6),
    Known("parts of ξ on the way", (0, 0, 0.1, 6), (1, 0, 0, 0), 0.7257, (0.0, 100.0), 0.0, 5.6),
)


def anchor_laws(checker: Checker) -> None:
    for known in KNOWN:
        never_above(_bound(checker, known), known.truth + 1e-3, f"anchors, {known.what}")


def _bound(checker: Checker, known: Known) -> float:
    layers, law = checker.layers, checker.laws.anchored
    parts = (
        layers.Dense(1, 1, True, 0),
        layers.Activation("PReLU", None, 1, 1, layers.parametric(np.array([known.below]))),
        layers.Dense(1, 1, True, 2),
    )
    model = checker.model.Model(chain(checker, (1,), parts), (), "", "")
    fields: dict[str, Any] = {
        "mean": np.array(known.mean, float),
        "std": np.array(known.std, float),
    }
    lower, upper = (np.array([end]) for end in known.ends)
    region = checker.region.Region("box", lower, float((upper - lower)[0]), lower, upper)
    choice = checker.laws.lattice.Choice(2.0**-8, -2048, known.rate, 0.0, 1e-4, 1.0)
    slopes = np.full((1, 1, known.cells[0], 2), known.slope)
    anchors, spared = np.array([known.anchor]), np.array([known.spared])
    chosen = law.AnchorLaw(known.cells, 2**12, (choice,) * 3, None, 4, anchors, spared, slopes)
    posterior = checker.model.Posterior("normal", fields)
    failing = law.failure(model, posterior, region, np.ones((1, 1)), np.zeros(1), chosen)
    return 1 - float(failing)

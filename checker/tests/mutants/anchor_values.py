"""Laws by anchors of networks with one hidden neuron whose P_safe is known, from choices that make
one rule after another count."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
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
    law = checker.laws.anchored
    lower, upper = (np.array([end]) for end in known.ends)
    region = checker.region.Region("box", lower, float((upper - lower)[0]), lower, upper)
    choice = _lattice(checker, known.rate)
    slopes = np.full((1, 1, known.cells[0], 2), known.slope)
    anchors, spared = np.array([known.anchor]), np.array([known.spared])
    chosen = law.AnchorLaw(known.cells, 2**12, (choice,) * 3, None, 4, anchors, spared, slopes)
    model, posterior = _network(checker, known.below), _normal(checker, known.mean, known.std)
    failing = law.failure(model, posterior, region, np.ones((1, 1)), np.zeros(1), chosen)
    return 1 - float(failing)


@dataclass(frozen=True)
class Falling:
    """v f(w x + b) falls by `least` or more from the first point to the second with probability
    `truth`; else as above."""

    what: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    truth: float
    points: tuple[float, float]
    least: float
    below: float


DRAWN = (0, 1, 0, 0)  # b alone is random
FALLING = (
    Falling("least", (1, 0, 1, 0), SURE, 1.0, (1.0, 0.0), 0.9, 1.0),
    Falling("lines at the start", (1, 0, 1, 0), SURE, 1.0, (0.5, -0.5), 0.45, 0.0),
    Falling("lines above at the start", (-1, 0, 1, 0), DRAWN, 0.3085, (0.0, 1.0), 0.5, 0.0),
    Falling("lines below at the start", (1, 0, -1, 0), DRAWN, 0.3085, (0.0, 1.0), 1.5, 2.0),
)


def falls(checker: Checker) -> None:
    for known in FALLING:
        found = _fall(checker, known)
        never_above(1 - found, 1 - known.truth + 1e-3, f"falls, {known.what}")
    never_above(0.36, _opposite_rows(checker), "opposite rows that fail together")


def _network(checker: Checker, below: float) -> Any:
    layers = checker.layers
    parts = (
        layers.Dense(1, 1, True, 0),
        layers.Activation("PReLU", None, 1, 1, layers.parametric(np.array([below]))),
        layers.Dense(1, 1, True, 2),
    )
    return checker.model.Model(chain(checker, (1,), parts), (), "", "")


def _normal(checker: Checker, mean: tuple[float, ...], std: tuple[float, ...]) -> Any:
    fields = {"mean": np.array(mean, float), "std": np.array(std, float)}
    return checker.model.Posterior("normal", fields)


def _lattice(checker: Checker, rate: float) -> Any:
    return checker.laws.lattice.Choice(2.0**-8, -2048, rate, 0.0, 1e-4, 1.0)


def _fall(checker: Checker, known: Falling) -> float:
    slope = 1.0 if known.what == "least" else 0.0
    slopes = np.full((1, ROUGH[0], 2), slope)
    law = checker.laws.anchored
    chosen = law.Fall(ROUGH, 2**12, (_lattice(checker, 0.0),), None, 4, slopes)
    start, end = (np.array([x]) for x in known.points)
    model, posterior = _network(checker, known.below), _normal(checker, known.mean, known.std)
    return float(law.fall(model, posterior, (start, end), np.ones((1, 1)), known.least, chosen))


def _opposite_rows(checker: Checker) -> float:
    """An upper bound of P(|w x| < 1 for |x| <= 2), .369, with w ~ N(-.6, .3²): both rows fail, at
    either end, where w <= -.5."""
    evidence = checker.evidence.concentration
    slopes = np.ones((1, FINE[0], 2))
    choice = _lattice(checker, 100.0)
    line = checker.laws.rows.LineLaw(FINE, 2**12, (choice,), None, 5.0, slopes)
    both = checker.laws.anchored.Fall(FINE, 2**12, (choice,), None, 4, slopes)
    ends = np.array([2.0]), np.array([-2.0])
    region = checker.region.Region("box", np.zeros(1), 2.0, ends[1], ends[0])
    question = SimpleNamespace(
        rows=np.array([[1.0], [-1.0]]), offsets=np.array([1.0, 1.0]), region=region
    )
    found = evidence.Refutation(ends[0], ((0, line), (1, line)), (ends[1], both))
    posterior = _normal(checker, (-0.6, 0, 1, 0), (0.3, 0, 0, 0))
    return float(evidence._upper(found, question, _network(checker, 1.0), posterior))

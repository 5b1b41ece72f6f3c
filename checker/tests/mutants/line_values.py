"""Laws by lines of networks with one hidden neuron whose P_safe is known, from choices that make
one rule after another count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mutants.fresh import chain
from mutants.outcomes import Checker, never_above

ROUGH = (4, 1, 4, 1)
SURE = (0.0,) * 4
DRAWN, TURNED = (0.0, 1.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0)  # b alone is random, or w
FALLING = -1.0  # slope below 0 of an activation that is least at 0


@dataclass(frozen=True)
class Known:
    """v f(w x + b) + β > 0 on |x| <= eps, with probability `truth`; the means and deviations of w,
    b, v, β; f is a ReLU but for its slope below 0; and what a certificate chose."""

    what: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    truth: float
    slope: float
    eps: float = 0.0
    threshold: float = 5.0
    rate: float = 0.0
    curb: float = 100.0
    below: float = 0.0


STEEP = {"eps": 1.0, "slope": 1.0}
FLAT = {"eps": 1.0, "slope": 0.0}
KNOWN = (
    Known("a shift of z", (1, 1, 1, -0.6), SURE, 0.0, 1.0, eps=0.5),
    Known("a shift up", (1, 1, -1, 1.4), SURE, 0.0, 1.0, eps=0.5),
    Known("what falls", (1, -1, 1, -0.6), SURE, 0.0, 0.0, eps=0.5, below=FALLING),
    Known("R", (0, 1, 1, -0.1), TURNED, 0.632, **FLAT),
    Known("R above", (0, 1, -1, 1.9), TURNED, 0.632, **FLAT),
    Known("the mean in R", (0, 1, 1, -0.1), TURNED, 0.632, **FLAT, threshold=0.5),
    Known("Q", (0, 1, 1, -0.1), TURNED, 0.632, **FLAT, threshold=0.0),
    Known("the mean", (0, 1, 1, -0.1), TURNED, 0.632, **STEEP, curb=0.5),
    Known("L", (0, 1, 1, -0.1), TURNED, 0.632, **STEEP),
    Known("g", (0, 1, 1, -0.1), TURNED, 0.632, **STEEP, curb=0.0),
    Known("lines below", (0, 1, 1, -0.8), DRAWN, 0.5793, 0.0),
    Known("lines above", (0, 1, -1, 1.2), DRAWN, 0.5793, 0.0),
    Known("points of a cell", (0, 1, 0, 0.8), (0, 0, 1, 0), 0.7882, 1.0, rate=1e3),
)


def line_laws(checker: Checker) -> None:
    for known in KNOWN:
        never_above(_bound(checker, known), known.truth + 1e-3, f"lines, {known.what}")
    for trunk in BEHIND:
        never_above(_behind(checker, trunk), 0.7, f"lines, {trunk.what}")


@dataclass(frozen=True)
class Behind:
    """v relu(h + 5) + β > 0 for h = 2 x + b with b ~ N(0, σ²) on |x| <= eps, with a probability of
    at most .6; h is said to be in a box."""

    what: str
    v: float
    beta: float
    box: tuple[float, float]
    std: float = 0.0
    eps: float = 1.0


BEHIND = (
    Behind("a box that is nowhere near", 1.0, -3.5, (1.0, 1.0)),
    Behind("a box that is too short below", 1.0, -3.5, (-1.0, 2.5)),
    Behind("a box that is too short above", -1.0, 6.5, (-2.5, 1.0)),
    Behind("a box that moves", 1.0, -4.5, (-0.1, 0.1), std=2.0, eps=0.0),
)


def _behind(checker: Checker, trunk: Behind) -> float:
    """What is certified; 0 where the box is refused."""
    layers, law = checker.layers, checker.laws.rows
    dense = [layers.Dense(1, 1, True, k, k) for k in (0, 2, 4)]
    parts = (*dense[:2], layers.Activation("ReLU", 0.0, 3, 1), dense[2])
    model = checker.model.Model(chain(checker, (1,), parts), (), "", "")
    fields = {
        "mean": np.array([2.0, 0.0, 1.0, 5.0, trunk.v, trunk.beta]),
        "std": np.array([0.0, trunk.std, *[0.0] * 4]),
    }
    x = np.zeros(1)
    region = checker.region.Region("linf", x, trunk.eps, x - trunk.eps, x + trunk.eps)
    box = checker.linear.Interval(*(np.array([end]) for end in trunk.box))
    choice = checker.laws.lattice.Choice(2.0**-8, -2048, 0.0, 100.0, 1e-4, 1.0)
    chosen = law.LineLaw(ROUGH, 2**12, (choice,), box, 5.0, np.ones((1, ROUGH[0], 2)))
    posterior = checker.model.Posterior("normal", fields)
    try:
        found = law.failure(model, posterior, region, np.ones((1, 1)), np.zeros(1), chosen)
    except checker.verdict.Reason:
        return 0.0
    return 1 - float(found)


def _bound(checker: Checker, known: Known) -> float:
    layers, law = checker.layers, checker.laws.rows
    own = layers.parametric(np.array([known.below]))
    parts = (
        layers.Dense(1, 1, True, 0),
        layers.Activation("PReLU", None, 1, 1, own),
        layers.Dense(1, 1, True, 2),
    )
    model = checker.model.Model(chain(checker, (1,), parts), (), "", "")
    fields: dict[str, Any] = {
        "mean": np.array(known.mean, float),
        "std": np.array(known.std, float),
    }
    x = np.zeros(1)
    region = checker.region.Region("linf", x, known.eps, x - known.eps, x + known.eps)
    choice = checker.laws.lattice.Choice(2.0**-8, -2048, known.rate, known.curb, 1e-4, 1.0)
    slopes = np.full((1, ROUGH[0], 2), known.slope)
    chosen = law.LineLaw(ROUGH, 2**12, (choice,), None, known.threshold, slopes)
    posterior = checker.model.Posterior("normal", fields)
    failing = law.failure(model, posterior, region, np.ones((1, 1)), np.zeros(1), chosen)
    return 1 - float(failing)

"""Laws of networks with one or two hidden neurons whose P_safe is known, from choices that make one
charge after another count."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from mutants.fresh import chain
from mutants.outcomes import Checker, never, never_above


def _numbers(
    step: float = 2.0**-8,
    low: int = -2048,
    rate: float = 0.0,
    curb: float = 0.0,
    noise: float = 1e-4,
    tilt: float = 1.0,
) -> tuple[float, ...]:
    """Of a lattice."""
    return step, low, rate, curb, noise, tilt


FINE, ROUGH = (16, 2, 16, 2), (4, 1, 4, 1)


@dataclass(frozen=True)
class Known:
    """Σ_i v_i relu(w_i x + b_i) + β > 0 on |x - center| <= eps, with probability `truth`; the means
    and deviations of w_i, b_i, v_i, β, and what a certificate chose."""

    what: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    truth: float
    cells: tuple[int, int, int, int] = FINE
    size: int = 2**12
    numbers: tuple[float, ...] = _numbers()
    center: float = 0.0
    eps: float = 0.0
    theta: float = 1.0
    y: float = 0.0
    remainder: tuple[float, ...] = (0.1, 1e9, 1e-6)
    blend: float = 0.0
    slope: float = 0.0  # of the activation below 0
    factor: tuple[float, ...] = field(default=())


SURE = (0.0,) * 4
WIDE = (1.0, 0.0, 0.0, 0.0)  # w alone is random
HALVES = Known(
    "the noise of a lattice",
    (0.0, 0.0, 1.0, 1.0, -0.55, -0.55, 1.001),
    (0.0,) * 7,
    0.0,
    size=2**6,
    numbers=_numbers(1.0, low=-16, noise=0.01),
)
BOX: dict[str, Any] = {"center": 1.0, "eps": 0.5}
NOISY: dict[str, Any] = {"eps": 1.0, "theta": 0.8}
KNOWN = (
    Known(
        "points of a cell", (0, 1, 0, 0.8), (0, 0, 1, 0), 0.7882, ROUGH, numbers=_numbers(rate=1e3)
    ),
    Known("E", (0, 1, 0, 0.8), (0, 0, 1, 0), 0.7882, ROUGH, numbers=_numbers(rate=1e-3)),
    HALVES,
    replace(HALVES, numbers=_numbers(1.0, low=-16, noise=0.9)),
    replace(
        HALVES,
        what="mass below the window",
        mean=(0, 0, 1, 1, -6, -6, 0.5),
        size=2**4,
        numbers=_numbers(1.0, low=-8, noise=0.01),
    ),
    Known(
        "mass below the lattice", (0, 1, -100, 0), SURE, 0, size=16, numbers=_numbers(1.0, low=-8)
    ),
    Known("K", (1, 0, 1, -0.6), SURE, 0.0, **BOX, theta=10.0, y=-1.0),
    Known("u", (1, 0, 1, -0.6), SURE, 0.0, **BOX, theta=0.5, y=0.0),
    Known("flips", (1, 0, -1, 1.2), SURE, 0.0, **BOX, theta=1.0625, y=1.0),
    Known("G", (0, 1, 1, -0.5), WIDE, 0.383, **NOISY, numbers=_numbers(curb=0.01)),
    Known("L", (0, 1, 1, -0.1), WIDE, 0.632, **NOISY, numbers=_numbers(curb=100)),
    Known("g", (0, 1, 1, -0.1), WIDE, 0.632, **NOISY, numbers=_numbers(curb=1e-6)),
    Known("slopes beyond 1", (0, 0, 1, -1.5), (0, 1, 0, 0), 0.067, blend=-10.0),
    Known("another activation", (0, -1, 1, 0.5), SURE, 0.0, slope=1.0),
    Known("shared noise", (0, 1, 1, -0.5), SURE, 0.7, factor=(0, 0, 0, 1.0)),
)


def laws(checker: Checker) -> None:
    for known in KNOWN:
        never_above(_bound(checker, known), known.truth + 1e-3, f"law, {known.what}")
    part = checker.laws.lattice
    _, below = part._others(part.Ends(math.nan, 0.0, 0.0), part.Choice(*_numbers()), 2**4)
    never(below < 1, "a bias of NaN")


def _bound(checker: Checker, known: Known) -> float:
    count = (len(known.mean) - 1) // 3
    layers, law = checker.layers, checker.laws.rows
    parts = (
        layers.Dense(1, count, True, 0),
        layers.Activation("LeakyReLU" if known.slope else "ReLU", known.slope, count, 1),
        layers.Dense(count, 1, True, 2 * count),
    )
    model = checker.model.Model(chain(checker, (1,), parts), (), "", "")
    fields: dict[str, Any] = {
        "mean": np.array(known.mean, float),
        "std": np.array(known.std, float),
    }
    if known.factor:
        fields["factor"] = np.array(known.factor, float)[:, None]
    family = "low-rank-normal" if known.factor else "normal"
    x = np.array([known.center])
    region = checker.region.Region("linf", x, known.eps, x - known.eps, x + known.eps)
    step, low, *others = known.numbers
    choice = checker.laws.lattice.Choice(step, int(low), *others)
    references = (np.array([[number]]) for number in (known.theta, known.y))
    remainder, blends = np.array([known.remainder]), (known.blend,)
    chosen = law.SharedLaw(known.cells, known.size, (choice,), None, remainder, *references, blends)
    posterior = checker.model.Posterior(family, fields)
    try:
        failing = law.failure(model, posterior, region, np.ones((1, 1)), np.zeros(1), chosen)
    except checker.verdict.CannotCheck:
        return 0.0
    return 1 - float(failing)

"""Replies of networks with one or two hidden neurons whose failure is known, from choices that make
one rule after another count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mutants.fresh import chain
from mutants.outcomes import Checker, never_above

FINE = (16, 2, 4, 1)
SURE: tuple[float, ...] = (0.0,)


@dataclass(frozen=True)
class Known:
    """Σ_i v_i relu(Σ_j w_ij x_j + b_i) + β > 0 at the reply with probability `truth`: by neuron
    means and deviations of all its w, and b, v; β; and what a certificate chose."""

    what: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    bias: tuple[float, ...]
    out: tuple[float, ...]
    beta: float
    weights: tuple[float, ...]
    truth: float
    inputs: int = 1
    eps: float = 1.0
    center: float = 0.0
    norm: str = "linf"
    clip: tuple[float, float] | None = None
    ends: tuple[float, float] = (-1.0, 1.0)
    rate: float = 1e3
    threshold: float = 5.0
    share: float = 1.0
    remainder: tuple[float, float, float] = (0.1, 1e9, 1e-6)
    slope: float = 0.0


MANY: dict[str, Any] = {"inputs": 100, "eps": 0.1}
OPEN: dict[str, Any] = {"bias": (0.0,), "out": (1.0,), "weights": (1.0,)}
SIGNS: dict[str, Any] = {
    "mean": (0.0, 1.0),
    "std": (1e-4, 0.0),
    "bias": (0.0, 10.0),
    "out": (1.0, 1.0),
    "weights": (1.0, 0.0),
    **MANY,
}
CLOSED: dict[str, Any] = {
    "mean": (0.0, 0.0),
    "std": (1e-4, 1.0),
    "bias": (0.0, -0.1),
    "out": (1.0, -1.0),
    "weights": (1.0, 0.0),
    **MANY,
}
STILL = Known("nothing random", (1.0,), SURE, beta=-1.5, truth=0.0, **OPEN)
KNOWN = (
    # Σ_j r_j|w_j| is 7.98, with a deviation of .6.
    Known("what noise gives", (0.0,), (1.0,), beta=-11.0, truth=0.0, rate=2.0, **OPEN, **MANY),
    Known("noise of weights", (0.0,), (1.0,), beta=-7.8, truth=0.63, **OPEN, **MANY),
    Known("signs of others", beta=-9.9, truth=0.47, rate=100.0, **SIGNS),
    Known("a chord", (0.0,), (1.0,), (5.0,), (-1.0,), -0.05, (-1.0,), 0.0, rate=5.0, **MANY),
    Known("beyond a chord", beta=0.2, truth=0.63, threshold=0.0, **CLOSED),
    Known("a chord of the mean", beta=0.2, truth=0.63, **CLOSED),
    STILL,
    Known("a ball", (1.0,), SURE, beta=-3.0, truth=0.0, inputs=4, norm="l2", **OPEN),
    Known("room", (1.0,), SURE, beta=-1.2, truth=0.0, center=0.5, **OPEN),
    Known("clipped", (1.0,), SURE, beta=-0.5, truth=0.0, clip=(-1.0, 0.2), **OPEN),
    Known("a box", (1.0,), SURE, beta=-0.5, truth=0.0, norm="box", ends=(-0.2, 0.2), **OPEN),
    Known("no ReLU", (0.0,), SURE, (-1.0,), (-1.0,), 0.5, (1.0,), 0.0, slope=-1.0),
)


def replies(checker: Checker) -> None:
    for known in KNOWN:
        never_above(_bound(checker, known), known.truth + 1e-3, f"reply, {known.what}")


def _bound(checker: Checker, known: Known) -> float:
    """1 - the failure found."""
    count, layers = len(known.out), checker.layers
    parts = (
        layers.Dense(known.inputs, count, True, 0),
        layers.Activation("LeakyReLU" if known.slope else "ReLU", known.slope, count, 1),
        layers.Dense(count, 1, True, (known.inputs + 1) * count),
    )
    model = checker.model.Model(chain(checker, (known.inputs,), parts), (), "", "")
    mean = [*(known.mean * known.inputs), *known.bias, *known.out, known.beta]
    std = [*(known.std * known.inputs), *(0.0,) * (2 * count + 1)]
    posterior = checker.model.Posterior("normal", {"mean": np.array(mean), "std": np.array(std)})
    x, (low, high) = np.zeros(known.inputs), known.ends
    region = checker.region.Region(known.norm, x, known.eps, x + low, x + high, known.clip)
    choice = checker.laws.lattice.Choice(2.0**-8, -8192, known.rate, 0.0, 1e-4, 1.0)
    law = checker.laws.replies.ReplyLaw(
        FINE,
        2**14,
        choice,
        known.threshold,
        known.share,
        np.array([known.remainder]),
        np.array(known.weights),
        x + known.center,
    )
    asked = np.ones((1, 1)), np.zeros(1)
    try:
        return 1 - float(checker.laws.replies.reply_failure(model, posterior, region, asked, law))
    except (checker.verdict.CannotCheck, checker.verdict.Rejected):
        return 0.0

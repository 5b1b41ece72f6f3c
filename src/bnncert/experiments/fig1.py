"""The paper's Figure 1: f(x) = ReLU(w2 ReLU(w1 x)), w ~ N(0, 1)², X = {1}, safe iff y <= 1.

λ = 1, four samples.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.stats import norm

from bnncert.boxes.growth import grow
from bnncert.boxes.union import union_mass
from bnncert.experiments.plots import draw_covers
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.methods import GIE, PIE, Sampling
from bnncert.model.layers import Dense, ReLU
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import ball, half_space
from bnncert.posteriors.independent import Normal

SEED = 1  # four draws that differ enough to show the methods
EXTENT = (-3.5, 3.5)
METHODS: dict[str, Sampling | PIE | GIE] = {
    "sampling": Sampling(samples=4, step=1.0, mean_first=False, budget=1000),
    "PIE": PIE(samples=4, step=1.0, mean_first=False, budget=1000),
    "GIE": GIE(samples=4, step=1.0, rho=0.2, mean_first=False, budget=1000),
}


def example() -> Problem:
    network = Network((1,), (Dense(1, 1, bias=False), ReLU(), Dense(1, 1, bias=False), ReLU()))
    posterior = Normal(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    point = ball(torch.ones(1, 1, dtype=torch.float64), eps=0)
    return Problem(network, posterior, half_space(point, torch.tensor([-1.0]), -1.0))


def exact() -> float:
    """P(w1⁺ w2 <= 1) = 1/2 + ∫_0^∞ φ(w) Φ(1/w) dw."""
    return 0.5 + float(quad(lambda w: norm.pdf(w) * norm.cdf(1 / w), 0, np.inf, epsabs=1e-12)[0])


def cells(_: Setting) -> list[Cell]:
    return [Cell(name, partial(_covered, name)) for name in METHODS]


def _covered(name: str) -> list[Row]:
    problem = example()
    plan = METHODS[name].plan()
    if not isinstance(problem.posterior, Normal):
        raise TypeError("boxes have a mass under independent weights only")
    found, calls = grow(problem, plan, SEED)
    boxes = [grown.box(plan.growth, problem.posterior.spread) for grown in found[0]]
    rectangles = [[*map(float, (b.lower[0], b.upper[0], b.lower[1], b.upper[1]))] for b in boxes]
    mass = union_mass(problem.posterior, boxes).probability
    return [
        {
            "method": name,
            "lower": mass,
            "P_safe": exact(),
            "bound_calls": int(calls),
            "boxes": rectangles,
            "centres": [each.center.tolist() for each in found[0]],
        }
    ]


def draw(rows: list[Row]) -> Figure:
    axis = np.linspace(*EXTENT, 401)
    safe = np.maximum(axis[:, None] * np.maximum(axis[None, :], 0), 0) <= 1
    known = f"P_safe = {rows[0]['P_safe']:.3f}"
    title = f"Safe weights (blue), certified boxes and what they grew from; {known}"
    covers = {
        row["method"]: (row["boxes"], row["centres"], f"P ≥ {row['lower']:.3f}") for row in rows
    }
    return draw_covers(covers, safe, EXTENT, title, ("$w_1$", "$w_2$"))


FIG1 = Experiment("the two-weight example: safe set and what each method covers", cells, draw)

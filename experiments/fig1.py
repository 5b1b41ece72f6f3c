"""The paper's Figure 1: f(x) = ReLU(w2 ReLU(w1 x)), w ~ N(0, 1)², X = {1}, safe iff y <= 1; λ = 1, four shared samples.

usage: python experiments/fig1.py [FOLDER]          writes fig1.svg, fig1.png and fig1.json
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.integrate import quad
from scipy.stats import norm

from bnncert import GIE, PIE, Dense, Network, Normal, Problem, ReLU, Sampling, ball, half_space
from bnncert.methods.growth import grow
from bnncert.plots import draw_covers, save_figure
from bnncert.union import union_mass

SEED, EXTENT = 4, (-3.5, 3.5)
METHODS = {
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
    return 0.5 + quad(lambda w: norm.pdf(w) * norm.cdf(1 / w), 0, np.inf, epsabs=1e-12)[0]


def main(folder: Path) -> None:
    problem, rows, covers = example(), {"P_safe": exact()}, {}
    for name, method in METHODS.items():
        found, calls = grow(problem, method.plan(), SEED)
        boxes = [grown.box(method.plan().rule, problem.posterior.spread) for grown in found[0]]
        mass = union_mass(problem.posterior, boxes).probability
        rectangles = [(*map(float, (b.lower[0], b.upper[0], b.lower[1], b.upper[1])),) for b in boxes]
        covers[name] = (rectangles, mass)
        rows[name] = {"lower": mass, "bound_calls": int(calls), "boxes": rectangles}
    axis = np.linspace(*EXTENT, 401)
    safe = np.maximum(axis[:, None] * np.maximum(axis[None, :], 0), 0) <= 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fig1.json").write_text(json.dumps(rows, indent=1) + "\n")
    title = f"Safe weights (blue), certified boxes (orange); P_safe = {rows['P_safe']:.3f}"
    save_figure(draw_covers(covers, safe, EXTENT, title), folder / "fig1")
    print({name: row if name == "P_safe" else row["lower"] for name, row in rows.items()})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images"))

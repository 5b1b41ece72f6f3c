"""The paper's Figure 4: iterations until PIE's maximum.

Iteration j tries the box of half-width jλσ around the mean.
"""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.boxes.growth import grow, independent
from bnncert.evidence.boxes import grown
from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import SEED, Subject, several
from bnncert.methods import PIE

SHOWN = 20  # iterations


def cells(setting: Setting) -> list[Cell]:
    return [Cell(subject.name, partial(_rows, subject, setting)) for subject in several(setting)]


def _rows(subject: Subject, setting: Setting) -> list[Row]:
    problem = subject.problem(setting.device)
    plan = PIE(samples=1).plan()
    posterior = independent(problem)
    found, _ = grow(problem, plan, SEED)
    reached = [boxes[0].steps if boxes else 0 for boxes in found]
    rates = plan.growth.rates(posterior.spread, None)
    masses = [
        float(posterior.log_mass(grown(posterior.center, j, rates)).exp())
        for j in range(1, SHOWN + 1)
    ]
    masses = [0.0, *masses]
    means = [
        sum(masses[min(j, steps, SHOWN)] for steps in reached) / len(reached)
        for j in range(SHOWN + 1)
    ]
    settled = [sum(steps <= j for steps in reached) / len(reached) for j in range(SHOWN + 1)]
    return [
        {
            "network": subject.name,
            "eps": subject.eps,
            "iteration": j,
            "lower": 100 * means[j],
            "settled": settled[j],
        }
        for j in range(SHOWN + 1)
    ]


def draw(rows: list[Row]) -> Figure:
    names = dict.fromkeys(row["network"] for row in rows)
    lines = {
        name: [(row["iteration"], row["lower"]) for row in rows if row["network"] == name]
        for name in names
    }
    return draw_lines(
        lines, "iteration", "mean certified P_safe, %", "PIE from iteration to iteration, λ = 0.5"
    )


FIG4 = Experiment("iterations until PIE's maximum", cells, draw)

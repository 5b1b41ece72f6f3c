"""The paper's Figure 5: certified robustness against the share of networks that survive PGD."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from bnncert.experiments.plots import draw_lines
from bnncert.experiments.run import Cell, Experiment, Row, Setting
from bnncert.experiments.subjects import BOX_METHODS, Subject, ceiling, certified, several
from bnncert.methods import Concentration, Method

FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
METHODS: dict[str, Method] = {
    **BOX_METHODS,
    "concentration": Concentration(),
}


def cells(setting: Setting) -> list[Cell]:
    factors = FACTORS[1::2] if setting.quick else FACTORS
    return [
        Cell(f"{subject.name} {factor:g}", partial(_rows, subject, setting, factor * subject.eps))
        for subject in several(setting)
        for factor in factors
    ]


def _rows(subject: Subject, setting: Setting, eps: float) -> list[Row]:
    problem = subject.problem(setting.device, eps)
    empirical = ceiling(problem, setting.drawn)
    own = {"network": subject.name, "eps": eps, "empirical": empirical}
    return [own | {"method": name} | certified(problem, method) for name, method in METHODS.items()]


def draw(rows: list[Row]) -> Figure:
    lines = {
        name: [(row["empirical"], row["lower"]) for row in rows if row["method"] == name]
        for name in METHODS
    }
    lines["as much as survives"] = [(0.0, 0.0), (100.0, 100.0)]
    title = "Certified against empirical robustness, a point a network and ε"
    x, y = "sampled networks that survive the attack, %", "mean certified P_safe, %"
    return draw_lines(lines, x, y, title, joined=False)


FIG5 = Experiment("certified against empirical robustness", cells, draw)
